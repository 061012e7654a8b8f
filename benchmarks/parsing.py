"""How fast each adapter reads what its CLI writes: recorded streams of the real CLIs, over and over."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.clock import best_in_turns, slowness
from benchmarks.figures import Figure
from windlass.agents import registry
from windlass.agents.base import Job
from windlass.agents.process.agent_run import AgentEventLog, AgentRun
from windlass.agents.process.supervise import CHUNK, Lines

CAPTURES = Path(__file__).resolve().parent.parent / "tests" / "captures"
CLIS = ("claude", "codex", "pi", "gemini", "opencode")
EVENTS = 20_000
DEMANDED = 20.0
"""Thousands of events in a second."""


def figures(rounds: int) -> Iterator[Figure]:
    best = best_in_turns({name: partial(seconds, name, recorded(name)) for name in CLIS}, rounds)
    for name, took in best.items():
        size = len(recorded(name)) / 1e6
        detail = f"{EVENTS} events of {size:.0f} MB in {took * 1000:.0f} ms"
        yield Figure(f"{name}'s events read", EVENTS / took / 1000, "k/s", DEMANDED / slowness(), True, detail)


def recorded(name: str) -> bytes:
    """Every stream of this CLI, in turn, until there are enough lines."""
    files = sorted((CAPTURES / name).glob("*.jsonl"))
    lines = [line for file in files for line in file.read_bytes().splitlines() if line]
    return b"".join(lines[at % len(lines)] + b"\n" for at in range(EVENTS))


def seconds(name: str, stream: bytes) -> float:
    """Processor time from the bytes of its output to events that are taken and written down."""
    return asyncio.run(_read(name, stream))


async def _read(name: str, stream: bytes) -> float:
    with tempfile.TemporaryFile("w", encoding="utf-8") as log:
        adapter, job = registry.make(name, {}), _job(name)
        events = AgentEventLog(log, job.limits.output_bytes)
        reading = AgentRun(adapter, job, lambda event: None, time.time, events, asyncio.Event())
        lines = Lines(reading.line)
        begun = time.process_time()
        for at in range(0, len(stream), CHUNK):
            lines.read(stream[at : at + CHUNK])
        lines.end()
        return time.process_time() - begun


def _job(name: str) -> Job:
    place = Path("/repo")
    return Job("r1", "execute/t1", 1, "implementer", "implement", "", "", cwd=place, folder=place, agent=name)
