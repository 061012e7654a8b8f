"""A repository with flows and an agent that does almost nothing, so that what is measured is Windlass."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

FILES = 20
TASKS_FLOW = """\
flow: many-tasks
about: A plan, then its tasks, one dispatch each.
artifacts:
  plan: {kind: file, path: docs/plan.md, contract: tasks, commit: true}
phases:
  - id: plan
    kind: produce
    calls: [{role: planner, in: [request], out: plan}]
    on: {empty: stop, failed: stop}
  - id: build
    kind: tasks
    from: plan
    steps:
      - id: implement
        kind: produce
        calls: [{role: implementer, in: [task]}]
        on: {failed: fail}
    land: {checks: none, on: {conflict: fail}}
    on: {done: next, stopped: stop}
  - {id: report, kind: report, template: plan}
"""
QUESTIONS = 5
AGENT = """\
#!/bin/sh
if [ "$1" = planner ]; then
  mkdir -p docs && cp "$(dirname "$0")/plan.md" docs/plan.md
  exit
fi
read -r pause < "$(dirname "$0")/pause"
sleep "$pause"
echo work > "work-$$.txt"
git add -A && git commit -q -m work
"""


def questions_flow() -> str:
    head = "flow: many-questions\nabout: Nothing but questions.\nquestions:\n"
    asked = "".join(f'  q{n}: {{text: "Go on?", options: {{on: next, off: abort}}}}\n' for n in range(QUESTIONS))
    phases = "".join(f"  - {{id: p{n}, kind: ask, question: q{n}, bound: person}}\n" for n in range(QUESTIONS))
    return f"{head}{asked}phases:\n{phases}  - {{id: report, kind: report, template: plan}}\n"


def plan(tasks: int) -> str:
    entries = "".join(
        f"- title: Task {n}\n  description: Write file {n}.\n  files: [w{n}.txt]\n" for n in range(1, tasks + 1)
    )
    return f"# Plan\n\n```superteam-tasks\n{entries}```\n"


@dataclass(frozen=True)
class Sample:
    home: Path

    @property
    def root(self) -> Path:
        return self.home / "project"

    @property
    def database(self) -> Path:
        return self.root / ".git" / "windlass" / "windlass.db"

    @property
    def agent(self) -> Path:
        return self.home / "agent.sh"

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "TMPDIR", "LANG")}
        here = {"XDG_STATE_HOME": str(self.home / "state"), "XDG_CONFIG_HOME": str(self.home / "config")}
        return {**kept, **here, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def git(self, *args: str, cwd: Path | None = None) -> None:
        subprocess.run(["git", *args], cwd=cwd or self.root, env=self.env, capture_output=True, check=True)

    def windlass(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "windlass", *args]

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        log = (self.home / "log").open("ab")
        with log:
            return subprocess.Popen(
                self.windlass(*args), cwd=self.root, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def run(self, *args: str) -> None:
        code = self.start(*args).wait()
        if code != 0:
            raise SystemExit(f"windlass {args[0]} ended with {code}:\n{(self.home / 'log').read_text()[-2000:]}")

    def set_pause(self, seconds: float) -> None:
        part = self.home / "pause.new"
        part.write_text(f"{seconds}\n")
        part.replace(self.home / "pause")

    def event_times(self, type: str) -> list[float]:
        """When each event of that type was recorded; [] before there is anything."""
        try:
            with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as db:
                rows = db.execute("SELECT at FROM event WHERE type = ? ORDER BY seq", (type,)).fetchall()
        except sqlite3.OperationalError:
            return []
        return [float(at) for (at,) in rows]

    def starts(self) -> list[float]:
        """When each agent's process was running."""
        files = (self.root / ".git" / "windlass" / "runs").glob("*/attempts/**/proc.json")
        return sorted(file.stat().st_mtime for file in files)


def make_sample(home: Path, *, tasks: int, pause: float) -> Sample:
    sample = Sample(home)
    (sample.root / "src").mkdir(parents=True)
    for n in range(FILES):
        (sample.root / "src" / f"m{n}.py").write_text(f"x = {n}\n" * 20)
    _write_settings(sample, tasks)
    sample.set_pause(pause)
    sample.git("init", "-q", "-b", "main")
    sample.git("config", "user.name", "Bench")
    sample.git("config", "user.email", "bench@example.invalid")
    sample.git("add", "-A")
    sample.git("commit", "-q", "-m", "start")
    return sample


def _write_settings(sample: Sample, tasks: int) -> None:
    flows = sample.root / ".windlass" / "flows"
    flows.mkdir(parents=True)
    (flows / "many-tasks.yaml").write_text(TASKS_FLOW)
    (flows / "many-questions.yaml").write_text(questions_flow())
    argv = json.dumps(["/bin/sh", str(sample.agent), "{role}"])
    limits = "[budget]\nwarn_usd = 900.0\nstop_usd = 1000.0\nunknown_usd = 0.01\n"
    (flows.parent / "config.toml").write_text(
        f'[agents]\ndefault = "command"\n[agents.command]\nargv = {argv}\n{limits}'
    )
    (sample.home / "plan.md").write_text(plan(tasks))
    sample.agent.write_text(AGENT)


def wait_until(holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise SystemExit("a benchmark waited in vain")
        time.sleep(0.002)


def peak_mb(pid: int) -> float:
    """The most that the process itself had in memory so far; 0 when it is gone. Not on Linux: what it has now."""
    status = Path(f"/proc/{pid}/status")
    try:
        lines = status.read_text().splitlines() if status.exists() else []
    except ProcessLookupError:
        return 0.0
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return memory_mb(pid) if not sys.platform.startswith("linux") else 0.0


def memory_mb(pid: int) -> float:
    """What the process alone would give back: shared pages count by their share. Elsewhere than on Linux: resident."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    if rollup.exists():
        return next(int(line.split()[1]) for line in rollup.read_text().splitlines() if line.startswith("Pss:")) / 1024
    import psutil

    return float(psutil.Process(pid).memory_info().rss) / 2**20
