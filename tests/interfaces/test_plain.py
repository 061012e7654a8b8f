from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from hypothesis import given

import session_events as s
from windlass import events as e
from windlass.events import Event, Recorded
from windlass.interfaces.terminal.plain import PlainDisplay
from windlass.interfaces.terminal.question import render_question
from windlass.text import HIDDEN

PLANNING = """\
Run r7f3a2c: Add rate limiting with token bucket algorithm
  flow plan, from 111111111111, limit $20.00
  branch windlass/rate-limiting-r7f3a2c

▸ Plan draft
  Scouting codebase... (scout on claude sonnet)
    · reading src/app.py
  ✓ Scouted (30s, $0.05)
  scout → stored (42 files mapped)
  Drafting plan... (planner on claude sonnet)
    · reading src/app.py
  ✓ Drafted (30s, $0.20)
  plan → docs/plans/2026-02-07-rate-limiting.md

▸ Plan review
  Reviewing... (architect on claude sonnet)
    · reading src/app.py
  ✓ Architect review passed
  Reviewing... (spec-reviewer on claude sonnet)
    · reading src/app.py
  ✓ Spec review passed
  Plan review: architect ✓, spec-reviewer ✓ (pass)
  3 tasks found:
  1. Token bucket implementation
  2. Rate limit middleware
  3. Configuration and tests
"""

SECOND_TASK = """\

▸ Task 2/3: Rate limit middleware
  Implementing... (implementer on claude sonnet)
    · reading src/app.py
  ✓ Implemented (30s, $0.50)
  Reviewing... (spec-reviewer on claude sonnet)
    · reading src/app.py
  ✗ Spec review: missing IP extraction
      - high: src/limit.py:12 missing IP extraction
  ↻ Fix attempt 1/3... (implementer on claude sonnet)
    · reading src/app.py
  ✓ Fixed (30s, $0.50 assumed)
  Reviewing... (spec-reviewer on claude sonnet)
    · reading src/app.py
  ✓ Spec review passed
  Reviewing... (quality-reviewer on claude sonnet)
    · reading src/app.py
  ✓ Quality review passed
  ✓ pytest -q (12s)
  ✓ Landed as 333333333333, checks: passed
  ✓ Task 2 complete ($0.80 + $0.50 assumed, 4m 00s; run so far $0.80 + $0.50
    assumed)
"""

FINAL = """\

▸ Final review
  Reviewing... (quality-reviewer on claude sonnet)
    · reading src/app.py
  ✓ Quality review passed
      Good overall implementation. Clean code, tests cover edge cases.
  Final review: quality-reviewer ✓ (pass)

# Workflow Complete
  branch windlass/rate-limiting-r7f3a2c is at 444444444444

Complete. 3/3 tasks, $3.25 of $20.00 ($0.50 of it assumed for 1 dispatch of
  unknown cost), $16.75 left, in 17m 40s.
  The code is on branch windlass/rate-limiting-r7f3a2c at 444444444444.
    git diff 111111111111..windlass/rate-limiting-r7f3a2c
    windlass land r7f3a2c
"""


def shown(
    events: Iterable[Event], before: Iterable[Event] = (), *, width: int = 80, color: bool = False, unicode: bool = True
) -> str:
    out = io.StringIO()
    face = PlainDisplay(out, width=width, color=color, unicode=unicode, clock=lambda: s.START)
    earlier = list(before)
    records = s.recorded(iter([*earlier, *events]))
    face.catch_up(records[: len(earlier)])
    for recorded in records[len(earlier) :]:
        face.on_event(recorded)
    return out.getvalue()


@pytest.mark.req("S0-33")
@pytest.mark.req("S0-101")
def test_planning_shows_scouting_drafting_each_reviewer_and_the_numbered_tasks() -> None:
    assert shown(s.planning()) == PLANNING


@pytest.mark.req("S0-33")
def test_the_task_list_stands_before_the_approval_question() -> None:
    text = shown([*s.planning(), *s.approval()])
    assert text.index("3. Configuration and tests") < text.index("? Approve this plan?")
    assert text.count("3 tasks found:") == 1


@pytest.mark.req("S0-54")
@pytest.mark.req("S0-101")
def test_a_task_shows_each_step_the_reason_of_a_failure_and_the_fix_as_attempt_k_of_max() -> None:
    listed = e.TasksListed("plan", [s.task_json(n) for n in (1, 2, 3)])
    assert shown(s.second_task(), [listed]) == SECOND_TASK


@pytest.mark.req("S0-101")
def test_a_checkpoint_says_how_to_go_on() -> None:
    text = shown([e.RunStarted("x", "plan", s.BASE, "b", None, None), e.RunEnded("paused", "checkpoint")])
    assert text.endswith("‖ Paused: checkpoint. $0.00, in 10s.\n  Continue with:\n    windlass resume r7f3a2c\n")


@pytest.mark.req("S0-101")
@pytest.mark.req("S1-91")
def test_the_session_ends_with_the_final_review_and_where_the_code_is() -> None:
    assert shown(s.session()).endswith(FINAL)


