"""Lock files of killed gits: those that are ours and dead go, others are named, and the run does what it can."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench import Bench, make_bench
from gitrepo import make_engine, sh
from windlass.errors import GitLockError, GitUnansweredError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.gc import gc
from windlass.git.plumbing.refs import move
from windlass.git.plumbing.stale_locks import intent, remove_dead

OLD_S = 100.0


def plant(lock: Path) -> Path:
    """As a git that was killed a while ago left it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("")
    past = time.time() - OLD_S
    os.utime(lock, (past, past))
    return lock


def stopped_bench(folder: Path) -> Bench:
    """A run that was killed when its first task had landed."""
    bench = make_bench(folder)
    assert bench.run("--yes", crash="after execute/t1/land#1@1.finish").killed
    return bench


def dead_intent(bench: Bench, *refs: str) -> None:
    folder = bench.home / "moving"
    folder.mkdir(exist_ok=True)
    facts = {"host": socket.gethostname(), "pid": 2**22 - 1, "start": 1.0, "refs": refs}
    (folder / "1.1.1.json").write_text(json.dumps(facts))


ENGINE = (
    "refs/windlass/{run}/tip.lock",
    "refs/windlass/{run}/hold/x.lock",
    "refs/heads/agent.lock",
    "packed-refs.lock",
    "HEAD.lock",
    "config.lock",
    "shallow.lock",
    "index.lock",
    "../slots/1.git/index.lock",
    "../slots/1.git/HEAD.lock",
    "../slots/1.git/refs/heads/x.lock",
)


def test_a_killed_gits_locks_in_the_engines_repository_do_not_stop_the_next_driver(tmp_path: Path) -> None:
    bench = stopped_bench(tmp_path)
    locks = [plant(bench.engine / name.format(run=bench.id)) for name in ENGINE]
    said = bench.windlass("resume", "--yes")
    assert said.code == 0, str(said)
    assert [lock for lock in locks if lock.exists()] == []


@pytest.mark.long
def test_a_killed_gits_locks_on_our_own_refs_in_the_users_repository_do_not_stop_the_next_driver(
    tmp_path: Path,
) -> None:
    bench = stopped_bench(tmp_path)
    branch = bench.rows("SELECT branch FROM run")[0]["branch"]
    names = [f"refs/heads/{branch}", f"refs/windlass/base/{bench.id}", f"refs/windlass/keep/{bench.id}/x/@1"]
    locks = [plant(bench.root / ".git" / f"{name}.lock") for name in (*names, "packed-refs")]
    dead_intent(bench, *names)
    said = bench.windlass("resume", "--yes")
    assert said.code == 0, str(said)
    assert [lock for lock in locks if lock.exists()] == []
    assert sh(bench.root, "rev-parse", branch) == sh(bench.engine, "rev-parse", f"refs/windlass/{bench.id}/tip")


@pytest.mark.long
def test_somebody_elses_lock_on_the_runs_branch_is_named_and_the_tasks_go_on(tmp_path: Path) -> None:
    bench = stopped_bench(tmp_path)
    branch = bench.rows("SELECT branch FROM run")[0]["branch"]
    lock = plant(bench.root / ".git" / "refs" / "heads" / f"{branch}.lock")
    said = bench.windlass("resume", "--yes")
    assert said.code == 12, str(said)
    assert f"rm '{lock}'" in said.err
    assert "s old" in said.err
    landed = bench.rows("SELECT 1 FROM event WHERE type = 'task.landed'")
    assert len(landed) == 2, "the other task was to land meanwhile"
    lock.unlink()
    assert bench.windlass("resume", "--yes").code == 0
    assert sh(bench.root, "rev-parse", branch) == sh(bench.engine, "rev-parse", f"refs/windlass/{bench.id}/tip")


@pytest.mark.long
@pytest.mark.parametrize("name", ["index.lock", "HEAD.lock", "config.lock", "shallow.lock", "packed-refs.lock"])
def test_the_users_own_locks_stop_no_run_and_stay_where_they_are(name: str, tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    lock = plant(bench.root / ".git" / name)
    said = bench.run("--yes")
    assert said.code == 0, str(said)
    assert lock.exists()


def test_gc_removes_a_dead_lock_of_the_engines_and_names_one_of_the_users(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    sh(engine.user.root, "pack-refs", "--all")
    ours = plant(engine.path / "packed-refs.lock")
    theirs = plant(engine.user.common_dir / "packed-refs.lock")
    with pytest.raises(GitLockError, match=r"packed-refs\.lock") as told:
        gc(EngineRepo.open(engine.user, tmp_path / "state"), ["r1"], dry=False, date=0.0)
    assert not ours.exists()
    assert theirs.exists()
    assert told.value.hint.endswith(f"rm '{theirs}'")


def test_a_lock_that_a_living_git_could_hold_stays(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    # Waits for its input in the repository, as a git does that holds a lock.
    waiting = subprocess.Popen(
        [git.program(), f"--git-dir={engine.path}", "update-ref", "--stdin"],
        cwd=engine.home,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert waiting.stdin is not None
        assert waiting.stdout is not None
        tip = engine.refs.tip("r1")
        waiting.stdin.write(f"start\ncreate refs/heads/x {tip}\nprepare\n".encode())
        waiting.stdin.flush()
        assert waiting.stdout.readline() == b"start: ok\n"
        assert waiting.stdout.readline() == b"prepare: ok\n"
        lock = engine.path / "refs" / "heads" / "x.lock"
        EngineRepo.open(engine.user, tmp_path / "state")
        assert lock.exists()
    finally:
        os.kill(waiting.pid, signal.SIGKILL)
        waiting.communicate()
    # Killed for real, it leaves its lock, and now nobody holds it.
    assert lock.exists()
    EngineRepo.open(engine.user, tmp_path / "state")
    assert not lock.exists()


def test_a_lock_that_a_windlass_holds_stays(tmp_path: Path) -> None:
    lock = plant(tmp_path / "x.lock")
    program = (
        "import fcntl, sys\nfile = open(sys.argv[1])\nfcntl.flock(file, fcntl.LOCK_EX)\nprint(flush=True)\ninput()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert remove_dead([lock], tmp_path / "nowhere") == [lock]
    finally:
        holder.communicate(b"\n")
    assert remove_dead([lock], tmp_path / "nowhere") == []


def test_a_ref_with_a_dead_lock_is_moved_all_the_same(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    plant(engine.path / "refs" / "heads" / "x.lock")
    assert move(engine.path, "refs/heads/x", engine.user.head, "")


def test_an_intent_covers_locks_only_when_its_process_is_dead(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    lock = plant(engine.user.common_dir / "refs" / "windlass" / "base" / "r1.lock")
    with intent(engine.user.state / "moving", ["refs/windlass/base/r1"]):
        engine.clear_locks()
        assert lock.exists()
    engine.clear_locks()
    assert lock.exists(), "no intent is left that covers it"


def test_an_intent_stays_when_its_git_was_ended_because_its_locks_may_have_stayed(tmp_path: Path) -> None:
    ended, met = GitUnansweredError("ended by signal 9"), GitLockError("'x.lock' is in the way")
    with pytest.raises(GitUnansweredError), intent(tmp_path, ["refs/heads/x"]):
        raise ended
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(GitLockError), intent(tmp_path, ["refs/heads/y"]):
        raise met
    assert len(list(tmp_path.iterdir())) == 1, "a lock that was met is not ours"
