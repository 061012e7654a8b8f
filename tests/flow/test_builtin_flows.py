"""The shipped flows and brainstorm: what their documents demand of order, routes, questions and caps."""

from __future__ import annotations

import pytest

from flow_files import FILES, by_outcome, labels, load, review_of, step, tasks_of, ways_by
from windlass.flow.route_graph import phase_edges
from windlass.kinds import ask, produce
from windlass.kinds.routes import To


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_flow_passes_the_check(name: str) -> None:
    assert load(name).flow == name


def test_the_six_flows_are_there() -> None:
    assert {"plan", "task", "brainstorm", "team", "staged", "contract"} <= FILES.keys()


# -- plan


@pytest.mark.req("S0-10", "S0-74")
def test_plan_visits_its_phases_in_order() -> None:
    assert labels(load("plan")) == ["plan-draft", "plan-review", "configure", "execute", "finalize", "done"]


@pytest.mark.req("S0-11")
def test_plan_goes_back_by_revise_only_and_leaves_early_by_abort_only() -> None:
    flow = load("plan")
    order = [phase.id for phase in flow.phases]
    back = [
        (w.source.id, w.name)
        for w in phase_edges(flow)
        for to in w.to
        if to.id in order and order.index(to.id) <= order.index(w.source.id)
    ]
    assert back == [("plan-approval", "revise:revise")]
    assert {answer: str(way.target) for answer, way in ways_by(flow, "escalation").items()}["abort"] == "abort"


@pytest.mark.req("S0-12", "S0-17", "S0-18")
def test_plan_drafts_after_scouting_and_tries_an_empty_plan_once_more() -> None:
    draft = load("plan").phase("plan-draft")
    assert isinstance(draft, produce.ProduceSpec)
    assert [(call.role, call.profile, call.guard) for call in draft.calls] == [
        ("scout", "", ""),
        ("planner", "implementer", "off"),
    ]
    assert draft.empty.retry == 1
    assert str(draft.on["empty"]) == "stop"


@pytest.mark.req("S0-15")
def test_a_plan_has_the_date_and_the_slug_in_its_path() -> None:
    assert load("plan").artifacts["plan"].path == "docs/plans/{date}-{slug}.md"


@pytest.mark.req("S0-21", "S0-27", "S0-28", "S0-29", "S0-30")
def test_plan_reviews_run_in_parallel_are_optional_and_always_end_at_the_question() -> None:
    flow = load("plan")
    spec = review_of(flow, "plan-review")
    assert (spec.order, spec.max, [r.optional for r in spec.reviewers]) == (
        "parallel",
        "$max_plan_review_cycles",
        [True, True],
    )
    assert set(by_outcome(flow, "plan-review").values()) == {"next"}
    assert flow.settings["max_plan_review_cycles"].default == "3"


@pytest.mark.req("S0-24", "S0-31", "S0-32")
def test_only_an_approved_plan_is_configured() -> None:
    assert by_outcome(load("plan"), "plan-approval") == {"approve": "next", "revise": "plan-review"}


@pytest.mark.req("S0-35", "S0-36", "S0-37", "S0-38", "S0-39")
def test_plan_asks_review_mode_execution_mode_and_batch_size_in_that_order() -> None:
    flow = load("plan")
    configure = flow.phase("configure")
    assert isinstance(configure, ask.AskSpec)
    assert configure.settings == ("review_mode", "execution_mode", "batch_size")
    assert list(flow.settings["review_mode"].options) == ["single-pass", "iterative"]
    assert list(flow.settings["execution_mode"].options) == ["auto", "checkpoint", "batch"]
    assert (flow.settings["batch_size"].when, flow.settings["batch_size"].default) == ({"execution_mode": "batch"}, "3")


@pytest.mark.req("S0-41", "S0-46", "S0-49")
@pytest.mark.parametrize("name", ["plan", "brainstorm", "task"])
def test_a_task_is_implemented_then_reviewed_for_spec_then_for_quality_then_by_optional_reviewers(name: str) -> None:
    flow = load(name)
    assert [step.id for step in tasks_of(flow).steps] == ["implement", "spec", "quality", "extra"]
    assert (step(flow, "extra").order, [r.optional for r in step(flow, "extra").reviewers]) == (
        "parallel",
        [True, True],
    )
    assert str(step(flow, "spec").on["pass"]) == "next"


@pytest.mark.req("S0-50", "S0-51", "S0-56", "S0-57", "S0-58")
def test_plan_escalates_what_it_cannot_settle() -> None:
    flow = load("plan")
    found = {
        f"{step.id}.{name}"
        for step in tasks_of(flow).steps
        for name, route in step.on.items()
        if str(route) == "ask escalation"
    }
    assert found == {
        "implement.failed",
        "spec.exhausted",
        "spec.inconclusive",
        "quality.exhausted",
        "quality.inconclusive",
        "extra.blocking",
        "extra.inconclusive",
    }
    assert (step(flow, "extra").threshold, str(step(flow, "extra").on["noted"])) == ("critical", "next")


