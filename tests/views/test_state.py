from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given

import session_events as s
from windlass import events as e
from windlass.events import Event, Recorded
from windlass.model import Json, RunState
from windlass.views.build import ViewBuilder, fold
from windlass.views.state import Totals, View, phase_of


def folded(*events: Event) -> View:
    return fold(s.recorded(iter(events)))


@pytest.fixture(scope="module")
def whole() -> View:
    return fold(s.recorded(s.session()))


def test_the_whole_session_ends_finished_with_every_task_complete(whole: View) -> None:
    assert (whole.run, whole.state, whole.published, whole.tip) == (s.RUN, RunState.FINISHED, s.BRANCH, s.commit(4))
    assert [(t.index, t.title, t.state, t.landed) for t in whole.tasks] == [
        (n, s.TITLES[n - 1], "complete", s.commit(n + 1)) for n in (1, 2, 3)
    ]
    assert (whole.running, whole.questions, whole.ended_at) == ({}, {}, whole.updated_at)


def test_costs_are_summed_for_the_run_each_role_each_phase_and_each_task(whole: View) -> None:
    assert whole.spent.usd == pytest.approx(2.75)
    assert (whole.spent.unknown, whole.spent.dispatches, whole.spent.input) == (1, 16, 16_000)
    assert whole.by_role["scout"] == Totals(0.05, 0, 1000, 200, 0, 1)
    assert whole.by_phase["plan-review"].usd == pytest.approx(0.2)
    assert whole.tasks[1].cost.usd == pytest.approx(0.8)
    assert whole.tasks[1].cost.unknown == 1


def test_an_unknown_cost_is_counted_and_never_zero() -> None:
    view = folded(e.DispatchFinished("a/b", 1, "scout", "acp"))
    assert (view.spent.usd, view.spent.unknown) == (0.0, 1)


def test_a_review_keeps_the_last_verdict_of_each_role(whole: View) -> None:
    review = whole.tasks[1].reviews["spec-reviewer"]
    assert (review.verdict, review.cycle, review.findings) == ("pass", 2, ())
    assert whole.tasks[1].fixes == 1


def test_a_fix_that_needs_a_second_attempt_is_one_fix() -> None:
    view = folded(
        e.TasksListed("plan", [s.task_json(1)]),
        e.DispatchStarted("execute/t1/spec.fix#1", 1, "implementer", "claude", purpose="fix", task="t1"),
        e.DispatchFinished("execute/t1/spec.fix#1", 1, "implementer", "claude", error="crashed", task="t1"),
        e.DispatchStarted("execute/t1/spec.fix#1", 2, "implementer", "codex", purpose="fix", task="t1"),
    )
    assert view.tasks[0].fixes == 1


def test_findings_of_a_passing_review_go_to_the_ledger_once() -> None:
    note: dict[str, Json] = {"message": "a name", "severity": "low", "file": "x.py"}
    view = folded(
        e.ReviewFinished("execute/t1/q#1", "quality-reviewer", "pass_with_notes", [note]),
        e.ReviewFinished("execute/t1/q#2", "quality-reviewer", "pass", [{**note, "message": "A NAME!"}], cycle=2),
    )
    assert [noted.finding.message for noted in view.noted.values()] == ["a name"]


def test_the_final_review_is_the_one_after_the_tasks(whole: View) -> None:
    assert whole.final_phase == "finalize"
    assert list(whole.final_reviews) == ["quality-reviewer"]
    assert list(whole.reviews["plan-review"]) == ["architect", "spec-reviewer"]


def test_a_new_attempt_replaces_the_running_one() -> None:
    first = e.DispatchStarted("a/b", 1, "scout", "claude")
    view = folded(first, e.DispatchStarted("a/b", 2, "scout", "codex"))
    assert [(r.attempt, r.agent) for r in view.running.values()] == [(2, "codex")]
    late = folded(first, e.DispatchStarted("a/b", 2, "scout", "codex"), e.DispatchFinished("a/b", 1, "scout", "claude"))
    assert [r.attempt for r in late.running.values()] == [2]


@pytest.mark.parametrize("state", ["paused", "stopped", "aborted"])
def test_nothing_is_at_work_in_a_run_that_ended_or_rests(state: str) -> None:
    view = folded(e.DispatchStarted("a/b", 1, "scout", "claude"), e.RunEnded(state))
    assert (view.running, view.state) == ({}, RunState(state))


def test_an_event_fed_twice_counts_once() -> None:
    folder = ViewBuilder(s.RUN)
    for recorded in [*s.recorded(s.session()), *s.recorded(s.session())]:
        folder.feed(recorded)
    assert folder.view.spent.dispatches == 16


def test_a_new_driver_forgets_the_dispatches_of_the_old_one_and_keeps_its_questions() -> None:
    view = folded(
        e.DispatchStarted("a/b", 1, "scout", "claude"),
        e.QuestionAsked("p!q", "q", "Sure?", ["yes", "no"]),
        e.RunEnded("waiting"),
        e.RunResumed(2),
    )
    assert (view.running, list(view.questions), view.state) == ({}, ["p!q"], RunState.WAITING)


def test_a_question_asked_again_keeps_the_time_it_was_first_asked() -> None:
    asked = e.QuestionAsked("p!q", "q", "Sure?", [])
    view = folded(asked, e.RunResumed(2), asked)
    assert view.questions["p!q"].since == s.START + 10
    assert view.asked == {"p": 1}


