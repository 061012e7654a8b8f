"""`windlass land`: it takes the tip, checks the result first, and the record says where it went."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zygote
from bench import KILLER
from front import LEAN, Front, basics, builder, passing
from gitrepo import commit, footprint, sh
from windlass.events import BranchPublished, RunLanded

# Green for each of the two files alone, red for both of them.
CLASH = '[checks]\ncommands = [["sh", "-c", "echo . >> $COUNT; test ! -e src/t1.py || test ! -e other.txt"]]\n'


def checked(tmp_path: Path) -> Front:
    """A finished run whose tip is green; every run of the checks adds a line to `count`."""
    front = Front(tmp_path, LEAN + CLASH + '[workspace]\nenv = ["COUNT"]\n')
    front.env["COUNT"] = str(tmp_path / "count")
    assert front.task([builder(), passing()], "Add t1").code == 0
    return front


def checks_run(front: Front) -> int:
    return len((front.tmp / "count").read_text().splitlines())


# -- the result is checked first


def test_a_red_result_changes_nothing_and_says_so(tmp_path: Path) -> None:
    front = checked(tmp_path)
    commit(front.root, {"other.txt": "mine\n"})
    before = footprint(front.root)
    done = front("land")
    assert done.code == 12
    assert "the checks fail on the merged result" in done.err
    assert "--force-red" in done.err
    assert footprint(front.root) == before
    assert front.status["landed"] is None


def test_a_red_result_is_taken_when_the_person_insists(tmp_path: Path) -> None:
    front = checked(tmp_path)
    commit(front.root, {"other.txt": "mine\n"})
    done = json.loads(front("land", "--force-red", "--json").out)
    assert (done["kind"], done["checks"]) == ("merge", "failed")
    assert front.status["landed"]["checks"] == "failed"
    assert (front.root / "src" / "t1.py").exists()


def test_a_merge_is_checked_and_a_tree_that_was_checked_is_not_checked_again(tmp_path: Path) -> None:
    front = checked(tmp_path)
    before = checks_run(front)
    assert json.loads(front("land", "--json").out)["checks"] == "passed"
    assert checks_run(front) == before
    front.git("reset", "-q", "--hard", "HEAD~1")
    front.git("reset", "-q", "--hard", front.view.base)
    commit(front.root, {"harmless.txt": "mine\n"})
    done = front("land")
    assert (done.code, "checks: passed" in done.out) == (0, True)
    assert "running 1 check on the merged result" in done.err
    assert checks_run(front) == before + 1


def test_failures_that_a_person_accepted_before_the_run_do_not_stop_the_landing(tmp_path: Path) -> None:
    red = '[checks]\ncommands = [["sh", "-c", "echo FAILED tests/test_old.py::test_it; exit 1"]]\n'
    front = Front(tmp_path, LEAN + red)
    front.say([builder(), passing()])
    assert front("task", "--script", str(front.script), "--answer", "baseline=accept", "Add t1").code == 0
    commit(front.root, {"harmless.txt": "mine\n"})
    done = json.loads(front("land", "--json").out)
    assert (done["kind"], done["checks"]) == ("merge", "known failures")


# -- how it lands


def landed(tmp_path: Path) -> Front:
    front = Front(tmp_path, LEAN)
    assert front.task([builder(), passing()], "Add t1").code == 0
    return front


def test_a_squash_is_one_plain_commit_with_the_request_as_its_message(tmp_path: Path) -> None:
    front = landed(tmp_path)
    before = front.git("rev-parse", "HEAD")
    done = json.loads(front("land", "--squash", "--json").out)
    assert done["kind"] == "squash"
    assert front.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [before]
    assert front.git("log", "-1", "--format=%s") == "Add t1"
    assert f"Windlass-Run: {front.run}" in front.git("log", "-1", "--format=%b")
    assert front.git("rev-parse", "HEAD^{tree}") == front.git("rev-parse", f"{front.branch}^{{tree}}")
    again = front("land", "--squash")
    assert (again.code, "already" in again.out) == (0, True)


def test_a_merge_commit_is_made_where_it_is_asked_for_or_configured(tmp_path: Path) -> None:
    front = landed(tmp_path)
    before = front.git("rev-parse", "HEAD")
    assert json.loads(front("land", "--no-ff", "--json").out)["kind"] == "merge"
    assert front.git("rev-list", "--parents", "-1", "HEAD").split()[1:] == [before, front.view.tip]
    front.git("reset", "-q", "--hard", before)
    front.git("config", "merge.ff", "false")
    assert json.loads(front("land", "--json").out)["kind"] == "merge"
    front.git("reset", "-q", "--hard", before)
    front.git("config", "merge.ff", "only")
    assert json.loads(front("land", "--json").out)["kind"] == "fast-forward"
    front.git("reset", "-q", "--hard", before)
    commit(front.root, {"other.txt": "mine\n"})
    refused = front("land")
    assert (refused.code, "--no-ff" in refused.err) == (1, True)


def test_a_message_is_a_template_and_a_sign_off_is_the_users(tmp_path: Path) -> None:
    front = landed(tmp_path)
    front.git("config", "user.name", "Ada L")
    front.git("config", "user.email", "ada@example.org")
    done = front("land", "--message", "{title} into {into}\n\nRun {run}:\n{tasks}", "--signoff")
    assert done.code == 0, done.err
    text = front.git("log", "-1", "--format=%B")
    assert text.splitlines()[0] == "Add t1 into main"
    assert f"Run {front.run}:\n- Add t1" in text
    assert text.rstrip().splitlines()[-1] == "Signed-off-by: Ada L <ada@example.org>"
    assert front.git("log", "-1", "--format=%an") == "Ada L"


@pytest.mark.sweep(5)
@pytest.mark.parametrize("template", ["{nothing}", "{0}", "{", "{tip.x}", "   "])
def test_a_template_that_cannot_be_filled_changes_nothing(tmp_path: Path, template: str) -> None:
    front = landed(tmp_path)
    before = footprint(front.root)
    done = front("land", "--message", template)
    assert (done.code, "--message" in done.err) == (1, True)
    assert footprint(front.root) == before


def test_two_styles_at_once_are_refused(tmp_path: Path) -> None:
    assert landed(tmp_path)("land", "--squash", "--no-ff").code == 2


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="commits are signed with an ssh key here")
def test_commits_are_signed_if_the_users_git_signs_commits(tmp_path: Path) -> None:
    front = landed(tmp_path)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in {"gpg.format": "ssh", "user.signingKey": str(key), "commit.gpgSign": "true"}.items():
        front.git("config", name, value)
    assert front("land", "--no-ff").code == 0
    assert "BEGIN SSH SIGNATURE" in front.git("cat-file", "commit", "HEAD")
    front.git("reset", "-q", "--hard", "HEAD~1")
    key.unlink()
    before = footprint(front.root)
    refused = front("land", "--no-ff")
    assert (refused.code, "commit.gpgSign" in refused.err) == (1, True)
    assert footprint(front.root) == before


# -- the record says where


def test_status_and_show_say_where_it_landed(tmp_path: Path) -> None:
    front = landed(tmp_path)
    assert front("land").code == 0
    head = front.git("rev-parse", "HEAD")
    (event,) = front.events(RunLanded)
    assert (event.branch, event.commit, event.how, event.checks) == ("main", head, "fast-forward", "unchecked")
    for command in ("status", "show"):
        text = front(command).out
        assert f"on main at {head[:12]}" in text
        assert f"windlass land {front.run}" not in text
    assert front.status["landed"]["commit"] == head
    assert front("log").out.count("run.landed") == 1


# -- the tip, whatever became of the branch


def two_tasks_while_checked_out(tmp_path: Path) -> Front:
    """The user goes onto the run's branch once the first task is shown there: the second cannot be."""
    front = Front(tmp_path, LEAN)
    find = "git branch --list 'windlass/*' --format '%(refname:short)'"
    # The branch follows a landing while the next task begins.
    wait = f'until [ -n "$({find})" ]; do sleep 0.05; done'
    go = f"cd {front.root} && {wait} && git checkout -q $({find})"
    second = builder(run=[go]) | {"when": {"role": "implementer", "task": "t2"}}
    assert front.start([second, *basics("One", "Two")], "--yes", "--slots", "1").code == 0
    assert front.git("rev-parse", "--abbrev-ref", "HEAD") == front.branch
    return front


