"""Times that can be compared: taken in turns in one run, the best of several, because noise only ever adds."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

PASS = (sys.executable, "-c", "pass")
#: what `python -c pass` took where the limits in seconds were set
REFERENCE_S = 0.012


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def best_in_turns(works: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Each work says how long it took; A B C A B C, so that a busy moment hits all of them."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, work in works.items():
            took = work()
            best[name] = min(took, best.get(name, took))
    return best


def run_quietly(argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> float:
    return seconds(lambda: subprocess.run(argv, cwd=cwd, env=env, capture_output=True, check=True))


def cpu_seconds(argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> float:
    """Processor time of a command and all it started: what a busy machine disturbs least."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_quietly(argv, cwd, env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@cache
def slowness() -> float:
    """How much slower this machine starts a program than the reference; limits in seconds grow with it."""
    return max(1.0, min(run_quietly(PASS, Path.cwd()) for _ in range(10)) / REFERENCE_S)
