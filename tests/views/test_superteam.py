from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

import session_events as s
from windlass import events as e
from windlass.events import Event, Recorded
from windlass.views.build import fold
from windlass.views.superteam import SuperteamFacts, render

FACTS = SuperteamFacts({"max_plan_review_cycles": "3", "max_task_review_cycles": "3", "batch_size": "3"}, s.PLAN, "# P")


def state(*events: Event) -> Any:
    return json.loads(render(fold(s.recorded(iter(events))), FACTS))


@pytest.mark.req("S0-76")
def test_the_file_has_every_field_of_the_state() -> None:
    data = state(*s.planning(), *s.approval(), *s.first_task())
    tasks = data.pop("tasks")
    assert data == {
        "phase": "execute",
        "config": {
            "tddMode": "tdd",
            "reviewMode": "iterative",
            "executionMode": "checkpoint",
            "batchSize": 3,
            "maxPlanReviewCycles": 3,
            "maxTaskReviewCycles": 3,
        },
        "userDescription": "Add rate limiting with token bucket algorithm",
        "planPath": s.PLAN,
        "planContent": "# P",
        "currentTaskIndex": 1,
        "planReviewCycles": 0,
        "totalCostUsd": 1.15,
        "assumedCostUsd": 0.0,
        "unknownCosts": 0,
        "startedAt": (int(s.START) + 10) * 1000,
        "pendingInteraction": None,
        "error": None,
    }
    assert [(task["id"], task["status"]) for task in tasks] == [
        ("t1", "complete"),
        ("t2", "pending"),
        ("t3", "pending"),
    ]


@pytest.mark.req("S0-77")
def test_a_task_has_its_fields_and_review_results() -> None:
    task = state(*s.planning(), *s.first_task())["tasks"][0]
    reviews = task.pop("reviews")
    assert task == {
        "id": "t1",
        "title": "Token bucket implementation",
        "description": "Do Token bucket implementation",
        "files": ["src/bucket.py", "tests/test_bucket.py"],
        "status": "complete",
        "fixAttempts": 0,
        "gitShaBeforeImpl": s.BASE,
        "commit": s.commit(2),
        "error": None,
        "costUsd": 0.7,
    }
    assert [(review["reviewer"], review["passed"]) for review in reviews] == [
        ("spec-reviewer", True),
        ("quality-reviewer", True),
    ]


@pytest.mark.req("S0-77")
@pytest.mark.req("S0-84")
def test_the_pending_question_is_in_the_file_with_its_options() -> None:
    data = state(*s.planning(), *list(s.approval())[:2])
    assert data["pendingInteraction"] == {
        "id": "approve",
        "key": "plan-approval!approve",
        "type": "choice",
        "question": "Approve this plan?",
        "options": [{"key": "approve", "label": "Approve"}, {"key": "revise", "label": "Revise"}],
        "default": "approve",
    }


@pytest.mark.req("S0-74")
@pytest.mark.parametrize(
    ("phase", "shown"),
    [("plan-draft", "plan-draft"), ("plan-approval", "plan-review"), ("report", "finalize"), ("execute", "execute")],
)
def test_phases_have_the_names_of_the_document(phase: str, shown: str) -> None:
    entered = e.PhaseEntered(phase, phase, "ask")
    assert state(entered)["phase"] == shown
    assert state(entered, e.RunEnded("finished"))["phase"] == "done"


def test_an_abort_is_done_with_an_error_and_a_stop_keeps_its_phase() -> None:
    entered = e.PhaseEntered("execute", "execute", "tasks")
    aborted = state(entered, e.RunEnded("aborted", "by the user"))
    assert (aborted["phase"], aborted["error"]) == ("done", "by the user")
    stopped = state(entered, e.RunEnded("stopped", "over budget"))
    assert (stopped["phase"], stopped["error"]) == ("execute", "over budget")
    assert state(entered, e.RunEnded("paused", "checkpoint"))["error"] is None


@given(s.any_log())
def test_any_log_gives_json(records: list[Recorded]) -> None:
    text = render(fold(records, s.RUN), FACTS)
    assert text.isascii()
    assert json.loads(text)["userDescription"] is not None
