from __future__ import annotations

import pytest
from hypothesis import given

import session_events as s
from windlass import events as e
from windlass.events import Event, Recorded
from windlass.text import HIDDEN
from windlass.views.build import fold
from windlass.views.progress import render_progress
from windlass.views.report import render_report

PAGE = """\
# Workflow: Add rate limiting with token bucket algorithm

**Status:** Executing (task 2/3) | **Cost:** $1.65 of $20.00, $18.35 left | **Started:** 2026-02-07 13:52 UTC

## Plan
- [x] Plan: docs/plans/2026-02-07-rate-limiting.md
- [x] Architect review: ✓
- [x] Spec review: ✓
- [x] Approved by user

## Config
- Execution: checkpoint | Review: iterative | TDD: enforced

## Tasks
- [x] 1. Token bucket implementation — spec ✓ quality ✓
- [ ] 2. Rate limit middleware — reviewing...
- [ ] 3. Configuration and tests

## Log
- 13:52 — Workflow started
- 13:53 — Scout completed (42 files mapped)
- 13:53 — Plan written (3 tasks)
- 13:55 — Plan review passed
- 13:56 — Plan approved (by terminal)
- 13:57 — review_mode: iterative (by terminal)
- 13:57 — execution_mode: checkpoint (by terminal)
- 13:57 — Task 1 started
- 14:00 — Task 1 complete ($0.70)
- 14:00 — Task 2 started
"""


def page(*events: Event) -> str:
    return render_progress(fold(s.recorded(iter(events))))


@pytest.mark.req("S1-21")
@pytest.mark.req("S1-23")
@pytest.mark.req("S1-24")
@pytest.mark.req("S1-25")
@pytest.mark.req("S1-26")
def test_the_page_in_the_middle_of_a_run() -> None:
    assert page(*s.planning(), *s.approval(), *s.first_task(), *s.begin(2)) == PAGE


@pytest.mark.req("S1-22")
def test_the_brainstorm_section_counts_questions_and_sections() -> None:
    text = page(
        e.PhaseEntered("scout", "scout", "produce"),
        e.ArtifactStored("scout", "scout", "aa"),
        e.PhaseFinished("scout", "scout", "ok"),
        e.ItemsProposed("questions", "questions", [{"id": "question-1"}, {"id": "question-2"}]),
        *s.ask("questions", "question-1", "Which store?", "redis", "redis"),
        *s.ask("questions", "question-2", "Which limit?", "100", "100"),
        e.PhaseFinished("questions", "questions", "ok"),
        *s.ask("approaches", "approach", "Which way?", "Token bucket", "Token bucket"),
        e.PhaseEntered("design", "design", "elicit"),
        e.ItemsProposed("design", "sections", [{"id": "section-1"}, {"id": "section-2"}]),
        *s.ask("design", "section-1", "Right?", "yes", "yes", "revise"),
        *s.ask("design", "section-2", "Right?", "revise", "yes", "revise"),
        e.ArtifactStored("design", "design", "bb", "docs/plans/2026-02-07-x-design.md"),
    )
    assert (
        "## Brainstorm\n"
        "- [x] Scout codebase\n"
        "- [x] Requirements (2 questions answered)\n"
        "- [x] Approach: Token bucket\n"
        "- [ ] Design validated (1/2 sections)\n"
        "- [x] Design: docs/plans/2026-02-07-x-design.md\n"
    ) in text


def test_what_a_dialog_about_an_error_was_told_is_neither_an_approach_nor_a_question_answered() -> None:
    text = page(
        e.PhaseEntered("questions", "questions", "elicit"),
        *s.ask("questions/asked#1", "agent-error", "Try again?", "retry", "retry", "abort"),
        e.ItemsProposed("questions+2", "questions", [{"id": "question-1"}]),
        *s.ask("questions+2", "question-1", "Which store?", "redis", "redis"),
        e.PhaseFinished("questions", "questions+2", "ok"),
        e.PhaseEntered("approaches", "approaches", "elicit"),
        *s.ask("approaches/asked#1", "agent-error", "Try again?", "abort", "retry", "abort"),
    )
    assert "- [x] Requirements (1 question answered)\n- [ ] Approach\n" in text


@pytest.mark.parametrize(("proof", "words"), [("unchecked", "unchecked (`tests.run_files`"), ("proved", "1 proved")])
def test_the_page_says_of_the_proof_what_the_report_says(proof: str, words: str) -> None:
    proved = e.TaskProved("t1", proof, True, "", "", {}, {})
    view = fold(s.recorded(iter([*s.planning(), *s.approval(), *s.first_task(), proved])))
    assert f"| TDD: {words}" in render_progress(view)
    assert f"- TDD: {words}" in render_report(view, "plan", now=0.0)


def test_a_plan_that_is_sent_back_is_not_approved() -> None:
    asked = s.ask("plan-approval", "approve", "Approve this plan?", "revise", "approve", "revise")
    assert "- [ ] Approved by user\n" in page(*s.planning(), *asked)


def test_the_final_review_is_none_of_the_plan_s() -> None:
    text = page(*s.session())
    assert text.count(" review: ") == 2
    assert "- [x] Architect review: ✓\n- [x] Spec review: ✓\n- [x] Approved by user\n" in text


@pytest.mark.req("S1-28")
@pytest.mark.parametrize(("state", "word"), [("aborted", "Aborted"), ("stopped", "Stopped")])
def test_after_the_end_the_page_keeps_its_form_and_says_how_it_ended(state: str, word: str) -> None:
    text = page(*s.planning(), e.RunEnded(state))
    assert f"**Status:** {word} | " in text
    assert "1. Token bucket implementation" in text


@pytest.mark.req("S1-28")
def test_a_finished_run_s_page_says_whether_all_its_tasks_are_done() -> None:
    assert "**Status:** Finished in part, 0 of 3 tasks completed (3 pending) | " in page(
        *s.planning(), e.RunEnded("finished")
    )
    done = [e.TaskChanged(f"t{n}", "complete") for n in (1, 2, 3)]
    assert "**Status:** Complete | " in page(*s.planning(), *done, e.RunEnded("finished"))


def test_a_pause_is_said_with_the_phase_it_is_in() -> None:
    assert "**Status:** Paused: Plan review | " in page(*s.planning(), e.RunEnded("paused"))


def test_a_skipped_task_is_not_checked_off() -> None:
    text = page(e.TasksListed("p", [s.task_json(1)]), e.TaskChanged("t1", "skipped", "not needed"))
    assert "- [ ] 1. Token bucket implementation — skipped: not needed\n" in text


def test_settings_given_up_front_are_shown_without_having_been_asked() -> None:
    text = render_progress(fold(s.recorded(s.planning())), {"execution_mode": "auto", "review_mode": "single-pass"})
    assert "- Execution: auto | Review: single-pass | TDD: enforced\n" in text


@pytest.mark.req("S1-27")
@given(s.any_log())
def test_the_same_state_gives_the_same_page_and_hides_nothing(records: list[Recorded]) -> None:
    text = render_progress(fold(records, s.RUN))
    assert text == render_progress(fold(records, s.RUN))
    assert not HIDDEN.search(text)
