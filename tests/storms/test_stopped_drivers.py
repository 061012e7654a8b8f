"""A driver is stopped, its lock file is lost, another one takes over, the first goes on: the run stays whole.

`make stopped` does it fifty times.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import zygote
from bench import STOPPER, Bench, is_stopped, kill, wait_for
from crews import flow
from gitrepo import sh
from processes_for_tests import until
from storm import Storm, Weather, tip_of
from windlass.errors import StoppedError
from windlass.locks import file_lock
from zygote import Process

RUNS = int(os.environ.get("WINDLASS_STOPPED_RUNS", "3"))
OK, STOPPED = 0, 12
#: the message for damage, which a driver that another one replaced must never show
DAMAGE = "move it aside"
PLACES = (
    ("windlass.git.run_refs:RunRefs.set_tip", 4),
    ("windlass.git.run_refs:move", 9),
    ("windlass.git.publish:_move", 2),
    ("windlass.tasks.lander:publish", 2),
    ("windlass.store.sqlite.attempts:AttemptTable.begin", 8),
    ("windlass.store.sqlite.attempts:AttemptTable.finish", 8),
    ("windlass.store.sqlite.steps:StepTable.add", 20),
    ("windlass.store.sqlite.runs:RunTable.set_state", 2),
    ("windlass.git.slots:Slots.take", 3),
    ("windlass.git.slots:Slots.place", 3),
    ("windlass.git.slots:Slots.release", 2),
    ("windlass.dispatch.local_checkout:LocalCheckout.leftovers", 4),
    ("windlass.engine.attempts:AttemptLog.begin", 8),
    ("windlass.engine.attempts:AttemptLog.finish", 8),
    ("windlass.dispatch.local_site:run_agent", 5),
)


@dataclass(frozen=True)
class FourTasks(Weather):
    """Four tasks side by side, none of which disturbs another."""

    @property
    def tasks(self) -> list[dict[str, Any]]:
        return [{"title": f"T{n}", "depends_on": ["T1"] if n == 4 and self.seed % 2 else []} for n in range(1, 5)]

    @property
    def shared(self) -> dict[str, int]:
        return dict.fromkeys(("T1", "T2", "T3", "T4"), 0)

    @property
    def quarrels(self) -> list[tuple[str, str]]:
        return []

    @property
    def text(self) -> str:
        land = {"checks": "all", "max": 0, "on": {"conflict": "fail", "red": "fail"}}
        return flow(slots=3, order="deps", failure="stop", land=land)

    def script(self, bench: Bench) -> list[dict[str, Any]]:
        plan, _, *rules = super().script(bench)
        return [plan, *rules]


class Scene:
    """One run with two drivers, the first of which does not know that it was replaced."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.storm = Storm(folder, FourTasks(seed))
        self.bench = self.storm.bench
        self.out = folder / "first.out"
        self.tips: list[str] = []

    def begin_first(self, *prefix: str) -> Process:
        argv = self.storm._argv()
        with self.out.open("wb") as out:
            return zygote.popen(
                [*(prefix or ("-m", "windlass")), *argv],
                cwd=self.bench.root,
                env=self.bench.environ(),
                stdout=out,
                stderr=out,
                own_session=True,
            )

    def begin_to_stop(self) -> Process:
        """By time, or in the middle of something that matters."""
        if self.chance.random() < 0.4:
            first = self.begin_first()
            wait_for(self.bench, "SELECT 1 FROM run")
            with suppress(subprocess.TimeoutExpired):
                first.wait(self.chance.uniform(0.0, 1.8))
            if first.poll() is None:
                first.send_signal(signal.SIGSTOP)
        else:
            place, most = self.chance.choice(PLACES)
            when = self.chance.choice(("before", "after"))
            nth = str(self.chance.randint(1, most))
            print(f"stops {when} {place} #{nth}")
            first = self.begin_first("-c", STOPPER, place, when, nth)
        until(lambda: first.poll() is not None or is_stopped(first.pid))
        return first

    def lose_lock(self) -> None:
        (self.bench.home / "locks" / f"{self.bench.id}.lock").unlink()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Every tip that the run ever had, as far as one can see."""
        over = threading.Event()

        def look() -> None:
            ref = self.bench.engine / tip_of(self.bench)
            while not over.wait(0.002):
                with suppress(OSError):
                    tip = ref.read_text().strip()
                    if tip and self.tips[-1:] != [tip]:
                        self.tips.append(tip)

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def play(self) -> int:
        """The first driver's exit code."""
        first = self.begin_to_stop()
        try:
            if not self.storm._has_begun():
                first.send_signal(signal.SIGCONT)
                return self._ended(first)
            with self.watching():
                return self._replaced(first)
        finally:
            kill(first)

    def _replaced(self, first: Process) -> int:
        had_ended = first.poll() is not None
        state, epoch = self._state()
        self.lose_lock()
        with self.bench.driver("resume") as second:
            with suppress(subprocess.TimeoutExpired):
                second.wait(self.chance.choice((60.0, self.chance.uniform(0.0, 2.0))))
            replaced = not had_ended and state != "finished" and self._state()[1] != epoch
            if not had_ended:
                first.send_signal(signal.SIGCONT)
            code = self._ended(first)
            assert not replaced or code == STOPPED, f"replaced, and exit {code}\n{self.out.read_text()}"
            self._ended(second)
        self._drive_to_the_end()
        return code

    def _state(self) -> tuple[str, int]:
        row = self.bench.rows("SELECT state, epoch FROM run")[0]
        return row["state"], row["epoch"]

    def _ended(self, driver: Process) -> int:
        return driver.wait(300)

    def _drive_to_the_end(self) -> None:
        for _ in range(6):
            if self.bench.run_state == "finished":
                return
            said = self.bench.windlass("resume")
            assert said.code in (OK, STOPPED), str(said)
        raise AssertionError(f"it never came to an end: {self.bench.run_state}")

    # -- what must hold

    def assert_whole(self, code: int) -> None:
        said = self.out.read_text(errors="replace")
        assert code in (OK, STOPPED), f"exit {code}\n{said}"
        assert DAMAGE not in said, said
        assert "Traceback" not in said, said
        self.storm.assert_nothing_lost()
        assert len(self.landed()) == 4
        self._assert_never_backwards(self.bench.engine, self.tips)
        branch = self.bench.rows("SELECT branch FROM run")[0]["branch"]
        moves = sh(self.bench.root, "log", "-g", "--format=%H", f"refs/heads/{branch}").split()
        self._assert_never_backwards(self.bench.root, moves[::-1])
        others = sh(self.bench.root, "for-each-ref", "--format=%(refname)", f"refs/heads/{branch}-*").split()
        assert others == []
        assert not self.bench.rows("SELECT 1 FROM attempt WHERE state = 'running'")
        starts = Counter((line["key"], line["attempt"]) for line in self.bench.dispatches())
        assert set(starts.values()) == {1}

    def landed(self) -> set[str]:
        names = sh(self.bench.engine, "ls-tree", "--name-only", f"{tip_of(self.bench)}:src").split()
        return {name for name in names if name.startswith("T")}

    def _assert_never_backwards(self, repository: Path, shas: list[str]) -> None:
        for before, after in pairwise(shas):
            done = subprocess.run(["git", "merge-base", "--is-ancestor", before, after], cwd=repository, check=False)
            assert done.returncode == 0, f"{before} was replaced by {after}, which does not contain it"


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_stopped_driver_that_lost_its_lock_and_was_replaced_changes_nothing(seed: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path, seed)
    code = scene.play()
    print(f"the first driver ended with {code}")
    scene.assert_whole(code)


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "nth"),
    [
        ("windlass.engine.attempts:AttemptLog.finish", "1"),
        ("windlass.engine.journal:JournalTransaction.__enter__", "6"),
    ],
)
def test_a_driver_that_was_replaced_says_by_whom_and_writes_nothing_more(place: str, nth: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    first = scene.begin_first("-c", STOPPER, place, "before", nth)
    try:
        until(lambda: is_stopped(first.pid))
        scene.lose_lock()
        assert scene.bench.windlass("resume").code == OK
        before = _everything(scene.bench)
        first.send_signal(signal.SIGCONT)
        assert first.wait(300) == STOPPED
    finally:
        kill(first)
    assert f"another driver (epoch 2) took over run {scene.bench.id}" in scene.out.read_text()
    assert _everything(scene.bench) == before
    scene.assert_whole(STOPPED)


def _everything(bench: Bench) -> tuple[object, ...]:
    """What a driver writes: the journal, refs, leases, and the run's files for people."""
    tables = [row["name"] for row in bench.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    assert {"run", "step", "superseded", "attempt", "event", "tip", "question", "told", "blob"} <= set(tables)
    rows = [bench.rows(f"SELECT * FROM {table} ORDER BY rowid") for table in tables]
    refs = [sh(place, "for-each-ref") for place in (bench.engine, bench.root)]
    leases = {path.name: path.read_text() for path in bench.state.glob("windlass/*/slots/*.json")}
    files = {str(path): path.read_bytes() for path in (bench.run_folder / "files").rglob("*") if path.is_file()}
    return rows, refs, leases, files


@pytest.mark.long
def test_a_driver_whose_lock_file_is_gone_stops_by_itself_and_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    first = scene.begin_first()
    try:
        wait_for(scene.bench, "SELECT 1 FROM attempt WHERE state = 'running'")
        scene.lose_lock()
        assert first.wait(300) == STOPPED
    finally:
        kill(first)
    said = scene.out.read_text()
    assert "lost its lock" in said, said
    assert not scene.bench.leftovers()
    assert scene.bench.run_state == "running"
    assert not scene.bench.rows("SELECT 1 FROM event WHERE type = 'run.ended'")
    assert scene.bench.windlass("resume").code == OK
    scene.storm.assert_nothing_lost()


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "nth", "locks"),
    [
        ("windlass.store.sqlite.steps:StepTable.add", 1, "windlass.db"),
        # The first ones set the run up, before there is a driver.
        ("windlass.git.run_refs:move", 3, "windlass.db"),
        ("windlass.git.slots:Slots._choose", 1, "slots/lock"),
    ],
)
def test_a_stopped_driver_that_holds_a_lock_is_named_to_whoever_waits_for_it(
    place: str, nth: int, locks: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, 0)
    first = scene.begin_first("-c", STOPPER, place, "after", str(nth))
    try:
        until(lambda: is_stopped(first.pid))
        scene.lose_lock()
        said = scene.bench.windlass("resume")
        assert said.code == STOPPED, str(said)
        heard = said.out + said.err
        assert f"locked by process {first.pid}" in heard
        # Another thread of the stopped driver may be in a transaction at that moment; then that is met first.
        assert locks in heard or "windlass.db" in heard
        assert "which is stopped" in heard
        assert f"kill -CONT {first.pid}" in heard
        assert scene.bench.windlass("status").code == OK
    finally:
        kill(first)
    assert scene.bench.windlass("resume").code == OK


