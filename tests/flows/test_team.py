"""The team flow through the command line: from the request to the pull request, and the ways it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gitrepo import footprint, sh
from team import CHECKPOINTS, URL, Team, basics, disapproved, engineer, plan, red, subtask
from windlass.events import PublishFinished, StepEntered

FIVE = [subtask("a"), subtask("b"), subtask("c", "a", "b"), subtask("d", "a"), subtask("e", "c")]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    """One good run with a red test, an unhappy reviewer and a person who confirms; many facts are read off it."""
    team = Team(tmp_path_factory.mktemp("team"))
    team.before = footprint(team.root)  # type: ignore[attr-defined]
    rules = [red("b", "b() is 2, not 1", times=1), disapproved("a", "say what it returns", times=1), *basics(*FIVE)]
    team.done = team.go(rules, "--yes", "--slots", "3", clarify=True)  # type: ignore[attr-defined]
    assert team.done.code == 0, team.done  # type: ignore[attr-defined]
    return team


def _tasks(team: Team, task: str) -> list[str]:
    return [event.label for event in team.events(StepEntered) if event.task == task]


def _refs(place: Path, below: str) -> list[str]:
    return sh(place, "for-each-ref", "--format=%(refname)", below).splitlines()


@pytest.mark.req("S2-18", "S2-19", "S2-54")
def test_the_run_passes_the_checkpoints_of_the_document_in_their_order(team: Team) -> None:
    # One task may have its tests red before another is reviewed.
    first = dict.fromkeys(step for step in team.steps if step != "SUBTASK_FEEDBACK")
    assert list(first) == [name for name in CHECKPOINTS if name not in ("FAILED", "SUBTASK_FEEDBACK")]
    assert set(team.steps) == set(CHECKPOINTS) - {"FAILED"}
    assert [recorded.event.type for recorded in team.records[:2]] == ["run.started", "step.entered"]
    assert team.steps[0] == "QUEUED"
    assert team.status["step"] == "COMPLETED"


@pytest.mark.req("S2-27", "S2-41", "S2-42", "S2-43", "S2-50")
def test_the_run_has_agents_and_a_branch_of_the_documents_name(team: Team) -> None:
    run = team.service.run()
    assert run.branch == f"swe-team/{run.slug}-{run.id[:8]}"
    assert team.branch == run.branch
    engine = next((team.tmp / "home" / "state" / "windlass").glob("*/repo.git"))
    agents = sh(engine, "for-each-ref", "--format=%(refname:short)", "refs/heads").splitlines()
    # Three were allowed; no wave is wider than two.
    assert agents == [f"{run.branch}-agent-1", f"{run.branch}-agent-2"]


@pytest.mark.req("S2-09", "S2-25", "S2-26")
def test_the_plan_is_made_of_the_refined_request_and_its_groups_come_from_the_dependencies(team: Team) -> None:
    prompt = team.prompt("plan/architect#1")
    assert "Add the functions, each with a test." in prompt
    assert "Add add and mul" not in prompt
    assert [(task.id, task.title) for task in team.view.tasks] == [(t["id"], t["title"]) for t in FIVE]


@pytest.mark.req("S2-29", "S2-34", "S2-45")
def test_a_task_is_implemented_harvested_tested_reviewed_and_merged_without_fast_forward(team: Team) -> None:
    assert _tasks(team, "c") == [
        *("SUBTASK_IMPLEMENTING", "SUBTASK_COMMITTING", "SUBTASK_TESTING", "SUBTASK_REVIEWING"),
        *("SUBTASK_DONE", "MERGING_AGENTS"),
    ]
    own, merged = team.git("log", "--format=%s|%P", "-2", "--grep=^Build c", team.branch).splitlines()[::-1]
    assert own.startswith("Build c|")
    assert len(merged.split("|")[1].split()) == 2
    assert {"src/c.py", "tests/test_c.py"} <= team.landed


@pytest.mark.req("S2-30", "S2-46", "S2-32")
def test_red_tests_go_back_to_the_engineer_with_the_errors_and_are_run_again_before_any_review(team: Team) -> None:
    keys = [key for key in team.keys if key.startswith("execute/b/")]
    assert keys == [f"execute/b/{id}" for id in ("implement", "test", "feedback", "test+2", "review#1")]
    assert "b() is 2, not 1" in team.prompt("execute/b/feedback")
    assert "SUBTASK_FEEDBACK" in _tasks(team, "b")


@pytest.mark.req("S2-31", "S2-32", "S2-47")
def test_the_reviewer_sees_the_diff_and_the_engineer_what_was_not_approved(team: Team) -> None:
    keys = [key for key in team.keys if key.startswith("execute/a/")]
    assert keys == [f"execute/a/{id}" for id in ("implement", "test", "review#1", "feedback", "test+2", "review+2#1")]
    assert "+def a(): return 1" in team.prompt("execute/a/review#1")
    assert "say what it returns" in team.prompt("execute/a/feedback")
    assert "say what it returns" not in team.prompt("execute/c/implement")


@pytest.mark.req("S2-33", "S2-38")
def test_a_task_starts_when_those_it_needs_have_landed(team: Team) -> None:
    order = [recorded.event for recorded in team.records]
    began = {event.task: place for place, event in reversed([*enumerate(order)]) if isinstance(event, StepEntered)}
    landed = {getattr(event, "task", ""): n for n, event in enumerate(order) if event.type == "task.landed"}
    for task in FIVE:
        assert all(landed[need] < began[task["id"]] for need in task["depends_on"])


@pytest.mark.req("S2-35", "S2-36")
def test_the_branch_is_pushed_and_one_pull_request_is_opened_whose_link_the_person_gets(team: Team) -> None:
    assert team.pushed()[f"refs/heads/{team.branch}"] == team.git("rev-parse", team.branch)
    (asked,) = team.created
    assert f"--head={team.branch}" in asked
    assert "--base=main" in asked
    assert "--title=Add add and mul" in asked
    body = (team.tmp / "gh.body").read_text()
    assert body.startswith("Add the functions, each with a test.")
    assert "Build a" in body
    assert str(team.tmp) not in body
    assert URL in team.report
    assert URL in team.done.out  # type: ignore[attr-defined]
    assert team.status["publishing"]["pr"]["url"] == URL


@pytest.mark.req("S2-20")
def test_nothing_of_the_users_own_checkout_is_touched(team: Team) -> None:
    before, after = team.before, footprint(team.root)  # type: ignore[attr-defined]
    assert (after.status, after.index, after.head, after.stash, after.files) == (
        *(before.status, before.index, before.head, before.stash, before.files),
    )
    added = set(after.refs.splitlines()) - set(before.refs.splitlines())
    assert [line.split()[0] for line in added] == [f"refs/heads/{team.branch}"]


@pytest.mark.req("S2-44")
def test_the_working_folders_of_the_pool_can_be_removed_when_the_run_is_over(team: Team) -> None:
    assert team("gc").code == 0
    slots = next((team.tmp / "home" / "state" / "windlass").glob("*/slots"))
    assert [path for path in slots.iterdir() if path.is_dir() and (path / ".git").exists()] == []


@pytest.mark.req("S2-01")
def test_free_text_of_an_agent_steers_nothing(tmp_path: Path) -> None:
    """Words that say the opposite of the contract's block change nothing."""
    lies = {"say": "The tests FAILED. Not approved. Abort. status: questions"}
    rules = [rule | lies if "json" in rule else rule for rule in basics(subtask("a"))]
    team = Team(tmp_path)
    assert team.go(rules).code == 0
    assert team.steps.count("SUBTASK_FEEDBACK") == 0


