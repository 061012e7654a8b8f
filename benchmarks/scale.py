"""Many tasks and many events: what grows, and whether the first lines of a long log come at once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.clock import best_in_turns, seconds
from benchmarks.figures import Figure
from benchmarks.sample import TASKS_FLOW, Sample, make_sample, peak_mb
from windlass.agents.contracts.task_list import match_tasks, parse_plan
from windlass.model import Task
from windlass.tasks.context import COMPLETE, Ending
from windlass.tasks.schedule import SchedulePolicy, StartTask, TaskState, TaskStates, TaskStatus, next_actions

EVENTS = 100_000
MANY = 1_000
SLOTS = 4


def figures(rounds: int) -> Iterator[Figure]:
    yield _growth(rounds)
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        yield _log(Path(folder) / "log", rounds)
        yield _memory(Path(folder) / "memory")


# -- growth


def _growth(rounds: int) -> Figure:
    """A plan is parsed and its tasks are started and landed one by one, without agents."""
    best = best_in_turns({"1000": lambda: _walk(MANY), "2000": lambda: _walk(2 * MANY)}, rounds)
    detail = f"{best['2000'] * 1000:.0f} ms and {best['1000'] * 1000:.0f} ms; twice is linear"
    return Figure(
        "2,000 tasks / 1,000 tasks, parsed and scheduled", best["2000"] / best["1000"], "x", 3.0, detail=detail
    )


def _walk(count: int) -> float:
    return seconds(lambda: _land_all(match_tasks((), parse_plan(_plan(count)).tasks).tasks))


def _land_all(tasks: tuple[Task, ...]) -> None:
    states, policy = TaskStates(tasks, "deps"), SchedulePolicy("deps", SLOTS)
    working: list[str] = []
    while True:
        for action in next_actions(states, policy):
            assert isinstance(action, StartTask)
            states.set(action.id, TaskState(TaskStatus.WORKING))
            working.append(action.id)
        if not working:
            return
        states.set(working.pop(0), TaskState(TaskStatus.ENDED, Ending(COMPLETE)))


def _plan(count: int) -> str:
    listed = [
        {
            "title": f"Task {n}",
            "description": "Work.",
            "depends_on": [f"t{n - 9}"] if n > 9 else [],
            "files": [f"{n}.py"],
        }
        for n in range(1, count + 1)
    ]
    return f"# Plan\n\n```superteam-tasks\n{json.dumps(listed)}\n```\n"


# -- the log


def _log(home: Path, rounds: int) -> Figure:
    """Beside the log of a run with few events: both load the same, and only the reading differs."""
    few, many = make_sample(home / "few", tasks=1, pause=0.0), make_sample(home / "many", tasks=1, pause=0.0)
    for sample in (few, many):
        sample.run("run", "Write files", "--flow", "many-tasks")
    _fill(many)
    works = {
        "few": lambda: _first_line(few, few.windlass("log")),
        "many": lambda: _first_line(many, many.windlass("log")),
        "version": lambda: _first_line(few, few.windlass("--version")),
    }
    best = best_in_turns(works, rounds * 3)
    detail = f"{best['many'] * 1000:.0f} ms, {best['many'] / best['version']:.1f} x windlass --version"
    return Figure("first page of 100,000 events / of a few", best["many"] / best["few"], "x", 2.0, detail=detail)


def _fill(sample: Sample) -> None:
    with closing(sqlite3.connect(sample.database)) as db:
        run, at = db.execute("SELECT run, max(at) FROM event").fetchone()
        (data,) = db.execute("SELECT data FROM event WHERE type = 'phase.entered' LIMIT 1").fetchone()
        rows = ((run, at, "phase.entered", data) for _ in range(EVENTS))
        db.executemany("INSERT INTO event (run, at, type, data) VALUES (?, ?, ?, ?)", rows)
        db.commit()


def _first_line(sample: Sample, argv: list[str]) -> float:
    begun = time.perf_counter()
    with subprocess.Popen(argv, cwd=sample.root, env=sample.env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        took = time.perf_counter() - begun
        process.kill()
    return took


# -- memory


def _memory(home: Path) -> Figure:
    """The peak of a driver that lands 1,000 tasks of the scripted agent."""
    sample = make_sample(home, tasks=1, pause=0.0)
    rules = [
        {"when": {"role": "planner"}, "files": {"{plan_path}": _plan(MANY)}, "say": "done"},
        {"when": {}, "files": {"{task_id}.txt": "work\n"}, "commit": "{task_id}", "say": "done"},
    ]
    (home / "script.yaml").write_text(json.dumps(rules))
    (home / "flow.yaml").write_text(TASKS_FLOW.replace("    from: plan\n", "    from: plan\n    order: deps\n"))
    argv = [
        *("run", "Many tasks", "--flow", str(home / "flow.yaml"), "--agent", "scripted"),
        *("--script", str(home / "script.yaml"), "--slots", str(SLOTS)),
    ]
    begun, peak = time.monotonic(), 0.0
    driver = sample.start(*argv)
    while driver.poll() is None:
        # What `wait4` tells counts the gits that the driver started as well.
        peak = max(peak, peak_mb(driver.pid))
        time.sleep(0.05)
    if driver.returncode != 0 or len(sample.event_times("task.landed")) != MANY:
        raise SystemExit(f"the run of {MANY} tasks ended with {driver.returncode}")
    detail = f"peak; {(time.monotonic() - begun) / MANY * 1000:.0f} ms a task"
    return Figure(f"driver of {MANY} tasks", peak, "MB", 80.0, detail=detail)
