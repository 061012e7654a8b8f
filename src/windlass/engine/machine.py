"""Decides what the run does next. Pure: no clock, no await, only the flow, the state and the given facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.errors import StoppedError
from windlass.flow.schema import Flow, Phase
from windlass.kinds.routes import TASK_ONLY, Target, To
from windlass.kinds.visit_cost import When, holds
from windlass.kinds.walker import FINISH, Move, WalkFacts, WalkState, next_step, phase_table, restarted_phases, take
from windlass.model import RunState
from windlass.text import plural

ENDS = {
    To.STOP: RunState.STOPPED,
    To.BLOCK: RunState.BLOCKED,
    To.ABORT: RunState.ABORTED,
    To.FINISH: RunState.FINISHED,
}


class Facts(WalkFacts, Protocol):
    """The facts of a decision. Contract: the same values on every replay."""

    def unmet_needs(self, needs: tuple[str, ...]) -> list[str]:
        """The gate's conditions that do not hold, for a person."""
        ...


class Asking(Struct, frozen=True):
    question: str
    reason: str


class RunEnd(Struct, frozen=True):
    state: RunState
    reason: str = ""
    fresh: bool = True
    """A person's retry enters the phase as a new visit; False: the gate stopped it before its entry."""


class State(WalkState, frozen=True):
    """The position of the run. `taken` also counts how often each question of a route was asked."""

    visits: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, str] = field(default_factory=dict)
    waived: frozenset[str] = frozenset()
    asking: Asking | None = None
    ended: RunEnd | None = None
    fixing: bool = False
    """A `fix` route entered the phase: its fixer goes first."""
    failed_in: str = ""
    """The phase that failed before this report: a retry repeats that phase, not the report."""
    failure: str = ""
    """Why it failed: the run's reason when the report ends it."""

    @property
    def visit(self) -> int:
        return self.visits.get(self.at, 0)


class RunPhase(Struct, frozen=True):
    phase: Phase
    visit: int
    fixing: bool = False
    files: tuple[str, ...] = ()
    """The artifacts of its gate."""
    waived: tuple[str, ...] = ()
    """What its gate misses, and a person waived; for a person."""


class SkipPhase(Struct, frozen=True):
    phase: Phase
    visit: int
    reason: str


class AskQuestion(Struct, frozen=True):
    """A route asks: the option of the answer decides the target."""

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
    state, first = State(at="", mode=mode), phase_table(flow).first(mode)
    return replace(state, ended=RunEnd(RunState.FINISHED)) if first.id == FINISH else _enter(state, first.id)


def decide(flow: Flow, state: State, facts: Facts) -> Decision:
    if state.ended:
        return End(state.ended.state, state.ended.reason)
    phase = flow.phase(state.at)
    if state.asking:
        nth = state.taken.get(_question_counter(state.at, state.asking.question), 0) + 1
        return AskQuestion(state.asking.question, phase, state.visit, nth, state.asking.reason)
    reason = _disabled_reason(flow, phase, facts)
    if reason:
        return SkipPhase(phase, state.visit, reason)
    needs = gate_needs(flow, phase, facts)
    unmet = facts.unmet_needs(needs)
    waived = [need for need in unmet if phase.id in state.waived or _maker_waived(flow, state, need)]
    missing = [need_text(flow, need) for need in unmet if need not in waived]
    if missing:
        return End(RunState.BLOCKED, f"{phase.id} cannot begin: {'; '.join(missing)}")
    files = tuple(need.split()[1] for need in needs if need.startswith("file ") and need not in unmet)
    return RunPhase(phase, state.visit, state.fixing, files, tuple(need_text(flow, need) for need in waived))


def after_outcome(flow: Flow, state: State, facts: Facts, outcome: str, reason: str = "") -> State:
    """The state after a phase ended with an outcome."""
    state = replace(state, outcomes={**state.outcomes, state.at: outcome}, fixing=False)
    table = phase_table(flow)
    after, move = next_step(table, state, outcome, facts)
    route, count = table.route(state.at, outcome), state.taken.get(f"{state.at}.{outcome}", 0)
    if not reason and route and route.max is not None and move.target == route.then:
        reason = f"{route.target.arg or state.at} was repeated {plural(count, 'time')}, as often as it may be"
    return _after_move(flow, state, after, move, reason)


def after_skip(flow: Flow, state: State, facts: Facts) -> State:
    return _go(flow, state, facts, Target(To.NEXT), "")


def after_answer(flow: Flow, state: State, facts: Facts, option: str) -> State:
    """The state after an answer to a route's question."""
    assert state.asking is not None
    question, why = state.asking.question, state.asking.reason
    target = flow.questions[question].options[option]
    return _go(flow, after_question(state), facts, target, state_reason(option, question, why))


def after_question(state: State) -> State:
    """The state after a question that was answered, or that a person left for another way. The next one is new."""
    if state.asking is None:
        return state
    asked = _question_counter(state.at, state.asking.question)
    return replace(state, asking=None, taken={**state.taken, asked: state.taken.get(asked, 0) + 1})


def after_target(flow: Flow, state: State, facts: Facts, target: Target, reason: str) -> State:
    """The state after a target from inside a phase: a task that ends the run, or switches the mode."""
    return _go(flow, state, facts, target, reason)


