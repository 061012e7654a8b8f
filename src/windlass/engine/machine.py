"""What happens next. Pure: no clock, no await, no world but the facts it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.errors import StoppedError
from windlass.flow.schema import Flow, Phase, Stage
from windlass.kinds.routes import Route, Target, To
from windlass.kinds.visit_cost import When, holds
from windlass.model import Json, RunState

ENDS = {
    To.STOP: RunState.STOPPED,
    To.BLOCK: RunState.BLOCKED,
    To.ABORT: RunState.ABORTED,
    To.FINISH: RunState.FINISHED,
}


class Facts(Protocol):
    """The facts a decision may look at. Contract: the same answer on every replay."""

    def fact(self, name: str) -> Json: ...

    def number(self, value: int | str) -> int:
        """A count, or the value of a $setting."""
        ...

    def unmet(self, needs: tuple[str, ...]) -> list[str]:
        """The gate's conditions that do not hold, in words."""
        ...


class Asking(Struct, frozen=True):
    question: str
    reason: str


class RunEnd(Struct, frozen=True):
    state: RunState
    reason: str = ""
    fresh: bool = True
    """A person's retry enters the phase as a new visit; False: it was never entered, the gate stopped it."""


class State(Struct, frozen=True):
    at: str
    """The phase the machine stands in."""
    visits: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    """Counted routes and questions: how often each was taken."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""
    waived: frozenset[str] = frozenset()
    asking: Asking | None = None
    ended: RunEnd | None = None
    fixing: bool = False
    """The phase was entered by `fix`: its fixer goes first."""
    failed_in: str = ""
    """The phase whose failure led to this report: a retry takes that one up, not the report."""
    failure: str = ""
    """Why it failed: the run's reason when the report ends it."""

    @property
    def visit(self) -> int:
        return self.visits.get(self.at, 0)


class RunPhase(Struct, frozen=True):
    phase: Phase
    visit: int
    fixing: bool = False


class SkipPhase(Struct, frozen=True):
    phase: Phase
    visit: int
    reason: str


class AskQuestion(Struct, frozen=True):
    """A route asks: the answer's option says where to go."""

    question: str
    phase: Phase
    visit: int
    nth: int
    reason: str


class End(Struct, frozen=True):
    state: RunState
    reason: str = ""


Decision: TypeAlias = RunPhase | SkipPhase | AskQuestion | End


def start(flow: Flow, mode: str = "") -> State:
    return _enter(State(at="", mode=mode), flow.sequence(mode)[0].id)


def decide(flow: Flow, state: State, world: Facts) -> Decision:
    if state.ended:
        return End(state.ended.state, state.ended.reason)
    phase = flow.phase(state.at)
    if state.asking:
        nth = state.taken.get(_asked(state.at, state.asking.question), 0) + 1
        return AskQuestion(state.asking.question, phase, state.visit, nth, state.asking.reason)
    reason = _disabled(flow, phase, world)
    if reason:
        return SkipPhase(phase, state.visit, reason)
    missing = [] if phase.id in state.waived else world.unmet(phase.needs)
    if missing:
        return End(RunState.BLOCKED, f"{phase.id} cannot begin: {'; '.join(missing)}")
    return RunPhase(phase, state.visit, state.fixing)


def finished(flow: Flow, state: State, world: Facts, outcome: str, reason: str = "") -> State:
    """A phase ended with an outcome."""
    phase = flow.phase(state.at)
    state = replace(state, outcomes={**state.outcomes, phase.id: outcome}, fixing=False)
    return _follow(flow, state, world, _route(flow, phase, outcome), f"{phase.id}.{outcome}", reason)


def skipped(flow: Flow, state: State, world: Facts) -> State:
    return _go(flow, state, world, Target(To.NEXT), "")


def answered(flow: Flow, state: State, world: Facts, option: str) -> State:
    """A question raised by a route was answered."""
    assert state.asking is not None
    question, why = state.asking.question, state.asking.reason
    asked = _asked(state.at, question)
    state = replace(state, asking=None, taken={**state.taken, asked: state.taken.get(asked, 0) + 1})
    return _go(flow, state, world, flow.questions[question].options[option], state_reason(option, question, why))


def routed(flow: Flow, state: State, world: Facts, target: Target, reason: str) -> State:
    """A target reached from inside a phase: a task that ends the run, or leaves for another mode."""
    return _go(flow, state, world, target, reason)


def blocked(state: State, reason: str) -> State:
    return replace(state, ended=RunEnd(RunState.BLOCKED, reason, fresh=False))


def retried(flow: Flow, state: State) -> State:
    """A person said: go on. What was stopped by a route is entered as a new visit."""
    assert state.ended is not None
    fresh, at = state.ended.fresh, state.failed_in or state.at
    state = replace(state, ended=None, asking=None, failed_in="", failure="")
    if state.at != at and flow.phase(at).OWN_SLOTS:
        # The same visit: what its tasks have done stays done, the one that failed gets a visit of its own.
        return replace(state, at=at)
    return _enter(state, at) if fresh else state