# -- failures


@pytest.mark.req("S2-51")
def test_with_retry_a_task_is_tried_once_more_and_then_left_out(tmp_path: Path) -> None:
    team = Team(tmp_path)
    rules = [red("a", "a() is wrong"), *basics(subtask("a"), subtask("b", "a"), subtask("c"))]
    done = team.go(rules, "--set", "max_review_iterations=1")
    assert done.code == 14, done
    assert {task.id: task.state for task in team.view.tasks} == {"a": "failed", "b": "skipped", "c": "complete"}
    assert {key.split("/")[1] for key in team.keys if key.startswith("execute/a")} == {"a", "a+2"}
    assert "a() is wrong" in team.prompt("execute/a+2/implement")
    assert "Build a (failed: a() is wrong)" in team.report
    assert "needs a (Build a), which did not complete" in team.report
    assert len(team.created) == 1


@pytest.mark.req("S2-52")
def test_with_continue_a_failed_task_is_left_out_at_once(tmp_path: Path) -> None:
    team = Team(tmp_path)
    rules = [disapproved("a", "no"), *basics(subtask("a"), subtask("c"))]
    done = team.go(rules, "--set", "failure_policy=continue", "--set", "max_review_iterations=1")
    assert done.code == 14, done
    assert {task.id: task.state for task in team.view.tasks} == {"a": "failed", "c": "complete"}
    assert not any("a+2" in key for key in team.keys)