def test_a_run_whose_branch_is_checked_out_is_shown_and_landed_by_its_tip(tmp_path: Path) -> None:
    front = two_tasks_while_checked_out(tmp_path)
    tip = front.view.tip
    assert front.git("rev-parse", "HEAD") != tip
    last = front.events(BranchPublished)[-1]
    assert (last.tip, last.commit) == (tip, front.git("rev-parse", "HEAD"))
    text = front("status").out
    assert f"commit {tip[:12]}; branch {front.branch} is still at" in text
    assert f"windlass show {front.run} --diff" in text
    assert "src/t2.py" in front("show", "--diff").out
    front.git("checkout", "-q", "main")
    done = front("land")
    assert done.code == 0, done.err
    assert (front.root / "src" / "t2.py").exists()
    assert front.git("rev-parse", "HEAD") == tip
    # Nobody is on it any more: the branch shows the tip too.
    assert front.git("rev-parse", front.branch) == tip
    assert front.status["branch_at"] == tip


@pytest.mark.long
def test_a_branch_that_stayed_behind_is_moved_by_a_later_command(tmp_path: Path) -> None:
    front = two_tasks_while_checked_out(tmp_path)
    tip, branch = front.view.tip, front.branch
    assert front("gc").code == 0
    assert front.git("rev-parse", branch) != tip
    front.git("checkout", "-q", "main")
    assert front("gc").code == 0
    assert front.git("rev-parse", branch) == tip