def state_reason(option: str, question: str, why: str = "") -> str:
    said = f"'{option}' was answered to '{question}'"
    return f"{why} ({said})" if why else said


# -- inside


def _route(flow: Flow, phase: Phase, outcome: str) -> Route:
    if outcome in phase.on:
        return phase.on[outcome]
    question = phase.asked_question()
    if question:
        return Route(flow.questions[question].options[outcome])
    if outcome in ("ok", "done"):
        return Route(Target(To.NEXT))
    if outcome in ("hard_stop", "needs_decision") and "inconclusive" in phase.on:
        # Whether a reviewer can say this is known by its contract alone, which the flow's check does not see.
        return phase.on["inconclusive"]
    raise StoppedError(
        f"phase '{phase.id}' ended with '{outcome}', which its flow does not route",
        hint="add it under the phase's `on:`; windlass flow check FILE names all of them",
    )


def _follow(flow: Flow, state: State, world: Facts, route: Route, name: str, reason: str) -> State:
    if route.max is None or route.then is None:
        return _go(flow, state, world, route.target, reason)
    count = state.taken.get(name, 0)
    if count >= world.number(route.max):
        return _go(flow, state, world, route.then, reason)
    return _go(flow, replace(state, taken={**state.taken, name: count + 1}), world, route.target, reason)


def _go(flow: Flow, state: State, world: Facts, target: Target, reason: str) -> State:
    if target.to in ENDS:
        return replace(state, ended=RunEnd(ENDS[target.to], target.arg or reason or state.failure))
    match target.to:
        case To.NEXT:
            return _next(flow, state)
        case To.GOTO:
            reported = flow.phase(target.arg)
            failed_in = state.at if reported.REPORTS_FAILURE and reported.via else ""
            return replace(_enter(state, target.arg), failed_in=failed_in, failure=reason if failed_in else "")
        case To.AGAIN:
            return _enter(state, state.at)
        case To.FIX:
            return replace(_enter(state, state.at), fixing=True)
        case To.ASK:
            return replace(state, asking=Asking(target.arg, reason))
        case To.WAIVE:
            return _next(flow, replace(state, waived=state.waived | {state.at}))
        case To.MODE:
            return _enter(replace(state, mode=target.arg), flow.sequence(target.arg)[0].id)
        case To.RESTART:
            return _restart(flow, state, world, target, reason)
        case _:
            raise StoppedError(f"'{target}' is only possible inside a task", hint="windlass flow check FILE")


def _enter(state: State, phase: str) -> State:
    return replace(state, at=phase, visits={**state.visits, phase: state.visits.get(phase, 0) + 1})


def _next(flow: Flow, state: State) -> State:
    """The following phase; those that only a route may enter are passed over."""
    ids = [phase.id for phase in flow.sequence(state.mode)]
    position = ids.index(state.at)
    following = next((id for id in ids[position + 1 :] if not flow.phase(id).via), None)
    if following is None:
        return replace(state, ended=RunEnd(RunState.FINISHED))
    return _enter(state, following)


def _restart(flow: Flow, state: State, world: Facts, target: Target, reason: str) -> State:
    stage = _restart_stage(flow, state, world, target)
    count = state.restarts.get(stage.id, 0)
    if flow.restarts is not None and count >= world.number(flow.restarts.max):
        return _go(flow, state, world, flow.restarts.then, f"{stage.id} was restarted {count} times; {reason}")
    again = replace(state, restarts={**state.restarts, stage.id: count + 1}, waived=frozenset())
    return _enter(again, stage.phases[0].id)


def _restart_stage(flow: Flow, state: State, world: Facts, target: Target) -> Stage:
    current = flow.stage_of(state.at)
    assert current is not None
    if target.arg == "here":
        return current
    enabled = [stage for stage in flow.stages if holds(stage.when, world.fact)]
    if target.arg == "previous":
        before = [stage for stage in enabled if flow.stages.index(stage) < flow.stages.index(current)]
        return before[-1] if before else current
    by_id = {stage.id: stage for stage in enabled}
    return by_id.get(target.arg) or by_id[target.otherwise]


def _disabled(flow: Flow, phase: Phase, world: Facts) -> str:
    stage = flow.stage_of(phase.id)
    if stage is not None and not holds(stage.when, world.fact):
        return f"stage {stage.id} is off: {_words(stage.when)}"
    return "" if holds(phase.when, world.fact) else f"only when {_words(phase.when)}"


def _words(when: When) -> str:
    return ", ".join(
        f"{name} is {value if isinstance(value, str | bool) else ' or '.join(value)}" for name, value in when.items()
    )


def _asked(phase: str, question: str) -> str:
    return f"{phase}?{question}"