@pytest.mark.long
@pytest.mark.req("S2-37")
@pytest.mark.parametrize("policy", ["continue", "retry"])
def test_a_run_in_which_no_task_landed_has_failed_and_a_retry_takes_up_what_failed(policy: str, tmp_path: Path) -> None:
    team = Team(tmp_path)
    rules = [disapproved("a", "no", times=4 if policy == "retry" else 2), *basics(subtask("a"), subtask("b", "a"))]
    done = team.go(rules, "--set", f"failure_policy={policy}", "--set", "max_review_iterations=1")
    assert done.code == 12, done
    assert (team.steps[-1], "COMPLETED" in team.steps, "CREATING_PR" in team.steps) == ("FAILED", False, False)
    assert "Build a: no" in team.report
    assert "Workflow Failed" in team.report
    assert list(team.pushed()) == ["refs/heads/main"]
    assert team("retry").code == 0
    assert {task.id: task.state for task in team.view.tasks} == {"a": "complete", "b": "complete"}
    assert (team.steps[-1], len(team.created)) == ("COMPLETED", 1)


@pytest.mark.long
@pytest.mark.req("S2-37", "S2-53")
def test_with_stop_a_failed_task_fails_the_run_and_a_retry_takes_up_that_task_alone(tmp_path: Path) -> None:
    team = Team(tmp_path)
    bad = red("b", "b() is wrong", times=2)
    rules = [bad, *basics(subtask("a"), subtask("b", "a"), subtask("c", "b"))]
    done = team.go(rules, "--set", "failure_policy=stop", "--set", "max_review_iterations=1")
    assert done.code == 12, done
    assert team.steps[-1] == "FAILED"
    for shown in (done.out, done.err, team.report):
        assert "Build b: b() is wrong" in shown
    assert "Workflow Failed" in team.report
    assert team.created == []
    assert team("retry").code == 0
    assert [key for key in team.keys if key.startswith("execute/a/")] == [
        f"execute/a/{id}" for id in ("implement", "test", "review#1")
    ]
    assert "execute/b+2/implement" in team.keys
    assert {task.state for task in team.view.tasks} == {"complete"}
    assert team("resume", team.run).code == 1
    assert len(team.created) == 1


@pytest.mark.req("S2-34")
def test_a_merge_that_conflicts_is_dropped_names_the_files_and_follows_the_policy(tmp_path: Path) -> None:
    team = Team(tmp_path, files={"shared.txt": "one\n"})
    late = engineer(files={}, run=["git reset -q --hard HEAD~1", "echo other > shared.txt"])
    late["when"] = {"role": "swe", "task": "b"}
    rules = [late, engineer(files={"shared.txt": "{task_id}\n"}), *basics(subtask("a"), subtask("b", "a"))]
    done = team.go(rules, "--set", "failure_policy=continue")
    assert done.code == 14, done
    assert {task.id: task.state for task in team.view.tasks} == {"a": "complete", "b": "failed"}
    assert "shared.txt" in team.view.tasks[1].reason
    assert team.show("shared.txt") == "a"
    engine = next((team.tmp / "home" / "state" / "windlass").glob("*/repo.git"))
    kept = sh(engine, "for-each-ref", "--format=%(refname)", f"refs/windlass/{team.run}/hold/execute,b,*").splitlines()
    assert any(sh(engine, "show", f"{ref}:shared.txt") == "other" for ref in kept)


# -- plans that cannot be carried out

BAD_PLANS: dict[str, tuple[Any, str]] = {
    "a cycle": ([subtask("a", "b"), subtask("b", "a")], "wait for each other"),
    "an unknown id": ([subtask("a", "zz")], "'zz', which is no task of this plan"),
    "a path outside": ([subtask("a", files=["../../etc/passwd"])], "not a path inside the repository"),
    "the same id twice": ([subtask("a"), subtask("a", title="Other")], "two tasks have the id 'a'"),
    "no subtasks": ([], "subtasks"),
}


@pytest.mark.sweep(5)
@pytest.mark.req("S2-25")
@pytest.mark.parametrize("what", BAD_PLANS)
def test_a_plan_that_cannot_be_carried_out_is_refused_with_feedback_and_fails_the_run(
    what: str, tmp_path: Path
) -> None:
    subtasks, reason = BAD_PLANS[what]
    team = Team(tmp_path)
    done = team.go([plan(subtasks), *basics()])
    assert done.code == 12, done
    assert team.steps[-1] == "FAILED"
    assert reason in team.report
    assert reason in team.prompt("plan/architect#1", 2)
    assert team.keys == ["plan/architect#1"] * 3


