"""A thousand recorded steps, beside a bare loop that commits the same bytes, and beside other durable engines."""

from __future__ import annotations

import asyncio
import importlib.util
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.clock import best_in_turns, seconds
from benchmarks.figures import Figure
from windlass.engine.journal import Journal
from windlass.events import Warned
from windlass.model import Json, Key
from windlass.store.sqlite import Store

STEPS = 1000
TEXT = "x" * 1024
PEERS = {"DBOS": "dbos", "LangGraph": "langgraph"}


def figures(rounds: int) -> Iterator[Figure]:
    works: dict[str, Callable[[], float]] = {
        "bare": lambda: _in_folder(_bare, STEPS),
        "ours": lambda: _in_folder(_ours, STEPS),
        "long": lambda: _in_folder(_ours, STEPS * 10),
    }
    best = best_in_turns(works, rounds)
    detail = f"{best['ours'] * 1e6 / STEPS:.0f} µs a step; bare: {best['bare'] * 1e6 / STEPS:.0f} µs"
    yield Figure("1,000 steps / a bare sqlite loop", best["ours"] / best["bare"], "x", 2.0, detail=detail)
    yield Figure("10,000 steps / 1,000 steps", best["long"] / best["ours"], "x", 12.0)
    for name, module in PEERS.items():
        if importlib.util.find_spec(module):
            yield _beside(name, module)


def _in_folder(work: Callable[[Path, int], float], steps: int) -> float:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        return work(Path(folder), steps)


def _bare(folder: Path, steps: int) -> float:
    db = sqlite3.connect(folder / "bare.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE step (key TEXT PRIMARY KEY, result TEXT)")

    def loop() -> None:
        for n in range(steps):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO step VALUES (?, ?)", (f"build/t{n}", TEXT))
            db.execute("COMMIT")

    took = seconds(loop)
    db.close()
    return took


def _ours(folder: Path, steps: int) -> float:
    store = Store.open(folder / "ours.db", time.time, create=True)
    took = asyncio.run(_steps(Journal(store, "r", 1), steps))
    store.close()
    return took


async def _steps(journal: Journal, steps: int) -> float:
    async def work(previous: Json) -> Json:
        return {"text": TEXT}

    phase, begun = Key().child("build"), time.perf_counter()
    for n in range(steps):
        await journal.step(phase.child(f"t{n}"), {"n": n}, work, events=lambda result: [Warned("bench", "a step")])
    return time.perf_counter() - begun


def _beside(name: str, module: str) -> Figure:
    best = best_in_turns(
        {"peer": lambda: _in_folder(lambda f, n: _peer(module, f, n), STEPS), "ours": lambda: _in_folder(_ours, STEPS)},
        2,
    )
    return Figure(f"1,000 steps: faster than {name}", best["peer"] / best["ours"], "x", 4.0, at_least=True)


def _peer(module: str, folder: Path, steps: int) -> float:
    """In a process of its own: each of them keeps global state. It prints the seconds that its steps took."""
    argv = [sys.executable, "-m", f"benchmarks.peer_{module}", str(folder), str(steps)]
    done = subprocess.run(argv, cwd=Path(__file__).parent.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{module} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])
