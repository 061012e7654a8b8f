"""Bad input of every kind: a clear message, a way out, and nothing lost."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from pathlib import Path

import pytest

from front import LEAN, NO_EXTRAS, Done, Front, basics, builder, passing, plan_of, scripted
from gitrepo import commit, footprint, make_repo, sh
from unwritable import unwritable
from windlass.events import DispatchFinished
from windlass.locks import driver_lock

QUICK = "[retries]\ncrashed = 0\n"
TASK = [builder(), passing()]
TINY = """\
flow: task
about: One step a task, and only for hard ones.
branch: windlass/{slug}-{id8}
tdd: off
over_budget: stop
artifacts:
  plan: {kind: text, contract: tasks, given: true}
  changes: {kind: diff}
phases:
  - id: execute
    kind: tasks
    from: plan
    order: list
    slots: 1
    failure: stop
    done_label: complete
    steps:
      - id: implement
        kind: produce
        label: implementing
        when: {task.difficulty: hard}
        calls: [{role: implementer, in: [task]}]
        on: {failed: fail}
    land:
      checks: none
      on: {conflict: fail}
    on: {done: next, stopped: stop}
  - id: report
    kind: report
    template: task
    to: [terminal, store]
    on: {ok: finish}
"""


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, QUICK + LEAN)


def refused(done: Done, message: str, hint: str, code: int = 1) -> None:
    """One error, one way out, and no trace of our own code."""
    assert done.code == code, done
    assert message in done.err
    assert "hint: " in done.err
    assert re.search(hint, done.err.split("hint: ", 1)[1]), done.err
    assert "Traceback" not in done.err + done.out


# -- repositories


def test_a_folder_that_is_no_repository(front: Front) -> None:
    elsewhere = front.tmp / "elsewhere"
    elsewhere.mkdir()
    for command in (("run", "x"), ("status",), ("resume",), ("answer", "yes")):
        refused(front(*command, cwd=elsewhere), "is not in a git repository", "git init")
    assert list(elsewhere.iterdir()) == []


def test_a_repository_without_a_commit(front: Front) -> None:
    empty = front.tmp / "empty"
    empty.mkdir()
    sh(empty, "init", "-q", "--template=")
    front.say(TASK)
    done = front("task", "x", "--script", str(front.script), cwd=empty)
    refused(done, "the repository has no commit yet", "git commit")
    assert not (empty / ".git/windlass").exists()


def test_a_bare_repository(front: Front) -> None:
    bare = front.tmp / "bare.git"
    sh(front.root, "clone", "-q", "--bare", ".", str(bare))
    done = front("run", "x", cwd=bare)
    refused(done, "repository", r"cd into|go to")


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({".gitmodules": '[submodule "a"]\n\tpath = a\n\turl = ./a\n'}, "submodules"),
        ({".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"}, "Git LFS"),
    ],
    ids=["submodules", "lfs"],
)
def test_repositories_that_cannot_be_checked_out_whole(front: Front, files: dict[str, str], what: str) -> None:
    commit(front.root, files)
    before = footprint(front.root)
    refused(front.task(TASK, "x"), what, "windlass doctor")
    assert footprint(front.root) == before
    assert front.service.runs() == []


@pytest.mark.long
def test_a_shallow_clone_is_good_enough(front: Front) -> None:
    commit(front.root, {"more.txt": "1\n"})
    shallow = front.tmp / "shallow"
    sh(front.tmp, "clone", "-q", "--depth", "1", f"file://{front.root}", str(shallow))
    front.say(TASK)
    assert front("task", "x", "--script", str(front.script), cwd=shallow).code == 0
    branch = sh(shallow, "branch", "--format=%(refname:short)", "--list", "windlass/*")
    assert "src/t1.py" in sh(shallow, "ls-tree", "-r", "--name-only", branch).splitlines()


def test_a_worktree_of_the_user_s_own_is_a_good_place(front: Front) -> None:
    linked = front.tmp / "linked"
    front.git("worktree", "add", "-q", str(linked), "-b", "mine")
    front.say(TASK)
    assert front("task", "x", "--script", str(front.script), cwd=linked).code == 0
    assert sh(linked, "status", "--porcelain") == ""
    assert front.view.state == "finished"


# -- names


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        (("--flow", "plam"), "plam", "did you mean 'plan'"),
        (("--set", "review_mod=iterative"), "no setting 'review_mod'", "did you mean 'review_mode'"),
        (("--set", "review_mode=iterativ"), "'iterativ' is not a value", "did you mean 'iterative'"),
        (("--set", "max_plan_review_cycles=0"), "whole number from 1", "max_plan_review_cycles=3"),
        (("--set", "nonsense"), "NAME=VALUE", "review_mode=iterative"),
        (("--answer", "aprove=yes"), "no question 'aprove'", "did you mean 'approve'"),
        (("--answer", "approve=revise"), "leads back", "windlass answer"),
        (("--agent", "scriptd"), "no agent 'scriptd'", "did you mean 'scripted'"),
    ],
    ids=["flow", "setting", "value", "number", "form", "question", "answer that leads back", "agent"],
)
def test_a_name_that_does_not_exist_gets_its_near_match(
    front: Front, argv: tuple[str, ...], message: str, hint: str
) -> None:
    refused(front.start(basics("One"), *argv), message, hint)
    assert front.service.runs() == []


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [
        ("[budgt]\nstop_usd = 1\n", "budgt", "budget"),
        ("[budget]\nstop_usd = -1\n", "stop_usd", ""),
        ('[roles.architct]\nagent = "scripted"\n', "architct", "architect"),
        ("[checks]\ncommands = 3\n", "commands", ""),
        ("not toml at all", "config.toml", ""),
    ],
    ids=["table", "negative", "role", "type", "form"],
)
def test_a_wrong_configuration_names_file_and_key(front: Front, config: str, message: str, hint: str) -> None:
    front.configure(config)
    done = front.task(TASK, "x")
    assert done.code == 1
    assert message in done.err
    assert "config.toml" in done.err
    assert hint in done.err
    assert "Traceback" not in done.err


def test_an_agent_whose_program_is_missing_stops_the_run_which_goes_on_when_it_is_there(front: Front) -> None:
    own = QUICK + NO_EXTRAS + '[agents.mine]\nargv = ["no-such-program-anywhere"]\n'
    front.configure(own + '[roles.implementer]\nagent = "mine"\n' + scripted(front))
    front.say(TASK)
    done = front("task", "x")
    assert done.code in (1, 12)
    assert "no-such-program-anywhere" in done.err + done.out
    assert "hint: " in done.err
    if front.service.runs():
        front.configure(QUICK + NO_EXTRAS + scripted(front))
        assert front("resume").code == 0


def test_a_script_that_cannot_be_used_is_refused_with_its_line(front: Front) -> None:
    front.script.write_text("- when: {role: scout}\n  sya: hello\n")
    done = front("task", "x", "--script", str(front.script))
    refused(done, "script.yaml:2: unknown key 'sya'", "scripted agent")
    assert "did you mean 'say'" in done.err


# -- requests


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("request_text", "slug"),
    [("word " * 20_000, "word-word"), ("🎉🚀", "run"), ("--verbose should be the default", "verbose-should")],
    ids=["100 KB", "emoji", "option-like"],
)
def test_odd_requests_are_taken_as_they_are(front: Front, request_text: str, slug: str) -> None:
    assert front.start(basics("One"), request=request_text).code == 10
    assert front.view.request == request_text
    assert slug in front.service.run().branch
    assert request_text.strip() in front.prompt("plan-draft/planner#1")


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_request_is_refused(front: Front, text: str) -> None:
    refused(front.start(basics("One"), request=text), "the request is empty", "windlass run")


def test_an_unknown_option_is_a_usage_error(front: Front) -> None:
    assert front("run", "--verbos", "x").code == 2


# -- plans


@pytest.mark.long
def test_five_hundred_tasks_work_and_stay_fast(front: Front) -> None:
    flows = Path(front.env["XDG_CONFIG_HOME"]) / "windlass/flows"
    flows.mkdir(parents=True)
    (flows / "task.yaml").write_text(TINY)
    tasks = [{"title": f"Task {n}", "difficulty": "hard" if n % 50 == 0 else "easy"} for n in range(500)]
    plan = front.tmp / "plan.md"
    plan.write_text(plan_of(tasks))
    began = time.monotonic()
    done = front.task(
        [{"when": {}, "files": {"{task_id}.txt": "1\n"}, "commit": "x", "say": "ok"}], "--plan", str(plan)
    )
    print(f"500 tasks, {len(front.keys)} dispatches: {time.monotonic() - began:.1f} s")
    assert done.code == 0
    assert {task.state for task in front.view.tasks} == {"complete"}
    began = time.monotonic()
    assert "500/500" in front("status").out
    print(f"status: {time.monotonic() - began:.2f} s")


# -- the database


def database(front: Front) -> Path:
    return front.service.host.place.database


def test_a_database_of_a_newer_version_is_refused_and_untouched(front: Front) -> None:
    front.start(basics("One"))
    with sqlite3.connect(database(front)) as db:
        db.execute("PRAGMA user_version = 9999")
    db.close()
    before = database(front).read_bytes()
    refused(front("status"), "newer", "")
    assert front("run", "x").code == 1
    assert database(front).read_bytes() == before


@pytest.mark.req("S0-79")
def test_a_corrupt_database_is_named_and_kept_and_nothing_starts_over_it(front: Front) -> None:
    front.start(basics("One"))
    for name in ("-wal", "-shm"):
        database(front).with_name(database(front).name + name).unlink(missing_ok=True)
    database(front).write_bytes(b"this is no database" * 1000)
    for command in (("status",), ("resume",), ("run", "again")):
        done = front(*command)
        assert done.code == 1
        assert str(database(front)) in done.err
        assert "Traceback" not in done.err
    assert database(front).read_bytes().startswith(b"this is no database")


@pytest.mark.long
@pytest.mark.req("S0-79")
def test_a_damaged_state_file_is_kept_aside_and_written_anew_from_the_journal(front: Front) -> None:
    front.start(basics("One"))
    front.state_file.write_text("{broken")
    assert front("resume").code == 10
    assert front.state["phase"] == "plan-review"
    aside = list(front.folder.glob(".superteam-workflow.json.edited-*"))
    assert [path.read_text() for path in aside] == ["{broken"]


def test_a_database_that_may_not_be_written_is_said(front: Front) -> None:
    front.start(basics("One"))
    file = database(front)
    before = file.read_bytes()
    with unwritable(*file.parent.glob("windlass.db*"), file.parent):
        done = front("resume")
    refused(done, "cannot write", "permissions")
    assert file.read_bytes() == before


@pytest.mark.long
def test_a_second_driver_is_refused_with_the_first_one_s_process(front: Front) -> None:
    front.start(basics("One"))
    with driver_lock(front.service.host.place.lock(front.run), front.run):
        done = front("resume")
        assert "waiting" in front("status").out
    refused(done, f"is driven by process {os.getpid()}", "windlass log")
    assert front("resume", "--yes").code == 0


# -- commands about runs that are not there


def test_asking_for_what_does_not_exist(front: Front) -> None:
    assert "No runs here yet" in front("status").out
    assert "No run is active" in front().out
    refused(front("resume"), "no runs", "windlass run")
    front.start(basics("One"))
    refused(front("show", "zzzz"), "there is no run 'zzzz'", front.run)
    refused(front("answer", "nokey", "approve"), "no question 'nokey' is open", "approve")
    refused(front("answer", "perhaps"), "one of 1) approve, 2) revise", "stays open")
    refused(front("retry"), "not stopped", "windlass resume")
    assert front.asked == ["approve"]
    assert front.view.state == "waiting"


def test_a_finished_run_cannot_be_driven_again(front: Front) -> None:
    front.task(TASK, "x")
    refused(front("resume", front.run), "finished", "windlass show")
    assert len(front.events(DispatchFinished)) == 3


def test_in_place_needs_a_clean_checkout(front: Front) -> None:
    (front.root / "src/app.py").write_text("x = 2\n")
    before = footprint(front.root)
    done = front.task(TASK, "x", "--in-place")
    refused(done, "uncommitted", "commit|stash")
    assert footprint(front.root) == before


def test_a_repository_inside_another_folder_is_found_from_below(front: Front) -> None:
    deep = front.root / "src"
    front.say(TASK)
    assert front("task", "x", "--script", str(front.script), cwd=deep).code == 0
    assert front("status", cwd=deep).code == 0


def test_two_repositories_do_not_see_each_other(front: Front) -> None:
    front.task(TASK, "x")
    other = make_repo(front.tmp / "other")
    assert "No runs here yet" in front("status", cwd=other).out
