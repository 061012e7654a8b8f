from __future__ import annotations

from flow_files import load
from windlass.flow.route_graph import back_options, phase_edges, reachable_nodes, starts
from windlass.kinds.walker import RouteNode


def test_the_options_that_lead_back_are_known() -> None:
    assert back_options(load("plan"), "approve") == ("revise",)
    assert back_options(load("plan"), "escalation") == ("continue",)
    assert back_options(load("staged"), "failure") == ("retry", "restart", "restart-previous")
    assert back_options(load("contract"), "approve-design") == ("change-spec", "change-architecture", "change-design")


def test_a_condition_can_pass_over_a_phase() -> None:
    flow = load("team")
    assert starts(flow) == {RouteNode("clarify"), RouteNode("plan")}


def test_a_phase_reserved_for_routes_is_never_fallen_into() -> None:
    ways = phase_edges(load("team"))
    after = {to.id for way in ways if way.source.id == "completed" for to in way.to}
    assert after == {"(finish)"}


def test_lean_reaches_full_but_full_never_reaches_lean() -> None:
    flow = load("contract")
    ways = phase_edges(flow)
    assert RouteNode("plan", "full") in reachable_nodes([RouteNode("intake-lean", "lean")], ways)
    assert RouteNode("checks-lean", "lean") not in reachable_nodes([RouteNode("intake", "full")], ways)


def test_what_a_review_can_end_with_depends_on_how_it_is_written() -> None:
    flow = load("plan")
    execute = flow.phase("execute")
    found = {step.id: step.outcomes(flow) for step in execute.steps}  # type: ignore[union-attr]
    assert found["spec"] == ("pass", "noted", "exhausted", "inconclusive")
    assert found["extra"] == ("pass", "noted", "blocking", "inconclusive")
    assert flow.phase("finalize").outcomes(flow) == ("pass", "noted", "inconclusive")
