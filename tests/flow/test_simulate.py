from __future__ import annotations

import pytest

from flow_files import FILES, load
from windlass.errors import UserError
from windlass.flow.load import parse_flow
from windlass.flow.simulate import Simulation, simulate

LOOP = """\
flow: loop
about: A counted loop.
settings:
  rounds: {type: int, default: 2}
artifacts:
  text: {kind: text}
questions:
  stuck: {text: Stuck., options: {again: again, stop: stop}}
phases:
  - {id: write, kind: produce, calls: [{role: poet, out: text}], on: {failed: ask stuck}}
  - id: try
    kind: command
    on: {failed: {to: write, max: $rounds, then: stop}}
  - {id: end, kind: report, template: plan, on: {ok: finish}}
"""


def loop(**settings: str) -> Simulation:
    return simulate(parse_flow(LOOP, "f", roles={"poet"}, contracts=()), 0, settings)


def test_a_counted_loop_is_walked_as_often_as_it_may() -> None:
    assert loop() == Simulation(1, 3, 0, 1, ("stuck",))


def test_a_setting_changes_the_count() -> None:
    assert loop(rounds="10").max_dispatches == 11


def test_a_large_count_is_walked_without_recursion() -> None:
    assert loop(rounds="5000").max_dispatches == 5001


def test_a_count_beyond_reason_is_refused() -> None:
    with pytest.raises(UserError, match="too many ways"):
        loop(rounds="1000000")


def test_an_unknown_setting_is_refused_with_its_near_match() -> None:
    with pytest.raises(UserError, match="there is no setting 'round'"):
        loop(round="1")


def test_the_numbers_of_plan_for_one_task() -> None:
    # fewest: scout, planner, implement, for no reviewer need be there; most: every retry, fix and optional reviewer
    assert simulate(load("plan"), 1, {}) == Simulation(3, 35, 3, 5, ("approve", "escalation"))


def test_a_single_pass_costs_no_fixes() -> None:
    given = {"review_mode": "single-pass", "execution_mode": "auto"}
    assert simulate(load("plan"), 1, given) == Simulation(3, 4 + 2 + 7 + 1, 1, 2, ("approve", "escalation"))


@pytest.mark.parametrize("name", sorted(FILES))
def test_many_tasks_are_as_quick_as_few_and_cost_in_proportion(name: str) -> None:
    flow = load(name)
    few, more, many = (simulate(flow, count, {}) for count in (0, 1, 500))
    assert few.min_dispatches + 500 * (more.min_dispatches - few.min_dispatches) == many.min_dispatches
    assert more.max_dispatches <= many.max_dispatches
    assert many.min_dispatches <= many.max_dispatches
    assert many.min_questions <= many.max_questions


def test_restarts_are_counted_per_stage() -> None:
    flow = load("staged")
    once = simulate(flow, 1, {"retries.maxPerStage": "0", "retries.maxPerPhase": "1"})
    twice = simulate(flow, 1, {"retries.maxPerStage": "1", "retries.maxPerPhase": "1"})
    assert once.max_dispatches < twice.max_dispatches


def test_a_stage_that_is_off_costs_nothing() -> None:
    flow = load("staged")
    off = simulate(flow, 1, {"stages.TEST.enabled": "false"})
    assert off.min_dispatches == simulate(flow, 1, {}).min_dispatches - 1


def test_lean_costs_less_than_full() -> None:
    flow = load("contract")
    assert simulate(flow, 1, {"mode": "lean"}).min_dispatches < simulate(flow, 1, {"mode": "full"}).min_dispatches
