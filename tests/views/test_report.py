from __future__ import annotations

import pytest
from hypothesis import given

import session_events as s
from windlass import events as e
from windlass.errors import UserError
from windlass.events import Event, Recorded
from windlass.model import Json
from windlass.text import HIDDEN
from windlass.views.build import fold
from windlass.views.report import TEMPLATES, render_report

NOW = s.START + 1060
REPORT = """\
# Workflow Complete

Add rate limiting with token bucket algorithm

## Tasks
- ✅ Token bucket implementation
- ✅ Rate limit middleware
- ✅ Configuration and tests (unchecked)

## Stats
- 3 completed
- 0 skipped
- 0 escalated
- Total cost: $3.25 of $20.00 ($0.50 of it assumed for 1 dispatch of unknown cost), $16.75 left
  - scout: $0.05
  - planner: $0.20
  - architect: $0.10
  - spec-reviewer: $0.50
  - implementer: $1.50 + $0.50 assumed
  - quality-reviewer: $0.40
- Cost by phase:
  - plan-draft: $0.25
  - plan-review: $0.20
  - execute: $2.20 + $0.50 assumed
  - finalize: $0.10
- Cost by task:
  - 1. Token bucket implementation: $0.70
  - 2. Rate limit middleware: $0.80 + $0.50 assumed
  - 3. Configuration and tests: $0.70
- Elapsed: 17m 30s
- Checks: 1 task of 3 unchecked

## Final Review
Good overall implementation. Clean code, tests cover edge cases.

## Noted Findings
- low: src/bucket.py a name could be clearer (quality-reviewer)

## Decisions
- approve: approve (by terminal)
- review_mode: iterative (by terminal)
- execution_mode: checkpoint (by terminal)

## Changed Files
- `src/bucket.py`
- `tests/test_bucket.py`
- `src/limit.py`
- `src/config.py`

## Where The Code Is
Branch `windlass/rate-limiting-r7f3a2c` at `444444444444`.

    git diff 111111111111..windlass/rate-limiting-r7f3a2c
    windlass land r7f3a2c
"""


def report(*events: Event, template: str = "plan") -> str:
    return render_report(fold(s.recorded(iter(events))), template, now=NOW)


@pytest.mark.req("S0-72")
@pytest.mark.req("S1-86")
def test_the_report_of_the_whole_session() -> None:
    events = [*s.planning(), *s.approval(), *s.building()]
    assert report(*events) == REPORT


@pytest.mark.req("S0-69")
def test_only_completed_tasks_are_done_and_the_others_are_named_with_their_reason() -> None:
    text = report(
        e.TasksListed("plan", [s.task_json(n) for n in (1, 2, 3)]),
        *s.land(1),
        e.TaskChanged("t2", "skipped", "not needed"),
        e.TaskChanged("t3", "escalated", "3 fix attempts"),
    )
    assert "- ✅ Token bucket implementation\n" in text
    assert "- ⏭ Rate limit middleware (skipped: not needed)\n" in text
    assert "- ⚠ Configuration and tests (escalated: 3 fix attempts)\n" in text
    assert "- 1 completed\n- 1 skipped\n- 1 escalated\n" in text
    assert text.count("✅") == 1


@pytest.mark.req("S0-69")
def test_files_of_tasks_that_did_not_land_are_not_listed() -> None:
    text = report(e.TasksListed("plan", [s.task_json(1), s.task_json(2)]), *s.land(1), e.TaskChanged("t2", "skipped"))
    assert "- `src/bucket.py`" in text
    assert "src/limit.py" not in text


