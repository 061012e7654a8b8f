"""Each rule of the machine by itself, on flows made for it."""

from __future__ import annotations

from msgspec.structs import replace

from fake_facts import FakeFacts
from windlass.engine import machine
from windlass.engine.machine import AskQuestion, End, RunPhase, SkipPhase, State
from windlass.flow.load import parse_flow
from windlass.flow.schema import Flow
from windlass.model import RunState

HEAD = """
flow: small
about: For the machine.
branch: windlass/{slug}-{id8}
tdd: off
over_budget: stop
artifacts:
  plan: {kind: text}
"""
QUESTION = """
questions:
  stuck:
    text: "What now?"
    options: {again: again, fix: fix, waive: waive, stop: stop, next: next}
"""
PHASES = """
phases:
  - id: draft
    kind: produce
    calls: [{role: planner, out: plan}]
    on: {failed: {to: draft, max: 2, then: stop}}
  - id: aside
    kind: produce
    via: route
    calls: [{role: planner, in: [plan]}]
    on: {failed: stop}
  - id: judge
    kind: review
    of: plan
    reviewers: [{role: architect}]
    fixer: {role: planner, out: plan}
    max: 1
    on: {pass: next, noted: {to: aside, max: 1, then: next}, exhausted: ask stuck, inconclusive: failed}
  - id: gated
    kind: produce
    needs: [file plan]
    calls: [{role: planner, in: [plan]}]
    on: {failed: stop}
  - {id: end, kind: report, template: task, to: [store], on: {ok: finish}}
  - {id: failed, kind: report, via: route, template: failure, to: [store], on: {ok: stop}}
"""
STAGES = """
settings:
  deep: {type: bool, default: true}
restarts: {max: 1, then: block}
stages:
  - id: one
    phases:
      - {id: a, kind: produce, calls: [{role: planner, out: plan}], on: {failed: stop}}
  - id: two
    when: {deep: true}
    phases:
      - {id: b, kind: produce, calls: [{role: planner, in: [plan]}], on: {failed: restart previous}}
  - id: three
    phases:
      - {id: c, kind: produce, calls: [{role: planner, in: [plan]}], on: {failed: restart previous}}
      - {id: d, kind: produce, calls: [{role: planner, in: [plan]}], on: {failed: restart here}}
"""
MODES = """
settings:
  mode: {options: {short: less, long: more}, default: short}
modes:
  short: [a, d]
  long: [b, c, d]
phases:
  - {id: a, kind: produce, calls: [{role: planner, out: plan}], on: {failed: mode long}}
  - {id: b, kind: produce, calls: [{role: planner, out: plan}], on: {failed: stop}}
  - {id: c, kind: produce, calls: [{role: planner, in: [plan]}], on: {failed: stop}}
  - {id: d, kind: produce, calls: [{role: planner, in: [plan]}], on: {failed: stop}}
"""
WORLD = FakeFacts()


def flow_of(*parts: str) -> Flow:
    return parse_flow(HEAD + "".join(parts), "small", roles={"planner", "architect"}, contracts={"tasks", "review"})


SMALL = flow_of(QUESTION, PHASES)
STAGED = flow_of(STAGES)
DEEP, FLAT = FakeFacts({"deep": "true"}), FakeFacts({"deep": "false"})


def at(phase: str, **more: object) -> State:
    return replace(State(phase, visits={phase: 1}), **more)  # type: ignore[arg-type]


def test_a_phase_for_routes_only_is_passed_over_and_entered_by_its_route() -> None:
    assert machine.after_outcome(SMALL, at("draft"), WORLD, "ok").at == "judge"
    assert machine.after_outcome(SMALL, at("judge"), WORLD, "noted").at == "aside"


def test_a_counted_route_is_taken_as_often_as_it_may_and_then_the_other_way() -> None:
    state = machine.start(SMALL)
    seen = []
    for _ in range(9):
        if state.ended is None:
            seen.append(state.visit)
            state = machine.after_outcome(SMALL, state, WORLD, "failed", "it broke")
    assert seen == [1, 2, 3]
    assert state.ended is not None
    assert (state.ended.state, state.ended.reason) == (RunState.STOPPED, "it broke")


