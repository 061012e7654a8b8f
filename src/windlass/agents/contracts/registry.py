"""The contracts of agents' answers, by name: fence tag, schema, and the engine's value.

Only a block that passes here can steer the run. Each dispatch has its own tag, which no file of the repository can
contain. Only blocks with that tag count, and they must agree. Everything else in an answer is text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import Meta, Struct, field, to_builtins

from windlass.agents.contracts import schemas
from windlass.agents.contracts.fences import closed_blocks
from windlass.agents.contracts.json_schema import description, schema_of
from windlass.agents.contracts.task_list import PlanParse, parse_entries, parse_plan
from windlass.conversion import ConversionError, bare, convert, fault_line, fields_of
from windlass.errors import UserError, near
from windlass.model import Finding, Json, Severity, Verdict
from windlass.strict_yaml import YamlError, read, values
from windlass.text import plain

MAX_CHARS = 1_000_000
_TAG_HERE = "\0tag\0"
#: contracts with a task list in their data, and the name of its field
TASK_LISTS = {"subtasks": "subtasks", "contract-tasks": "tasks"}


class Parsed(Struct, frozen=True):
    value: Json = None
    """The checked block in the engine's terms. With a problem it is None, or an inconclusive review."""
    problem: str = ""
    """'' when the contract is met; otherwise what the agent has to correct."""

    @property
    def ok(self) -> bool:
        return not self.problem


class ReviewBlock(Struct, frozen=True):
    """The value of every review contract, whatever words its document uses."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    summary: str = ""

    def to_json(self) -> dict[str, Json]:
        found: list[Json] = [finding.to_json() for finding in self.findings]
        return {"verdict": self.verdict.value, "findings": found, "summary": self.summary}

    @classmethod
    def from_json(cls, value: Json) -> ReviewBlock:
        if not isinstance(value, dict):
            return cls(Verdict.INCONCLUSIVE)
        found = value.get("findings")
        items = [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        findings = tuple(Finding.from_json(item) for item in items)
        return cls(Verdict(str(value["verdict"])), findings, str(value.get("summary") or ""))


Finish = Callable[[Any], Parsed]


class Contract(Struct, frozen=True):
    name: str
    tags: tuple[str, ...]
    """The block's tag; further ones are accepted too."""
    schema: type[schemas.ContractBlock]
    example: str
    finish: Finish
    language: Literal["json", "yaml"] = "json"
    is_list: bool = False
    """The block is a list of the schema's items."""
    bare: bool = False
    """A file: the whole text counts when it has no tagged block."""
    optional: bool = False
    """An answer without the block counts as an empty block."""
    list_field: str = ""
    """A bare list counts as the value of this field."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def is_review(self) -> bool:
        return bool(self.verdicts)


def parse(name: str, text: str, tag: str = "", *, untagged: bool = True) -> Parsed:
    """`tag`: the tag of the dispatch; '' for a file, where the contract's tag counts.

    `untagged`: an answer without the dispatch's tag may use the contract's tag instead.
    """
    contract = _contract(name)
    blocks = closed_blocks(text, (tag,) if tag else contract.tags)
    if tag and not blocks and tag not in text and untagged:
        blocks = closed_blocks(text, contract.tags)
    if not blocks and contract.bare and not tag:
        blocks = [text]
    if not blocks and contract.optional and not (tag and tag in text):
        return check(name, {})
    if not blocks:
        return _refusal(contract, f"there is no closed block tagged `{tag or contract.tags[0]}`")
    if not tag:
        return _read(contract, blocks[-1])
    parsed = [_read(contract, block) for block in blocks]
    invalid = next((one for one in parsed if one.problem), None)
    if invalid:
        return invalid
    # Several blocks must agree: on the verdict of a review, on all of anything else.
    stances = [one.value.get("verdict") if contract.is_review else one.value for one in parsed]  # type: ignore[union-attr]
    if all(one == stances[0] for one in stances):
        return parsed[-1]
    words = f": {', then '.join(str(one) for one in stances)}" if contract.is_review else ""
    return _refusal(contract, f"the answer holds {len(parsed)} blocks that contradict each other{words}")


def _read(contract: Contract, block: str) -> Parsed:
    if len(block) > MAX_CHARS:
        return _refusal(contract, f"the block has more than {MAX_CHARS:,} characters")
    try:
        if contract.language == "yaml":
            data: object = values(read(block))
        else:
            data = json.loads(block, object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except (YamlError, ValueError, RecursionError) as error:
        return _refusal(contract, f"the `{contract.tags[0]}` block is not valid {contract.language.upper()}: {error}")
    return check(contract.name, data)


def check(name: str, data: object) -> Parsed:
    """As `parse`, for data from an agent with structured output."""
    contract = _contract(name)
    if contract.is_list:
        return contract.finish(data)
    if contract.list_field and isinstance(data, list):
        data = {contract.list_field: data}
    try:
        return contract.finish(convert(data, contract.schema))
    except ConversionError as error:
        return _refusal(contract, "; ".join(fault_line(fault) for fault in error.faults[:5]))


def verdict(name: str, word: str) -> Verdict:
    """A document's status word as one of the six verdicts; an unknown word is inconclusive, never a pass."""
    return _contract(name).verdicts.get(word.strip().lower().replace("-", "_").replace(" ", "_"), Verdict.INCONCLUSIVE)


