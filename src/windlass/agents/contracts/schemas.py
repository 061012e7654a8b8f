"""The shape of every block in an answer. Unknown keys are ignored, missing ones are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from windlass.agents.contracts.task_list import is_inside
from windlass.conversion import Before
from windlass.text import plain


def _text(value: Any) -> Any:
    return "" if value is None else plain(value) if isinstance(value, str) else value


def _word(value: Any) -> Any:
    return plain(value).strip().lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else value


def _line(value: Any) -> Any:
    """The line is only a hint for the reader: '12-15' or 'top' must not spoil a whole review."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isascii() and text.isdigit() and len(text) < 9 else None


def _inside(value: Any) -> Any:
    text = _text(value)
    return text if isinstance(text, str) and (not text or is_inside(text)) else ""


def _many(value: Any) -> Any:
    return [] if value is None else [value] if isinstance(value, str) else value


def _words(value: Any) -> Any:
    """Only a hint for the engine, like a line."""
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [str(one) for one in listed if isinstance(one, str | int)]


def _flag(value: Any) -> Any:
    """Agents write truth values in many ways, and strict YAML has only texts."""
    word = value.lower() if isinstance(value, str) else value
    return True if word in _TRUE else False if word in _FALSE else value


def _number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


_TRUE = (True, "true", "t", "yes", "y", "on", "1")
_FALSE = (False, "false", "f", "no", "n", "off", "0")
Flag: TypeAlias = Annotated[bool, Before(_flag)]
Text: TypeAlias = Annotated[str, Before(_text)]
Filled: TypeAlias = Annotated[str, Before(_text), Meta(min_length=1)]
Texts: TypeAlias = Annotated[tuple[Text, ...], Before(_many)]
Word = Before(_word)


class ContractBlock(Struct, frozen=True, kw_only=True):
    """Base of every block: frozen, unknown keys ignored."""


class FindingBlock(ContractBlock, frozen=True, kw_only=True):
    severity: Annotated[Literal["critical", "high", "medium", "low"], Word]
    file: Annotated[str, Before(_inside), Meta(description="path below the repository root, or empty")] = ""
    line: Annotated[int | None, Before(_line)] = None
    message: Annotated[Filled, Meta(description="what is wrong and why it matters")]
    suggestion: Annotated[Text, Meta(description="the smallest change that closes it")] = ""
    tasks: Annotated[
        tuple[Text, ...],
        Before(_words),
        Meta(
            description="of a plan only: the tasks it is about, each by number, title or id; `plan` for its structure"
        ),
    ] = ()


Findings: TypeAlias = Annotated[tuple[FindingBlock, ...], Before(_many)]


class Review(ContractBlock, frozen=True, kw_only=True):
    status: Annotated[str, Word, Meta(description="`pass` or `fail`")]
    findings: Annotated[Findings, Meta(description="empty when there is nothing to say")] = ()
    summary: Annotated[Text, Meta(description="one or two sentences")] = ""


class StagedReview(ContractBlock, frozen=True, kw_only=True):
    status: Annotated[str, Word, Meta(description="`approved` or `needs_revision`")]
    issues: Annotated[Findings, Meta(description="empty when approved")] = ()
    summary: Text = ""


class FinalReview(ContractBlock, frozen=True, kw_only=True):
    status: Annotated[
        str, Word, Meta(description="`approved`, or `blocked` if this must not be released and a person has to decide")
    ]
    issues: Annotated[Findings, Meta(description="what has to be fixed before the release; empty for nothing")] = ()
    summary: Text = ""


class ContractReview(ContractBlock, frozen=True, kw_only=True):
    status: Annotated[str, Word, Meta(description="`OK`, `PASS WITH NOTES`, `BLOCKED` or `NEEDS_DECISION`")]
    findings: Annotated[Findings, Meta(description="the notes or the blocking findings")] = ()
    summary: Annotated[Text, Meta(description="for NEEDS_DECISION: the decision a person has to take")] = ""


class Resolution(ContractBlock, frozen=True, kw_only=True):
    resolved: Annotated[
        Texts,
        Meta(description="paths in conflict that are right as they are now, also those you did not have to change"),
    ] = ()
    summary: Annotated[Text, Meta(description="how the conflicts were resolved")] = ""


class Work(ContractBlock, frozen=True, kw_only=True):
    nothing_to_change: Annotated[
        Flag, Meta(description="true when all that the task asks for is there already, and you changed no file")
    ] = False
    reason: Annotated[
        Text, Meta(description="where it is, so that a reviewer can look; needed with nothing_to_change")
    ] = ""


class SubtaskReview(ContractBlock, frozen=True, kw_only=True):
    approved: Flag
    feedback: Annotated[Text, Meta(description="what to change; must be there when not approved")] = ""


def _one_line(value: Any) -> Any:
    text = _text(value)
    return " ".join(text.split()) if isinstance(text, str) else text


#: lengths that a person reads at a glance, as a paragraph, as a page
Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200), Before(_one_line)]
Paragraph: TypeAlias = Annotated[str, Meta(max_length=2_000), Before(_text)]
FilledParagraph: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2_000), Before(_text)]
PageText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=20_000), Before(_text)]
MOST_OPTIONS, MOST_ITEMS = 12, 20