@pytest.mark.parametrize(
    ("kept", "listed"),
    [("", ["src/app.py", "src/bucket.py", "src/limit.py"]), ("refs/windlass/keep/r/1", [])],
    ids=["the code is kept", "the code is reset"],
)
def test_files_that_landed_before_a_restart_are_listed_if_the_code_is_kept(kept: str, listed: list[str]) -> None:
    """The task finds its code in place and lands nothing more; the plan no longer has the second task."""
    phases: list[Json] = [{"id": "2.1", "kind": "tasks"}, {"id": "2.3", "kind": "review"}]
    entered = e.PhaseEntered("2.1", "2.1", "tasks", stage="IMPLEMENT")
    text = report(
        e.ScheduleMade([{"id": "IMPLEMENT", "enabled": True, "phases": phases}], 3),
        e.TasksListed("2.1", [s.task_json(1), s.task_json(2)]),
        entered,
        e.TaskLanded("t1", s.commit(4), s.commit(4), "passed", ["src/bucket.py"]),
        e.TaskLanded("t2", s.commit(5), s.commit(5), "passed", ["src/limit.py"]),
        e.FixLanded("2.3/land", s.commit(6), "passed", ["src/app.py"]),
        e.StageRestarted("IMPLEMENT", "2.1", "IMPLEMENT", "red", "engine", 1, ["2.1", "2.3"], kept),
        e.TasksListed("2.1", [s.task_json(1)]),
        entered,
        e.TaskLanded("t1", s.commit(4), s.commit(4), "passed", []),
    )
    section = text.partition("## Changed Files\n")[2].partition("\n\n")[0]
    assert sorted(section.splitlines()) == [f"- `{name}`" for name in listed]


@pytest.mark.parametrize(
    ("state", "title"),
    [
        ("aborted", "Aborted"),
        ("stopped", "Stopped"),
        ("blocked", "Stopped"),
        ("finished", "Finished in Part: 0 of 1 tasks completed (1 pending)"),
    ],
)
def test_the_title_says_how_the_run_ended(state: str, title: str) -> None:
    text = report(e.TasksListed("plan", [s.task_json(1)]), e.RunEnded(state, "no budget"))
    assert text.startswith(f"# Workflow {title}\n\nReason: no budget\n")
    assert "- 1 not finished\n" in text


def test_a_run_at_work_is_not_called_complete() -> None:
    assert report(e.TasksListed("plan", [s.task_json(1)])).startswith("# Workflow In Progress\n")


def test_findings_of_a_failed_review_in_a_completed_task_are_accepted_issues() -> None:
    text = report(
        e.TasksListed("plan", [s.task_json(1)]),
        *s.review("execute/t1/spec", "spec-reviewer", "fail", s.MISSING, task="t1"),
        *s.land(1),
    )
    line = "- Token bucket implementation: high: src/limit.py:12 missing IP extraction (spec-reviewer)"
    assert f"## Accepted Issues\n{line}\n" in text


def test_waivers_and_warnings_are_said() -> None:
    text = report(e.PhaseSkipped("final-check", "k", "known to be slow", waived=True), e.Warned("budget", "80 % spent"))
    assert "## Waivers\n- Final check: known to be slow\n" in text
    assert "## Warnings\n- 80 % spent\n" in text


def test_an_unknown_cost_is_said_with_what_is_assumed_for_it() -> None:
    line = "- Total cost: $0.50 ($0.50 of it assumed for 1 dispatch of unknown cost)\n  - scout: $0.50 assumed\n"
    assert line in report(e.DispatchFinished("a", 1, "scout", "acp"))


def test_money_that_was_reckoned_from_tokens_says_by_whose_prices() -> None:
    told = e.DispatchFinished("plan-draft/a", 1, "scout", "claude", cost_usd=0.25)
    reckoned = e.DispatchFinished("plan-draft/b", 1, "planner", "codex", cost_usd=0.5, prices="2026-02-01")
    assert "- Total cost: $0.25\n" in report(told)
    assert "- Total cost: $0.75 (in part from tokens, at list prices of 2026-02-01)\n" in report(told, reckoned)


def test_work_that_landed_without_checks_is_unchecked() -> None:
    assert "- Checks: unchecked\n" in report(e.TasksListed("p", [s.task_json(1)]), *s.land(1, "unchecked"))


def test_the_task_report_leaves_out_a_list_of_one_good_task() -> None:
    events = (e.TasksListed("p", [s.task_json(1)]), *s.land(1))
    assert "## Tasks" not in report(*events, template="task")
    assert "## Tasks" in report(*events, e.TaskChanged("t1", "escalated", "red"), template="task")


def test_an_unknown_template_is_refused_with_the_near_match() -> None:
    with pytest.raises(UserError) as caught:
        report(template="plann")
    assert caught.value.hint == "did you mean 'plan'?"


@given(s.any_log())
def test_any_log_can_be_reported_and_hides_nothing(records: list[Recorded]) -> None:
    for template in TEMPLATES:
        assert not HIDDEN.search(render_report(fold(records, s.RUN), template, now=NOW))
