"""What happens next, decided by values alone: every flow comes to an end, whatever its phases come to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_facts import FakeFacts
from flow_files import FILES, load
from windlass.engine import machine
from windlass.engine.machine import AskQuestion, End, RunPhase, SkipPhase, State
from windlass.errors import StoppedError
from windlass.flow.route_graph import back_options
from windlass.flow.schema import Flow, Phase
from windlass.kinds.routes import Target, To
from windlass.kinds.spec import routes_of
from windlass.model import RunState

FLOWS = {name: load(name) for name in FILES}
STEPS = 2_000


def _outcomes(flow: Flow, phase: Phase) -> list[str]:
    return sorted(routes_of(flow, phase))


def _forward(flow: Flow, question: str) -> list[str]:
    """What an automatic answer may be."""
    return [option for option in flow.questions[question].options if option not in back_options(flow, question)]


def _step(flow: Flow, state: State, world: FakeFacts, data: st.DataObject) -> State | None:
    """One decision, performed with an outcome drawn by chance; None at the end."""
    match machine.decide(flow, state, world):
        case RunPhase(phase=phase):
            known = _outcomes(flow, phase)
            if phase.kind == "ask" and phase.question:
                known = _forward(flow, phase.question) or known
            return machine.after_outcome(flow, state, world, data.draw(st.sampled_from(known)))
        case SkipPhase():
            return machine.after_skip(flow, state, world)
        case AskQuestion(question=question):
            options = _forward(flow, question) or list(flow.questions[question].options)
            return machine.after_answer(flow, state, world, data.draw(st.sampled_from(options)))
        case End():
            return None


def _facts(flow: Flow) -> Iterator[str]:
    for phase in flow.all_phases():
        yield from phase.when
    for stage in flow.stages:
        yield from stage.when


@pytest.mark.req("S0-11")
@pytest.mark.parametrize("name", sorted(FLOWS))
@given(data=st.data())
def test_whatever_its_phases_come_to_a_flow_ends_without_a_person(name: str, data: st.DataObject) -> None:
    flow = FLOWS[name]
    mode = data.draw(st.sampled_from(sorted(flow.modes) or [""]))
    facts = {fact: data.draw(st.sampled_from([True, False, None])) for fact in sorted(set(_facts(flow)))}
    world = FakeFacts(facts, flow=flow)
    state: State | None = machine.start(flow, mode)
    for _ in range(STEPS):
        before = state
        assert before is not None
        state = _step(flow, before, world, data)
        if state is None:
            assert before.ended is not None or isinstance(machine.decide(flow, before, world), End)
            return
    raise AssertionError(f"{name} did not end within {STEPS} steps")


@pytest.mark.parametrize("name", sorted(FLOWS))
@given(data=st.data())
def test_no_visit_number_is_given_twice(name: str, data: st.DataObject) -> None:
    """So no key is: a phase entered again is another key."""
    flow, seen = FLOWS[name], set()
    world = FakeFacts(flow=flow)
    state: State | None = machine.start(flow, next(iter(sorted(flow.modes)), ""))
    while state is not None and len(seen) < 300:
        todo = machine.decide(flow, state, world)
        if isinstance(todo, RunPhase):
            assert (todo.phase.id, todo.visit) not in seen
            seen.add((todo.phase.id, todo.visit))
        state = _step(flow, state, world, data)


@pytest.mark.req("S0-10", "S0-68", "S0-74")
def test_a_plan_without_failures_goes_straight_through() -> None:
    flow = FLOWS["plan"]
    assert _straight(flow) == [
        *("plan-draft", "plan-review", "plan-approval", "configure", "execute", "finalize", "report"),
        RunState.FINISHED,
    ]


def _straight(flow: Flow) -> list[str]:
    good = ("ok", "pass", "done", "approve")
    world, state, seen = FakeFacts(flow=flow), machine.start(flow), []
    while True:
        match machine.decide(flow, state, world):
            case RunPhase(phase=phase):
                seen.append(phase.id)
                known = _outcomes(flow, phase)
                state = machine.after_outcome(flow, state, world, next(word for word in good if word in known))
            case End(state=ended):
                return [*seen, ended]
            case other:
                raise AssertionError(other)


def test_the_same_outcomes_give_the_same_way() -> None:
    flow, world = FLOWS["plan"], FakeFacts(flow=FLOWS["plan"])
    state = machine.start(flow)
    assert machine.after_outcome(flow, state, world, "ok") == machine.after_outcome(flow, state, world, "ok")
    assert state == machine.start(flow)


@pytest.mark.req("S0-31")
def test_a_gate_that_is_shut_blocks_and_names_what_is_missing() -> None:
    flow = FLOWS["plan"]
    world = FakeFacts(flow=flow, shut=frozenset({"answered approve approve"}))
    state = State(at="execute", visits={"execute": 1})
    assert machine.decide(flow, state, world) == End(RunState.BLOCKED, "execute cannot begin: answered approve approve")


def test_an_outcome_that_the_flow_does_not_route_stops_with_its_name() -> None:
    flow = FLOWS["plan"]
    with pytest.raises(StoppedError, match="'nonsense'"):
        machine.after_outcome(flow, machine.start(flow), FakeFacts(flow=flow), "nonsense")


def test_a_retry_enters_the_phase_that_stopped_as_a_new_visit() -> None:
    flow = FLOWS["plan"]
    world = FakeFacts(flow=flow)
    stopped = machine.after_outcome(flow, machine.start(flow), world, "failed")
    assert machine.decide(flow, stopped, world) == End(RunState.STOPPED, "")
    again = machine.decide(flow, machine.after_retry(flow, stopped), world)
    assert isinstance(again, RunPhase)
    assert (again.phase.id, again.visit) == ("plan-draft", 2)


@pytest.mark.parametrize(
    ("phase", "outcome", "visit"), [("plan", "failed", 2), ("execute", "stopped", 1), ("pr", "failed", 2)]
)
def test_a_retry_after_a_reported_failure_takes_up_the_phase_that_failed(phase: str, outcome: str, visit: int) -> None:
    """A list of tasks keeps its visit: only the task that failed gets another."""
    flow = FLOWS["team"]
    world = FakeFacts(flow=flow)
    failed = machine.after_outcome(flow, State(at=phase, visits={phase: 1}), world, outcome, "it broke")
    reported = machine.decide(flow, failed, world)
    assert isinstance(reported, RunPhase)
    assert reported.phase.id == "failed"
    stopped = machine.after_outcome(flow, failed, world, "ok")
    assert machine.decide(flow, stopped, world) == End(RunState.STOPPED, "it broke")
    again = machine.decide(flow, machine.after_retry(flow, stopped), world)
    assert isinstance(again, RunPhase)
    assert (again.phase.id, again.visit) == (phase, visit)


def test_a_retry_of_what_a_gate_blocked_is_no_new_visit() -> None:
    state = State(at="execute", visits={"execute": 1})
    again = machine.after_retry(FLOWS["plan"], machine.after_block(state, "shut"))
    assert again.visit == 1


@pytest.mark.req("S0-61")
def test_abort_ends_the_run_from_inside_a_phase() -> None:
    flow = FLOWS["plan"]
    state = State(at="execute", visits={"execute": 1})
    ended = machine.after_target(flow, state, FakeFacts(flow=flow), Target(To.ABORT), "'abort' was answered")
    assert machine.decide(flow, ended, FakeFacts(flow=flow)) == End(RunState.ABORTED, "'abort' was answered")


def test_a_person_who_sends_the_plan_back_is_bound_by_nothing_but_patience() -> None:
    flow = FLOWS["plan"]
    world = FakeFacts(flow=flow)
    state = State(at="plan-approval", visits={"plan-approval": 1, "plan-review": 1})
    for visit in range(2, 12):
        state = machine.after_outcome(flow, state, world, "revise")
        assert (state.at, state.visit) == ("plan-review", visit)
        state = machine.after_outcome(flow, state, world, "pass")
        assert (state.at, state.visit) == ("plan-approval", visit)
