"""What a person can know of a run, and the frozen pieces of it.

The pieces are named tuples: a frozen dataclass takes eight times as long to define, and `status` defines them all.
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
IMPLEMENTED = "implemented"
ENDED = frozenset({COMPLETE, SKIPPED, ESCALATED, "failed", IMPLEMENTED})
UNCHANGED = "Nothing was changed: there is no code to take."
WORKING = frozenset({"implementing", "reviewing", "fixing"})
PASSED = frozenset({Verdict.PASS.value, Verdict.PASS_WITH_NOTES.value})


class Totals(NamedTuple):
    usd: float = 0.0
    """What is known."""
    unknown: int = 0
    """Dispatches for which something is assumed."""
    input: int = 0
    output: int = 0
    cached: int = 0
    dispatches: int = 0
    prices: str = ""
    """The date of the price list by which a part of it was reckoned; empty: agents told all of it."""
    assumed_usd: float = 0.0
    """Counted besides, for those of unknown cost."""

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

    def corrected(self, event: DispatchCosted) -> Totals:
        """An earlier dispatch cost something else than was counted for it."""
        unknown = self.unknown + (event.assumed_usd > 0) - (event.before_assumed_usd > 0)
        return self._replace(
            usd=self.usd + (event.cost_usd or 0.0) - (event.before_usd or 0.0),
            unknown=unknown,
            input=self.input + event.input,
            output=self.output + event.output,
            cached=self.cached + event.cached,
            prices=max(self.prices, event.prices),
            # without a rest that rounding leaves
            assumed_usd=self.assumed_usd + event.assumed_usd - event.before_assumed_usd if unknown else 0.0,
        )


class ReviewView(NamedTuple):
    """The last word of one reviewer on one thing."""

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
    """What the engine found out about a task's tests, and how."""

    proof: str
    ok: bool
    reason: str
    command: str
    """'' when nothing was run."""
    trees: Mapping[str, str]
    tests: Mapping[str, tuple[str, ...]]


def proof_from(event: TaskProved) -> ProofView:
    trees = {name: str(sha) for name, sha in event.trees.items()}
    tests = {name: tuple(str(id) for id in ids) for name, ids in event.tests.items() if isinstance(ids, list)}
    return ProofView(event.proof, event.ok, event.reason, event.command, trees, tests)


class TaskView(Struct, frozen=True):
    id: str
    index: int
    """From 1, in the plan's order."""
    title: str
    description: str = ""
    files: tuple[str, ...] = ()
    """As the plan declares them."""
    group: int = 0
    """The wave it can run in, from 1: one more than the highest of what it depends on. 0: not recorded."""
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
    """As its landing changed them."""
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
    """What a person said to the run."""

    text: str
    by: str
    role: str
    """Whom it is for; '' for whoever writes code."""
    at: float
    delivered_to: str = ""
    """The dispatch that was given it, '' while none was."""
    delivered_at: float = 0.0

    @property
    def whom(self) -> str:
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
    """A dispatch at work."""

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
    def who(self) -> str:
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
    """The chosen option as it was shown; the answer itself where there was none."""


class Proposed(NamedTuple):
    """What an agent proposed for a person to handle, with what was changed in it since."""

    item: str
    """questions | approaches | sections"""
    phase: str
    items: tuple[dict[str, Json], ...]
    recommendation: str = ""
    reasoning: str = ""
    since: int = 0
    """Answers given before it were about something else."""


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
    """A finding that did not hold anything up."""

    finding: Finding
    task: str
    phase: str


class SkippedPhase(NamedTuple):
    phase: str
    reason: str
    waived: bool


class LogEntry(NamedTuple):
    at: float
    text: str


