"""Tasks side by side: how close a run comes to what its tasks need at least, and what many agents at once weigh.

A task's duration is what its agent takes when it works alone: the sleep, its own start and its commit. All else counts
as ours. On a slower machine the sleeps are longer, by the slower of two: a Python that starts, and what git does for a
task. So the ratios mean the same everywhere.

Equal tasks are different: their agents commit at the same moment, and two cores cannot do eight commits in the time of
one. They are compared with a pool that starts the same agents and does nothing else.
"""

from __future__ import annotations

import heapq
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.clock import run_quietly, seconds, slowness
from benchmarks.driving import bare_task
from benchmarks.figures import Figure
from benchmarks.sample import TASKS_FLOW, Sample, make_sample, memory_mb, wait_until
from windlass.agents.process.launch import program
from windlass.kinds.task_graph import layers
from windlass.model import Task

GRAPH, SEED, AGENTS = 40, 4, 64
#: what git took for a bare task where the limits were set
GIT_REFERENCE_S = 0.024


@dataclass(frozen=True)
class Work:
    """A task for the benchmark: what it waits for and how long its agent takes."""

    id: str
    needs: tuple[str, ...]
    seconds: float


def figures(rounds: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        pace = max(slowness(), bare_task(Path(folder)) / GIT_REFERENCE_S)
        for slots in (4, 8):
            yield _graph(Path(folder), slots, rounds, pace)
        yield _independent(Path(folder), rounds, pace)
        yield from _many(Path(folder))


def graph(pace: float = 1.0) -> list[Work]:
    """Always the same one: some wide, some long, durations of 0.2 to 1.0 s on the reference machine."""
    chance = random.Random(SEED)
    made: list[Work] = []
    for n in range(GRAPH):
        earlier = [one.id for one in made[max(0, n - 12) :]]
        needs = chance.sample(earlier, min(len(earlier), chance.choice([0, 0, 1, 1, 2])))
        made.append(Work(f"t{n + 1}", tuple(needs), round(chance.uniform(0.2, 1.0) * pace, 2)))
    return made


def _graph(folder: Path, slots: int, rounds: int, pace: float) -> Figure:
    works = graph(pace)
    deps = min(_ratio(folder / f"deps{slots}-{n}", works, slots, "deps") for n in range(rounds))
    waves = _ratio(folder / f"waves{slots}", works, slots, "waves")
    detail = f"40 tasks of {0.2 * pace:.1f} to {pace:.1f} s in a graph; layer by layer {waves:.2f} x"
    return Figure(f"makespan with {slots} slots", deps, "x", 1.10, detail=detail)


def _independent(folder: Path, rounds: int, pace: float) -> Figure:
    works = [Work(f"t{n + 1}", (), round(0.5 * pace, 2)) for n in range(24)]
    taken: dict[str, list[float]] = {"ours": [], "pool": [], "alone": []}
    for n in range(rounds * 2):
        sample = _sample(folder / f"free{n}", works, "deps")
        taken["ours"].append(_makespan(sample, 8))
        taken["pool"].append(_bare_pool(sample, works, 8))
        taken["alone"].append(_beyond_sleep(sample))
    best = {name: min(times) for name, times in taken.items()}
    ideal = list_schedule([replace(work, seconds=work.seconds + best["alone"]) for work in works], 8)
    detail = f"a bare pool of 8 agents: {best['pool']:.2f} s; {best['ours'] / ideal:.2f} x the ideal of list scheduling"
    return Figure("24 equal tasks on 8 slots / a bare pool", best["ours"] / best["pool"], "x", 1.25, detail=detail)


def _ratio(home: Path, works: Sequence[Work], slots: int, order: str) -> float:
    sample = _sample(home, works, order)
    took = _makespan(sample, slots)
    more = _beyond_sleep(sample)
    return took / list_schedule([replace(work, seconds=work.seconds + more) for work in works], slots)


def _beyond_sleep(sample: Sample) -> float:
    """What the agent takes besides sleeping, alone on the machine: the best of several repetitions of a dispatch."""
    agents = [_bare_agent(sample, f"alone{n}", 0.0) for n in range(5)]
    return min(run_quietly(argv, cwd, sample.env) for argv, cwd in agents)


def _bare_pool(sample: Sample, works: Sequence[Work], slots: int) -> float:
    """What the same agents take, so many at once and each in a clone that is ready, when nothing else is done."""
    agents = [_bare_agent(sample, f"pool-{work.id}", work.seconds) for work in works]
    with ThreadPoolExecutor(slots) as pool:
        return seconds(lambda: list(pool.map(lambda agent: run_quietly(agent[0], agent[1], sample.env), agents)))


def _bare_agent(sample: Sample, name: str, sleep: float) -> tuple[Sequence[str], Path]:
    """The command line and the folder of an agent that repeats the run's first dispatch in a clone of its own."""
    specs = (sample.root / ".git" / "windlass" / "runs").glob("*/attempts/build/t1/*/@1/scripted.json")
    spec = json.loads(next(specs).read_text())
    clone, file = sample.home / name, sample.home / f"{name}.json"
    sample.git("clone", "-q", str(sample.root), str(clone))
    rule = {**spec["rules"][0], "sleep": sleep}
    again = {**spec, "rules": [rule], "cwd": str(clone), "state": str(sample.home / f"{name}-counts")}
    file.write_text(json.dumps(again))
    return program("agents.cli.scripted_program.main", str(file)), clone


def list_schedule(works: Sequence[Work], slots: int) -> float:
    """What list scheduling needs for these durations, longest remaining chain first, when nothing else costs time."""
    rank, now, done = _remaining(works), 0.0, set[str]()
    running: list[tuple[float, str]] = []
    waiting = sorted(works, key=lambda work: -rank[work.id])
    while waiting or running:
        for work in [work for work in waiting if set(work.needs) <= done][: slots - len(running)]:
            waiting.remove(work)
            heapq.heappush(running, (now + work.seconds, work.id))
        now, id = heapq.heappop(running)
        done.add(id)
    return now


def _remaining(works: Sequence[Work]) -> dict[str, float]:
    tasks = [Task(work.id, work.id, depends_on=work.needs) for work in works]
    layer, rank = layers(tasks), dict[str, float]()
    for work in sorted(works, key=lambda work: -layer[work.id]):
        after = [rank[other.id] for other in works if work.id in other.needs]
        rank[work.id] = work.seconds + max(after, default=0.0)
    return rank


def _sample(home: Path, works: Sequence[Work], order: str) -> Sample:
    sample = make_sample(home, tasks=1, pause=0.0)
    listed = [
        {"title": w.id, "description": "Work.", "depends_on": [*w.needs], "files": [f"{w.id}.txt"]} for w in works
    ]
    plan = f"# Plan\n\n```superteam-tasks\n{json.dumps(listed)}\n```\n"
    rules: list[dict[str, object]] = [{"when": {"role": "planner"}, "files": {"{plan_path}": plan}, "say": "done"}]
    rules += [_rule(work) for work in works]
    (home / "script.yaml").write_text(json.dumps(rules))
    (home / "flow.yaml").write_text(_flow(order))
    return sample


def _flow(order: str) -> str:
    """The flow of many tasks, in that order; how many at once is said on the command line."""
    return TASKS_FLOW.replace("    from: plan\n", f"    from: plan\n    order: {order}\n")


def _rule(work: Work) -> dict[str, object]:
    files = {f"{work.id}.txt": "work\n"}
    when = {"role": "implementer", "task": work.id}
    return {"when": when, "files": files, "commit": work.id, "sleep": work.seconds, "say": "done"}


def _argv(sample: Sample, slots: int) -> list[str]:
    home = sample.home
    return [
        *("run", "Side by side", "--flow", str(home / "flow.yaml"), "--agent", "scripted"),
        *("--script", str(home / "script.yaml"), "--slots", str(slots)),
    ]


def _makespan(sample: Sample, slots: int) -> float:
    sample.run(*_argv(sample, slots))
    return sample.event_times("phase.finished")[1] - sample.event_times("phase.entered")[1]


# -- many at once


def _many(folder: Path) -> Iterator[Figure]:
    works = [Work(f"t{n + 1}", (), 600.0) for n in range(AGENTS)]
    sample = _sample(folder / "many", works, "deps")
    driver = sample.start(*_argv(sample, AGENTS))
    try:
        wait_until(lambda: len(sample.starts()) == AGENTS + 1, 300.0)
        yield Figure("driver of 64 agents", memory_mb(driver.pid), "MB", 60.0)
        heaviest = max(memory_mb(pid) for pid in _supervisors(sample))
        yield Figure("heaviest supervisor", heaviest, "MB", 12.0, detail=f"of {AGENTS}")
    finally:
        driver.terminate()
        driver.wait()


def _supervisors(sample: Sample) -> list[int]:
    files = (sample.root / ".git" / "windlass" / "runs").glob("*/attempts/build/**/proc.json")
    return [int(json.loads(file.read_text())["supervisor"]["pid"]) for file in files]
