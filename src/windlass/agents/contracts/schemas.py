"""The shape of every block an agent may answer with. Words an agent adds are ignored, words it owes are demanded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from windlass.agents.contracts.task_list import is_inside
from windlass.text import plain


def _text(value: Any) -> Any:
    return "" if value is None else plain(value) if isinstance(value, str) else value


def _word(value: Any) -> Any:
    return plain(value).strip().lower().replace("-", "_").replace(" ", "_") if isinstance(value, str) else value


def _line(value: Any) -> Any:
    """Only a hint for the reader: '12-15' or 'top' must not cost a whole review."""
    text = str(value)
    return int(text) if not isinstance(value, bool) and text.isascii() and text.isdigit() and len(text) < 9 else None


def _inside(value: Any) -> Any:
    text = _text(value)
    return text if isinstance(text, str) and (not text or is_inside(text)) else ""


def _many(value: Any) -> Any:
    return [] if value is None else [value] if isinstance(value, str) else value


def _words(value: Any) -> Any:
    """Only a hint for the engine, as a line is."""
    listed = value if isinstance(value, list | tuple) else [] if value is None else [value]
    return [str(one) for one in listed if isinstance(one, str | int)]


Text = Annotated[str, BeforeValidator(_text)]
Filled = Annotated[str, BeforeValidator(_text), Field(min_length=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_many)]
Word = BeforeValidator(_word)


class ContractBlock(BaseModel):
    # A run meets few of the contracts, so each is built when it is first used.
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class FindingBlock(ContractBlock):
    severity: Annotated[Literal["critical", "high", "medium", "low"], Word]
    file: Annotated[str, BeforeValidator(_inside)] = Field("", description="path below the repository root, or empty")
    line: Annotated[int | None, BeforeValidator(_line)] = None
    message: Filled = Field(description="what is wrong and why it matters")
    suggestion: Text = Field("", description="the smallest change that closes it")
    tasks: Annotated[tuple[Text, ...], BeforeValidator(_words)] = Field(
        (), description="of a plan only: the tasks it is about, each by number, title or id; `plan` for its structure"
    )


Findings = Annotated[tuple[FindingBlock, ...], BeforeValidator(_many)]


class Review(ContractBlock):
    status: Annotated[str, Word] = Field(description="`pass` or `fail`")
    findings: Findings = Field((), description="empty when there is nothing to say")
    summary: Text = Field("", description="one or two sentences")


class StagedReview(ContractBlock):
    status: Annotated[str, Word] = Field(description="`approved`, `needs_revision` or `blocked`")
    issues: Findings = Field((), description="empty when approved")
    summary: Text = ""


class ContractReview(ContractBlock):
    status: Annotated[str, Word] = Field(description="`OK`, `PASS WITH NOTES`, `BLOCKED` or `NEEDS_DECISION`")
    findings: Findings = Field((), description="the notes or the blocking findings")
    summary: Text = Field("", description="for NEEDS_DECISION: the decision a person has to take")


class Resolution(ContractBlock):
    resolved: Texts = Field(
        (), description="paths in conflict that are right as they are now, also those you did not have to change"
    )
    summary: Text = Field("", description="how the conflicts were resolved")


class Work(ContractBlock):
    nothing_to_change: bool = Field(
        False, description="true when all that the task asks for is there already, and you changed no file"
    )
    reason: Text = Field("", description="where it is, so that a reviewer can look; needed with nothing_to_change")


class SubtaskReview(ContractBlock):
    approved: bool
    feedback: Text = Field("", description="what to change; must be there when not approved")


def _one_line(value: Any) -> Any:
    text = _text(value)
    return " ".join(text.split()) if isinstance(text, str) else text


#: what a person takes in at a glance, in a paragraph, on a page
Label = Annotated[str, Field(min_length=1, max_length=200), BeforeValidator(_one_line)]
Paragraph = Annotated[str, Field(max_length=2_000), BeforeValidator(_text)]
FilledParagraph = Annotated[str, Field(min_length=1, max_length=2_000), BeforeValidator(_text)]
PageText = Annotated[str, Field(min_length=1, max_length=20_000), BeforeValidator(_text)]
MOST_OPTIONS, MOST_ITEMS = 12, 20


class QuestionBlock(ContractBlock):
    id: Filled
    text: FilledParagraph
    type: Literal["choice", "input"]
    options: Annotated[tuple[Label, ...], BeforeValidator(_many)] = Field(
        (), max_length=MOST_OPTIONS, description="for choice: at least two, the one you would take first"
    )
    placeholder: Annotated[Paragraph, Field(description="for input: an example of an answer")] = ""

    @model_validator(mode="after")
    def _choice_has_options(self) -> QuestionBlock:
        if self.type == "choice" and len(self.options) < 2:
            raise ValueError("a choice needs at least two options")
        if len({option.casefold() for option in self.options}) < len(self.options):
            raise ValueError("two options of a question are the same")
        return self


class QuestionsBlock(ContractBlock):
    type: Literal["questions"]
    questions: tuple[QuestionBlock, ...] = Field(min_length=1, max_length=MOST_ITEMS)


class ApproachBlock(ContractBlock):
    id: Filled
    title: Label
    summary: Paragraph = ""
    tradeoffs: Paragraph = ""
    taskEstimate: float = Field(0, ge=0, le=1000, description="number of tasks")  # noqa: N815 (the document's name)


class ApproachesBlock(ContractBlock):
    type: Literal["approaches"]
    approaches: tuple[ApproachBlock, ...] = Field(min_length=1, max_length=MOST_ITEMS)
    recommendation: Filled = Field(description="the id of one of the approaches")
    reasoning: Paragraph = ""

    @model_validator(mode="after")
    def _recommends_one_of_them(self) -> ApproachesBlock:
        if self.recommendation not in {approach.id for approach in self.approaches}:
            raise ValueError(f"recommendation '{self.recommendation}' is not the id of an approach")
        if len({approach.title.casefold() for approach in self.approaches}) < len(self.approaches):
            raise ValueError("two approaches have the same title")
        return self


class SectionBlock(ContractBlock):
    id: Filled
    title: Label
    content: PageText


class SectionsBlock(ContractBlock):
    type: Literal["design"]
    sections: tuple[SectionBlock, ...] = Field(min_length=1, max_length=MOST_ITEMS)

    @model_validator(mode="after")
    def _titles_differ(self) -> SectionsBlock:
        if len({section.title.casefold() for section in self.sections}) < len(self.sections):
            raise ValueError("two sections have the same title")
        return self


class Clarification(ContractBlock):
    status: Annotated[Literal["questions", "ready"], Word]
    message: Filled = Field(description="shown to the person unchanged; for ready: the summary of the request")


class Subtask(ContractBlock):
    id: Filled
    title: Filled
    description: Text = ""
    depends_on: Texts = ()
    files: Texts = ()


class Subtasks(ContractBlock):
    summary: Text = ""
    subtasks: tuple[Subtask, ...] = Field(min_length=1)


class TestResult(ContractBlock):
    __test__ = False
    passed: bool
    errors: Texts = Field((), description="one entry per failure; empty when passed")


class Criterion(ContractBlock):
    id: Filled
    text: Filled = Field(description="what must be true")
    check: Filled = Field(description="the command or observation that proves it")
    met: bool = False


class Acceptance(ContractBlock):
    criteria: tuple[Criterion, ...] = Field(min_length=1)


class IntakeFacts(ContractBlock):
    needs_research: bool
    ui: bool
    risk_flags: Texts = ()
    notes: Texts = ()


class ContractTask(ContractBlock):
    id: Filled
    title: Filled
    description: Text = ""
    files: Texts = ()
    depends_on: Annotated[tuple[Text, ...], BeforeValidator(_many)] = Field(description="[] when it needs no other")
    difficulty: Annotated[Literal["easy", "medium", "hard"], Word] = "medium"
    acceptance_checks: Texts = Field(min_length=1, description="commands that must succeed")
    done_when: Texts = Field(min_length=1, description="facts that hold when the task is done")
    risk_flags: Texts = ()
    needs_qa: bool = Field(True, description="behaviour or acceptance is concerned")
    needs_security: bool = Field(False, description="authentication, input or network is touched")


class ContractTasks(ContractBlock):
    tasks: tuple[ContractTask, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _may_be_the_list_alone(cls, data: Any) -> Any:
        return {"tasks": data} if isinstance(data, list) else data


class DocsResult(ContractBlock):
    readme: Annotated[Literal["updated", "unchanged"], Word]
    reason: Filled


class CoderResult(ContractBlock):
    status: Annotated[Literal["done", "too_complex"], Word] = Field(description="`DONE` or `TOO_COMPLEX`")
    reason: Text = Field("", description="for TOO_COMPLEX: what the short way cannot hold")
    summary: Text = ""
