"""Everything that can happen in a run. All that a person sees is made from these events.

A closed union: `decode` refuses unknown names and unknown fields, every `match` over it ends in assert_never.
"""

from __future__ import annotations

import json
from typing import ClassVar, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict

from windlass.errors import StoreError, near
from windlass.model import Json, compact


class RunStarted(Struct, frozen=True):
    """A run was recorded, before anything was dispatched."""

    type: ClassVar[str] = "run.started"
    request: str
    flow: str
    base: str
    branch: str
    budget_usd: float | None
    warn_usd: float | None
    dirty: bool = False


class RunResumed(Struct, frozen=True):
    """A driver continued the run."""

    type: ClassVar[str] = "run.resumed"
    epoch: int
    reason: str = ""


class RunTold(Struct, frozen=True):
    """A person sent the run a message. The next dispatch of that role receives it, once."""

    type: ClassVar[str] = "run.told"
    text: str
    by: str
    role: str = ""
    """'' means any role that writes code."""


class RunSaid(Struct, frozen=True):
    """The run informs the person: neither a question nor a warning."""

    type: ClassVar[str] = "run.said"
    text: str


#: the reason of a driver that passes the run to one in the background: the run is not paused
HANDED_OVER = "goes on in the background"


class RunEnded(Struct, frozen=True):
    """A driver ended: the run is finished, aborted, or can be resumed; with the reason."""

    type: ClassVar[str] = "run.ended"
    state: str
    reason: str = ""
    hint: str = ""


class PhaseEntered(Struct, frozen=True):
    type: ClassVar[str] = "phase.entered"
    phase: str
    key: str
    kind: str
    label: str = ""
    stage: str = ""


class PhaseFinished(Struct, frozen=True):
    type: ClassVar[str] = "phase.finished"
    phase: str
    key: str
    outcome: str
    detail: str = ""
    label: str = ""


class PhaseSkipped(Struct, frozen=True):
    """Its `when` did not hold, or a person waived it or its gate."""

    type: ClassVar[str] = "phase.skipped"
    phase: str
    key: str
    reason: str
    waived: bool = False
    by: str = ""
    """Who waived it."""


class ScheduleMade(Struct, frozen=True):
    """The stages and phases of the run, in order. A disabled stage is skipped."""

    type: ClassVar[str] = "schedule.made"
    stages: list[Json]
    """Each with `id`, `enabled` and `phases`: a list of `id` and `kind`."""
    max_restarts: int = 0
    """How often each stage may be restarted."""


class StageRestarted(Struct, frozen=True):
    """A stage begins again. Its phases, those of the stage it was left from, and those between are pending again."""

    type: ClassVar[str] = "stage.restarted"
    stage: str
    phase: str
    """The first phase of the stage."""
    source: str
    """The stage in which the restart was decided."""
    reason: str
    by: str
    count: int
    """How often this stage was restarted, this time included."""
    phases: list[str]
    """The phases that are pending again."""
    kept: str = ""
    """The ref of the code that a reset left behind; '' when the code was kept."""


class StepEntered(Struct, frozen=True):
    """A named checkpoint inside a phase: a task's step, or a label that a document demands."""

    type: ClassVar[str] = "step.entered"
    key: str
    label: str
    task: str = ""


class TasksListed(Struct, frozen=True):
    """The tasks of the plan in force, in order."""

    type: ClassVar[str] = "tasks.listed"
    key: str
    tasks: list[Json]


class TaskChanged(Struct, frozen=True):
    type: ClassVar[str] = "task.changed"
    task: str
    state: str
    reason: str = ""
    base: str = ""
    visit: int = 1


class DispatchStarted(Struct, frozen=True):
    type: ClassVar[str] = "dispatch.started"
    key: str
    attempt: int
    role: str
    agent: str
    model: str = ""
    purpose: str = ""
    task: str = ""
    cycle: int = 0
    cycles: int = 0
    reserved_usd: float | None = None
    told: list[Json] = field(default_factory=list)
    """The messages of people that this dispatch receives."""


