"""`windlass task`: one task of a plan that a person wrote, without the ceremony."""

from __future__ import annotations

from pathlib import Path

import pytest

from front import NO_EXTRAS, Front, builder, failing, passing, plan_of, plan_text
from windlass.events import PhaseEntered, QuestionAsked

CONFIG = "[retries]\ncrashed = 0\n" + NO_EXTRAS


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, CONFIG)


def test_a_task_that_changes_nothing_is_told_as_that_and_names_no_branch_to_look_at(front: Front) -> None:
    declared = {"nothing_to_change": True, "reason": "it has that name"}
    done = front.task([builder(files={}, json=declared), passing()], "Rename", "Config.load")
    assert done.code == 0, done
    assert "Nothing to land" in done.out
    for shown in (done.out, front("status").out, (front.folder / "report.md").read_text()):
        assert "Nothing was changed: there is no code to take." in shown
    for shown in (done.out, front("status").out, front("show").out, (front.folder / "report.md").read_text()):
        assert "git diff" not in shown
        assert "windlass land" not in shown
    assert front.status["next"] == f"windlass show {front.run}"
    assert front.git("branch", "--list", "windlass/*") == ""


@pytest.mark.req("S0-08")
def test_one_task_is_built_and_reviewed_and_nothing_else_happens(front: Front) -> None:
    done = front.task([builder(), passing()], "Rename load to read")
    assert done.code == 0
    assert front.dispatches == [
        "implementer implement execute/t1/implement",
        "spec-reviewer review execute/t1/spec#1",
        "quality-reviewer review execute/t1/quality#1",
    ]
    assert [event.phase for event in front.events(PhaseEntered)] == ["execute", "report"]
    assert front.events(QuestionAsked) == []
    assert "src/t1.py" in front.landed
    assert "Rename load to read" in front.prompt("execute/t1/implement")


@pytest.mark.req("S0-08")
def test_a_plan_of_the_user_s_own_is_carried_out(front: Front) -> None:
    plan = front.tmp / "mine.md"
    plan.write_text(plan_text(["First", "Second"]))
    assert front.task([builder(), passing()], "--plan", str(plan)).code == 0
    assert [task.title for task in front.view.tasks] == ["First", "Second"]
    assert {"src/t1.py", "src/t2.py"} <= front.landed


@pytest.mark.req("S0-08")
@pytest.mark.parametrize("word", ["retry", "resume"])
def test_a_failed_task_stops_the_run_without_a_question_and_is_tried_again(front: Front, word: str) -> None:
    crash = {"when": {"role": "implementer"}, "exit": 9, "stderr": "no", "times": 1}
    done = front.task([crash, builder(), passing()], "Rename load to read")
    assert done.code == 12
    assert front.events(QuestionAsked) == []
    assert "retry" in done.out + done.err
    assert front(word).code == 0
    assert front.view.tasks[0].state == "complete"


def test_a_review_that_never_passes_stops_the_run_with_its_findings(front: Front) -> None:
    complaints = [failing("spec-reviewer", f"complaint {n}", cycle=n) for n in (1, 2)]
    done = front.task([*complaints, builder(), passing()], "Rename", "--set", "max_task_review_cycles=1")
    assert done.code == 12
    assert "complaint 2" in done.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# nothing here\n", "superteam-tasks"),
        (plan_of([]), ""),
        (plan_of([{"title": "A"}, {"title": "A"}]), "two tasks have the title"),
        (plan_of([{"title": "A", "files": ["/etc/passwd"]}]), "/etc/passwd"),
    ],
    ids=["no block", "empty", "duplicate", "path outside"],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_before_a_run_begins(
    front: Front, text: str, problem: str
) -> None:
    plan = front.tmp / "mine.md"
    plan.write_text(text)
    done = front.task([builder(), passing()], "--plan", str(plan))
    assert done.code == 1
    assert "the plan cannot be carried out" in done.err
    assert problem in done.err
    assert front.service.runs() == []


def test_neither_a_request_nor_a_plan_is_said(front: Front) -> None:
    done = front.task([builder()])
    assert done.code == 1
    assert "give a request or --plan" in done.err