def test_a_plan_that_is_no_json_is_asked_for_again(tmp_path: Path) -> None:
    team = Team(tmp_path)
    words = {"when": {"role": "architect", "purpose": "draft"}, "times": 1}
    broken = words | {"say": '```superteam-json\n{"subtasks": [,]}\n```\n'}
    assert team.go([broken, words | {"say": "Here is my plan: build it."}, *basics(subtask("a"))]).code == 0
    assert team.keys[:3] == ["plan/architect#1"] * 3
    assert "not valid JSON" in team.prompt("plan/architect#1", 2)


def test_three_hundred_subtasks_are_taken_and_bounded_by_the_budget(tmp_path: Path) -> None:
    team = Team(tmp_path)
    dear = engineer(usage={"input": 100, "output": 20, "cost_usd": 1.5})
    done = team.go([dear, *basics(*[subtask(f"s{n}") for n in range(300)])], "--budget", "4")
    assert done.code == 12, done
    assert len(team.view.tasks) == 300
    assert len(team.keys) < 20


# -- odd repositories


@pytest.mark.req("S2-22")
def test_what_somebody_left_in_a_working_folder_is_kept_and_in_nobodys_way(tmp_path: Path) -> None:
    team = Team(tmp_path)
    untidy = {"when": {"role": "swe-tester"}, "files": {"left.txt": "mine\n"}, "json": {"passed": True, "errors": []}}
    assert team.go([untidy, *basics(subtask("a"))]).code == 0
    assert "left.txt" not in team.landed
    engine = next((team.tmp / "home" / "state" / "windlass").glob("*/repo.git"))
    kept = [(place, ref) for place in (engine, team.root) for ref in _refs(place, "refs/windlass/keep")]
    assert any(sh(place, "show", f"{ref}:left.txt", check=False) == "mine" for place, ref in kept)


def test_it_works_on_a_detached_head_and_leaves_the_base_to_github(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.git("checkout", "-q", "--detach")
    assert team.go(basics(subtask("a"))).code == 0
    assert "--base" not in team.created[0]


def test_it_works_in_a_shallow_clone(tmp_path: Path) -> None:
    team = Team(tmp_path)
    team.git("commit", "-q", "--allow-empty", "-m", "more")
    team.git("push", "-q", "origin", "main")
    sh(tmp_path, "clone", "-q", "--depth=1", f"file://{team.remote}", "shallow")
    team.root = tmp_path / "shallow"
    assert team.git("rev-parse", "--is-shallow-repository") == "true"
    assert team.go(basics(subtask("a"))).code == 0
    assert f"refs/heads/{team.branch}" in team.pushed()


def test_it_works_in_a_partial_clone(tmp_path: Path) -> None:
    team = Team(tmp_path)
    sh(team.remote, "config", "uploadpack.allowFilter", "true")
    sh(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{team.remote}", "partial")
    team.root = tmp_path / "partial"
    assert team.go(basics(subtask("a"))).code == 0
    assert f"refs/heads/{team.branch}" in team.pushed()


@pytest.mark.long
def test_a_remote_that_is_ahead_is_said_and_one_that_is_gone_stops_nothing(tmp_path: Path) -> None:
    team = Team(tmp_path)
    sh(tmp_path, "clone", "-q", str(team.remote), "other")
    sh(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "newer")
    sh(tmp_path / "other", "push", "-q", "origin", "main")
    assert team.go(basics(subtask("a"))).code == 0
    assert any("has 1 commits that are not in the base of this run" in text for text in team.warnings)
    assert team.git("rev-parse", "refs/remotes/origin/main") == team.git("rev-parse", "main")
    team.git("remote", "set-url", "origin", str(tmp_path / "gone.git"))
    done = team.go(basics(subtask("a")))
    assert done.code == 12, done
    assert any("could not be asked" in text for text in team.warnings)
    (failed,) = [event for event in team.events(PublishFinished) if event.state == "failed"]
    assert failed.commands == [f"git push origin {team.branch}"]


def test_the_flow_ships_and_its_most_dispatches_can_be_told_beforehand(team: Team) -> None:
    assert "team" in team("flow", "list").out
    assert team("flow", "simulate", "team", "--tasks", "2").code == 0