@pytest.mark.req("S0-54", "S1-78")
@pytest.mark.parametrize("name", ["plan", "brainstorm"])
def test_the_cap_of_fix_cycles_holds_per_review(name: str) -> None:
    flow = load(name)
    assert {step(flow, id).max for id in ("spec", "quality")} == {"$max_task_review_cycles"}
    assert flow.settings["max_task_review_cycles"].default == "3"


@pytest.mark.req("S0-59", "S0-60", "S0-61")
def test_an_escalated_task_is_done_again_skipped_or_ends_the_run() -> None:
    options = load("plan").questions["escalation"].options
    assert {key: str(target) for key, target in options.items()} == {
        "continue": "redo",
        "skip": "skip",
        "abort": "abort",
    }


@pytest.mark.req("S0-65")
def test_the_states_of_a_task_are_those_of_the_document() -> None:
    spec = tasks_of(load("plan"))
    found = {name for step in (*spec.steps, spec.land) for name in (step.label.enter, step.label.fix) if name}
    assert found | {spec.done_label} == {"implementing", "reviewing", "fixing", "complete"}


@pytest.mark.req("S0-80")
def test_plan_asks_at_five_points_only() -> None:
    flow = load("plan")
    asked = [name for phase in flow.phases if isinstance(phase, ask.AskSpec) for name in phase.settings]
    assert [*flow.questions, *asked] == ["approve", "escalation", "review_mode", "execution_mode", "batch_size"]


@pytest.mark.req("S0-08")
def test_the_task_flow_has_no_plan_phases_no_questions_and_no_final_review() -> None:
    flow = load("task")
    assert [phase.kind for phase in flow.phases] == ["tasks", "report"]
    assert flow.questions == {}
    assert flow.artifacts["plan"].given
    assert by_outcome(flow, "execute") == {"done": "next", "stopped": "stop"}


# -- brainstorm


@pytest.mark.req("S1-29", "S1-30", "S1-31")
def test_brainstorm_visits_its_phases_in_order() -> None:
    assert labels(load("brainstorm")) == [
        *(f"brainstorm.{name}" for name in ("scout", "questions", "approaches", "design", "done")),
        *("plan-write", "plan-review", "configure", "execute", "finalize", "done"),
    ]


@pytest.mark.req("S1-47", "S1-59", "S1-60", "S1-61")
def test_a_failing_brainstorm_asks_and_an_empty_plan_is_offered_one_retry() -> None:
    flow = load("brainstorm")
    for phase in ("scout", "questions", "approaches", "design", "plan-write"):
        assert by_outcome(flow, phase)["failed"] == "ask agent-error"
    assert by_outcome(flow, "plan-write")["empty"] == "ask empty-plan (at most 1, then stop)"


@pytest.mark.req("S1-51")
def test_a_scout_that_says_nothing_does_not_stop_the_brainstorm() -> None:
    flow = load("brainstorm")
    assert flow.phase("scout").outcomes(flow) == ("ok", "failed")


@pytest.mark.req("S1-62", "S1-65", "S1-70")
def test_brainstorm_reviews_the_plan_in_sequence_against_the_design_and_the_planner_revises() -> None:
    spec = review_of(load("brainstorm"), "plan-review")
    assert (spec.order, [r.role for r in spec.reviewers]) == ("sequence", ["architect", "spec-reviewer"])
    assert all("design" in r.ins for r in spec.reviewers)
    assert spec.fixer is not None
    assert spec.fixer.role == "planner"


@pytest.mark.req("S1-67", "S1-68", "S1-69")
def test_brainstorm_approval_has_three_answers() -> None:
    flow = load("brainstorm")
    assert by_outcome(flow, "plan-approval") == {"approve": "next", "revise": "plan-review", "abort": "abort"}
    assert flow.questions["approve"].comment == "editor"


@pytest.mark.req("S1-71", "S1-72", "S1-73")
def test_brainstorm_asks_execution_mode_first() -> None:
    flow = load("brainstorm")
    configure = flow.phase("configure")
    assert isinstance(configure, ask.AskSpec)
    assert configure.settings == ("execution_mode", "review_mode", "batch_size")
    assert list(flow.settings["review_mode"].options) == ["iterative", "single-pass"]


@pytest.mark.req("S1-85")
def test_findings_of_the_final_review_are_fixed_or_accepted_by_the_person() -> None:
    flow = load("brainstorm")
    assert by_outcome(flow, "finalize")["noted"] == "ask final"
    assert {key: str(target) for key, target in flow.questions["final"].options.items()} == {
        "fix": "fix",
        "accept": "next",
    }


