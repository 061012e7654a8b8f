"""The view of a run, and its frozen parts.

The parts are named tuples, because a frozen dataclass takes eight times as long to define and `status` must be fast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.cost import Cost, assumed_for
from windlass.events import DispatchCosted, DispatchFinished, PublishFinished, QuestionAsked, RunLanded, TaskProved
from windlass.model import Finding, Json, RunState, Verdict

COMPLETE, SKIPPED, ESCALATED, PENDING = "complete", "skipped", "escalated", "pending"
COMPLETED, IN_PROGRESS, BLOCKED, RESTARTING = "completed", "in_progress", "blocked", "restarting"
IMPLEMENTED = "implemented"
ENDED = frozenset({COMPLETE, SKIPPED, ESCALATED, "failed", IMPLEMENTED})
UNCHANGED = "Nothing was changed: there is no code to take."
WORKING = frozenset({"implementing", "reviewing", "fixing"})
PASSED = frozenset({Verdict.PASS.value, Verdict.PASS_WITH_NOTES.value})


class Totals(NamedTuple):
    usd: float = 0.0
    """The known cost."""
    unknown: int = 0
    """The number of dispatches with an assumed cost."""
    input: int = 0
    output: int = 0
    cached: int = 0
    dispatches: int = 0
    prices: str = ""
    """The date of the price list, if a part of the cost was computed from it; '' if agents reported all of it."""
    assumed_usd: float = 0.0
    """Added for the dispatches of unknown cost."""

    @property
    def cost(self) -> Cost:
        return Cost(self.usd, self.assumed_usd, self.unknown)

    def plus(self, event: DispatchFinished) -> Totals:
        assumed = assumed_for(event.cost_usd, event.assumed_usd)
        return Totals(
            self.usd + (event.cost_usd or 0.0),
            self.unknown + (assumed > 0),
            self.input + event.input,
            self.output + event.output,
            self.cached + event.cached,
            self.dispatches + 1,
            max(self.prices, event.prices),
            self.assumed_usd + assumed,
        )

    def correct(self, event: DispatchCosted) -> Totals:
        """Totals with the real cost of an earlier dispatch, which had counted with another cost."""
        unknown = self.unknown + (event.assumed_usd > 0) - (event.before_assumed_usd > 0)
        return self._replace(
            usd=self.usd + (event.cost_usd or 0.0) - (event.before_usd or 0.0),
            unknown=unknown,
            input=self.input + event.input,
            output=self.output + event.output,
            cached=self.cached + event.cached,
            prices=max(self.prices, event.prices),
            # 0.0 removes the rest that rounding leaves
            assumed_usd=self.assumed_usd + event.assumed_usd - event.before_assumed_usd if unknown else 0.0,
        )


class ReviewView(NamedTuple):
    """The last verdict of one reviewer on a phase or a task."""

    role: str
    verdict: str
    cycle: int
    at: float
    summary: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        return self.verdict in PASSED


class ProofView(NamedTuple):
    """The verdict of a task's TDD proof, with its evidence."""

    proof: str
    ok: bool
    reason: str
    command: str
    """'' when no command ran."""
    trees: Mapping[str, str]
    tests: Mapping[str, tuple[str, ...]]


def proof_from(event: TaskProved) -> ProofView:
    trees = {name: str(sha) for name, sha in event.trees.items()}
    tests = {name: tuple(str(id) for id in ids) for name, ids in event.tests.items() if isinstance(ids, list)}
    return ProofView(event.proof, event.ok, event.reason, event.command, trees, tests)


class TaskView(Struct, frozen=True):
    id: str
    index: int
    """From 1, in the order of the plan."""
    title: str
    description: str = ""
    files: tuple[str, ...] = ()
    """As the plan declares them."""
    group: int = 0
    """The wave in which it can run, from 1: one more than the highest of its dependencies. 0: not recorded."""
    state: str = PENDING
    step: str = ""
    visit: int = 1
    reason: str = ""
    base: str = ""
    cost: Totals = Totals()
    reviews: Mapping[str, ReviewView] = field(default_factory=dict)
    fixes: int = 0
    """Fix dispatches of this visit."""
    landed: str = ""
    checks: str = ""
    changed: tuple[str, ...] = ()
    """The files that its landings changed."""
    proof: ProofView | None = None
    warnings: tuple[str, ...] = ()
    started_at: float | None = None
    ended_at: float | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def active(self) -> bool:
        return not self.ended and self.state != PENDING


