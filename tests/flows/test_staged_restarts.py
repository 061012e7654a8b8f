"""The staged flow when something fails: the error table and the restart tables of the document, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from front import Rule
from staged import (
    APPROVED,
    FILES,
    QUICK,
    Staged,
    basics,
    commands,
    crash,
    issue,
    looking,
    negative,
    review,
    unchanged,
    worker,
)
from windlass.events import ArtifactsRemoved, PhaseEntered, PhaseSkipped, QuestionAnswered, StageRestarted

ONE = ({"title": "Add sub", "description": "Do sub."},)
SOURCE = "test -e src/fixed.py || { echo 'src/app.py:1: it is wrong'; exit 1; }"
"""A test that finds the fault in the source, until a worker adds a file."""
TESTS = "test -e tests/fixed.py || { echo 'tests/test_t1.py:7: it is wrong'; exit 1; }"
WRONG = "failure in src/app.py: src/app.py:1: it is wrong"
STUCK = "(failed after 2 attempts: the last fix closed no finding)"


def made_by(*stages: str) -> set[str]:
    return set().union(*(FILES[stage] for stage in stages)) - {"3.2-analysis.md"}


def rules(*first: Rule) -> list[Rule]:
    """The worker of a restarted stage finds its task done."""
    return [*first, worker(times=1), unchanged(), *basics(ONE)]


def states(seen: list[dict[str, Any]], stage: str) -> list[str]:
    """What a stage was, one after the other."""
    found = [state["stages"][stage]["status"] for state in seen]
    return [status for n, status in enumerate(found) if n == 0 or found[n - 1] != status]


def at_restart(seen: list[dict[str, Any]], number: int = 1) -> dict[str, Any]:
    """The first state that knows the restart."""
    return next(state for state in seen if state["restartCount"] == number)


def entered(staged: Staged) -> list[str]:
    return [event.phase for event in staged.events(PhaseEntered)]


# -- the error table


@pytest.mark.req("S3-60", "S3-58")
def test_a_task_that_fails_is_tried_again_and_then_left_out_with_a_warning(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    tasks = [*ONE, {"title": "Add mul", "description": "m"}, {"title": "Add div", "depends_on": ["Add sub"]}]
    assert staged.small([crash("worker", task="t1"), *basics(tasks)]).code == 14
    assert [key for key in staged.keys if key.startswith("2.1/t1")] == ["2.1/t1/implement", "2.1/t1+2/implement"]
    assert {task["id"]: task["status"] for task in staged.data("2.1-tasks.json")["tasks"]} == {
        "t1": "failed",
        "t2": "implemented",
        "t3": "skipped",
    }
    assert any("Add sub" in text and "the run continues without it" in text for text in staged.warnings)
    assert "needs t1 (Add sub), which did not complete" in staged.report
    (failure,) = staged.state["failures"]
    assert (failure["phase"], failure["outcome"]) == ("2.1", "failed")
    assert "it broke" in failure["reason"]
    assert staged.asked == []


@pytest.mark.long
@pytest.mark.req("S3-60")
def test_a_task_that_fails_once_is_done_the_second_time(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    assert staged.small([crash("worker", times=1, task="t1"), *basics(ONE)]).code == 0
    (task,) = staged.data("2.1-tasks.json")["tasks"]
    assert (task["status"], task["visits"]) == ("implemented", 2)
    assert "it broke" in staged.prompt("2.1/t1+2/implement")


@pytest.mark.req("S3-35", "S3-36", "S3-58", "S3-61")
def test_a_failure_in_a_test_file_is_analysed_fixed_and_tested_again(tmp_path: Path) -> None:
    staged = Staged(tmp_path, commands(test=TESTS))
    fixer = {"when": {"role": "bug-fixer", "phase": "3.2"}, "files": {"tests/fixed.py": "z = 1\n"}, "say": "done"}
    with looking() as seen:
        assert staged.small([fixer, *basics(ONE)]).code == 0
    assert [one for one in staged.outcomes if one[0] == "3"] == [
        *("3.1 failed.test", "3.2 ok", "3.1 ok", "3.2 nothing", "3.3 pass"),
    ]
    assert [key for key in staged.keys if key.startswith("3.2")] == ["3.2/test-analyst", "3.2/bug-fixer"]
    assert "tests/test_t1.py:7: it is wrong" in staged.prompt("3.2/test-analyst")
    assert "The test is wrong." in staged.prompt("3.2/bug-fixer")
    assert "tests/fixed.py" in staged.landed
    assert staged.made == set().union(*FILES.values())
    results = staged.data("3.1-test-results.json")
    assert (results["status"], results["class"]) == ("passed", "")
    assert [(one["phase"], one["outcome"]) for one in staged.state["failures"]] == [("3.1", "failed.test")]
    assert any(state["stages"]["TEST"]["phases"]["3.1"]["status"] == "failed" for state in seen)
    assert staged.again == []


@pytest.mark.long
@pytest.mark.req("S3-61", "S3-63", "S3-36")
def test_tests_that_stay_red_are_fixed_as_often_as_allowed_and_then_the_person_is_asked(tmp_path: Path) -> None:
    staged = Staged(tmp_path, commands(test="echo 'tests/test_t1.py:7: it is wrong'; exit 1"))
    assert staged.small(basics(ONE), phase="1").code == 10
    assert [one for one in staged.outcomes if one[0] == "3"] == ["3.1 failed.test", "3.2 ok"] * 2
    assert staged.asked == ["failure"]
    assert staged.state["reason"] == "Phase 3.2 failed: 3.1 was repeated 1 time, as often as it may be"
    results = staged.data("3.1-test-results.json")
    assert (results["status"], results["class"], results["file"]) == ("failed", "test", "tests/test_t1.py")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    """A run whose test finds a fault in the source once; the worker of the restarted stage mends it."""
    staged = Staged(tmp_path_factory.mktemp("source"), commands(test=SOURCE))
    phases = f"{staged.root}/.git/windlass/runs/*/files/.agents/tmp"
    second: Rule = {"files": {"src/fixed.py": "z = 1\n"}, "run": [f"ls {phases}/phases {phases}/summaries >&2"]}
    look = {"when": {"role": "worker"}, "commit": "fix", **second}
    with looking() as staged.seen:  # type: ignore[attr-defined]
        done = staged.small([worker(times=1), look, *basics(ONE)])
    assert done.code == 0, done
    return staged


@pytest.mark.req("S3-62", "S3-67", "S3-70", "S3-76", "S3-77")
def test_a_failure_in_a_source_file_restarts_implement_and_explores_and_plans_nothing_again(source: Staged) -> None:
    assert source.again == [("IMPLEMENT", "TEST", 1)]
    order = entered(source)
    assert order == [
        *("0", "1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1"),
        *("2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "4.1", "4.2", "4.3", "end"),
    ]
    assert "src/app.py:1: it is wrong" in source.prompt("2.1+2/t1/implement")
    assert {"src/t1.py", "src/fixed.py"} <= source.landed
    assert source.stages["IMPLEMENT"]["restartCount"] == 1
    assert (source.state["restartCount"], source.state["status"]) == (1, "completed")
    assert source.asked == []


@pytest.mark.req("S3-72", "S3-73", "S3-81", "S3-70")
def test_the_files_of_implement_and_of_test_are_gone_when_implement_begins_again(source: Staged) -> None:
    there = source.said("2.1+2/t1/implement").split()
    assert {name for name in there if name[0].isdigit()} == made_by("EXPLORE", "PLAN")
    assert {name for name in there if name[0].isupper()} == {"EXPLORE.md", "PLAN.md"}
    (removed,) = source.events(ArtifactsRemoved)
    assert removed.names == ["impl_review", "simplify", "summary-IMPLEMENT", "tasks", "test_results"]


@pytest.mark.req("S3-69", "S3-75", "S3-80", "S3-81")
def test_the_state_shows_the_target_restarting_and_the_stage_that_failed_blocked(source: Staged) -> None:
    seen: list[dict[str, Any]] = source.seen  # type: ignore[attr-defined]
    state = at_restart(seen)
    assert (state["currentStage"], state["currentPhase"]) == ("IMPLEMENT", "2.1")
    target, left = state["stages"]["IMPLEMENT"], state["stages"]["TEST"]
    assert (target["status"], target["restartCount"]) == ("restarting", 1)
    assert (left["status"], left["reason"], left["restartCount"]) == ("blocked", WRONG, 0)
    phases = {id: phase["status"] for stage in (target, left) for id, phase in stage["phases"].items()}
    assert phases == dict.fromkeys(("2.1", "2.2", "2.3", "3.1", "3.2", "3.3"), "pending")
    assert state["stages"]["PLAN"]["status"] == "completed"
    assert states(seen, "IMPLEMENT") == [
        "pending",
        "in_progress",
        "completed",
        "restarting",
        "in_progress",
        "completed",
    ]
    assert states(seen, "TEST") == ["pending", "in_progress", "blocked", "in_progress", "completed"]
    again = next(state for state in seen if state["restartCount"] and target != state["stages"]["IMPLEMENT"])
    named = {Path(path).name for path in again["files"].values()}
    assert named == made_by("EXPLORE", "PLAN")


@pytest.mark.req("S3-58", "S3-62")
def test_the_failure_is_kept_in_the_state_with_its_class_and_the_report_tells_the_restart(source: Staged) -> None:
    (failure,) = source.state["failures"]
    assert (failure["phase"], failure["outcome"]) == ("3.1", "failed.source")
    assert failure["reason"] == WRONG
    told = source.report.split("## Restarts")[1].split("##")[0]
    assert f"IMPLEMENT restarted from TEST, 1 restart so far: {WRONG}" in told
    assert "- IMPLEMENT: completed, 1 restart\n" in source.report
    assert {"- `src/t1.py`", "- `src/fixed.py`"} <= set(source.report.splitlines())


BAD_COMMANDS = {
    "names no file": (commands(test="echo 'it is wrong'; exit 1"), "it is wrong"),
    "does not exist": (QUICK + '[commands.test]\ncommands = [["no-such-program"]]\n', "no-such-program"),
    "hangs": (QUICK + '[commands.test]\ntimeout = "1s"\ncommands = [["sleep", "60"]]\n', "was ended after 1 s"),
    "prints 50 MB": (commands(test="yes wrong | head -c 50000000; exit 1"), "wrong | wrong"),
}


@pytest.mark.req("S3-35", "S3-58", "S3-63")
@pytest.mark.parametrize(
    "what",
    [name if name == "does not exist" else pytest.param(name, marks=pytest.mark.long) for name in BAD_COMMANDS],
)
def test_a_command_whose_failure_names_no_file_of_the_project_asks(what: str, tmp_path: Path) -> None:
    config, words = BAD_COMMANDS[what]
    staged = Staged(tmp_path, config)
    assert staged.small(basics(ONE), plan="false", implement="false").code == 10
    assert staged.asked == ["failure"]
    assert words in staged.state["reason"]
    results = staged.data("3.1-test-results.json")
    assert (results["status"], results["class"], results["file"]) == ("failed", "unknown", "")
    assert results["commands"][0]["timed_out"] is (what == "hangs")
    assert (staged.phases / "3.1-test-results.json").stat().st_size < 20_000
    assert staged.outcomes[-1] == "3.1 failed.unknown"
    assert staged.again == []


@pytest.mark.sweep(4)
@pytest.mark.req("S3-23", "S3-34", "S3-43", "S3-48", "S3-63", "S3-66", "S3-67")
@pytest.mark.parametrize("phase", ["1.3", "2.3", "3.3", "4.2"])
def test_a_reviewer_that_gives_no_review_makes_no_file_restarts_nothing_and_asks(phase: str, tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    assert staged.small([crash("codex-reviewer", phase=phase), *basics(ONE)]).code == 10
    (asked,) = staged.status["questions"]
    assert (asked["id"], [option["key"] for option in asked["options"]]) == (
        *("failure", ["retry", "restart", "restart-previous", "skip", "abort"]),
    )
    assert (staged.again, staged.outcomes[-1]) == ([], f"{phase} inconclusive")
    assert not [name for name in staged.made if name.startswith(phase)]
    assert (staged.state["status"], staged.state["currentPhase"]) == ("waiting", phase)
    assert staged.statuses()[phase] == "failed"
    assert entered(staged)[-1] == phase
    # An abort keeps the state, and a retry goes on there.
    assert staged("answer", "abort").code == 12
    assert (staged.state["status"], staged.state["currentPhase"]) == ("stopped", phase)


# -- automatic restarts


@pytest.mark.long
@pytest.mark.req("S3-34", "S3-59", "S3-64", "S3-77", "S3-78", "S3-79")
def test_an_implementation_review_that_stays_negative_restarts_implement_three_times_and_then_asks(
    tmp_path: Path,
) -> None:
    staged = Staged(tmp_path)
    with looking() as seen:
        assert staged.small(rules(negative("2.3"))).code == 10
    assert staged.again == [("IMPLEMENT", "IMPLEMENT", count) for count in (1, 2, 3)]
    visit = ["codex-reviewer#1", "fix.1#1", "codex-reviewer#2"]
    keys = [key for key in staged.keys if key.startswith("2.3")]
    assert keys == [f"2.3{number}/{name}" for number in ("", "+2", "+3", "+4") for name in visit]
    assert entered(staged).count("0") == entered(staged).count("1.3") == 1
    (asked,) = staged.status["questions"]
    assert (asked["id"], [option["key"] for option in asked["options"]]) == ("restarts-used-up", ["force", "abort"])
    assert f"IMPLEMENT was restarted 3 times; 2.3 is not good enough {STUCK}" in asked["text"]
    state = at_restart(seen)
    assert (state["currentStage"], state["currentPhase"]) == ("IMPLEMENT", "2.1")
    stage = state["stages"]["IMPLEMENT"]
    assert (stage["status"], stage["restartCount"]) == ("in_progress", 1)
    assert {phase["status"] for phase in stage["phases"].values()} == {"pending"}
    assert all(event.names == ["impl_review", "simplify", "tasks"] for event in staged.events(ArtifactsRemoved))
    assert "2.3 is not good enough" in staged.prompt("2.1+2/t1/implement")
    # Force goes on in spite of the issues, and says who decided it and why.
    assert staged("answer", "force", "-m", "good enough for us").code == 0
    (waived,) = staged.events(PhaseSkipped)
    assert (waived.phase, waived.waived, waived.by) == ("2.3", True, "windlass answer")
    (waiver,) = staged.state["waivers"]
    assert (waiver["phase"], waiver["by"]) == ("2.3", "windlass answer")
    for text in (waived.reason, waiver["reason"], staged.report.split("## Waivers")[1]):
        assert "good enough for us" in text
        assert "2.3 is not good enough" in text
    assert staged.statuses()["2.3"] == "skipped"
    assert staged.data("2.3-impl-review.json")["status"] == "needs_revision"
    assert staged.state["status"] == "completed"
    assert "- IMPLEMENT: completed, 3 restarts\n" in staged.report


@pytest.mark.req("S3-48", "S3-65", "S3-73", "S3-74", "S3-80", "S3-81", "S3-79")
def test_a_final_review_that_stays_negative_restarts_test_and_deletes_the_files_of_both_stages(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    bad = review("4.2", "approved", issue("it is not done"))
    folder = f"{staged.root}/.git/windlass/runs/*/files/.agents/tmp/phases"
    look = {"when": {"role": "codex-reviewer", "phase": "3.3"}, "run": [f"ls {folder} >&2"], "json": APPROVED}
    with looking() as seen:
        assert staged.small([bad, look, *basics(ONE)], stage="1").code == 10
    assert staged.again == [("TEST", "FINAL", 1)]
    # Only the new results of 3.1 are there when 3.3 begins again.
    made = made_by("EXPLORE", "PLAN", "IMPLEMENT") | {"3.1-test-results.json"}
    assert set(staged.said("3.3/codex-reviewer#1").split()) == made
    assert set(staged.said("3.3+2/codex-reviewer#1").split()) == made
    state = at_restart(seen)
    assert (state["currentStage"], state["currentPhase"]) == ("TEST", "3.1")
    assert (state["stages"]["TEST"]["status"], state["stages"]["FINAL"]["status"]) == ("restarting", "blocked")
    assert f"it is not done {STUCK}" in state["stages"]["FINAL"]["reason"]
    assert {p["status"] for name in ("TEST", "FINAL") for p in state["stages"][name]["phases"].values()} == {"pending"}
    assert entered(staged).count("2.1") == 1
    assert staged.asked == ["restarts-used-up"]
    assert "TEST was restarted 1 time; it is not done" in staged.state["reason"]
    assert staged("answer", "abort").code == 12
    assert staged.state["status"] == "stopped"


@pytest.mark.long
@pytest.mark.req("S3-65", "S3-82")
def test_without_test_a_final_review_that_stays_negative_restarts_implement(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    first = review("4.2", "approved", issue("it is not done"), times=2)
    assert staged.small(rules(first), test="false").code == 0
    assert staged.again == [("IMPLEMENT", "FINAL", 1)]
    (removed,) = staged.events(ArtifactsRemoved)
    assert removed.names == ["docs", "final_review", "impl_review", "simplify", "summary-IMPLEMENT", "tasks"]
    assert staged.stages["TEST"]["status"] == "skipped"
    assert "it is not done" in staged.prompt("2.1+2/t1/implement")


@pytest.mark.req("S3-23", "S3-43", "S3-64", "S3-65")
@pytest.mark.parametrize("phase", ["1.3", "3.3"])
def test_a_negative_plan_or_test_review_restarts_nothing_and_asks(phase: str, tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    assert staged.small([negative(phase), *basics(ONE)]).code == 10
    assert (staged.again, staged.asked) == ([], ["failure"])
    assert entered(staged)[-1] == phase
    (name,) = [name for name in staged.made if name.startswith(phase)]
    assert staged.data(name)["status"] == "needs_revision"


@pytest.mark.req("S3-78", "S3-79", "S3-85")
def test_with_no_restarts_allowed_the_person_is_asked_at_once(tmp_path: Path) -> None:
    staged = Staged(tmp_path, commands(test="echo 'src/app.py:1: it is wrong'; exit 1"))
    assert staged.small(basics(ONE), stage="0").code == 10
    assert (staged.again, staged.asked) == ([], ["restarts-used-up"])
    assert "IMPLEMENT was restarted 0 times" in staged.state["reason"]
    assert staged.state["restartCount"] == 0


# -- the person's choice


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    """A test that names no file, and a person who restarts the stage, then the one before, and skips it in the end."""
    staged = Staged(tmp_path_factory.mktemp("chosen"), commands(test="echo 'it is wrong'; exit 1"))
    with looking() as staged.seen:  # type: ignore[attr-defined]
        codes = [staged.small(rules()).code]
        codes += [staged("answer", *words).code for words in (("restart",), ("restart-previous", "-m", "use a table"))]
        codes += [staged("answer", "retry").code, staged("answer", "skip", "-m", "known").code]
    staged.codes = codes  # type: ignore[attr-defined]
    return staged


@pytest.mark.req("S3-63", "S3-66", "S3-68", "S3-77")
def test_the_person_can_retry_restart_restart_the_previous_stage_and_skip(chosen: Staged) -> None:
    assert chosen.codes == [10, 10, 10, 10, 0]  # type: ignore[attr-defined]
    assert [event.answer for event in chosen.events(QuestionAnswered)] == [
        "restart",
        "restart-previous",
        "retry",
        "skip",
    ]
    assert chosen.again == [("TEST", "TEST", 1), ("IMPLEMENT", "TEST", 1)]
    assert {event.by for event in chosen.events(StageRestarted)} == {"windlass answer"}
    assert entered(chosen) == [
        *("0", "1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1"),
        *("3.1", "2.1", "2.2", "2.3", "3.1", "3.1"),
        *("3.2", "3.3", "4.1", "4.2", "4.3", "end"),
    ]
    assert "use a table" in chosen.prompt("2.1+2/t1/implement")
    assert (chosen.stages["TEST"]["restartCount"], chosen.stages["IMPLEMENT"]["restartCount"]) == (1, 1)


@pytest.mark.req("S3-69", "S3-73", "S3-75")
def test_a_restart_of_the_current_stage_makes_its_phases_pending_and_leaves_the_others(chosen: Staged) -> None:
    seen: list[dict[str, Any]] = chosen.seen  # type: ignore[attr-defined]
    state = at_restart(seen)
    assert (state["currentStage"], state["currentPhase"]) == ("TEST", "3.1")
    stage = state["stages"]["TEST"]
    assert (stage["status"], stage["restartCount"], stage["reason"]) == ("in_progress", 1, "")
    assert {phase["status"] for phase in stage["phases"].values()} == {"pending"}
    assert state["stages"]["IMPLEMENT"]["status"] == "completed"
    assert chosen.events(ArtifactsRemoved)[0].names == ["test_results"]


@pytest.mark.req("S3-10", "S3-66")
def test_a_skipped_phase_is_a_waiver_with_who_and_why_in_events_state_and_report(chosen: Staged) -> None:
    (skipped,) = chosen.events(PhaseSkipped)
    assert (skipped.phase, skipped.waived, skipped.by) == ("3.1", True, "windlass answer")
    assert skipped.reason == "it is wrong: known"
    (waiver,) = chosen.state["waivers"]
    assert (waiver["phase"], waiver["by"], waiver["reason"]) == ("3.1", "windlass answer", "it is wrong: known")
    assert "- 3.1: it is wrong: known (by windlass answer)" in chosen.report
    assert "3.1 skipped" in chosen.report
    statuses = chosen.statuses()
    assert statuses.pop("3.1") == "skipped"
    assert set(statuses.values()) == {"completed"}


@pytest.mark.long
@pytest.mark.req("S3-10", "S3-42", "S3-66", "S3-67")
def test_skip_from_the_command_line_waives_the_file_and_makes_none_up(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    assert staged.small([crash("codex-reviewer", phase="3.3"), *basics(ONE)]).code == 10
    assert staged("skip", "--why", "seen by hand").code == 0
    assert "3.3-test-review.json" not in staged.made
    assert "4.1 begins although '.agents/tmp/phases/3.3-test-review.json' of phase 3.3 is missing" in staged.warnings
    (waiver,) = staged.state["waivers"]
    assert (waiver["phase"], waiver["by"]) == ("3.3", "windlass skip")
    assert "seen by hand" in staged.report.split("## Waivers")[1]


@pytest.mark.long
@pytest.mark.req("S3-67", "S3-71", "S3-70", "S3-81")
def test_restart_from_the_command_line_begins_plan_again_and_deletes_what_came_after(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    first = [{"when": {"role": "brainstormer"}, "say": "One way.", "times": 1}, crash("brainstormer", times=1)]
    assert staged.small(rules(*first, crash("codex-reviewer", times=1, phase="2.3"))).code == 10
    assert staged.made == made_by("EXPLORE", "PLAN") | {"2.1-tasks.json", "2.2-simplify.md"}
    assert staged("restart", "--stage", "PLAN", "--why", "split it by module").code == 10
    # The run rests in the first phase of PLAN: on the disk is what EXPLORE made, and nothing else.
    assert staged.made == made_by("EXPLORE")
    assert set(staged.summaries) == {"EXPLORE"}
    assert staged.state["files"] == {"explore": ".agents/tmp/phases/0-explore.md"}
    assert staged.again == [("PLAN", "IMPLEMENT", 1)]
    state = staged.state
    assert (state["currentStage"], state["currentPhase"]) == ("PLAN", "1.1")
    assert state["stages"]["IMPLEMENT"]["reason"] == "restarted by windlass restart: split it by module"
    assert "split it by module" in staged.prompt("1.1+2/brainstormer")
    assert staged("answer", "retry").code == 0
    assert staged.keys.count("0/explorer") == 1
    assert [key for key in staged.keys if key.startswith("2.1")] == ["2.1/t1/implement", "2.1+2/t1/implement"]


@pytest.mark.long
@pytest.mark.req("S3-67", "S3-69", "S3-74")
def test_resume_with_a_stage_begins_final_again(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    first = [
        {"when": {"role": "docs-writer"}, "files": {"{out.docs}": "one\n"}, "times": 1},
        crash("docs-writer", times=1),
    ]
    assert staged.small([*first, review("4.2", "blocked", issue("no"), times=1), *basics(ONE)]).code == 10
    assert {"4.1-docs.md", "4.2-final-review.json"} <= staged.made
    assert staged("resume", "--restart", "FINAL").code == 10
    assert staged.made == made_by("EXPLORE", "PLAN", "IMPLEMENT", "TEST")
    assert staged.again == [("FINAL", "FINAL", 1)]
    assert [event.by for event in staged.events(StageRestarted)] == ["windlass resume"]
    assert staged("answer", "retry").code == 0
    assert (staged.phases / "4.1-docs.md").read_text() == "README is right.\n"


@pytest.mark.long
@pytest.mark.req("S3-67", "S3-71")
def test_explore_can_be_restarted_and_everything_after_it_is_deleted(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    assert staged.small(rules(crash("codex-reviewer", times=1, phase="3.3"))).code == 10
    assert staged("resume", "--restart", "EXPLORE").code == 0
    (removed,) = staged.events(ArtifactsRemoved)
    assert {"explore", "plan", "tasks", "test_results"} <= set(removed.names)
    assert staged.keys.count("0+2/explorer") == 1
    assert staged.again == [("EXPLORE", "TEST", 1)]


@pytest.mark.req("S3-67")
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("restart", "--stage", "FINAL"), "stage FINAL has not begun: the run is in PLAN"),
        (("restart", "--stage", "TEST"), "stage TEST is disabled in this run"),
        (("restart", "--stage", "PLAM"), "there is no stage 'PLAM'"),
    ],
)
def test_a_stage_that_cannot_be_restarted_is_refused(argv: tuple[str, ...], words: str, waiting: Staged) -> None:
    done = waiting(*argv)
    assert (done.code, words in done.err) == (1, True)
    assert waiting.again == []


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    staged = Staged(tmp_path_factory.mktemp("waiting"), QUICK)
    assert staged.small([crash("brainstormer"), *basics(ONE)], test="false").code == 10
    return staged


# -- the code


@pytest.mark.req("S3-70", "S3-81")
def test_with_reset_the_code_of_the_stage_is_gone_from_the_branch_and_kept_under_a_ref(tmp_path: Path) -> None:
    staged = Staged(tmp_path, commands(test=SOURCE))
    second = {"when": {"role": "worker"}, "files": {"src/fixed.py": "z = 1\n"}, "commit": "fix"}
    stop = crash("worker", times=2)
    assert staged.small([worker(times=1), stop, second, *basics(ONE)], code="reset").code == 10
    # The run rests in the first phase of IMPLEMENT: the branch is where the stage began.
    assert staged.landed == {"README.md", "src/app.py"}
    (restarted,) = staged.events(StageRestarted)
    assert restarted.kept == f"refs/windlass/keep/{staged.run}/restart#1"
    assert "src/t1.py" in staged.git("ls-tree", "-r", "--name-only", restarted.kept).splitlines()
    assert staged("answer", "retry").code == 0
    assert staged.landed == {"README.md", "src/app.py", "src/fixed.py"}
    assert restarted.kept in staged.report
    assert "- `src/t1.py`" not in staged.report


@pytest.mark.req("S3-70")
def test_by_default_the_code_that_has_landed_stays(source: Staged) -> None:
    (restarted,) = source.events(StageRestarted)
    assert restarted.kept == ""
    assert {"src/t1.py", "tests/test_t1.py", "src/fixed.py"} <= source.landed
    assert not [line for line in source.git("for-each-ref").splitlines() if "refs/windlass/keep" in line]
