"""What the short commands cost, beside a Python that does nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.clock import PASS, best_in_turns, cpu_seconds
from benchmarks.figures import Figure
from benchmarks.sample import make_sample


def figures(rounds: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        sample = make_sample(Path(folder) / "status", tasks=10, pause=0.0)
        sample.run("run", "Write files", "--flow", "many-tasks")
        commands = {
            "pass": PASS,
            "status": sample.windlass("status"),
            "brief": sample.windlass("status", "--brief"),
            "version": sample.windlass("--version"),
        }
        works = {name: lambda argv=argv: cpu_seconds(argv, sample.root, sample.env) for name, argv in commands.items()}
        best = best_in_turns(works, rounds * 5)
    detail = f"{best['status'] * 1000:.0f} ms; python -c pass: {best['pass'] * 1000:.0f} ms"
    yield Figure("windlass status / python -c pass", best["status"] / best["pass"], "x", 12.0, detail=detail)
    yield Figure("windlass status --brief / python -c pass", best["brief"] / best["pass"], "x", 12.0)
    yield Figure("windlass --version / python -c pass", best["version"] / best["pass"], "x", 8.0)