def outcome(value: Json) -> str:
    """The outcome that a contract adds to a produce phase: rejected, too_complex; otherwise ok."""
    return str(value.get("outcome") or "ok") if isinstance(value, dict) else "ok"


def json_schema(name: str) -> dict[str, Json]:
    contract = _contract(name)
    schema = schema_of(contract.schema)
    return {"type": "array", "items": schema} if contract.is_list else schema


def describe(name: str, tag: str = "") -> str:
    """The description of the answer's form for a prompt. `tag`: the dispatch's tag, otherwise the contract's."""
    return _description(name).replace(_TAG_HERE, tag or _contract(name).tags[0])


@cache
def _description(name: str) -> str:
    contract = _contract(name)
    mark = "```"
    shape = f"a {contract.language.upper()} {'list; each item has' if contract.is_list else 'object with'}"
    opening = f"one fenced block tagged `{_TAG_HERE}`: {shape}\n{_fields(contract.schema)}"
    return f"{opening}\n\nExample:\n\n{mark}{_TAG_HERE}\n{contract.example.strip()}\n{mark}"


def reminder(name: str, problem: str, tag: str = "") -> str:
    """Added to the prompt of the next try. In a continued session it is the whole prompt."""
    problem_text = " ".join(plain(problem).split())[:500]
    return f"Your last answer could not be used: {problem_text}.\nAnswer again. It must contain {describe(name, tag)}"


def plan_of(name: str, content: str) -> PlanParse:
    """The task list of an artifact with this contract: a block in markdown, or data from an agent's answer."""
    if name not in TASK_LISTS:
        return parse_plan(content)
    parsed = check(name, json.loads(content)) if content.startswith(("{", "null")) else parse(name, content)
    if parsed.problem:
        return PlanParse(problem=parsed.problem, empty=content == "null")
    assert isinstance(parsed.value, dict)
    return parse_entries(parsed.value[TASK_LISTS[name]])


def _contract(name: str) -> Contract:
    if name not in CONTRACTS:
        raise UserError(f"there is no contract '{name}'", hint=near(name, CONTRACTS))
    return CONTRACTS[name]


