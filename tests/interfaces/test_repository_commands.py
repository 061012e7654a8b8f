"""`windlass land`, `gc` and `check`: what a person does with the repository."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from front import LEAN, Front, basics, builder, passing
from gitrepo import commit, footprint, write
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots, SlotUse
from windlass.locks import driver_lock
from windlass.paths import state_dir
from windlass.runs.check import RUN

READS = "import pathlib; exec(pathlib.Path('src/app.py').read_text())"
GREEN = f'[checks]\ncommands = [["{sys.executable}", "-c", "{READS}"]]\n'
BLIND = f'[checks]\ncommands = [["{sys.executable}", "-c", "print(1)"]]\n'


QUICK = '[retries]\ncrashed = 0\npauses = ["10ms"]\n'


def landed(tmp_path: Path) -> Front:
    front = Front(tmp_path, LEAN)
    assert front.task([builder(), passing()], "Add t1").code == 0
    return front


def slots(front: Front) -> Slots:
    return Slots(EngineRepo.open(user_repo.discover(front.root), state_dir(front.env)))


# -- land


def test_landing_says_what_it_did_and_the_undo_brings_back_what_was(tmp_path: Path) -> None:
    front = landed(tmp_path)
    before = footprint(front.root)
    done = front("land")
    assert done.code == 0
    assert f"'main' now contains '{front.branch}'" in done.out
    assert (front.root / "src" / "t1.py").exists()
    undo = next(line.strip() for line in done.out.splitlines() if "git reset --keep" in line)
    front.git(*undo.split()[1:])
    assert footprint(front.root).files == before.files
    assert footprint(front.root).head == before.head


def test_landing_twice_changes_nothing(tmp_path: Path) -> None:
    front = landed(tmp_path)
    first = json.loads(front("land", "--json").out)
    assert (first["kind"], first["landed"]) == ("fast-forward", front.branch)
    before = footprint(front.root)
    again = front("land")
    assert (again.code, "already" in again.out) == (0, True)
    assert footprint(front.root) == before


def test_landing_merges_when_the_branch_went_on(tmp_path: Path) -> None:
    front = landed(tmp_path)
    commit(front.root, {"other.txt": "mine\n"})
    done = front("land", "--json")
    assert json.loads(done.out)["kind"] == "merge"
    assert (front.root / "src" / "t1.py").exists()
    assert (front.root / "other.txt").exists()


def test_landing_on_a_dirty_checkout_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    front = landed(tmp_path)
    write(front.root, {"README.md": "edited\n"})
    before = footprint(front.root)
    done = front("land")
    assert done.code == 1
    assert "uncommitted changes" in done.err
    assert "hint: " in done.err
    assert footprint(front.root) == before


def test_a_conflict_is_refused_by_name_and_changes_nothing(tmp_path: Path) -> None:
    front = landed(tmp_path)
    commit(front.root, {"src/t1.py": "mine\n"})
    before = footprint(front.root)
    done = front("land")
    assert done.code == 1
    assert "conflicts with 'main' in 'src/t1.py'" in done.err
    assert footprint(front.root) == before


def test_a_detached_head_has_nothing_to_land_on(tmp_path: Path) -> None:
    front = landed(tmp_path)
    front.git("checkout", "-q", "--detach")
    done = front("land")
    assert (done.code, "HEAD is detached" in done.err) == (1, True)


def test_an_unfinished_run_is_landed_only_when_asked(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN + QUICK)
    rules = [{"when": {"role": "implementer", "task": "t2"}, "exit": 1}, *basics("One", "Two")]
    front.start(rules, "--yes", "--answer", "escalation=abort")
    assert front.service.run().state != "finished"
    refused = front("land")
    assert refused.code == 1
    assert "not finished" in refused.err
    assert "--unfinished" in refused.err
    assert front("land", "--unfinished").code == 0
    assert (front.root / "src" / "t1.py").exists()


def test_a_run_that_landed_nothing_cannot_be_landed(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN + QUICK)
    front.start([{"when": {}, "exit": 1}], "--yes")
    done = front("land", "--unfinished")
    assert (done.code, "has no landed tasks" in done.err) == (1, True)


# -- gc


def test_a_dry_run_says_what_would_go_and_removes_nothing(tmp_path: Path) -> None:
    front = landed(tmp_path)
    refs = front.git("for-each-ref")
    held = slots(front).leases()
    said = front("gc", "--dry-run")
    assert said.code == 0
    assert "would remove slot 1" in said.out
    assert front.git("for-each-ref") == refs
    assert slots(front).leases() == held


def test_collecting_removes_what_a_branch_contains_and_frees_the_slots(tmp_path: Path) -> None:
    front = landed(tmp_path)
    found = json.loads(front("gc", "--json").out)
    assert {"what": f"refs/windlass/{front.run}/tip", "removed": True, "reason": ""} in found
    assert slots(front).leases() == []
    assert front.git("for-each-ref", "refs/windlass/base") == ""
    assert front.landed >= {"src/t1.py"}


def test_work_that_no_branch_contains_stays_until_it_is_named(tmp_path: Path) -> None:
    front = landed(tmp_path)
    lost = commit(front.root, {"lost.txt": "work\n"})
    front.git("reset", "-q", "--hard", "HEAD~1")
    ref = f"refs/windlass/keep/{front.run}/execute/t1/@1"
    front.git("update-ref", ref, lost)
    kept = front("gc")
    assert f"kept {ref}" in kept.out
    assert "no branch contains it" in kept.out
    assert front.git("rev-parse", ref) == lost
    assert front("gc", "--drop", ref).code == 0
    assert front.git("for-each-ref", ref) == ""


@pytest.mark.parametrize("ref", ["refs/heads/main", "refs/windlass/keep/nobody/x/@1"])
def test_only_a_ref_of_a_run_that_is_done_can_be_dropped(tmp_path: Path, ref: str) -> None:
    front = landed(tmp_path)
    assert front("gc", "--drop", ref).code == 1
    assert front.git("rev-parse", "refs/heads/main")


def test_a_run_that_is_not_done_or_spared_is_left_alone(tmp_path: Path) -> None:
    front = landed(tmp_path)
    done = front.run
    front("run", "--script", str(front.script), "--", "Another")
    waiting = front.run
    assert waiting != done
    assert front("gc", waiting).code == 1
    assert front("gc", "--keep", done).code == 0
    assert front.git("for-each-ref", f"refs/windlass/base/{done}")
    assert front("gc").code == 0
    assert front.git("for-each-ref", f"refs/windlass/base/{done}") == ""
    assert front.git("for-each-ref", f"refs/windlass/base/{waiting}")


# -- check


def test_without_checks_the_way_to_configure_them_is_said(tmp_path: Path) -> None:
    done = Front(tmp_path)("check")
    assert done.code == 1
    assert "no checks are configured" in done.err
    assert "[checks]" in done.err


def test_green_checks_leave_nothing_behind(tmp_path: Path) -> None:
    front = Front(tmp_path, GREEN)
    before = footprint(front.root)
    done = front("check")
    assert (done.code, "\nok " in done.out) == (0, True)
    assert footprint(front.root) == before
    assert front.git("for-each-ref", "refs/windlass") == ""
    assert [lease.use for lease in slots(front).leases()] == [SlotUse.FREE]
    assert front("status").out.startswith("No runs here yet")


def test_red_checks_show_their_output_and_exit_12(tmp_path: Path) -> None:
    front = Front(tmp_path, GREEN, {"src/app.py": "raise SystemExit('\\x1b[31mbroken here')\n"})
    done = front("check")
    assert done.code == 12
    assert "red (exit 1)" in done.out
    assert "broken here" in done.out
    assert "\x1b" not in done.out


def test_only_what_is_committed_is_checked_and_that_is_said(tmp_path: Path) -> None:
    front = Front(tmp_path, GREEN)
    write(front.root, {"src/app.py": "raise SystemExit(1)\n"})
    done = front("check")
    assert (done.code, "without your uncommitted changes" in done.out) == (0, True)


def test_a_check_is_run_anew_because_the_world_around_it_may_have_changed(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    front = Front(tmp_path, f'[checks]\ncommands = [["test", "-e", "{flag}"]]\n')
    assert front("check").code == 12
    flag.touch()
    assert front("check").code == 0


def test_explain_tells_how_checks_are_run_and_that_they_look_at_the_slot(tmp_path: Path) -> None:
    front = Front(tmp_path, GREEN + 'timeout = "7s"\n[workspace]\nsetup = ["true"]\nenv = ["TERM"]\n')
    said = json.loads(front("check", "--explain", "--json").out)
    assert said["ok"] is True
    assert said["canary"].startswith("good")
    assert said["how"]["timeout_s"] == 7
    assert said["how"]["setup"] == ["true"]
    assert {"PATH", "CI", "TERM"} <= set(said["how"]["variables"])
    assert "XDG_STATE_HOME" not in said["how"]["variables"]
    words = " ".join(front("check", "--explain").out.split())
    assert "Time limit: 7 s each" in words
    assert "Canary: good" in words
    assert front.git("for-each-ref", "refs/windlass") == ""


def test_explain_warns_of_checks_that_test_something_else(tmp_path: Path) -> None:
    front = Front(tmp_path, BLIND)
    assert "not proof" in json.loads(front("check", "--explain", "--json").out)["canary"]


def test_explain_says_when_there_is_no_code_to_break(tmp_path: Path) -> None:
    front = Front(tmp_path, BLIND)
    front.git("rm", "-q", "src/app.py")
    commit(front.root, {"README.md": "only words\n"})
    assert json.loads(front("check", "--explain", "--json").out)["canary"].startswith("not possible")


def test_a_slot_that_a_killed_check_left_is_not_used_again_and_is_collected(tmp_path: Path) -> None:
    front = Front(tmp_path, GREEN)
    left = slots(front).take(RUN, "check", front.git("rev-parse", "HEAD"))
    assert front("check").code == 0
    uses = {lease.n: lease.use for lease in slots(front).leases()}
    assert uses[left.n] is SlotUse.RETIRED
    assert front("gc").code == 0
    assert slots(front).leases() == []


def test_a_second_check_at_the_same_time_is_refused(tmp_path: Path) -> None:
    front = Front(tmp_path, GREEN)
    with driver_lock(front.service.host.place.lock(RUN), RUN):
        done = front("check")
    assert (done.code, "another windlass check or land is running" in done.err) == (1, True)


def test_an_interrupted_check_ends_its_processes_and_gives_the_slot_back(tmp_path: Path) -> None:
    front = Front(tmp_path, '[checks]\ncommands = [["sleep", "300"]]\n')
    argv = [sys.executable, "-P", "-m", "windlass", "check"]
    with subprocess.Popen(argv, cwd=front.root, env=front.env, stderr=subprocess.PIPE) as process:
        child = _agent_of(front)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=300) == 130
    assert not psutil.pid_exists(child)
    assert [lease.use for lease in slots(front).leases()] == [SlotUse.FREE]


def _agent_of(front: Front) -> int:
    """The running check's process, as soon as its supervisor has said who it is."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for file in front.service.host.place.home.glob("check/**/proc.json"):
            return int(json.loads(file.read_text())["agent"]["pid"])
        time.sleep(0.02)
    raise AssertionError("the check did not start")