class MessageView(NamedTuple):
    """A message from a person to an agent of the run."""

    text: str
    by: str
    role: str
    """The role that receives it; '' for the next agent that writes code."""
    at: float
    delivered_to: str = ""
    """The dispatch that received it; '' before."""
    delivered_at: float = 0.0

    @property
    def addressee(self) -> str:
        return self.role or "the next agent that writes code"


class PhaseView(NamedTuple):
    id: str
    key: str
    kind: str
    label: str
    since: float

    @property
    def name(self) -> str:
        return self.label or self.id


class PhaseEnd(NamedTuple):
    outcome: str
    detail: str
    at: float


class Running(NamedTuple):
    """A running dispatch."""

    key: str
    attempt: int
    role: str
    agent: str
    model: str
    purpose: str
    task: str
    cycle: int
    cycles: int
    since: float
    reserved_usd: float | None = None
    doing: str = ""
    seen_at: float = 0.0
    cost_usd: float | None = None

    @property
    def agent_text(self) -> str:
        return f"{self.role} ({', '.join(part for part in (self.agent, self.model) if part)})"


class Option(NamedTuple):
    key: str
    label: str
    about: str = ""


class QuestionView(NamedTuple):
    key: str
    id: str
    text: str
    options: tuple[Option, ...]
    default: str
    detail: str
    task: str
    since: float
    title: str = ""


class AnswerView(NamedTuple):
    key: str
    id: str
    answer: str
    by: str
    comment: str
    at: float
    label: str = ""
    """The label of the chosen option, or the answer if the question has no options."""


class Proposed(NamedTuple):
    """Items that an agent proposed to a person, with later revisions."""

    item: str
    """questions | approaches | sections"""
    phase: str
    items: tuple[dict[str, Json], ...]
    recommendation: str = ""
    reasoning: str = ""
    since: int = 0
    """The number of earlier answers, which are not about this proposal."""


class WaitView(NamedTuple):
    key: str
    credential: str
    until: float
    reason: str
    since: float


class ArtifactView(NamedTuple):
    name: str
    path: str
    sha: str


class WarningView(NamedTuple):
    code: str
    text: str
    task: str
    at: float


class NotedView(NamedTuple):
    """A finding of a review that passed."""

    finding: Finding
    task: str
    phase: str


class SkippedPhase(NamedTuple):
    phase: str
    reason: str
    waived: bool
    by: str = ""
    at: float = 0.0


class PhaseRecord(NamedTuple):
    """A phase of the schedule."""

    id: str
    kind: str
    status: str = PENDING
    """pending | in_progress | completed | failed | skipped"""
    outcome: str = ""
    started_at: float | None = None
    ended_at: float | None = None


class StageView(Struct, frozen=True):
    """A stage of the schedule."""

    id: str
    enabled: bool
    phases: tuple[PhaseRecord, ...]
    status: str = PENDING
    """pending | in_progress | completed | skipped | blocked | restarting"""
    restarts: int = 0
    reason: str = ""
    """Why it is blocked."""

    @property
    def is_done(self) -> bool:
        return all(phase.status in (COMPLETED, SKIPPED) for phase in self.phases)


class RestartView(NamedTuple):
    stage: str
    source: str
    reason: str
    by: str
    number: int
    """How often the stage was restarted, this time included."""
    kept: str
    at: float


class PhaseFailure(NamedTuple):
    """A phase that ended without success."""

    phase: str
    outcome: str
    detail: str
    at: float


class LogEntry(NamedTuple):
    at: float
    text: str