@pytest.mark.long
def test_landing_onto_the_runs_own_branch_brings_it_to_the_tip(tmp_path: Path) -> None:
    front = two_tasks_while_checked_out(tmp_path)
    assert front("land").code == 0
    assert front.git("rev-parse", "HEAD") == front.view.tip


def test_a_deleted_branch_is_said_and_the_tip_lands(tmp_path: Path) -> None:
    front = landed(tmp_path)
    front.git("branch", "-q", "-D", front.branch)
    front.git("reflog", "expire", "--expire=now", "--all")
    front.git("gc", "-q", "--prune=now")
    assert f"branch {front.branch} is gone" in front("status").out
    done = front("land")
    assert done.code == 0, done.err
    assert (front.root / "src" / "t1.py").exists()
    assert front.git("fsck", "--connectivity-only") == ""
    assert front.git("branch", "--list", front.branch) == ""


def test_a_branch_that_the_user_moved_is_not_moved_by_landing(tmp_path: Path) -> None:
    front = landed(tmp_path)
    front.git("branch", "-f", front.branch, "main")
    assert front("land").code == 0
    assert front.git("rev-parse", front.branch) == front.view.base
    assert front.git("branch", "--list", "windlass/*").count("\n") == 0


# -- in place


@pytest.mark.long
def test_in_place_a_commit_of_the_users_own_has_a_way_out_that_works(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    mine = (
        f"cd {front.root} && echo mine > mine.txt && git add mine.txt"
        " && git -c user.name=Ada -c user.email=a@b commit -qm mine"
    )
    second = builder(run=[mine], times=1) | {"when": {"role": "implementer", "task": "t2"}}
    done = front.start([second, *basics("One", "Two")], "--yes", "--in-place", "--slots", "1")
    assert done.code == 12
    hint = front.view.hint
    assert "a commit of your own" in front.view.state_reason
    commands = hint.partition(";")[0]
    subprocess.run(commands, shell=True, cwd=front.root, check=True, capture_output=True)
    assert front("resume").code == 0
    branch = front.git("rev-parse", "--abbrev-ref", "HEAD")
    assert {"src/t1.py", "src/t2.py"} <= set(front.git("ls-files").splitlines())
    sh(front.root, "merge", "-q", f"{branch}-mine")
    assert (front.root / "mine.txt").exists()


def test_an_interrupted_landing_does_not_stop_a_run_in_place(tmp_path: Path) -> None:
    front = landed(tmp_path)
    lock = front.root / ".git" / "index.lock"
    assert _killed_land(front)
    assert lock.exists()
    said = front("doctor")
    assert "taken back now" in said.out
    assert not lock.exists()
    assert front.git("status", "--porcelain") == ""
    assert _killed_land(front)
    front.say([builder(), passing()])
    assert front("task", "--script", str(front.script), "--in-place", "Again").code == 0


def test_a_landing_killed_before_it_was_recorded_is_recorded_by_the_next_command(tmp_path: Path) -> None:
    front = landed(tmp_path)
    assert _killed_land(front, "windlass.runs.land:record_landing", "before")
    assert front.events(RunLanded) == []
    again = front("land")
    assert (again.code, "already" in again.out, "it is finished now" in again.err) == (0, True, True)
    (event,) = front.events(RunLanded)
    assert event.commit == front.git("rev-parse", "main") == front.view.tip
    assert "on main at" in front("status").out


UNDER_WAY = "windlass.git.user_checkout:_require_unchanged"


def _killed_land(front: Front, place: str = UNDER_WAY, when: str = "after") -> bool:
    return zygote.run(["-c", KILLER, place, when, "1", "land"], cwd=front.root, env=front.env).returncode < 0


# -- two runs side by side


def test_a_branch_that_a_run_beside_this_one_publishes_is_not_blamed_on_the_agent(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    other = tmp_path / "other.yaml"
    other.write_text(json.dumps([builder(), passing()]))
    places = " ".join(f"{name}={front.env[name]}" for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"))
    beside = f"cd {front.root} && env {places} {sys.executable} -m windlass task --new --script {other} 'Beside it'"
    assert front.task([builder(run=[beside]), passing()], "Add t1").code == 0
    assert len(front.service.runs()) == 2
    first = next(row.id for row in front.service.runs() if row.request == "Add t1")
    assert [w.text for w in front.service.view(first).warnings if "your own repository changed" in w.text] == []
    assert front.git("branch", "--list", "windlass/*").count("windlass/") == 2