def test_the_run_waits_while_a_question_is_open_and_runs_when_the_last_is_answered() -> None:
    asked = [e.QuestionAsked(f"p!{n}", n, "?", []) for n in "ab"]
    first = e.QuestionAnswered("p!a", "a", "x", "me")
    assert folded(*asked, first).state is RunState.WAITING
    assert folded(*asked, first, e.QuestionAnswered("p!b", "b", "y", "me")).state is RunState.RUNNING


@pytest.mark.req("S0-65")
def test_a_continued_task_starts_anew_with_its_cost_kept() -> None:
    view = folded(
        e.TasksListed("plan", [s.task_json(1)]),
        e.TaskChanged("t1", "implementing"),
        *s.review("execute/t1/spec", "spec-reviewer", "fail", s.MISSING, task="t1"),
        e.TaskChanged("t1", "escalated", "exhausted"),
        e.TaskChanged("t1", "pending", visit=2),
    )
    task = view.tasks[0]
    assert (task.state, task.visit, task.reviews, task.reason) == ("pending", 2, {}, "")
    assert task.cost.usd == pytest.approx(0.1)


def test_a_revised_plan_keeps_what_is_known_of_a_task_and_its_new_place() -> None:
    view = folded(
        e.TasksListed("plan", [s.task_json(1), s.task_json(2)]),
        e.TaskChanged("t2", "implementing"),
        e.TasksListed("plan", [s.task_json(2), s.task_json(3)]),
        e.TaskChanged("t2", "reviewing"),
    )
    assert [(t.id, t.index, t.state) for t in view.tasks] == [("t2", 1, "reviewing"), ("t3", 2, "pending")]


def test_a_task_that_the_tip_already_contains_leaves_the_tip_where_it_is() -> None:
    view = folded(
        e.TaskLanded("t1", s.commit(2), s.commit(2), "passed", []),
        e.TaskLanded("t2", s.commit(3), s.commit(3), "passed", []),
        e.TaskLanded("t3", s.commit(2), s.commit(3), "passed", []),
    )
    assert view.tip == s.commit(3)
    assert [task.landed for task in view.tasks] == [s.commit(2), s.commit(3), s.commit(2)]


def test_a_warning_about_a_task_is_kept_with_the_task_and_with_the_run() -> None:
    view = folded(
        e.TasksListed("plan", [s.task_json(1), s.task_json(2)]),
        e.Warned("role", "src/a.py was put back", task="t2"),
        e.Warned("budget", "half of it is spent"),
        e.Warned("role", "src/b.py was put back", task="t2"),
    )
    assert [task.warnings for task in view.tasks] == [(), ("src/a.py was put back", "src/b.py was put back")]
    assert [(warning.task, warning.code) for warning in view.warnings] == [
        ("t2", "role"),
        ("", "budget"),
        ("t2", "role"),
    ]


def test_plan_revisions_count_the_fixers_results_before_the_tasks_begin() -> None:
    def fix(error: str) -> Iterator[Event]:
        yield e.DispatchStarted("plan-review/fix#1", 1, "planner", "claude", purpose="revise")
        yield e.DispatchFinished("plan-review/fix#1", 1, "planner", "claude", error=error)

    assert folded(*fix("crashed"), *fix("")).plan_revisions == 1


def test_a_wait_ends_when_its_dispatch_starts_again() -> None:
    wait = e.WaitStarted("a/b", "claude", s.START + 600, "429")
    assert folded(wait).waits["claude"].reason == "429"
    assert folded(wait, e.DispatchStarted("a/b", 2, "scout", "claude")).waits == {}


def test_activity_shows_what_a_dispatch_does_and_moves_no_clock() -> None:
    folder = ViewBuilder(s.RUN)
    folder.feed(Recorded(5, s.RUN, 100.0, e.DispatchStarted("a/b", 1, "scout", "claude")))
    folder.feed(Recorded(0, s.RUN, 130.0, e.Activity("a/b", "scout", "tool.started", "reading x", cost_usd=0.1)))
    running = folder.view.running["a/b"]
    assert (running.doing, running.seen_at, running.cost_usd) == ("reading x", 130.0, 0.1)
    assert folder.view.updated_at == 100.0


def test_a_view_once_handed_out_does_not_change() -> None:
    folder = ViewBuilder(s.RUN)
    for recorded in s.recorded(s.planning()):
        folder.feed(recorded)
    before = folder.view
    copy = before.copy()
    for recorded in s.recorded(s.session())[len(list(s.planning())) :]:
        folder.feed(recorded)
    assert before == copy
    assert folder.view != before


@pytest.mark.parametrize(
    ("key", "phase"),
    [("plan-review+2/architect#1", "plan-review"), ("execute/t3", "execute"), ("p!q", "p"), ("a#2", "a")],
)
def test_the_phase_of_a_key_has_neither_visit_nor_cycle(key: str, phase: str) -> None:
    assert phase_of(key) == phase


def test_ten_times_the_events_take_about_ten_times_the_processor() -> None:
    """The processor's time does not depend on how busy the machine is. Quadratic time would be a hundred times."""
    events = list(s.session())
    records = [Recorded(n + 1, s.RUN, s.START + n, events[n % len(events)]) for n in range(10_000)]

    def seconds(count: int) -> float:
        started = time.process_time()
        fold(records[:count])
        return time.process_time() - started

    assert min(seconds(10_000) for _ in range(3)) < 30 * min(seconds(1_000) for _ in range(3))


@given(s.any_log())
def test_folding_at_once_and_one_by_one_give_the_same_view(records: list[Recorded]) -> None:
    folder = ViewBuilder(s.RUN)
    for recorded in records:
        folder.feed(recorded)
        folder.view  # noqa: B018 - looking must not change anything
    assert fold(records, s.RUN) == folder.view