def test_no_automatic_answer_of_any_flow_leads_back() -> None:
    for name in FILES:
        flow = load(name)
        taken = [question.options[question.yes].to for question in flow.questions.values() if question.yes]
        assert not set(taken) & {To.REDO, To.AGAIN, To.RESTART, To.FIX}


# -- staged


@pytest.mark.req("S3-01", "S3-02", "S3-03")
def test_staged_has_the_stages_and_phases_of_the_document() -> None:
    flow = load("staged")
    assert [stage.id for stage in flow.stages] == ["EXPLORE", "PLAN", "IMPLEMENT", "TEST", "FINAL"]
    phases = ["0", "1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "4.1", "4.2", "4.3", "end"]
    assert [phase.id for phase in flow.all_phases()] == phases


@pytest.mark.req("S3-15", "S3-22", "S3-33", "S3-42", "S3-47")
def test_the_gates_of_staged_are_before_the_phases_that_begin_a_stage_and_before_the_completion() -> None:
    assert {phase.id: phase.needs for phase in load("staged").all_phases() if phase.needs} == {
        "1.1": ("file explore",),
        "2.1": ("file plan", "file plan_review"),
        "3.1": ("file tasks", "file impl_review"),
        "4.1": ("file test_results", "file test_review"),
        "4.3": ("file final_review",),
    }


@pytest.mark.req("S3-19", "S3-23", "S3-34", "S3-43", "S3-48", "S3-57", "S3-64", "S3-65")
def test_a_review_that_stays_negative_restarts_or_asks_and_one_that_fails_asks() -> None:
    flow = load("staged")
    reviews = {id: by_outcome(flow, id) for id in ("1.3", "2.3", "3.3", "4.2")}
    assert {id: on["exhausted"] for id, on in reviews.items()} == {
        "1.3": "ask failure",
        "2.3": "restart IMPLEMENT",
        "3.3": "ask failure",
        "4.2": "restart TEST else IMPLEMENT",
    }
    assert {on["inconclusive"] for on in reviews.values()} == {"ask failure"}
    assert reviews["4.2"]["hard_stop"] == "ask failure"
    assert {review_of(flow, id).threshold for id in reviews} == {"$blockOnSeverity"}
    assert {review_of(flow, id).max for id in reviews} == {"$retries.maxPerPhase"}


@pytest.mark.req("S3-36", "S3-37", "S3-61", "S3-62")
def test_failing_tests_are_fixed_and_failing_source_restarts_implement() -> None:
    flow = load("staged")
    on = by_outcome(flow, "3.1")
    assert (on["failed.test"], on["failed.source"]) == ("next", "restart IMPLEMENT")
    assert on["failed.unknown"] == "ask failure"
    assert by_outcome(flow, "3.2")["ok"] == "3.1 (at most $retries.maxPerPhase, then ask failure)"


@pytest.mark.req("S3-63", "S3-66", "S3-68", "S3-78", "S3-79")
def test_a_failure_offers_five_ways_and_restarts_are_counted() -> None:
    flow = load("staged")
    assert {key: str(target) for key, target in flow.questions["failure"].options.items()} == {
        "retry": "again",
        "restart": "restart here",
        "restart-previous": "restart previous",
        "skip": "waive",
        "abort": "stop",
    }
    assert flow.restarts is not None
    assert (flow.restarts.max, str(flow.restarts.then)) == ("$retries.maxPerStage", "ask restarts-used-up")
    assert flow.settings["retries.maxPerStage"].default == "3"
    assert {key: str(target) for key, target in flow.questions["restarts-used-up"].options.items()} == {
        "force": "waive",
        "abort": "stop",
    }


@pytest.mark.req("S3-71", "S3-72", "S3-73", "S3-74")
def test_what_a_restart_deletes_is_what_the_phases_of_a_stage_make() -> None:
    flow = load("staged")
    outs = {
        stage.id: {flow.artifacts[name].path.rsplit("/")[-1] for p in stage.phases for name in p.artifacts_out()}
        for stage in flow.stages
    }
    assert outs == {
        "EXPLORE": {"0-explore.md"},
        "PLAN": {"1.1-brainstorm.md", "1.2-plan.md", "1.3-plan-review.json"},
        "IMPLEMENT": {"2.1-tasks.json", "2.2-simplify.md", "2.3-impl-review.json"},
        "TEST": {"3.1-test-results.json", "3.2-analysis.md", "3.3-test-review.json"},
        "FINAL": {"4.1-docs.md", "4.2-final-review.json"},
    }


@pytest.mark.req("S3-82", "S3-85")
def test_each_stage_of_staged_can_be_disabled() -> None:
    flow = load("staged")
    assert [stage.when for stage in flow.stages] == [{f"stages.{stage.id}.enabled": True} for stage in flow.stages]