@pytest.mark.long
def test_an_older_driver_that_lives_keeps_its_slots_to_itself(tmp_path: Path) -> None:
    """A git of its own may still be at work in any of them."""
    scene = Scene(tmp_path, 0)
    first = scene.begin_first("-c", STOPPER, "windlass.engine.attempts:AttemptLog.finish", "before", "1")
    try:
        until(lambda: is_stopped(first.pid))
        taken = [json.loads(path.read_text()) for path in scene.bench.state.glob("windlass/*/slots/*.json")]
        scene.lose_lock()
        assert scene.bench.windlass("resume").code == OK
    finally:
        kill(first)
    leases = [json.loads(path.read_text()) for path in scene.bench.state.glob("windlass/*/slots/*.json")]
    uses = {lease["n"]: lease["use"] for lease in leases}
    mine = [lease["n"] for lease in taken if lease["use"] == "taken"]
    assert mine
    assert {uses[n] for n in mine} == {"retired"}
    warned = scene.bench.rows("SELECT data FROM event WHERE type = 'warned'")
    assert any(f"process {first.pid}" in row["data"] for row in warned)


@pytest.mark.long
def test_a_process_that_is_stopped_before_it_could_write_who_it_is_is_named_all_the_same(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    program = "import fcntl, os, signal, sys; f = open(sys.argv[1], 'a+'); fcntl.flock(f, fcntl.LOCK_EX)"
    program += "; os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([sys.executable, "-c", program, str(lock)], start_new_session=True) as holder:
        until(lambda: is_stopped(holder.pid))
        try:
            with pytest.raises(StoppedError, match=f"process {holder.pid}, which is stopped"), file_lock(lock):
                pass
        finally:
            holder.kill()
