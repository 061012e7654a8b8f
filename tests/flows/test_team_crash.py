"""Killed at every checkpoint name of the document in turn, a team run comes to the end it would have come to."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from bench import Bench, Said, make_bench
from gitrepo import sh
from team import CHECKPOINTS, basics, created, disapproved, make_gh, make_remote, red, subtask

# Kills the process when the event of a checkpoint has just been committed.
AT_LABEL = """
import os, signal, sys
label = sys.argv[1]
def die(*seen):
    if any(getattr(one, "label", "") == label for one in seen):
        os.kill(os.getpid(), signal.SIGKILL)
from windlass.runs import start as starting, view_files
real_feed, real_start = view_files.ViewFiles.feed, starting.start_run
def feed(self, recorded):
    die(recorded.event)
    real_feed(self, recorded)
def start(kit, start, run):
    made = real_start(kit, start, run)
    if label == "QUEUED":
        os.kill(os.getpid(), signal.SIGKILL)
    return made
view_files.ViewFiles.feed, starting.start_run = feed, start
from windlass.app import compose
from windlass.interfaces.exit import run
sys.exit(run(sys.argv[2:], compose()))
"""
TWELVE = [subtask(f"t{n}", *([f"t{n - 4}"] if n > 4 else [])) for n in range(1, 13)]
SCRIPT = [red("t2", "t2() is 2, not 1", times=1), disapproved("t3", "say what it returns", times=1), *basics(*TWELVE)]
HAPPY = [name for name in CHECKPOINTS if name != "FAILED"]
CHECKS = '[checks]\ncommands = [["sh", "check.sh"]]\n'


def _bench(folder: Path) -> Bench:
    bench = make_bench(folder, script=SCRIPT, config=CHECKS)
    make_remote(bench.root, folder)
    return Bench(folder, {"PATH": f"{make_gh(folder)}{os.pathsep}{os.environ['PATH']}"})


def _killed_at(bench: Bench, label: str, *args: str) -> Said:
    return bench._call(["-c", AT_LABEL, label, *args], "", 240.0)


@pytest.mark.long
@pytest.mark.req("S2-02", "S2-16", "S2-48", "S2-49")
def test_twelve_tasks_land_once_and_one_pull_request_is_opened_though_every_checkpoint_killed_the_driver(
    tmp_path: Path,
) -> None:
    bench = _bench(tmp_path)
    start = ("run", "Add twelve functions", "--flow", "team", "--slots", "4", "--yes", "--script", str(bench.script))
    for label in HAPPY:
        said = _killed_at(bench, label, *(start if label == "QUEUED" else ("resume",)))
        assert said.killed, f"{label} was not reached: {said}"
        assert label in _steps(bench)[-4:], f"after a kill at {label} the run stands at {_steps(bench)[-4:]}"
    said = bench.windlass("resume")
    assert said.code == 0, str(said)
    _assert_whole(bench)


def _steps(bench: Bench) -> list[str]:
    rows = bench.rows("SELECT data FROM event WHERE run = ? ORDER BY seq", bench.id)
    found = (str(json.loads(row["data"]).get("label") or "") for row in rows)
    return [label for label in found if label in CHECKPOINTS]


def _assert_whole(bench: Bench) -> None:
    branch = bench.rows("SELECT branch FROM run")[0]["branch"]
    merged = sh(
        bench.root, "log", "--first-parent", "--merges", "--format=%(trailers:key=Windlass-Task,valueonly)", branch
    )
    assert Counter(merged.split()) == Counter({task["id"]: 1 for task in TWELVE})
    files = set(sh(bench.root, "ls-tree", "-r", "--name-only", branch).splitlines())
    assert {f"src/t{n}.py" for n in range(1, 13)} <= files
    assert len(created(bench.folder)) == 1
    assert sh(bench.folder / "remote.git", "rev-parse", branch) == sh(bench.root, "rev-parse", branch)
    done = bench.rows("SELECT key, count(*) AS n FROM attempt WHERE state = 'done' GROUP BY key")
    assert {row["n"] for row in done} == {1}, "what has a result was paid for again"
    assert set(_steps(bench)) == set(HAPPY)
    assert not bench.leftovers()
    assert sh(bench.root, "status", "--porcelain") == ""
    assert sh(bench.root, "stash", "list") == ""
