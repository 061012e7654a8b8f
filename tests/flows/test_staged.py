"""The staged flow through the command line: schedule, stages, reviews, gates, summaries, disabled stages."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from front import Rule, plan_of
from gitrepo import footprint
from staged import (
    FILES,
    PHASES,
    QUICK,
    STAGES,
    TWO,
    Staged,
    basics,
    commands,
    crash,
    issue,
    looking,
    review,
    together,
)
from team import URL, created, make_gh, make_remote
from windlass.agents.criteria import BUILT_IN
from windlass.events import DispatchStarted, PhaseEntered, PhaseSkipped, ScheduleMade, TaskLanded, Warned

PROFILES = "".join(
    f"[roles.'{name}']\nmodel = \"model-{name}\"\n" for name in ("sonnet-4.5", "opus-4.5", "codex-high", "codex-xhigh")
)
LEVELS = [
    {"id": "easy", "title": "Add sub", "description": "Do sub.", "difficulty": "easy"},
    {"id": "unrated", "title": "Add mul", "description": "Do mul.", "depends_on": ["easy"]},
    {"id": "hard", "title": "Add div", "description": "Do div.", "difficulty": "hard", "depends_on": ["unrated"]},
    {"id": "medium", "title": "Add mod", "description": "Do mod.", "difficulty": "medium"},
]
FOCUS = ("structure", "conventions", "tests")
ISSUES = (issue("sub() lacks a check"), issue("a name is odd", "low", "src/hard.py"))
LIST = ["find .agents -type f | sort >&2"]


def explorers(tmp: Path) -> list[Rule]:
    """Each finds something else, and all of them work at the same time."""
    run = [together(tmp / "explorers", 3)]
    return [
        {"when": {"role": "explorer", "step": f"explorer.{nth}"}, "run": run, "say": f"All about {focus}."}
        for nth, focus in enumerate(FOCUS, 1)
    ]


def planners(tmp: Path) -> list[Rule]:
    run = [together(tmp / "planners", 2)]
    return [
        {"when": {"role": "planner", "step": f"planner.{nth}"}, "run": run, "say": f"Plan {nth}.", "json": LEVELS}
        for nth in (1, 2)
    ]


def criteria(name: str) -> str:
    return (BUILT_IN / "high-stakes" / f"{name}.md").read_text().strip()


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Staged:
    """One run in which every review finds something once; many facts are read off it."""
    tmp = tmp_path_factory.mktemp("staged")
    staged = Staged(tmp, PROFILES + commands(lint="echo clean", test="echo 4 passed"))
    staged.before = footprint(staged.root)  # type: ignore[attr-defined]
    rules = [
        *explorers(tmp),
        *planners(tmp),
        review("1.3", "needs_revision", issue("say which file", file=""), times=1),
        review("2.3", "needs_revision", *ISSUES, times=1),
        review("3.3", "needs_revision", issue("no test of mod(0)", file="tests/test_medium.py"), times=1),
        review("4.2", "approved", issue("README is silent", "low", "README.md"), times=1),
        {"when": {"role": "simplifier"}, "run": LIST, "files": {"{out.simplify}": "Fine.\n", "src/easy.py": "z = 2\n"}},
        {"when": {"role": "docs-writer"}, "run": LIST, "files": {"{out.docs}": "README.\n", "README.md": "sub, mul\n"}},
        *basics(LEVELS),
    ]
    with looking() as staged.seen:  # type: ignore[attr-defined]
        done = staged.go(rules)
    assert done.code == 0, done
    return staged


def seen(staged: Staged) -> list[dict[str, Any]]:
    return list(staged.seen)  # type: ignore[attr-defined]


# -- the schedule


@pytest.mark.req("S3-01", "S3-02", "S3-03")
def test_the_schedule_has_the_stages_and_phases_of_the_document(staged: Staged) -> None:
    (made,) = staged.events(ScheduleMade)
    stages: list[Any] = made.stages
    assert [stage["id"] for stage in stages] == [*STAGES]
    assert [phase["id"] for stage in stages for phase in stage["phases"]] == [*PHASES]
    assert [entry["phase"] for entry in staged.state["schedule"]] == [*PHASES]
    entered = [event.phase for event in staged.events(PhaseEntered)]
    assert entered == [*PHASES, "end"]


@pytest.mark.req("S3-02")
def test_the_order_of_phases_comes_from_the_flow_file_alone(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    text = staged("flow", "show", "staged").out
    begin, middle = text.index('      - id: "2.2"'), text.index('      - id: "2.3"')
    end = text.index("  - id: TEST")
    swapped = text[:begin] + text[middle:end].rstrip() + "\n" + text[begin:middle] + "\n" + text[end:]
    flow = tmp_path / "swapped.yaml"
    flow.write_text(swapped)
    assert staged.start(basics(), "--flow", str(flow), "--set", "plan.agents=1").code == 0
    entered = [event.phase for event in staged.events(PhaseEntered)]
    assert entered == ["0", "1.1", "1.2", "1.3", "2.1", "2.3", "2.2", *PHASES[7:], "end"]


@pytest.mark.req("S3-05")
def test_the_type_of_an_entry_says_how_it_is_carried_out(staged: Staged) -> None:
    types = {entry["phase"]: entry["type"] for entry in staged.state["schedule"]}
    assert {phase for phase, type in types.items() if type == "produce"} == {"0", "1.1", "1.2", "2.2", "3.2", "4.1"}
    assert {phase for phase, type in types.items() if type == "review"} == {"1.3", "2.3", "3.3", "4.2"}
    assert (types["2.1"], types["3.1"], types["4.3"]) == ("tasks", "command", "publish")
    assert not [key for key in staged.keys if key.startswith(("3.1", "4.3"))]


@pytest.mark.req("S3-06", "S3-08", "S3-09", "S3-10")
def test_each_phase_is_completed_in_the_state_before_the_next_one_is_the_current_one(staged: Staged) -> None:
    assert set(staged.statuses().values()) == {"completed"}
    assert {stage["status"] for stage in staged.stages.values()} == {"completed"}
    for state in seen(staged):
        statuses = {id: phase["status"] for stage in state["stages"].values() for id, phase in stage["phases"].items()}
        current = state["currentPhase"]
        if current:
            assert current in state["stages"][state["currentStage"]]["phases"]
            before, after = PHASES[: PHASES.index(current)], PHASES[PHASES.index(current) + 1 :]
            assert {statuses[id] for id in before} <= {"completed"}
            assert {statuses[id] for id in after} <= {"pending"}
    assert list(dict.fromkeys(state["currentPhase"] for state in seen(staged) if state["currentPhase"])) == [*PHASES]


@pytest.mark.req("S3-06", "S3-50")
def test_the_state_names_every_file_and_is_completed_in_the_end(staged: Staged) -> None:
    state = staged.state
    assert (state["status"], state["currentStage"], state["currentPhase"]) == ("completed", "FINAL", "4.3")
    named = {Path(path).name for path in state["files"].values()}
    assert named == set().union(*FILES.values()) - {"3.2-analysis.md"} == staged.made
    assert all((staged.files / path).is_file() for path in state["files"].values())
    assert (state["run"], state["request"]) == (staged.run, "Add sub and mul")
    assert {state["status"] for state in seen(staged) if state["currentPhase"] != "4.3"} == {"in_progress"}


@pytest.mark.req("S3-11")
def test_an_agent_that_writes_the_state_file_moves_the_run_nowhere(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    state = f"{staged.root}/.git/windlass/runs/*/files/.agents/tmp/state.json"
    forge = f"""sed -i 's/"currentPhase": "1.1"/"currentPhase": "4.3"/; s/"pending"/"completed"/' {state}"""
    rules = [{"when": {"role": "brainstormer"}, "run": [forge], "say": "Skip to the end."}, *basics()]
    assert staged.small(rules).code == 0
    assert [event.phase for event in staged.events(PhaseEntered)] == [*PHASES, "end"]
    assert [entry["status"] for entry in staged.stages["TEST"]["phases"].values()] == ["completed"] * 3
    assert len(staged.keys) == 11


# -- EXPLORE


@pytest.mark.req("S3-12", "S3-13")
def test_three_explorers_look_at_the_same_time_and_their_findings_stand_under_headings(staged: Staged) -> None:
    assert sorted(key for key in staged.keys if key.startswith("0/")) == [f"0/explorer.{nth}" for nth in (1, 2, 3)]
    for nth, focus in enumerate(FOCUS, 1):
        prompt = staged.prompt(f"0/explorer.{nth}")
        assert f"Your part is its **{focus}**" in prompt
        assert "Add sub and mul" in prompt
    found = (staged.phases / "0-explore.md").read_text()
    assert found == "\n\n".join(f"## {focus.capitalize()}\n\nAll about {focus}." for focus in FOCUS) + "\n"


# -- PLAN


@pytest.mark.req("S3-16")
def test_one_agent_decides_on_an_approach_from_what_was_explored(staged: Staged) -> None:
    assert [key for key in staged.keys if key.startswith("1.1")] == ["1.1/brainstormer"]
    assert ".agents/tmp/phases/0-explore.md" in staged.prompt("1.1/brainstormer")
    assert (staged.phases / "1.1-brainstorm.md").read_text() == "Two functions, side by side.\n"


@pytest.mark.req("S3-17")
def test_two_planners_propose_at_the_same_time_and_one_agent_merges_their_plans(staged: Staged) -> None:
    keys = [key for key in staged.keys if key.startswith("1.2")]
    assert sorted(keys[:2]) == ["1.2/planner.1", "1.2/planner.2"]
    assert keys[2:] == ["1.2/plan-merger#1"]
    prompt = staged.prompt("1.2/plan-merger#1")
    assert "Plan 1." in prompt
    assert "Plan 2." in prompt
    assert "Two functions, side by side." in prompt
    assert (staged.phases / "1.2-plan.md").read_text() == plan_of(LEVELS)


@pytest.mark.req("S3-18")
def test_the_plan_review_names_the_file_of_the_plan_and_the_criteria(staged: Staged) -> None:
    prompt = staged.prompt("1.3/codex-reviewer#1")
    assert prompt.startswith("Review: plan.")
    assert "`.agents/tmp/phases/1.2-plan.md`" in prompt
    assert criteria("plan-review") in prompt
    assert set(staged.models("codex-reviewer")) >= {"1.3/codex-reviewer#1"}
    assert staged.models("codex-reviewer")["1.3/codex-reviewer#1"] == "model-codex-high"


@pytest.mark.req("S3-19", "S3-20", "S3-55", "S3-59")
def test_the_fixer_revises_the_plan_and_the_reviewer_looks_again(staged: Staged) -> None:
    keys = [key for key in staged.keys if key.startswith("1.3")]
    assert keys == ["1.3/codex-reviewer#1", "1.3/fix#1", "1.3/codex-reviewer#2"]
    assert "say which file" in staged.prompt("1.3/fix#1")
    assert staged.models("bug-fixer")["1.3/fix#1"] == "model-codex-high"
    assert "say which file" in staged.prompt("1.3/codex-reviewer#2")
    approved = {"status": "approved", "outcome": "pass", "issues": [], "blocking": 0, "summary": "fine", "reviews": 2}
    assert staged.data("1.3-plan-review.json") == approved


# -- IMPLEMENT


@pytest.mark.req("S3-24")
def test_a_task_waits_for_the_wave_before_it(staged: Staged) -> None:
    order = [recorded.event for recorded in staged.records]
    began = {e.task: n for n, e in enumerate(order) if isinstance(e, DispatchStarted) and e.role == "worker"}
    landed = {e.task: n for n, e in enumerate(order) if isinstance(e, TaskLanded)}
    assert landed["easy"] < began["unrated"]
    assert landed["unrated"] < began["hard"]
    assert [[task.group for task in staged.view.tasks if task.id == id] for id in ("easy", "unrated", "hard")] == [
        *([1], [2], [3]),
    ]


@pytest.mark.req("S3-25", "S3-26")
def test_the_difficulty_of_a_task_chooses_the_profile_of_its_worker(staged: Staged) -> None:
    assert staged.models("worker") == {
        "2.1/easy/implement": "model-sonnet-4.5",
        "2.1/unrated/implement": "model-opus-4.5",
        "2.1/medium/implement": "model-opus-4.5",
        "2.1/hard/implement": "model-codex-xhigh",
    }


@pytest.mark.req("S3-27")
def test_the_results_of_the_tasks_are_a_file(staged: Staged) -> None:
    results = staged.data("2.1-tasks.json")
    assert results["counts"] == {"implemented": 4}
    assert [(task["id"], task["difficulty"], task["status"]) for task in results["tasks"]] == [
        ("easy", "easy", "implemented"),
        ("unrated", "medium", "implemented"),
        ("hard", "hard", "implemented"),
        ("medium", "medium", "implemented"),
    ]
    assert results["tasks"][2]["depends_on"] == ["unrated"]


@pytest.mark.req("S3-28")
def test_the_new_code_is_simplified_with_notes_and_the_change_lands(staged: Staged) -> None:
    prompt = staged.prompt("2.2/simplifier#1")
    assert all(f"- src/{task['id']}.py" in prompt for task in LEVELS)
    assert (staged.phases / "2.2-simplify.md").read_text() == "Fine.\n"
    assert staged.show("src/easy.py") == "z = 2"


@pytest.mark.req("S3-29")
def test_the_implementation_review_names_the_changed_files_and_the_criteria(staged: Staged) -> None:
    prompt = staged.prompt("2.3/codex-reviewer#1")
    assert prompt.startswith("Review: implementation.")
    assert all(f"- src/{task['id']}.py\n" in prompt for task in LEVELS)
    assert "- src/app.py\n" not in prompt
    assert criteria("implementation") in prompt
    assert staged.models("codex-reviewer")["2.3/codex-reviewer#1"] == "model-codex-high"


@pytest.mark.req("S3-30", "S3-31", "S3-55", "S3-59")
def test_the_fixer_gets_each_issue_of_the_implementation_alone(staged: Staged) -> None:
    keys = [key for key in staged.keys if key.startswith("2.3")]
    assert keys == ["2.3/codex-reviewer#1", "2.3/fix.1#1", "2.3/fix.2#1", "2.3/codex-reviewer#2"]
    first, second = staged.prompt("2.3/fix.1#1"), staged.prompt("2.3/fix.2#1")
    assert ("sub() lacks a check" in first, "a name is odd" in first) == (True, False)
    assert ("sub() lacks a check" in second, "a name is odd" in second) == (False, True)
    assert {staged.models("bug-fixer")[f"2.3/fix.{nth}#1"] for nth in (1, 2)} == {"model-codex-high"}
    assert staged.show("src/app.py").count("# mended") == 4
    result = staged.data("2.3-impl-review.json")
    assert (result["status"], result["outcome"], result["reviews"]) == ("approved", "pass", 2)


# -- TEST


@pytest.mark.req("S3-35", "S3-37", "S3-85")
def test_lint_and_test_are_run_and_their_results_are_a_file(staged: Staged) -> None:
    results = staged.data("3.1-test-results.json")
    assert (results["status"], results["ok"], results["class"]) == ("passed", True, "")
    ran = [(one["command"], one["code"], one["output"]) for one in results["commands"]]
    assert ran == [("sh -c echo clean", 0, "clean"), ("sh -c echo 4 passed", 0, "4 passed")]
    assert not [key for key in staged.keys if key.startswith("3.2")]
    assert staged.statuses()["3.2"] == "completed"
    assert "3.2 nothing" in staged.outcomes


@pytest.mark.req("S3-38")
def test_the_test_review_names_the_test_files_and_the_criteria(staged: Staged) -> None:
    prompt = staged.prompt("3.3/codex-reviewer#1")
    assert prompt.startswith("Review: tests.")
    listed = prompt.split("The tests among them:")[1].split("```")[1]
    assert set(listed.split()) - {"data-test-files", "-"} == {f"tests/test_{task['id']}.py" for task in LEVELS}
    assert criteria("test-review") in prompt
    assert "Coverage" in criteria("test-review")
    assert staged.models("codex-reviewer")["3.3/codex-reviewer#1"] == "model-codex-high"


@pytest.mark.req("S3-39", "S3-40", "S3-59")
def test_an_issue_of_the_tests_is_fixed_and_reviewed_again(staged: Staged) -> None:
    keys = [key for key in staged.keys if key.startswith("3.3")]
    assert keys == ["3.3/codex-reviewer#1", "3.3/fix.1#1", "3.3/codex-reviewer#2"]
    assert "no test of mod(0)" in staged.prompt("3.3/fix.1#1")
    result = staged.data("3.3-test-review.json")
    assert (result["status"], result["reviews"]) == ("approved", 2)


# -- FINAL


@pytest.mark.req("S3-44")
def test_the_documentation_is_brought_up_to_date_and_lands(staged: Staged) -> None:
    assert [key for key in staged.keys if key.startswith("4.1")] == ["4.1/docs-writer#1"]
    assert staged.show("README.md") == "sub, mul"
    assert (staged.phases / "4.1-docs.md").read_text() == "README.\n"


@pytest.mark.req("S3-45")
def test_the_final_review_names_all_changed_files_and_is_done_with_more_effort(staged: Staged) -> None:
    prompt = staged.prompt("4.2/codex-reviewer#1")
    assert prompt.startswith("Review: final.")
    names = {"src/app.py", "README.md", *(f"src/{t['id']}.py" for t in LEVELS)}
    assert all(f"- {name}\n" in prompt for name in names)
    assert criteria("final-review") in prompt
    assert staged.models("codex-reviewer")["4.2/codex-reviewer#1"] == "model-codex-xhigh"


@pytest.mark.req("S3-46", "S3-53")
def test_an_approved_final_review_with_issues_is_fixed_and_done_again(staged: Staged) -> None:
    keys = [key for key in staged.keys if key.startswith("4.2")]
    assert keys == ["4.2/codex-reviewer#1", "4.2/fix.1#1", "4.2/codex-reviewer#2"]
    assert staged.models("bug-fixer")["4.2/fix.1#1"] == "model-codex-high"
    result = staged.data("4.2-final-review.json")
    assert (result["status"], result["issues"], result["reviews"]) == ("approved", [], 2)


@pytest.mark.req("S3-49")
def test_without_a_pull_request_only_the_runs_branch_is_made(staged: Staged) -> None:
    before, after = staged.before, footprint(staged.root)  # type: ignore[attr-defined]
    assert (after.status, after.index, after.head, after.files) == (
        *(before.status, before.index, before.head, before.files),
    )
    added = set(after.refs.splitlines()) - set(before.refs.splitlines())
    assert [line.split()[0] for line in added] == [f"refs/heads/{staged.branch}"]
    assert "Pull Request" not in staged.report


@pytest.mark.req("S3-49", "S3-85")
def test_with_a_pull_request_the_branch_is_pushed_and_the_pull_request_opened(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    make_remote(staged.root, tmp_path)
    staged.env["PATH"] = f"{make_gh(tmp_path)}{os.pathsep}{os.environ['PATH']}"
    assert staged.small(basics(), pr="true").code == 0
    (asked,) = created(tmp_path)
    assert f"--head={staged.branch}" in asked
    assert staged.branch in staged.git("ls-remote", "origin")
    assert URL in staged.report


# -- summaries


@pytest.mark.req("S3-14", "S3-21", "S3-32", "S3-41", "S3-51")
@pytest.mark.parametrize(
    ("stage", "then"), [("EXPLORE", "1.1"), ("PLAN", "2.1"), ("IMPLEMENT", "3.1"), ("TEST", "4.1")]
)
def test_a_stage_that_ends_is_summed_up_before_the_next_begins(staged: Staged, stage: str, then: str) -> None:
    path = f".agents/tmp/summaries/{stage}.md"
    state = next(state for state in seen(staged) if state["currentPhase"] == then)
    assert state["summaries"][stage] == path
    assert state["stages"][stage]["status"] == "completed"
    text = (staged.files / path).read_text()
    assert text.startswith(f"# Summary of {stage}\n")
    made = FILES[stage] - {"3.2-analysis.md"}
    assert all(f"`.agents/tmp/phases/{name}`" in text for name in made)


@pytest.mark.req("S3-51")
def test_agents_of_the_next_stage_get_paths_instead_of_contents_and_only_the_files_they_need(staged: Staged) -> None:
    for key in ("1.1/brainstormer", "1.2/planner.1"):
        prompt = staged.prompt(key)
        assert "The file `.agents/tmp/phases/0-explore.md`" in prompt
        assert "All about structure." not in prompt
    summaries = {f".agents/tmp/summaries/{stage}.md" for stage in STAGES[:4]}
    assert set(staged.said("4.1/docs-writer#1").split()) == summaries | {".agents/tmp/phases/4.1-docs.md"}
    summaries = {f".agents/tmp/summaries/{stage}.md" for stage in STAGES[:2]}
    assert set(staged.said("2.2/simplifier#1").split()) == summaries | {".agents/tmp/phases/2.2-simplify.md"}
    assert set(staged.summaries) == {*STAGES}


@pytest.mark.req("S3-51", "S3-52", "S3-85")
def test_without_summaries_prompts_hold_what_earlier_stages_made(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    rules = [{"when": {"role": "brainstormer"}, "run": LIST, "say": "One way."}, *basics()]
    assert staged.small(rules, between_stages="false").code == 0
    assert staged.summaries == staged.state["summaries"] == {}
    assert "A small program in src/app.py." in staged.prompt("1.1/brainstormer")
    assert staged.said("1.1/brainstormer").split() == [".agents/tmp/phases/0-explore.md"]


@pytest.mark.req("S3-52", "S3-85")
def test_with_summaries_between_phases_every_phase_is_summed_up(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    rules = [{"when": {"role": "planner"}, "run": LIST, "say": "A plan.", "json": [*TWO]}, *basics()]
    assert staged.go(rules, between_stages="false", between_phases="true", planners="1").code == 0
    assert set(staged.summaries) == {*PHASES}
    assert set(staged.state["summaries"]) == {*PHASES}
    prompt = staged.prompt("1.2/planner")
    assert "The file `.agents/tmp/phases/1.1-brainstorm.md`" in prompt
    assert "Two functions, side by side." not in prompt
    phases = [".agents/tmp/phases/0-explore.md", ".agents/tmp/phases/1.1-brainstorm.md"]
    assert staged.said("1.2/planner").split() == [*phases, ".agents/tmp/summaries/0.md", ".agents/tmp/summaries/1.1.md"]


# -- explorers and planners that fail


@pytest.mark.req("S3-12", "S3-17")
def test_what_one_explorer_or_planner_lacks_the_others_have_and_a_warning_says_so(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    rules = [crash("explorer", step="explorer.2"), crash("planner", step="planner.1"), *basics()]
    assert staged.go(rules).code == 0
    found = (staged.phases / "0-explore.md").read_text()
    assert [line for line in found.splitlines() if line.startswith("## ")] == ["## Structure", "## Tests"]
    assert not [key for key in staged.keys if "plan-merger" in key]
    assert "Add sub" in (staged.phases / "1.2-plan.md").read_text()
    warned = [event.text for event in staged.events(Warned) if event.code == "proposal"]
    assert [text.split(" gave")[0] for text in warned] == ["0: Conventions", "1.2: The smallest change that does it"]


@pytest.mark.req("S3-12", "S3-15", "S3-63")
def test_when_every_explorer_fails_the_person_is_asked_and_the_plan_does_not_begin(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    assert staged.go([crash("explorer"), *basics()]).code == 10
    assert staged.asked == ["failure"]
    assert staged.made == set()
    assert staged.state["currentPhase"] == "0"


@pytest.mark.req("S3-17", "S3-85")
def test_the_plan_of_a_single_planner_is_used_without_a_merge(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    assert staged.go(basics(), explorers="1", planners="1", phase="0").code == 0
    assert [key for key in staged.keys if key.startswith(("0", "1.2"))] == ["0/explorer", "1.2/planner"]
    assert [task.title for task in staged.view.tasks] == ["Add sub", "Add mul"]


# -- what a review says


@pytest.mark.req("S3-30", "S3-54", "S3-55", "S3-56", "S3-85")
def test_issues_below_the_threshold_stop_nothing_and_those_above_go_to_the_fixer(tmp_path: Path) -> None:
    config = """
