"""What `--yes` does not approve, and runs that end without all of their tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from front import NO_EXTRAS, Front, basics, failing
from windlass.events import QuestionAnswered

CRASH = {"when": {"role": "implementer", "task": "t2"}, "exit": 1, "stderr": "no"}
QUICK = "[retries]\ncrashed = 0\n"
APPROVED = ("--answer", "approve=approve", "--set", "review_mode=iterative", "--set", "execution_mode=auto")


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, QUICK + NO_EXTRAS)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("mode", ["iterative", "single-pass"])
@pytest.mark.parametrize("yes", [("--yes",), ("--yes", "approve")])
def test_yes_never_approves_a_plan_over_an_open_blocking_finding(front: Front, mode: str, yes: tuple[str, ...]) -> None:
    rules = [failing("architect", "it drops the tables", severity="critical"), *basics("One")]
    done = front.start(rules, *yes, "--set", f"review_mode={mode}", "--set", "execution_mode=auto")
    assert done.code == 12
    assert "it drops the tables" in done.err
    assert "windlass answer" in done.err
    assert not front.events(QuestionAnswered)
    assert not [key for key in front.keys if key.startswith("execute")]
    # The question stays open for a person.
    assert [question["id"] for question in front.status["questions"]] == ["approve"]
    assert front("answer", "approve").code == 0
    assert front.answers["plan-approval!approve"] == "approve"


def test_yes_approves_what_a_review_only_noted(front: Front) -> None:
    rules = [failing("architect", "a comment is long", severity="low"), *basics("One")]
    assert front.start(rules, "--yes", "--set", "review_mode=single-pass", "--set", "execution_mode=auto").code == 0


def test_a_run_that_skipped_a_task_is_finished_in_part(front: Front) -> None:
    front.start([CRASH, *basics("One", "Two")], *APPROVED)
    done = front("answer", "skip")
    told = "1 of 2 tasks completed (1 skipped)"
    assert done.code == 14
    assert f"Finished in part: {told}." in done.out
    assert "Complete." not in done.out
    assert f"finished in part: {told}" in done.err
    report = (front.folder / "report.md").read_text()
    assert report.splitlines()[0] == f"# Workflow Finished in Part: {told}"
    assert f"finished in part: {told}" in front("status").out
    assert (front.status["state"], front.status["in_part"], front.status["reason"]) == ("finished", True, told)


def test_a_run_that_built_nothing_is_finished_in_part_in_json_too(front: Front) -> None:
    rules = [{**CRASH, "when": {"role": "implementer"}}, *basics("One")]
    done = front.start(rules, "--yes", "--json")
    last = json.loads(done.out.splitlines()[-1])
    assert done.code == 14
    assert (last["state"], last["in_part"], last["exit"]) == ("finished", True, 14)
    assert last["reason"] == "0 of 1 tasks completed (1 skipped)"


def test_a_run_with_all_its_tasks_is_finished(front: Front) -> None:
    done = front.start(basics("One"), *APPROVED, "--json")
    last = json.loads(done.out.splitlines()[-1])
    assert (done.code, last["in_part"], front.status["in_part"]) == (0, False, False)