def after_block(state: State, reason: str) -> State:
    return replace(state, ended=RunEnd(RunState.BLOCKED, reason, fresh=False))


def after_retry(flow: Flow, state: State) -> State:
    """The state after a person's retry. A phase that a route stopped is entered as a new visit."""
    assert state.ended is not None
    fresh, at = state.ended.fresh, state.failed_in or state.at
    state = replace(state, ended=None, asking=None, failed_in="", failure="")
    if state.at != at and flow.phase(at).OWN_SLOTS:
        # The same visit: the results of its tasks stay, the failed task gets a new visit.
        return replace(state, at=at)
    return _enter(state, at) if fresh else state


def after_waived_gate(state: State) -> State:
    """The state after a person let a phase begin without what its gate misses."""
    return replace(state, ended=None, waived=state.waived | {state.at})


# -- gates


def gate_needs(flow: Flow, phase: Phase, facts: Facts) -> tuple[str, ...]:
    """What a phase needs to begin. A phase after a disabled stage also needs what the gates of that stage need. Files
    that only disabled stages make are not needed."""
    if not flow.stages:
        return phase.needs
    off = {one.id for stage in flow.stages if not holds(stage.when, facts.fact) for one in stage.phases}
    needs = list(phase.needs)
    phases = flow.all_phases()
    for earlier in reversed(phases[: phases.index(phase)]):
        if earlier.id not in off:
            break
        needs += [need for need in earlier.needs if need not in needs]
    return tuple(need for need in needs if not _made_only_by(flow, need, off))


def _made_only_by(flow: Flow, need: str, phases: set[str]) -> bool:
    makers = _makers(flow, need)
    return bool(makers) and makers <= phases


def _maker_waived(flow: Flow, state: State, need: str) -> bool:
    return bool(_makers(flow, need) & state.waived)


def _makers(flow: Flow, need: str) -> set[str]:
    """The phases that make the file of a need."""
    word, _, name = need.partition(" ")
    return {one.id for one in flow.all_phases() if name in one.artifacts_out()} if word == "file" else set()


def need_text(flow: Flow, need: str) -> str:
    """A need as a person reads it: a file by its path, with the phase that makes it."""
    word, _, name = need.partition(" ")
    if word != "file" or not flow.stages:
        return need
    makers = [one.id for one in flow.all_phases() if name in one.artifacts_out()]
    return f"'{flow.artifacts[name].path or name}' of phase {makers[0] if makers else '?'} is missing"


def state_reason(option: str, question: str, why: str = "") -> str:
    text = f"'{option}' was answered to '{question}'"
    return f"{why} ({text})" if why else text


# -- helpers


def _go(flow: Flow, state: State, facts: Facts, target: Target, reason: str) -> State:
    after, move = take(phase_table(flow), state, target, facts)
    return _after_move(flow, state, after, move, reason)


def _after_move(flow: Flow, before: State, after: State, move: Move, reason: str) -> State:
    """The state of the run after a move of the walker."""
    target = move.target
    reason = f"{move.note}; {reason}" if move.note else reason
    if target.to in TASK_ONLY:
        raise StoppedError(f"'{target}' is only possible inside a task", hint="windlass flow check FILE")
    if target.to is To.ASK:
        return replace(after, asking=Asking(target.arg, reason))
    if target.to in ENDS:
        return replace(after, ended=RunEnd(ENDS[target.to], target.arg or reason or after.failure))
    if target.to is To.WAIVE:
        after = replace(after, waived=after.waived | {before.at})
    if move.stage:
        pending = restarted_phases(phase_table(flow), move.stage, before.at)
        after = replace(after, waived=after.waived - frozenset(pending))
    if move.to.id == FINISH:
        return replace(after, ended=RunEnd(RunState.FINISHED))
    if target.to is To.GOTO:
        reported = flow.phase(target.arg)
        failed_in = before.at if reported.REPORTS_FAILURE and reported.via else ""
        after = replace(after, failed_in=failed_in, failure=reason if failed_in else "")
    return _enter(replace(after, fixing=True) if target.to is To.FIX else after, move.to.id)


def _enter(state: State, phase: str) -> State:
    return replace(state, at=phase, visits={**state.visits, phase: state.visits.get(phase, 0) + 1})


def _disabled_reason(flow: Flow, phase: Phase, facts: Facts) -> str:
    stage = flow.stage_of(phase.id)
    # A run without its last stage has a report too.
    if stage is not None and not phase.REPORTS_FAILURE and not holds(stage.when, facts.fact):
        return f"stage {stage.id} is disabled: it runs only when {_words(stage.when)}"
    return "" if holds(phase.when, facts.fact) else f"only when {_words(phase.when)}"


def _words(when: When) -> str:
    wanted: dict[str, str] = {}
    for name, value in when.items():
        if isinstance(value, bool):
            wanted[name] = "true" if value else "false"
        else:
            wanted[name] = value if isinstance(value, str) else " or ".join(value)
    return ", ".join(f"{name} is {value}" for name, value in wanted.items())


def _question_counter(phase: str, question: str) -> str:
    return f"{phase}?{question}"