[settings]
blockOnSeverity = "high"
bugFixer = "opus-4.5"
[settings.stages.EXPLORE]
enabled = false
[settings.retries]
maxPerStage = 2
"""
    staged = Staged(tmp_path, PROFILES + config)
    rules = [
        review("1.3", "approved", issue("a word", "medium", "")),
        review("2.3", "needs_revision", issue("a name", "medium")),
        review("3.3", "needs_revision", issue("no test", "high"), issue("a name", "low"), times=1),
        *basics(),
    ]
    assert staged.small(rules).code == 0
    assert [key for key in staged.keys if "fix" in key] == ["3.3/fix.1#1"]
    assert "a name" not in staged.prompt("3.3/fix.1#1")
    assert staged.models("bug-fixer") == {"3.3/fix.1#1": "model-opus-4.5"}
    plan, built = staged.data("1.3-plan-review.json"), staged.data("2.3-impl-review.json")
    assert (plan["status"], plan["blocking"], len(plan["issues"])) == ("approved", 0, 1)
    assert (built["status"], built["outcome"], built["blocking"]) == ("needs_revision", "noted", 0)
    assert [one["message"] for one in built["issues"]] == ["a name"]
    assert staged.stages["EXPLORE"]["status"] == "skipped"
    assert staged.view.max_restarts == 2


@pytest.mark.req("S3-53", "S3-54", "S3-23")
@pytest.mark.parametrize(
    "phase", ["1.3", pytest.param("2.3", marks=pytest.mark.long), pytest.param("3.3", marks=pytest.mark.long)]
)
def test_approved_with_a_blocking_issue_is_no_verdict_and_asks(phase: str, tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    assert staged.small([review(phase, "approved", issue("a hole")), *basics()]).code == 10
    assert staged.asked == ["failure"]
    assert staged.outcomes[-1] == f"{phase} inconclusive"
    assert not [name for name in staged.made if name.startswith(phase)]
    assert "a finding is low or worse" in staged.state["reason"]
    assert staged.state["currentPhase"] == phase


@pytest.mark.req("S3-53")
@pytest.mark.parametrize(
    ("phase", "status", "words"),
    [
        ("1.3", "blocked", "use approved or needs_revision"),
        pytest.param("2.3", "blocked", "use approved or needs_revision", marks=pytest.mark.long),
        pytest.param("3.3", "pass", "use approved or needs_revision", marks=pytest.mark.long),
        ("4.2", "needs_revision", "use approved or blocked"),
    ],
)
def test_a_status_of_another_kind_of_review_is_malformed(phase: str, status: str, words: str, tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    assert staged.small([review(phase, status, issue("a hole")), *basics()]).code == 10
    assert staged.asked == ["failure"]
    assert f"'{status}' is not a status; {words}" in staged.state["reason"]
    # The reviewer was told twice, then it gave up.
    assert staged.keys.count(f"{phase}/codex-reviewer#1") == 3
    assert words in staged.prompt(f"{phase}/codex-reviewer#1", attempt=2)
    assert not [name for name in staged.made if name.startswith(phase)]


@pytest.mark.req("S3-53", "S3-55")
def test_an_unknown_severity_is_told_to_the_reviewer_and_never_passes(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    rules = [
        review("2.3", "needs_revision", issue("a hole", "blocker"), times=1),
        review("2.3", "needs_revision", issue("a hole", "critical"), times=1),
        *basics(),
    ]
    assert staged.small(rules, block="critical").code == 0
    keys = [key for key in staged.keys if key.startswith("2.3")]
    assert keys == ["2.3/codex-reviewer#1", "2.3/codex-reviewer#1", "2.3/fix.1#1", "2.3/codex-reviewer#2"]
    assert "issues.0.severity: must be 'critical', 'high'" in staged.prompt("2.3/codex-reviewer#1", attempt=2)


@pytest.mark.req("S3-57", "S3-66")
def test_a_blocked_final_review_is_a_hard_stop_whatever_the_threshold(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    below, above = issue("a licence", "low"), issue("a lost row", "critical")
    rules = [review("4.2", "blocked", below, times=1), review("4.2", "blocked", above), *basics()]
    assert staged.small(rules, block="critical").code == 10
    assert staged.outcomes[-1] == "4.2 hard_stop"
    assert staged.data("4.2-final-review.json")["status"] == "blocked"
    (asked,) = staged.status["questions"]
    assert [option["key"] for option in asked["options"]] == ["retry", "restart", "restart-previous", "skip", "abort"]
    assert staged("answer", "retry").code == 10
    # No fixer is tried in either case: only the person decides.
    assert [key for key in staged.keys if key.startswith("4.2")] == ["4.2/codex-reviewer#1", "4.2+2/codex-reviewer#1"]
    assert staged("answer", "skip", "-m", "the row is not ours").code == 0
    assert "the row is not ours" in staged.report.split("## Waivers")[1]


@pytest.mark.long
@pytest.mark.req("S3-30")
def test_a_thousand_issues_are_shared_by_ten_fixers_a_round(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    many = [issue(f"issue {n} of many", file=f"src/f{n % 30}.py") for n in range(1000)]
    assert staged.small([review("2.3", "needs_revision", *many, times=1), *basics()]).code == 0
    assert [key for key in staged.keys if "fix" in key] == [f"2.3/fix.{nth}#1" for nth in range(1, 11)]
    prompts = "\n".join(staged.prompt(f"2.3/fix.{nth}#1") for nth in range(1, 11))
    assert all(f"issue {n} of many" in prompts for n in range(1000))


@pytest.mark.req("S3-19", "S3-63")
def test_a_review_is_repeated_three_times_at_most_and_then_asks(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    rules = [review("1.3", "needs_revision", issue(f"round {n}", file=""), cycle=n) for n in range(1, 6)]
    assert staged.small([*rules, *basics()]).code == 10
    keys = [key.removeprefix("1.3/") for key in staged.keys if key.startswith("1.3")]
    rounds = [name for n in (1, 2, 3) for name in (f"codex-reviewer#{n}", f"fix#{n}")]
    assert keys == [*rounds, "codex-reviewer#4"]
    assert staged.asked == ["failure"]
    result = staged.data("1.3-plan-review.json")
    assert (result["status"], result["outcome"], result["blocking"]) == ("needs_revision", "exhausted", 1)
    assert [failure["phase"] for failure in staged.state["failures"]] == ["1.3"]


# -- gates

GATES = {
    "1.1": ("0", ["0-explore.md"]),
    "2.1": ("1.3", ["1.2-plan.md", "1.3-plan-review.json"]),
    "3.1": ("2.3", ["2.1-tasks.json", "2.3-impl-review.json"]),
    "4.1": ("3.3", ["3.1-test-results.json", "3.3-test-review.json"]),
    "4.3": ("4.2", ["4.2-final-review.json"]),
}


@pytest.mark.req("S3-07", "S3-15", "S3-22", "S3-33", "S3-42", "S3-47")
@pytest.mark.parametrize("entry", GATES)
def test_a_gate_blocks_when_one_of_its_files_was_deleted_and_names_it(entry: str, tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    last, names = GATES[entry]

    def delete(state: dict[str, Any]) -> None:
        phases = {id: phase for stage in state["stages"].values() for id, phase in stage["phases"].items()}
        if phases[last]["status"] == "completed":
            for name in names:
                (staged.phases / name).unlink(missing_ok=True)

    with looking(delete):
        done = staged.small(basics())
    assert done.code == 12
    assert staged.state["status"] == "blocked"
    assert f"{entry} cannot begin" in staged.state["reason"]
    assert all(name in staged.state["reason"] for name in names)
    assert entry not in [event.phase for event in staged.events(PhaseEntered)]
    assert staged.statuses()[entry] == "pending"


@pytest.mark.long
@pytest.mark.req("S3-07", "S3-08")
def test_a_deleted_file_is_restored_when_the_person_agrees_and_the_run_goes_on(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    plan = f"{staged.root}/.git/windlass/runs/*/files/.agents/tmp/phases/1.2-plan.md"
    approve = {"status": "approved", "issues": [], "summary": "fine"}
    reviewer = {"when": {"role": "codex-reviewer", "phase": "1.3"}, "run": [f"rm {plan}"], "json": approve}
    assert staged.small([reviewer, *basics()]).code == 12
    assert "1.2-plan.md" in staged.state["reason"]
    before = len(staged.keys)
    assert staged("resume").code == 10
    assert staged.asked == ["restore"]
    assert staged("answer", "leave").code == 12
    assert (staged.state["status"], len(staged.keys)) == ("blocked", before)
    assert staged("resume").code == 10
    assert staged("answer", "restore").code == 0
    assert (staged.phases / "1.2-plan.md").read_text().startswith("A plan.")
    assert [key for key in staged.keys if key.startswith("1")] == [
        *("1.1/brainstormer", "1.2/planner", "1.3/codex-reviewer#1"),
    ]


# -- disabled stages


@pytest.mark.req("S3-10", "S3-82", "S3-83", "S3-85")
def test_without_test_its_phases_are_skipped_and_final_needs_the_files_of_implement(tmp_path: Path) -> None:
    staged = Staged(tmp_path)

    def delete(state: dict[str, Any]) -> None:
        if state["stages"]["IMPLEMENT"]["status"] == "completed":
            (staged.phases / "2.1-tasks.json").unlink(missing_ok=True)

    with looking(delete):
        assert staged.small(basics(), test="false").code == 12
    assert "4.1 cannot begin" in staged.state["reason"]
    assert "2.1-tasks.json" in staged.state["reason"]
    assert "3.1-test-results.json" not in staged.state["reason"]
    assert staged("resume", "--yes").code == 0
    assert not [key for key in staged.keys if key.startswith("3")]
    stage = staged.stages["TEST"]
    assert (stage["status"], stage["enabled"]) == ("skipped", False)
    assert {phase["status"] for phase in stage["phases"].values()} == {"skipped"}
    assert staged.made == set().union(*(FILES[name] for name in STAGES if name != "TEST"))
    skipped = {event.phase: event.reason for event in staged.events(PhaseSkipped)}
    assert skipped["3.1"] == "stage TEST is disabled: it runs only when stages.TEST.enabled is true"
    assert "- TEST: skipped" in staged.report
    assert "## Waivers" not in staged.report


@pytest.mark.req("S3-82")
@pytest.mark.parametrize("name", ["EXPLORE", "FINAL"])
def test_the_first_or_the_last_stage_can_be_disabled(name: str, tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    assert staged.small(basics(), **{name.lower(): "false"}).code == 0
    assert staged.stages[name]["status"] == "skipped"
    assert {stage["status"] for id, stage in staged.stages.items() if id != name} == {"completed"}
    assert staged.made == set().union(*(FILES[one] for one in STAGES if one != name)) - {"3.2-analysis.md"}
    assert not [event.phase for event in staged.events(PhaseEntered) if event.stage == name and event.phase != "end"]


@pytest.mark.req("S3-82")
def test_what_is_there_can_be_tested_without_planning_or_building(tmp_path: Path) -> None:
    staged = Staged(tmp_path, commands(test="grep -q 'x = 1' src/app.py"))
    done = staged.go(basics(), explore="false", plan="false", implement="false")
    assert done.code == 0
    assert [event.phase for event in staged.events(PhaseEntered)] == [*PHASES[7:], "end"]
    assert staged.data("3.1-test-results.json")["status"] == "passed"


@pytest.mark.req("S3-82")
@pytest.mark.parametrize(
    ("off", "words"),
    [
        (STAGES, "every stage of flow 'staged' is disabled"),
        (("PLAN",), "stage IMPLEMENT carries out 'plan', which the disabled stage PLAN makes"),
    ],
)
def test_stages_that_leave_nothing_to_do_are_refused(off: tuple[str, ...], words: str, tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    done = staged.go(basics(), **{name.lower(): "false" for name in off})
    assert (done.code, words in done.err) == (1, True)
    assert not (staged.root / ".git/windlass/runs").exists()


# -- configuration


@pytest.mark.req("S3-78", "S3-85")
def test_the_settings_have_the_names_and_the_values_of_the_document(tmp_path: Path) -> None:
    shown = Staged(tmp_path)("flow", "show", "staged").out
    for name, value in {
        "blockOnSeverity": "low",
        "bugFixer": "codex-high",
        "retries.maxPerPhase": "3",
        "retries.maxPerStage": "3",
        "compaction.betweenStages": "true",
        "compaction.betweenPhases": "false",
        "pullRequest": "false",
        **{f"stages.{stage}.enabled": "true" for stage in STAGES},
    }.items():
        setting = shown.split(f"  {name}:")[1]
        assert setting.split("default: ")[1].split("}")[0].split("\n")[0].split(",")[0] == value


@pytest.mark.req("S3-85")
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("blockOnSeverity=serious", "serious"),
        ("bugFixer=nobody", "'bugFixer' is 'nobody', and there is no such role"),
        ("retries.maxPerStage=-1", "'retries.maxPerStage' must be a whole number from 0"),
        ("stages.TEST.enabled=maybe", "maybe"),
        ("stages.NONE.enabled=false", "stages.NONE.enabled"),
    ],
)
def test_a_setting_that_is_wrong_is_refused(setting: str, words: str, tmp_path: Path) -> None:
    done = Staged(tmp_path).go(basics(), "--set", setting)
    assert (done.code, words in done.err) == (1, True)


@pytest.mark.req("S3-18")
def test_a_project_can_replace_the_criteria(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK, files={".windlass/prompts/high-stakes/plan-review.md": "Only rhymes count.\n"})
    assert staged.small([crash("codex-reviewer"), *basics()], "--answer", "failure=abort").code == 12
    prompt = staged.prompt("1.3/codex-reviewer#1")
    assert "Only rhymes count." in prompt
    assert criteria("plan-review") not in prompt


# -- continued from files


@pytest.mark.req("S3-04", "S3-11", "S3-84")
def test_a_stopped_run_goes_on_at_its_phase_from_what_is_stored(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    assert staged.small([crash("codex-reviewer", times=1, phase="2.3"), *basics()]).code == 10
    before = staged.keys
    assert staged.state["currentPhase"] == "2.3"
    # The state file is a view: another run's file in its place changes nothing.
    other = {**staged.state, "run": "0" * 12, "currentPhase": "1.1", "currentStage": "PLAN"}
    staged.state_path.write_text(json.dumps(other))
    assert staged("answer", "retry").code == 0
    assert staged.keys[: len(before)] == before
    after = staged.keys[len(before) :]
    assert after == ["2.3+2/codex-reviewer#1", "3.3/codex-reviewer#1", "4.1/docs-writer#1", "4.2/codex-reviewer#1"]
    assert (staged.state["run"], staged.state["status"]) == (staged.run, "completed")


@pytest.mark.long
@pytest.mark.req("S3-84")
def test_a_run_that_lost_its_state_file_goes_on_and_writes_it_again(tmp_path: Path) -> None:
    staged = Staged(tmp_path, QUICK)
    assert staged.small([crash("brainstormer", times=1), *basics()], "--answer", "failure=abort").code == 12
    assert (staged.state["status"], staged.state["currentPhase"]) == ("stopped", "1.1")
    staged.state_path.unlink()
    assert staged("retry").code == 0
    assert staged.state["status"] == "completed"
    assert [key for key in staged.keys if key.startswith("0")] == ["0/explorer"]


@pytest.mark.req("S3-82", "S3-10")
def test_a_run_without_its_last_stage_has_a_report_too(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    assert staged.go(basics(), final="false").code == 0
    assert "- FINAL: skipped" in staged.report
    assert staged.state["stages"]["FINAL"]["status"] == "skipped"