@pytest.mark.req("S1-92")
def test_a_failed_agent_is_named_with_its_error_reason_and_place() -> None:
    text = shown([e.DispatchFinished("scout/scout", 2, "scout", "claude", "crashed", "exit code 1: out of memory")])
    assert text == "  ✗ scout (claude) crashed: exit code 1: out of memory [scout/scout@2]\n"


@pytest.mark.req("S1-11")
def test_an_action_that_ends_shows_whether_it_succeeded() -> None:
    text = shown(
        [
            e.Activity("a", "scout", "tool.finished", "running pytest -q", ok=False),
            e.Activity("a", "scout", "tool.finished", "running ruff", ok=True),
        ]
    )
    assert text == "    ✗ running pytest -q\n    ✓ running ruff\n"


@pytest.mark.parametrize("verdict", ["inconclusive", "needs_decision", "hard_stop", "fail", "nonsense"])
def test_only_a_pass_is_shown_as_one(verdict: str) -> None:
    text = shown([e.ReviewFinished("k", "spec-reviewer", verdict, [])])
    assert text.startswith("  ✗ Spec review")


def test_a_red_check_shows_its_last_lines() -> None:
    tail = "\n".join(f"line {n}" for n in range(30))
    text = shown([e.CommandFinished("k", "pytest -q", False, 1, 3.0, tail=tail)])
    assert text.startswith("  ✗ pytest -q failed, exit 1 (3s)\n      line 20\n")
    assert text.endswith("      line 29\n")


def test_skipped_and_escalated_tasks_are_told_with_their_reason() -> None:
    listed = e.TasksListed("plan", [s.task_json(1)])
    assert "✗ Task 1 skipped: not needed ($0.00; run" in shown([listed, e.TaskChanged("t1", "skipped", "not needed")])


def test_lines_of_tasks_at_work_together_say_whose_they_are() -> None:
    text = shown(
        [
            e.TasksListed("plan", [s.task_json(1), s.task_json(2)]),
            e.TaskChanged("t1", "implementing"),
            e.TaskChanged("t2", "implementing"),
            e.DispatchStarted("execute/t2/implement", 1, "implementer", "claude", purpose="implement", task="t2"),
        ]
    )
    assert text.endswith("  [2] Implementing... (implementer on claude)\n")


def test_a_face_that_comes_later_knows_the_tasks_and_repeats_nothing() -> None:
    before = [*s.planning(), *s.approval(), *s.first_task()]
    text = shown(s.begin(2), before)
    assert text.startswith("\n▸ Task 2/3: Rate limit middleware\n")
    assert "Task 1" not in text


def test_no_colour_unless_asked() -> None:
    assert "\x1b" not in shown(s.session())
    assert "\x1b[31m  ✗ Spec review: missing IP extraction\x1b[0m" in shown(s.session(), color=True)


def test_sixty_columns_hold_every_line_but_commands_and_the_report() -> None:
    lines = shown(s.session(), width=60).splitlines()
    assert [line for line in lines if len(line) > 60 and "windlass " not in line and "git diff" not in line] == []


def test_ascii_output_has_no_other_character() -> None:
    assert shown(s.session(), unicode=False).isascii()


def test_a_stream_that_knows_only_ascii_is_no_reason_to_fail() -> None:
    raw = io.BytesIO()
    face = PlainDisplay(io.TextIOWrapper(raw, "ascii"), clock=lambda: s.START)
    for recorded in s.recorded(s.session()):
        face.on_event(recorded)
    assert b"? Scouted" in raw.getvalue()


class ClosedPipe(io.StringIO):
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        raise BrokenPipeError


def test_a_reader_that_went_away_ends_the_output_and_not_the_run() -> None:
    out = ClosedPipe()
    face = PlainDisplay(out, clock=lambda: s.START)
    for recorded in s.recorded(s.session()):
        face.on_event(recorded)
    assert out.writes == 1


@pytest.mark.req("S0-84")
def test_a_question_is_told_with_numbered_options_its_default_and_how_to_answer_from_another_shell() -> None:
    question = e.QuestionAsked(
        "execute/t3!escalation",
        "escalation",
        "Rate limit middleware: no verdict",
        [{"key": "continue", "label": "Try again", "about": "a new visit"}, {"key": "skip", "label": "skip"}],
        "skip",
        "Last findings:\n- missing IP extraction",
    )
    assert render_question(question) == (
        "  Last findings:\n"
        "  - missing IP extraction\n"
        "? Rate limit middleware: no verdict\n"
        "  1) continue — Try again: a new visit\n"
        "  2) skip (default)\n"
        "  From another shell:\n"
        "    windlass answer 'execute/t3!escalation' VALUE\n"
    )


def test_a_question_without_options_shows_its_default() -> None:
    text = render_question(e.QuestionAsked("configure!batch_size", "batch_size", "How many?", [], "3"), run="r1")
    assert text == (
        "? How many?\n  default: 3\n  From another shell:\n    windlass answer r1 'configure!batch_size' VALUE\n"
    )


@given(s.any_log())
def test_any_log_can_be_watched_and_hides_nothing(records: list[Recorded]) -> None:
    out = io.StringIO()
    face = PlainDisplay(out, width=60, clock=lambda: s.START)
    for recorded in records:
        face.on_event(recorded)
    assert not HIDDEN.search(out.getvalue())