class View(Struct):
    """What a person can know of a run. Only `ViewBuilder` changes a view; `ViewBuilder.view` returns copies."""

    run: str
    place: str = ""
    """The repository as named on the command line; '' when the person is in it."""
    request: str = ""
    flow: str = ""
    base: str = ""
    branch: str = ""
    dirty: bool = False
    state: RunState = RunState.RUNNING
    state_since: float = 0.0
    state_reason: str = ""
    hint: str = ""
    phase: PhaseView | None = None
    stage: str = ""
    step: str = ""
    """The label of the last checkpoint that the run reached."""
    stages: dict[str, StageView] = field(default_factory=dict)
    """The schedule of a flow with stages, in order."""
    max_restarts: int = 0
    restarts: list[RestartView] = field(default_factory=list)
    failures: list[PhaseFailure] = field(default_factory=list)
    """Phases of the schedule that ended without success."""
    outcomes: dict[str, PhaseEnd] = field(default_factory=dict)
    """The last outcome of each phase that ended, by phase id, in the order they first ended."""
    skipped: list[SkippedPhase] = field(default_factory=list)
    tasks: list[TaskView] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    """Task id -> index in `tasks`."""
    current: str = ""
    """The id of the active task that changed last."""
    executing: bool = False
    """The run has entered a `tasks` phase, so reviews now judge code."""
    running: dict[str, Running] = field(default_factory=dict)
    questions: dict[str, QuestionView] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """Questions asked so far, by phase id."""
    answers: list[AnswerView] = field(default_factory=list)
    proposed: dict[str, Proposed] = field(default_factory=dict)
    """The last proposal, by kind of item."""
    spent: Totals = Totals()
    by_role: dict[str, Totals] = field(default_factory=dict)
    by_phase: dict[str, Totals] = field(default_factory=dict)
    limit_usd: float | None = None
    warn_usd: float | None = None
    warnings: list[WarningView] = field(default_factory=list)
    messages: list[MessageView] = field(default_factory=list)
    noted: dict[str, NotedView] = field(default_factory=dict)
    """Noted findings, by the finding's identity."""
    reviews: dict[str, dict[str, ReviewView]] = field(default_factory=dict)
    """Reviews outside tasks: phase id -> role -> last review."""
    final_phase: str = ""
    """The review phase that judges the whole result."""
    plan_revisions: int = 0
    artifacts: dict[str, ArtifactView] = field(default_factory=dict)
    waits: dict[str, WaitView] = field(default_factory=dict)
    published: str = ""
    shown_at: str = ""
    """The commit that the published branch points to; '' when there is no such branch."""
    tip: str = ""
    """The last commit that the run landed. The branch may still be at an older one."""
    fixed: tuple[str, ...] = ()
    """Files that were changed by fixes of the whole run, and by tasks that the plan no longer has."""
    landed: RunLanded | None = None
    """The last landing by a person."""
    publishing: dict[str, PublishFinished] = field(default_factory=dict)
    """The results of push, pr and tag."""
    report_path: str = ""
    log: list[LogEntry] = field(default_factory=list)
    started_at: float = 0.0
    updated_at: float = 0.0
    ended_at: float | None = None

    @property
    def cost(self) -> Cost:
        """The cost of the run so far, with the costs that running dispatches have reported."""
        unfinished = sum(running.cost_usd or 0.0 for running in self.running.values())
        return Cost(self.spent.usd + unfinished, self.spent.assumed_usd, self.spent.unknown, self.limit_usd)

    @property
    def has_code(self) -> bool:
        """The run has landed at least one commit, so there is something to land on a branch of the user."""
        return bool(self.tip) and self.tip != self.base

    @property
    def shortfall(self) -> str:
        """A text about the tasks that a finished run did not do; '' when it did all of them."""
        undone = Counter(task.state for task in self.tasks if task.state not in (COMPLETE, IMPLEMENTED))
        if not self.tasks:
            return "no task was carried out" if self.executing else ""
        if not undone:
            return ""
        states = ", ".join(f"{count} {state}" for state, count in undone.items())
        return f"{len(self.tasks) - undone.total()} of {len(self.tasks)} tasks completed ({states})"

    @property
    def is_landed(self) -> bool:
        """The whole result is on a branch of the user."""
        return self.landed is not None and self.landed.tip == self.tip

    @property
    def current_task(self) -> TaskView | None:
        return self.task(self.current)

    def task(self, id: str) -> TaskView | None:
        place = self.positions.get(id)
        return None if place is None else self.tasks[place]

    def tasks_in(self, *states: str) -> list[TaskView]:
        return [task for task in self.tasks if task.state in states]

    @property
    def final_reviews(self) -> dict[str, ReviewView]:
        return self.reviews.get(self.final_phase, {})

    def settled_answers(self, item: str) -> list[AnswerView]:
        """The last answer to each proposed item, in the order of the items. `revise` does not count as an answer."""
        found = self.proposed.get(item)
        last = {answer.id: answer for answer in (self.answers[found.since :] if found else ())}
        answers = [last.get(str(one.get("id"))) for one in found.items] if found else []
        return [answer for answer in answers if answer and answer.answer != "revise"]

    def setting(self, name: str) -> str:
        """The answer to a question about a setting; '' when there is none."""
        return next((a.answer for a in reversed(self.answers) if a.id == name), "")

    def copy(self) -> View:
        return replace(
            self,
            stages=dict(self.stages),
            restarts=list(self.restarts),
            failures=list(self.failures),
            outcomes=dict(self.outcomes),
            skipped=list(self.skipped),
            tasks=list(self.tasks),
            positions=dict(self.positions),
            running=dict(self.running),
            questions=dict(self.questions),
            asked=dict(self.asked),
            answers=list(self.answers),
            proposed=dict(self.proposed),
            by_role=dict(self.by_role),
            by_phase=dict(self.by_phase),
            warnings=list(self.warnings),
            messages=list(self.messages),
            noted=dict(self.noted),
            reviews={phase: dict(by_role) for phase, by_role in self.reviews.items()},
            artifacts=dict(self.artifacts),
            waits=dict(self.waits),
            publishing=dict(self.publishing),
            log=list(self.log),
        )