class DispatchFinished(Struct, frozen=True):
    """One attempt ended. `error` is empty when it gave a result; cost None is unknown, never 0."""

    type: ClassVar[str] = "dispatch.finished"
    key: str
    attempt: int
    role: str
    agent: str
    error: str = ""
    reason: str = ""
    cost_usd: float | None = None
    input: int = 0
    output: int = 0
    cached: int = 0
    seconds: float = 0.0
    tools: int = 0
    task: str = ""
    prices: str = ""
    """The date of the price list that its cost was computed with; empty: the agent reported its cost."""
    assumed_usd: float | None = None
    """Counted in addition to `cost_usd`, for usage without a known cost. None: an old record."""


class DispatchCosted(Struct, frozen=True):
    """The cost of an ended attempt, found later. It replaces the cost in `dispatch.finished`."""

    type: ClassVar[str] = "dispatch.costed"
    key: str
    attempt: int
    role: str
    cost_usd: float | None
    assumed_usd: float
    before_usd: float | None
    before_assumed_usd: float
    input: int = 0
    """The increase over the earlier report; the same holds for the next two."""
    output: int = 0
    cached: int = 0
    task: str = ""
    prices: str = ""


class ReviewFinished(Struct, frozen=True):
    """One reviewer's verdict, or the joined one of a cycle when `role` is empty."""

    type: ClassVar[str] = "review.finished"
    key: str
    role: str
    verdict: str
    findings: list[Json]
    summary: str = ""
    task: str = ""
    cycle: int = 1


class ArtifactStored(Struct, frozen=True):
    type: ClassVar[str] = "artifact.stored"
    name: str
    key: str
    sha: str
    path: str = ""
    note: str = ""


class ArtifactsRemoved(Struct, frozen=True):
    """These artifacts are no longer in force, and their files are gone."""

    type: ClassVar[str] = "artifacts.removed"
    key: str
    names: list[str]
    why: str


class ItemsProposed(Struct, frozen=True):
    """An agent proposed questions, approaches or sections. One with a known id replaces the earlier one."""

    type: ClassVar[str] = "items.proposed"
    key: str
    item: str
    items: list[Json]
    recommendation: str = ""
    reasoning: str = ""


class QuestionAsked(Struct, frozen=True):
    type: ClassVar[str] = "question.asked"
    key: str
    id: str
    text: str
    options: list[Json]
    default: str = ""
    detail: str = ""
    task: str = ""
    title: str = ""


class QuestionAnswered(Struct, frozen=True):
    type: ClassVar[str] = "question.answered"
    key: str
    id: str
    answer: str
    by: str
    comment: str = ""


class BudgetChanged(Struct, frozen=True):
    """A person or a question changed the limit."""

    type: ClassVar[str] = "budget.changed"
    limit_usd: float | None
    by: str


class WaitStarted(Struct, frozen=True):
    """A quota wait: every dispatch with that credential waits until then."""

    type: ClassVar[str] = "wait.started"
    key: str
    credential: str
    until: float
    reason: str


class PlanAdopted(Struct, frozen=True):
    """A person adopted an edited artifact; these recorded steps run again."""

    type: ClassVar[str] = "artifact.adopted"
    name: str
    sha: str
    again: list[str]
    by: str


class Warned(Struct, frozen=True):
    """A fact for a person: budget, roles that exceeded their permissions, a branch that could not be moved."""

    type: ClassVar[str] = "warned"
    code: str
    text: str
    key: str = ""
    task: str = ""


class ReportWritten(Struct, frozen=True):
    type: ClassVar[str] = "report.written"
    template: str
    path: str
    text: str


class CommandFinished(Struct, frozen=True):
    """A check, set-up or command phase ended."""

    type: ClassVar[str] = "command.finished"
    key: str
    command: str
    ok: bool
    code: int | None
    seconds: float
    cached: bool = False
    tail: str = ""


class TaskLanded(Struct, frozen=True):
    """The run's tip contains the task's commits; `checks` is the result of the checks on that tree."""

    type: ClassVar[str] = "task.landed"
    task: str
    commit: str
    tip: str
    checks: str
    files: list[str]