def _refusal(contract: Contract, problem: str) -> Parsed:
    value = ReviewBlock(Verdict.INCONCLUSIVE).to_json() if contract.is_review else None
    return Parsed(value, plain(problem))


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    # JSON parsers keep the last of repeated keys; a reader may see the first.
    keys = [key for key, _ in pairs]
    twice = {key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else set()
    if twice:
        raise ValueError(f"the key '{min(twice)}' occurs twice")
    return dict(pairs)


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is not a JSON value")


def _fields(schema: type[Struct], indent: str = "") -> str:
    lines = []
    for info in fields_of(schema):
        kind = bare(info.type)
        inner = next((one for one in get_args(kind) if isinstance(one, type) and issubclass(one, Struct)), None)
        need = "" if info.required else " (optional)"
        about = description(info.type)
        if not about and inner:
            about = "a list, each with"
        elif not about and get_origin(kind) is Literal:
            about = ", ".join(f"`{word}`" for word in get_args(kind))
        elif not about and kind is bool:
            about = "true or false"
        lines.append(f"{indent}- `{info.name}`{need}{f': {about}' if about else ''}")
        if inner:
            lines.append(_fields(inner, indent + "  "))
    return "\n".join(lines)


def _as_json(block: schemas.ContractBlock) -> dict[str, Json]:
    # Through JSON, so that tuples become lists, as in recorded data.
    data: dict[str, Json] = json.loads(json.dumps(to_builtins(block)))
    return data


def _plain_value(block: schemas.ContractBlock) -> Parsed:
    return Parsed(_as_json(block))


def _review_value(contract: str, word: str, findings: tuple[schemas.FindingBlock, ...], summary: str) -> Parsed:
    judgement = verdict(contract, word)
    known = CONTRACTS[contract].verdicts
    found = tuple(
        Finding(one.message, Severity.of(one.severity), one.file, one.line, one.suggestion, tasks=one.tasks)
        for one in findings
    )
    value = ReviewBlock(judgement, found, summary).to_json()
    if word not in known:
        return Parsed(value, f"'{word}' is not a status; use {' or '.join(dict.fromkeys(known))}")
    if judgement is Verdict.FAIL and not findings:
        return Parsed(ReviewBlock(Verdict.INCONCLUSIVE).to_json(), f"status '{word}' needs at least one finding")
    return Parsed(value)


def _subtask_review(block: schemas.SubtaskReview) -> Parsed:
    found = (Finding(block.feedback),) if block.feedback and not block.approved else ()
    judged = Verdict.PASS if block.approved else Verdict.FAIL if found else Verdict.INCONCLUSIVE
    problem = "" if judged is not Verdict.INCONCLUSIVE else "not approved, but feedback is empty"
    return Parsed(ReviewBlock(judged, found, block.feedback).to_json(), problem)


def _work(block: schemas.Work) -> Parsed:
    if block.nothing_to_change and not block.reason.strip():
        return Parsed(None, "nothing_to_change needs a reason")
    return Parsed(_as_json(block))


def _plan_value(plan: PlanParse) -> Parsed:
    is_list: list[Json] = [task.to_json() for task in plan.tasks]
    return Parsed(None if plan.problem else is_list, plan.problem)


def _task_list(name: str, block: schemas.ContractBlock) -> Parsed:
    data = _as_json(block)
    checked = _plan_value(parse_entries(data[name]))
    return checked if checked.problem else Parsed(data)


def _with_outcome(block: schemas.ContractBlock, outcome: str) -> Parsed:
    return Parsed({**_as_json(block), "outcome": outcome})


def _unique(items: str, block: schemas.ContractBlock) -> Parsed:
    ids = [item.id for item in getattr(block, items)]
    twice = sorted({id for id in ids if ids.count(id) > 1})
    return Parsed(None, f"two {items} have the id '{twice[0]}'") if twice else Parsed(_as_json(block))


_REVIEW_WORDS = {"pass": Verdict.PASS, "fail": Verdict.FAIL, "inconclusive": Verdict.INCONCLUSIVE}
_STAGED_WORDS = {"approved": Verdict.PASS, "needs_revision": Verdict.FAIL}
_FINAL_WORDS = {"approved": Verdict.PASS, "blocked": Verdict.HARD_STOP}
_CONTRACT_WORDS = {
    "ok": Verdict.PASS,
    "pass_with_notes": Verdict.PASS_WITH_NOTES,
    "blocked": Verdict.FAIL,
    "needs_decision": Verdict.NEEDS_DECISION,
}
_SUBTASK_WORDS = {"true": Verdict.PASS, "false": Verdict.FAIL}
_JSON = ("superteam-json",)
_BRAINSTORM = ("superteam-brainstorm",)
_EXAMPLE_FINDING = (
    '{"severity": "high", "file": "src/limiter.py", "line": 12, '
    '"message": "The bucket is never refilled.", "suggestion": "Refill by elapsed time in take()."}'
)
_EXAMPLE_FINDINGS = f'"findings": [{_EXAMPLE_FINDING}], "summary": "Refill is missing."'
_TASK_EXAMPLE = """
- title: Token bucket
  description: |
    Add TokenBucket(rate, size) with take() -> bool.
    Test first: tests/test_limiter.py, run `pytest tests/test_limiter.py`.
  files: [src/limiter.py, tests/test_limiter.py]
- title: Limit the API
  description: |
    Answer 429 when take() is False.
  files: [src/api.py, tests/test_api.py]
  depends_on: [t1]
"""
_CONTRACT_TASK_EXAMPLE = """
tasks:
  - id: t1
    title: Token bucket
    files: [src/limiter.py, tests/test_limiter.py]
    depends_on: []
    acceptance_checks: ["pytest -q tests/test_limiter.py"]
    done_when: ["AC-1 holds"]
    needs_qa: true
"""


class _PlanItem(schemas.ContractBlock, frozen=True, kw_only=True):
    title: Annotated[str, Meta(description="short and unique")]
    description: Annotated[str, Meta(description="all that the implementer needs to know")] = ""
    files: Annotated[list[str], Meta(description="paths below the repository root that it creates or changes")] = []
    id: Annotated[str, Meta(description="keep the id of a task that has one")] = ""
    depends_on: Annotated[list[str], Meta(description="ids of tasks that must be done before")] = []
    difficulty: Annotated[str, Meta(description="`easy`, `medium` or `hard`")] = "medium"
    tdd: Annotated[
        str,
        Meta(
            description="leave out for code that comes with a failing test first; else `behaviour-change` (old tests"
            " change what they expect), `preserve` (refactoring), `test-only` or `exempt` (nothing to test)"
        ),
    ] = ""


CONTRACTS = {contract.name: contract for contract in (
    Contract("tasks", ("superteam-tasks", "superteam-plan"), _PlanItem, _TASK_EXAMPLE,
             lambda data: _plan_value(parse_entries(data)), "yaml", is_list=True),
    Contract("review", _JSON, schemas.Review, f'{{"status": "fail", {_EXAMPLE_FINDINGS}}}',
             lambda block: _review_value("review", block.status, block.findings, block.summary),
             verdicts=_REVIEW_WORDS),
    Contract("staged-review", _JSON, schemas.StagedReview,
             f'{{"status": "needs_revision", "issues": [{_EXAMPLE_FINDING}], "summary": "Refill is missing."}}',
             lambda block: _review_value("staged-review", block.status, block.issues, block.summary),
             verdicts=_STAGED_WORDS),
    Contract("final-review", _JSON, schemas.FinalReview,
             f'{{"status": "approved", "issues": [{_EXAMPLE_FINDING}], "summary": "Ready once refill is mended."}}',
             lambda block: _review_value("final-review", block.status, block.issues, block.summary),
             verdicts=_FINAL_WORDS),
    Contract("contract-review", _JSON, schemas.ContractReview, f'{{"status": "BLOCKED", {_EXAMPLE_FINDINGS}}}',
             lambda block: _review_value("contract-review", block.status, block.findings, block.summary),
             verdicts=_CONTRACT_WORDS),
    Contract("subtask-review", _JSON, schemas.SubtaskReview,
             '{"approved": false, "feedback": "Refill the bucket by elapsed time."}',
             _subtask_review, verdicts=_SUBTASK_WORDS),
    Contract("questions", _BRAINSTORM, schemas.QuestionsBlock,
             '{"type": "questions", "questions": [{"id": "q1", "text": "Limit per what?", "type": "choice", '
             '"options": ["user", "address"]}]}', lambda block: _unique("questions", block)),
    Contract("approaches", _BRAINSTORM, schemas.ApproachesBlock,
             '{"type": "approaches", "approaches": [{"id": "a1", "title": "Token bucket", "summary": "...", '
             '"tradeoffs": "...", "taskEstimate": 4}], "recommendation": "a1", "reasoning": "..."}',
             lambda block: _unique("approaches", block)),
    Contract("sections", _BRAINSTORM, schemas.SectionsBlock,
             '{"type": "design", "sections": [{"id": "s1", "title": "Architecture", "content": "..."}]}',
             lambda block: _unique("sections", block)),
    Contract("clarification", _JSON, schemas.Clarification,
             '{"status": "questions", "message": "Shall the limit hold per user or per address?"}', _plain_value),
    Contract("subtasks", _JSON, schemas.Subtasks,
             '{"summary": "Rate limiting", "subtasks": [{"id": "t1", "title": "Token bucket", "description": "", '
             '"depends_on": [], "files": ["src/limiter.py"]}]}', lambda block: _task_list("subtasks", block)),
    Contract("test-result", _JSON, schemas.TestResult,
             '{"passed": false, "errors": ["tests/test_limiter.py::test_refill: 0 != 1"]}',
             lambda block: _with_outcome(block, "ok" if block.passed else "rejected")),
    Contract("acceptance", _JSON, schemas.Acceptance,
             '{"criteria": [{"id": "AC-1", "text": "The 11th call in a second gets 429.", '
             '"check": "pytest -q tests/test_api.py", "met": false}]}', _plain_value, bare=True),
    Contract("intake-facts", _JSON, schemas.IntakeFacts,
             '{"needs_research": false, "ui": false, "risk_flags": ["security"]}', _plain_value),
    Contract("contract-tasks", ("superteam-tasks",), schemas.ContractTasks, _CONTRACT_TASK_EXAMPLE,
             lambda block: _task_list("tasks", block), "yaml", bare=True, list_field="tasks"),
    Contract("docs-result", _JSON, schemas.DocsResult,
             '{"readme": "updated", "reason": "The new option is described."}', _plain_value),
    Contract("coder-result", _JSON, schemas.CoderResult,
             '{"status": "DONE", "reason": "", "summary": "Added the bucket with its tests."}',
             lambda block: _with_outcome(block, "too_complex" if block.status == "too_complex" else "ok")),
    Contract("resolution", _JSON, schemas.Resolution,
             '{"resolved": ["docs/logo.png"], "summary": "The new logo replaces both."}', _plain_value,
             optional=True),
    Contract("work", _JSON, schemas.Work,
             '{"nothing_to_change": true, "reason": "src/limiter.py:12 refills by elapsed time already."}', _work,
             optional=True),
)}  # fmt: skip