def test_a_waived_gate_stays_waived() -> None:
    shut = FakeFacts(shut=frozenset({"file plan"}))
    assert machine.decide(SMALL, at("gated"), shut) == End(RunState.BLOCKED, "gated cannot begin: file plan")
    asking = at("gated", asking=machine.Asking("stuck", "shut"))
    waived = machine.after_answer(SMALL, asking, shut, "waive")
    assert (waived.at, waived.waived) == ("end", frozenset({"gated"}))
    assert isinstance(machine.decide(SMALL, replace(waived, at="gated"), shut), RunPhase)


def test_fix_enters_the_same_phase_with_its_fixer_first_once() -> None:
    asking = machine.after_outcome(SMALL, at("judge"), WORLD, "exhausted", "no zero case")
    fixing = machine.after_answer(SMALL, asking, WORLD, "fix")
    assert machine.decide(SMALL, fixing, WORLD) == RunPhase(SMALL.phase("judge"), 2, True)
    assert machine.after_outcome(SMALL, fixing, WORLD, "pass").fixing is False


def test_the_same_question_asked_again_has_the_next_number() -> None:
    state = machine.after_outcome(SMALL, at("judge"), WORLD, "exhausted", "first")
    assert machine.decide(SMALL, state, WORLD) == AskQuestion("stuck", SMALL.phase("judge"), 1, 1, "first")
    state = machine.after_outcome(
        SMALL, machine.after_answer(SMALL, state, WORLD, "again"), WORLD, "exhausted", "second"
    )
    assert machine.decide(SMALL, state, WORLD) == AskQuestion("stuck", SMALL.phase("judge"), 2, 2, "second")


def test_a_stage_that_is_off_is_skipped_with_the_reason_and_one_that_is_on_runs() -> None:
    skipped = machine.decide(STAGED, at("b"), FLAT)
    assert isinstance(skipped, SkipPhase)
    assert skipped.reason == "stage two is disabled: it runs only when deep is true"
    assert isinstance(machine.decide(STAGED, at("b"), DEEP), RunPhase)


def test_a_route_to_another_mode_begins_it_and_stays_in_it() -> None:
    flow = flow_of(MODES)
    short = machine.start(flow, "short")
    assert machine.after_outcome(flow, short, WORLD, "ok").at == "d"
    state = machine.after_outcome(flow, short, WORLD, "failed")
    seen = [state.at]
    while state.ended is None:
        state = machine.after_outcome(flow, state, WORLD, "ok")
        seen.append(state.at)
    assert (seen, state.mode) == (["b", "c", "d", "d"], "long")


def test_a_restart_goes_to_the_nearest_stage_before_that_is_on_and_is_counted() -> None:
    assert machine.after_outcome(STAGED, at("c"), DEEP, "failed").at == "b"
    again = machine.after_outcome(STAGED, at("c", waived=frozenset({"c"})), FLAT, "failed")
    assert (again.at, again.restarts, again.waived) == ("a", {"one": 1}, frozenset())
    here = machine.after_outcome(STAGED, at("d"), DEEP, "failed")
    assert (here.at, here.restarts) == ("c", {"three": 1})
    over = machine.after_outcome(STAGED, replace(here, at="d"), DEEP, "failed", "no")
    assert over.ended == machine.RunEnd(RunState.BLOCKED, "three was restarted 1 time; no")


def test_a_verdict_that_only_a_contract_knows_goes_where_no_verdict_goes() -> None:
    for outcome in ("hard_stop", "needs_decision"):
        assert machine.after_outcome(SMALL, at("judge"), WORLD, outcome).at == "failed"


def test_done_goes_on_where_nothing_else_is_said() -> None:
    assert machine.after_outcome(SMALL, at("draft"), WORLD, "done").at == "judge"


def test_a_failure_that_is_reported_is_the_reason_of_the_end() -> None:
    reported = machine.after_outcome(SMALL, at("judge"), WORLD, "inconclusive", "no verdict")
    assert (reported.failed_in, reported.failure) == ("judge", "no verdict")
    ended = machine.after_outcome(SMALL, reported, WORLD, "ok")
    assert ended.ended == machine.RunEnd(RunState.STOPPED, "no verdict")
    assert machine.after_retry(SMALL, ended).at == "judge"


def test_what_a_gate_blocked_is_no_new_visit_and_what_a_route_stopped_is() -> None:
    assert machine.after_retry(SMALL, machine.after_block(at("gated"), "shut")).visit == 1
    stopped = machine.after_outcome(SMALL, at("gated"), WORLD, "failed")
    assert machine.after_retry(SMALL, stopped).visit == 2
