"""The engine at work: cost of a task, time to the first dispatch, after a kill -9, and after an answer; memory."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.clock import best_in_turns, run_quietly, seconds, slowness
from benchmarks.figures import Figure
from benchmarks.sample import QUESTIONS, Sample, make_sample, memory_mb, wait_until

TASKS, AGENT_S = 20, 0.05
#: long enough that the driver has gone over to looking less often
IDLE_S = 2.5


def figures(rounds: int) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        yield from _tasks(Path(folder), rounds)
        yield _first_dispatch(Path(folder), rounds)
        yield _after_kill(Path(folder), rounds)
        yield from _waiting(Path(folder))


def _limit(seconds: float) -> float:
    return seconds * slowness()


# -- tasks


def _tasks(folder: Path, rounds: int) -> Iterator[Figure]:
    makers = iter(range(1000))

    def fresh() -> Sample:
        return make_sample(folder / f"tasks{next(makers)}", tasks=TASKS, pause=AGENT_S)

    works = {"agent": lambda: _agent_alone(fresh()), "loop": lambda: _bare_loop(fresh()), "run": lambda: _run(fresh())}
    best = best_in_turns(works, rounds)
    ours, loop = ((best[name] - best["agent"]) * 1000 for name in ("run", "loop"))
    detail = f"per task; {ours / loop:.1f} x a bare loop of worktree, agent, merge ({loop:.0f} ms)"
    yield Figure("engine time of a task", ours, "ms", _limit(50.0), detail=detail)


def bare_task(folder: Path, rounds: int = 3) -> float:
    """What git alone takes for a task: the bare loop without its agent."""
    makers = iter(range(1000))

    def fresh() -> Sample:
        return make_sample(folder / f"bare{next(makers)}", tasks=TASKS, pause=AGENT_S)

    best = best_in_turns({"agent": lambda: _agent_alone(fresh()), "loop": lambda: _bare_loop(fresh())}, rounds)
    return best["loop"] - best["agent"]


def _agent_alone(sample: Sample) -> float:
    return _seconds_each(lambda n: _work(sample, sample.root))


def _seconds_each(task: Callable[[int], None]) -> float:
    def all_of_them() -> None:
        for n in range(TASKS):
            task(n)

    return seconds(all_of_them) / TASKS


def _work(sample: Sample, cwd: Path) -> None:
    run_quietly(["/bin/sh", str(sample.agent), "implementer"], cwd, sample.env)


def _bare_loop(sample: Sample) -> float:
    """The least a script would do: a worktree per task, the agent in it, a merge, and away with the worktree."""

    def task(n: int) -> None:
        slot = sample.home / f"slot{n}"
        sample.git("worktree", "add", "-q", "-b", f"task{n}", str(slot))
        _work(sample, slot)
        sample.git("merge", "-q", "--no-ff", "-m", f"task {n}", f"task{n}")
        sample.git("worktree", "remove", "--force", str(slot))

    return _seconds_each(task)


def _run(sample: Sample) -> float:
    sample.run("run", "Write files", "--flow", "many-tasks")
    landed = len(sample.event_times("task.landed"))
    if landed != TASKS:
        raise SystemExit(f"{landed} of {TASKS} tasks landed")
    begun, ended = sample.event_times("phase.entered")[1], sample.event_times("phase.finished")[1]
    return (ended - begun) / TASKS


# -- latencies


def _first_dispatch(folder: Path, rounds: int) -> Figure:
    def once(n: int) -> float:
        sample = make_sample(folder / f"first{n}", tasks=1, pause=0.0)
        begun = time.time()
        sample.run("run", "Write files", "--flow", "many-tasks")
        return sample.starts()[0] - begun

    return Figure("command to first dispatch", min(once(n) for n in range(rounds + 1)), "s", _limit(0.5))


def _after_kill(folder: Path, rounds: int) -> Figure:
    took = min(_killed(make_sample(folder / f"kill{n}", tasks=12, pause=0.0)) for n in range(rounds))
    return Figure("new dispatch after kill -9", took, "s", _limit(0.8), detail="10 tasks recorded, one at work")


def _killed(sample: Sample) -> float:
    """From the command `resume` to the next agent, with the killed driver's agent still at work when it is given."""
    driver = sample.start("run", "Write files", "--flow", "many-tasks")
    wait_until(lambda: len(sample.starts()) == 10)
    sample.set_pause(60)
    wait_until(lambda: _last_agent_sleeps(sample))
    seen = len(sample.starts())
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    sample.set_pause(0)
    begun = time.time()
    sample.run("resume")
    return sample.starts()[seen] - begun


def _last_agent_sleeps(sample: Sample) -> bool:
    return time.time() - sample.starts()[-1] > 0.5


# -- waiting


def _waiting(folder: Path) -> Iterator[Figure]:
    sample = make_sample(folder / "waiting", tasks=1, pause=0.0)
    driver = sample.start("run", "Ask me", "--flow", "many-questions", "--wait")
    delays = []
    try:
        for n in range(QUESTIONS):
            wait_until(partial(_is_asked, sample, n))
            time.sleep(IDLE_S)
            if n == 0:
                yield Figure("driver waiting at a question", memory_mb(driver.pid), "MB", 60.0)
            run_quietly(sample.windlass("answer", f"q{n}", "on", "--no-resume"), sample.root, sample.env)
            delays.append(_delay(sample, n))
    finally:
        driver.terminate()
        driver.wait()
    yield Figure(
        "an answer wakes the driver", max(delays) * 1000, "ms", _limit(100.0), detail=f"worst of {len(delays)}"
    )


def _is_asked(sample: Sample, n: int) -> bool:
    return len(sample.event_times("question.asked")) == n + 1


def _delay(sample: Sample, n: int) -> float:
    """From the recorded answer to the driver's next word."""
    wait_until(lambda: len(sample.event_times("phase.finished")) > n)
    return sample.event_times("phase.finished")[n] - sample.event_times("question.answered")[n]