class QuestionBlock(ContractBlock, frozen=True, kw_only=True):
    id: Filled
    text: FilledParagraph
    type: Literal["choice", "input"]
    options: Annotated[
        tuple[Label, ...],
        Before(_many),
        Meta(max_length=MOST_OPTIONS, description="for choice: at least two, the one you would take first"),
    ] = ()
    placeholder: Annotated[Paragraph, Meta(description="for input: an example of an answer")] = ""

    def __post_init__(self) -> None:
        if self.type == "choice" and len(self.options) < 2:
            raise ValueError("a choice needs at least two options")
        if len({option.casefold() for option in self.options}) < len(self.options):
            raise ValueError("two options of a question are the same")


class QuestionsBlock(ContractBlock, frozen=True, kw_only=True):
    type: Literal["questions"]
    questions: Annotated[tuple[QuestionBlock, ...], Meta(min_length=1, max_length=MOST_ITEMS)]


class ApproachBlock(ContractBlock, frozen=True, kw_only=True):
    id: Filled
    title: Label
    summary: Paragraph = ""
    tradeoffs: Paragraph = ""
    taskEstimate: Annotated[float, Before(_number), Meta(ge=0, le=1000, description="number of tasks")] = 0  # noqa: N815 (the document's name)


class ApproachesBlock(ContractBlock, frozen=True, kw_only=True):
    type: Literal["approaches"]
    approaches: Annotated[tuple[ApproachBlock, ...], Meta(min_length=1, max_length=MOST_ITEMS)]
    recommendation: Annotated[Filled, Meta(description="the id of one of the approaches")]
    reasoning: Paragraph = ""

    def __post_init__(self) -> None:
        if self.recommendation not in {approach.id for approach in self.approaches}:
            raise ValueError(f"recommendation '{self.recommendation}' is not the id of an approach")
        if len({approach.title.casefold() for approach in self.approaches}) < len(self.approaches):
            raise ValueError("two approaches have the same title")


class SectionBlock(ContractBlock, frozen=True, kw_only=True):
    id: Filled
    title: Label
    content: PageText


class SectionsBlock(ContractBlock, frozen=True, kw_only=True):
    type: Literal["design"]
    sections: Annotated[tuple[SectionBlock, ...], Meta(min_length=1, max_length=MOST_ITEMS)]

    def __post_init__(self) -> None:
        if len({section.title.casefold() for section in self.sections}) < len(self.sections):
            raise ValueError("two sections have the same title")


class Clarification(ContractBlock, frozen=True, kw_only=True):
    status: Annotated[Literal["questions", "ready"], Word]
    message: Annotated[Filled, Meta(description="shown to the person unchanged; for ready: the summary of the request")]


class Subtask(ContractBlock, frozen=True, kw_only=True):
    id: Filled
    title: Filled
    description: Text = ""
    depends_on: Texts = ()
    files: Texts = ()


class Subtasks(ContractBlock, frozen=True, kw_only=True):
    summary: Text = ""
    subtasks: Annotated[tuple[Subtask, ...], Meta(min_length=1)]


class TestResult(ContractBlock, frozen=True, kw_only=True):
    __test__ = False
    passed: Flag
    errors: Annotated[Texts, Meta(description="one entry per failure; empty when passed")] = ()


class Criterion(ContractBlock, frozen=True, kw_only=True):
    id: Filled
    text: Annotated[Filled, Meta(description="what must be true")]
    check: Annotated[Filled, Meta(description="the command or observation that proves it")]
    met: Flag = False


class Acceptance(ContractBlock, frozen=True, kw_only=True):
    criteria: Annotated[tuple[Criterion, ...], Meta(min_length=1)]


class IntakeFacts(ContractBlock, frozen=True, kw_only=True):
    needs_research: Flag
    ui: Flag
    risk_flags: Texts = ()
    notes: Texts = ()


class ContractTask(ContractBlock, frozen=True, kw_only=True):
    id: Filled
    title: Filled
    description: Text = ""
    files: Texts = ()
    depends_on: Annotated[tuple[Text, ...], Before(_many), Meta(description="[] when it needs no other")]
    difficulty: Annotated[Literal["easy", "medium", "hard"], Word] = "medium"
    acceptance_checks: Annotated[Texts, Meta(min_length=1, description="commands that must succeed")]
    done_when: Annotated[Texts, Meta(min_length=1, description="facts that hold when the task is done")]
    risk_flags: Texts = ()
    needs_qa: Annotated[Flag, Meta(description="behaviour or acceptance is concerned")] = True
    needs_security: Annotated[Flag, Meta(description="authentication, input or network is touched")] = False


class ContractTasks(ContractBlock, frozen=True, kw_only=True):
    tasks: Annotated[tuple[ContractTask, ...], Meta(min_length=1)]


class DocsResult(ContractBlock, frozen=True, kw_only=True):
    readme: Annotated[Literal["updated", "unchanged"], Word]
    reason: Filled


class CoderResult(ContractBlock, frozen=True, kw_only=True):
    status: Annotated[Literal["done", "too_complex"], Word, Meta(description="`DONE` or `TOO_COMPLEX`")]
    reason: Annotated[Text, Meta(description="for TOO_COMPLEX: what the short way cannot hold")] = ""
    summary: Text = ""
