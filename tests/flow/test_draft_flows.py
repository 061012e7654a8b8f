"""team and contract: what their documents demand of order, routes, questions and caps."""

from __future__ import annotations

import pytest

from flow_files import by_outcome, labels, load, step, tasks_of
from windlass.flow.route_graph import step_edges
from windlass.kinds import publish, tasks

CHECKPOINTS = """
    QUEUED REPO_SYNC WORKSPACE_CREATED BRANCH_CREATED CLARIFYING CLARIFIED PLANNING PLANNED AGENTS_SPAWNED
    SUBTASK_IMPLEMENTING SUBTASK_COMMITTING SUBTASK_TESTING SUBTASK_REVIEWING SUBTASK_FEEDBACK SUBTASK_DONE
    MERGING_AGENTS CREATING_PR COMPLETED FAILED
"""


# -- team


@pytest.mark.req("S2-18")
def test_the_checkpoints_of_team_have_the_order_of_the_document() -> None:
    flow = load("team")
    found = list(flow.source.labels)
    for phase in flow.phases:
        found += [phase.label.enter, phase.label.done]
        if isinstance(phase, tasks.TasksSpec):
            for inner in phase.steps:
                found += [inner.label.enter, getattr(inner, "harvest", "")]
            found += [phase.done_label, phase.land.label.enter]
    assert list(dict.fromkeys(name for name in found if name)) == [
        "QUEUED",
        "REPO_SYNC",
        "WORKSPACE_CREATED",
        "BRANCH_CREATED",
        "CLARIFYING",
        "CLARIFIED",
        "PLANNING",
        "PLANNED",
        "AGENTS_SPAWNED",
        "SUBTASK_IMPLEMENTING",
        "SUBTASK_COMMITTING",
        "SUBTASK_TESTING",
        "SUBTASK_REVIEWING",
        "SUBTASK_FEEDBACK",
        "SUBTASK_DONE",
        "MERGING_AGENTS",
        "CREATING_PR",
        "COMPLETED",
        "FAILED",
    ]


@pytest.mark.req("S2-12", "S2-13", "S2-14")
def test_clarification_can_be_skipped_and_goes_on_when_its_rounds_are_used_up() -> None:
    flow = load("team")
    assert flow.phase("clarify").when == {"skip_clarification": False}
    assert (flow.settings["max_clarification_rounds"].default, flow.settings["skip_clarification"].default) == (
        "10",
        "false",
    )
    assert by_outcome(flow, "clarify")["limit"] == "next"


@pytest.mark.req("S2-45", "S2-46", "S2-47")
def test_tests_and_reviews_share_one_bounded_loop_through_feedback() -> None:
    flow = load("team")
    inner = {
        way.source.id: way for way in step_edges(flow, tasks_of(flow), ()) if way.to and way.to[0].id == "feedback"
    }
    assert {(way.source.id, way.outcome) for way in inner.values()} == {("test", "rejected"), ("review", "blocking")}
    back = next(step for step in tasks_of(flow).steps if step.id == "feedback").on["ok"]
    assert str(back) == "test (at most $max_review_iterations, then fail)"


@pytest.mark.req("S2-35", "S2-37", "S2-50", "S2-51", "S2-52", "S2-53")
def test_team_publishes_and_fails_by_policy() -> None:
    flow = load("team")
    pr = flow.phase("pr")
    assert isinstance(pr, publish.PublishSpec)
    assert pr.do == ("push", "pr")
    assert list(flow.settings["failure_policy"].options) == ["retry", "continue", "stop"]
    assert by_outcome(flow, "execute") == {"done": "next", "stopped": "failed"}
    assert (flow.branch, flow.agent_branch) == ("swe-team/{slug}-{id8}", "swe-team/{slug}-{id8}-agent-{n}")


# -- contract


@pytest.mark.req("S4-01", "S4-02", "S4-08", "S4-34", "S4-47")
def test_full_and_lean_visit_their_own_states() -> None:
    flow = load("contract")
    full = [
        "INTAKE",
        "DESIGN",
        "APPROVE_DESIGN",
        "PLAN",
        "REVIEW_STRATEGY",
        "IMPLEMENT_LOOP",
        "INTEGRATE",
        "RELEASE",
        "DONE",
    ]
    assert labels(flow, "full") == full
    assert labels(flow, "lean") == ["INTAKE_LEAN", "IMPLEMENT_LOOP", "INTEGRATE", "DONE"]


@pytest.mark.req("S4-12")
def test_lean_is_left_for_full_once() -> None:
    flow = load("contract")
    assert by_outcome(flow, "implement")["escape"] == "mode full (at most 1, then ask gate-failed)"


@pytest.mark.req("S4-20", "S4-21")
def test_the_approval_is_mandatory_and_gates_what_follows() -> None:
    flow = load("contract")
    assert flow.phase("plan").needs == ("answered approve-design approve",)
    question = flow.questions["approve-design"]
    assert (question.id, question.mandatory, question.yes) == ("UD-APPROVE-DESIGN", True, "")
    assert by_outcome(flow, "approve-design")["change-spec"] == "intake"


@pytest.mark.req("S4-53", "S4-83", "S4-90", "S4-91", "S4-92", "S4-93", "S4-94", "S4-95")
def test_repairs_are_named_capped_and_end_with_the_person() -> None:
    flow = load("contract")
    assert [step(flow, id).label.fix for id in ("review", "qa", "security")] == [
        "FIX_REVIEW",
        "FIX_TESTS",
        "FIX_SECURITY",
    ]
    assert {step(flow, id).max for id in ("review", "qa", "security")} == {"$max_repairs"}
    assert flow.phase("checks").label.fix == "FIX_BUILD"
    assert str(step(flow, "security").on["needs_decision"]) == "ask decide"
    assert str(step(flow, "review").on["noted"]) == "ask notes"
    assert set(flow.questions["stuck"].options) == {"other-approach", "accept", "simplify", "guidance"}


@pytest.mark.req("S4-56", "S4-57", "S4-66", "S4-70")
def test_a_single_final_review_leaves_out_the_reviews_of_each_task() -> None:
    flow = load("contract")
    assert {step(flow, id).when["strategy"] for id in ("review", "qa", "security")} == {"per-batch"}
    assert "meta-review" in flow.modes["full"]
    assert "meta-review" not in flow.modes["lean"]


@pytest.mark.req("S4-97", "S4-101")
def test_the_agents_that_must_run_are_named_per_mode() -> None:
    flow = load("contract")
    assert flow.must_run["lean"] == ("coder", "reviewer")
    assert sorted(flow.must_run["full"]) == sorted(
        ["spec-agent", "architect", "planner", "coder", "reviewer", "qa", "security", "integrator", "docs"]
    )
    lean = {role for phase in flow.sequence("lean") for role in phase.roles()}
    assert lean.isdisjoint({"architect", "planner", "designer", "integrator", "docs", "researcher"})