def ended_cost(event: DispatchFinished) -> Cost:
    assumed = assumed_for(event.cost_usd, event.assumed_usd)
    return Cost(event.cost_usd or 0.0, assumed, int(assumed > 0))


def costed_text(event: DispatchCosted) -> str:
    before = Cost(event.before_usd or 0.0, event.before_assumed_usd, int(event.before_assumed_usd > 0))
    now = Cost(event.cost_usd or 0.0, event.assumed_usd, int(event.assumed_usd > 0))
    return f"{event.role} cost {now.text}, not {before.text}"


def publish_label(what: str) -> str:
    return {"push": "Branch", "pr": "Pull request", "tag": "Tag"}.get(what, what)


def phase_of(key: str) -> str:
    """The phase's id, without visit and cycle: `plan-review+2/architect#1` -> `plan-review`."""
    return key.split("/", 1)[0].split("!", 1)[0].split("+", 1)[0].split("#", 1)[0]


def finding_from(raw: Json, role: str) -> Finding:
    """Contract: never raises. A value that is not a finding becomes a finding with that text."""
    if not isinstance(raw, dict) or "message" not in raw:
        return Finding(str(raw), role=role)
    try:
        found = Finding.from_json(raw)
    except (KeyError, ValueError):
        found = Finding(str(raw["message"]), file=str(raw.get("file") or ""))
    return found if found.role else replace(found, role=role)


def options_from(raw: list[Json]) -> tuple[Option, ...]:
    options = []
    for one in raw:
        if isinstance(one, dict):
            key = str(one.get("key") or one.get("label") or "")
            options.append(Option(key, str(one.get("label") or key), str(one.get("about") or "")))
        else:
            options.append(Option(str(one), str(one)))
    return tuple(options)


def question_from(event: QuestionAsked, since: float) -> QuestionView:
    return QuestionView(
        event.key, event.id, event.text, options_from(event.options), event.default, event.detail, event.task, since,
        event.title,
    )  # fmt: skip