class View(Struct):
    """A snapshot. Only the fold changes one; `Folder.view` hands out copies."""

    run: str
    place: str = ""
    """How the repository was named on the command line; '' when one is in it."""
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
    """The checkpoint that was reached last, by the name its document gives it."""
    outcomes: dict[str, PhaseEnd] = field(default_factory=dict)
    """The last outcome of each phase that ended, by phase id, in the order they first ended."""
    skipped: list[SkippedPhase] = field(default_factory=list)
    tasks: list[TaskView] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    """Task id -> place in `tasks`."""
    current: str = ""
    """The id of the task that changed last and is at work."""
    executing: bool = False
    """A `tasks` phase was entered: reviews from now on judge the built code."""
    running: dict[str, Running] = field(default_factory=dict)
    questions: dict[str, QuestionView] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """Questions asked so far, by phase id."""
    answers: list[AnswerView] = field(default_factory=list)
    proposed: dict[str, Proposed] = field(default_factory=dict)
    """What was proposed last, by kind of item."""
    spent: Totals = Totals()
    by_role: dict[str, Totals] = field(default_factory=dict)
    by_phase: dict[str, Totals] = field(default_factory=dict)
    limit_usd: float | None = None
    warn_usd: float | None = None
    warnings: list[WarningView] = field(default_factory=list)
    messages: list[MessageView] = field(default_factory=list)
    noted: dict[str, NotedView] = field(default_factory=dict)
    """The ledger, by the finding's identity."""
    reviews: dict[str, dict[str, ReviewView]] = field(default_factory=dict)
    """Reviews of no single task: phase id -> role -> last verdict."""
    final_phase: str = ""
    """The review phase that judged the whole."""
    plan_revisions: int = 0
    artifacts: dict[str, ArtifactView] = field(default_factory=dict)
    waits: dict[str, WaitView] = field(default_factory=dict)
    published: str = ""
    shown_at: str = ""
    """The commit that the published branch points to; '' when there is no such branch."""
    tip: str = ""
    """What the run has landed so far, whether the branch shows it or not."""
    fixed: tuple[str, ...] = ()
    """Files that were mended for the whole run, after its final review."""
    landed: RunLanded | None = None
    """Where a person took it, the last time."""
    publishing: dict[str, PublishFinished] = field(default_factory=dict)
    """push, pr and tag: what became of each."""
    report_path: str = ""
    log: list[LogEntry] = field(default_factory=list)
    started_at: float = 0.0
    updated_at: float = 0.0
    ended_at: float | None = None

    @property
    def cost(self) -> Cost:
        """What the run has cost, with what dispatches at work have reported so far: the one figure that is shown."""
        at_work = sum(running.cost_usd or 0.0 for running in self.running.values())
        return Cost(self.spent.usd + at_work, self.spent.assumed_usd, self.spent.unknown, self.limit_usd)

    @property
    def has_code(self) -> bool:
        """Something landed that is not what there was before: a branch to look at, and to take."""
        return bool(self.tip) and self.tip != self.base

    @property
    def shortfall(self) -> str:
        """What a finished run did not do, in words; '' when every task was carried out."""
        undone = Counter(task.state for task in self.tasks if task.state not in (COMPLETE, IMPLEMENTED))
        if not self.tasks:
            return "no task was carried out" if self.executing else ""
        if not undone:
            return ""
        states = ", ".join(f"{count} {state}" for state, count in undone.items())
        return f"{len(self.tasks) - undone.total()} of {len(self.tasks)} tasks completed ({states})"

    @property
    def is_landed(self) -> bool:
        """All of it is on a branch of the user's."""
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

    def settled(self, item: str) -> list[AnswerView]:
        """What a person said of each item, in the items' order: the last word counts, a section sent back has none."""
        found = self.proposed.get(item)
        last = {answer.id: answer for answer in (self.answers[found.since :] if found else ())}
        said = [last.get(str(one.get("id"))) for one in found.items] if found else []
        return [answer for answer in said if answer and answer.answer != "revise"]

    def setting(self, name: str) -> str:
        """As a person answered it; empty when it was not asked."""
        return next((a.answer for a in reversed(self.answers) if a.id == name), "")

    def copy(self) -> View:
        return replace(
            self,
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


def published(what: str) -> str:
    return {"push": "Branch", "pr": "Pull request", "tag": "Tag"}.get(what, what)


def phase_of(key: str) -> str:
    """The phase's id, without visit and cycle: `plan-review+2/architect#1` -> `plan-review`."""
    return key.split("/", 1)[0].split("!", 1)[0].split("+", 1)[0].split("#", 1)[0]


def finding_from(raw: Json, role: str) -> Finding:
    """Contract: never raises. What is not a finding is shown as the text it is."""
    if not isinstance(raw, dict) or "message" not in raw:
        return Finding(str(raw), role=role)
    try:
        found = Finding.from_json(raw)
    except (KeyError, ValueError):
        found = Finding(str(raw["message"]), file=str(raw.get("file") or ""))
    return found if found.role else replace(found, role=role)


def options_from(raw: list[Json]) -> tuple[Option, ...]:
    return tuple(_option(one) for one in raw)


def _option(raw: Json) -> Option:
    if not isinstance(raw, dict):
        return Option(str(raw), str(raw))
    key = str(raw.get("key") or raw.get("label") or "")
    return Option(key, str(raw.get("label") or key), str(raw.get("about") or ""))


def question_from(event: QuestionAsked, since: float) -> QuestionView:
    return QuestionView(
        event.key, event.id, event.text, options_from(event.options), event.default, event.detail, event.task, since,
        event.title,
    )  # fmt: skip
