"""A thousand recorded steps, beside a bare loop that commits the same bytes, and beside other durable engines."""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from statistics import mean, median

from benchmarks.clock import best_in_turns, seconds
from benchmarks.figures import Figure
from windlass.engine.journal import Journal
from windlass.events import Event, Warned
from windlass.model import Json, Key
from windlass.store.epoch import EpochClaim
from windlass.store.sqlite.store import SqliteStore

STEPS = 1000
#: disks are disturbed for longer than a few steps take, so the two loops take turns this often
SLICE = 100
TEXT = "x" * 1024
PEERS = {"DBOS": "dbos", "LangGraph": "langgraph"}
EVENTS = (Warned("bench", "a step"),)

Work = Callable[[int], float]
"""So many more steps; how long they took."""


def figures(rounds: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        yield _beside_bare(Path(folder), rounds)
        yield _growth(Path(folder))
        for name, module in PEERS.items():
            if importlib.util.find_spec(module):
                yield _beside(name, module, Path(folder), rounds)


def _beside_bare(folder: Path, rounds: int) -> Figure:
    bare, ours = _bare(folder / "bare.db"), _ours(folder / "ours.db", EVENTS)
    slices = [(bare(SLICE), ours(SLICE)) for _ in range(rounds * STEPS // SLICE)]
    one, other = (median(took) / SLICE * 1e6 for took in zip(*slices, strict=True))
    detail = f"{other:.0f} µs a step; bare: {one:.0f} µs"
    return Figure("1,000 steps / a bare sqlite loop", other / one, "x", 2.0, detail=detail)


def _growth(folder: Path) -> Figure:
    """Each thousand of the ten thousand has a fresh journal's thousand beside it."""
    long = _ours(folder / "long.db", EVENTS)
    turns = [(long(STEPS), _ours(folder / f"short{n}.db", EVENTS)(STEPS)) for n in range(10)]
    return Figure("10,000 steps / 1,000 steps", sum(t for t, _ in turns) / mean(t for _, t in turns), "x", 12.0)


def _beside(name: str, module: str, folder: Path, rounds: int) -> Figure:
    """Results only: the other engines record no event for a person to read."""
    numbers = count()
    works = {
        "peer": lambda: _peer(module, folder / f"{module}{next(numbers)}"),
        "ours": lambda: _ours(folder / f"{module}{next(numbers)}.db", ())(STEPS),
    }
    best = best_in_turns(works, rounds)
    return Figure(f"1,000 steps: faster than {name}", best["peer"] / best["ours"], "x", 4.0, at_least=True)


def _bare(path: Path) -> Work:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE step (key TEXT PRIMARY KEY, result TEXT)")
    numbers = count()

    def loop(steps: int) -> None:
        for _ in range(steps):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO step VALUES (?, ?)", (f"build/t{next(numbers)}", TEXT))
            db.execute("COMMIT")

    return lambda steps: seconds(lambda: loop(steps))


def _ours(path: Path, events: Sequence[Event]) -> Work:
    journal = Journal(SqliteStore.open(path, time.time, create=True), EpochClaim("r", 0))
    phase, numbers = Key().child("build"), count()

    async def work(previous: Json) -> Json:
        return {"text": TEXT}

    async def loop(steps: int) -> float:
        begun = time.perf_counter()
        for _ in range(steps):
            n = next(numbers)
            await journal.step(phase.child(f"t{n}"), {"n": n}, work, events=lambda result: events)
        return time.perf_counter() - begun

    return lambda steps: asyncio.run(loop(steps))


def _peer(module: str, folder: Path) -> float:
    """In a process of its own: each of them keeps global state. It prints the seconds that its steps took."""
    folder.mkdir()
    argv = [sys.executable, "-m", f"benchmarks.peer_{module}", str(folder), str(STEPS)]
    done = subprocess.run(argv, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{module} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])