class FixLanded(Struct, frozen=True):
    """A fix for the whole run, made after its final review, is part of the tip."""

    type: ClassVar[str] = "fix.landed"
    key: str
    tip: str
    checks: str
    files: list[str]


class TaskProved(Struct, frozen=True):
    """The result of a task's TDD proof, with its evidence: the command, the trees, the tests."""

    type: ClassVar[str] = "task.proved"
    task: str
    proof: str
    ok: bool
    reason: str
    command: str
    trees: dict[str, Json]
    tests: dict[str, Json]


class LandingRefused(Struct, frozen=True):
    """Conflict, red or unproved: the task goes back with the facts."""

    type: ClassVar[str] = "landing.refused"
    task: str
    why: str
    detail: str
    files: list[str]


class BranchPublished(Struct, frozen=True):
    """The run's branch was moved to the tip. `commit` is its commit now: another one when it could not be moved."""

    type: ClassVar[str] = "branch.published"
    branch: str
    commit: str
    note: str = ""
    tip: str = ""
    """'' means `commit`."""


class RunLanded(Struct, frozen=True):
    """A person landed the run's tip in a branch of their own, with the result of the checks."""

    type: ClassVar[str] = "run.landed"
    branch: str
    before: str
    commit: str
    tip: str
    how: str
    """fast-forward | merge | squash"""
    checks: str
    """passed | known failures | unchecked | failed (accepted by --force-red)"""


class PublishFinished(Struct, frozen=True):
    """A push, a pull request or a tag: done | already | left (this machine cannot do it) | failed."""

    type: ClassVar[str] = "publish.finished"
    key: str
    what: str
    state: str
    detail: str = ""
    url: str = ""
    commands: list[str] = field(default_factory=list)
    """Commands that do it by hand."""


class Activity(Struct, frozen=True):
    """The current activity of an agent. Shown live and stored in the attempt's folder, never in the journal."""

    type: ClassVar[str] = "activity"
    key: str
    role: str
    kind: str
    """tool.started | tool.updated | tool.finished | text | usage | retry"""
    text: str
    ok: bool = True
    task: str = ""
    cost_usd: float | None = None
    call: str = ""
    """The call that a result belongs to, if the agent names it."""


Event: TypeAlias = (
    RunStarted
    | RunResumed
    | RunTold
    | RunSaid
    | RunEnded
    | PhaseEntered
    | PhaseFinished
    | PhaseSkipped
    | ScheduleMade
    | StageRestarted
    | StepEntered
    | TasksListed
    | TaskChanged
    | DispatchStarted
    | DispatchFinished
    | DispatchCosted
    | ReviewFinished
    | ArtifactStored
    | ArtifactsRemoved
    | ItemsProposed
    | QuestionAsked
    | QuestionAnswered
    | CommandFinished
    | TaskLanded
    | FixLanded
    | TaskProved
    | LandingRefused
    | BranchPublished
    | PublishFinished
    | RunLanded
    | BudgetChanged
    | WaitStarted
    | PlanAdopted
    | Warned
    | ReportWritten
    | Activity
)

TYPES: dict[str, type[Event]] = {cls.type: cls for cls in Event.__args__}
_FIELDS = {name: frozenset(cls.__struct_fields__) for name, cls in TYPES.items()}


class Recorded(Struct, frozen=True):
    """An event with its position in the log."""

    seq: int
    run: str
    at: float
    event: Event


def encode(event: Event) -> str:
    # Fields already hold plain JSON, so nothing has to be copied first.
    return compact(asdict(event))


def decode(type: str, data: str) -> Event:
    cls = TYPES.get(type)
    if cls is None:
        raise StoreError(f"unknown event '{type}' in the log", hint=near(type, TYPES))
    values = json.loads(data)
    unknown = set(values) - _FIELDS[type]
    if unknown:
        raise StoreError(f"event '{type}' has unknown fields: {', '.join(sorted(unknown))}")
    return cls(**values)
