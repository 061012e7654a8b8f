"""What the live view costs: drawing sixteen busy agents, what it takes from the driver's loop, and the first words."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.clock import slowness
from benchmarks.figures import Figure
from benchmarks.sample import make_sample
from windlass import events as e
from windlass.events import Recorded

AGENTS, EVENTS_A_SECOND, SECONDS = 16, 50, 4.0
COLUMNS, ROWS = 120, 50
BEAT_S = 0.02
WORDS = ("reading src/app.py", "running pytest -q tests/test_limit.py", "editing src/limit.py", "searching for TODO")


def figures(rounds: int) -> Iterator[Figure]:
    cost = min((_cost() for _ in range(rounds)), key=lambda found: found[0])
    share, pause = cost
    detail = f"{AGENTS} agents, {EVENTS_A_SECOND} events a second each, {COLUMNS}x{ROWS}"
    yield Figure("share of a core for the live view", share * 100, "%", 5.0 * slowness(), detail=detail)
    yield Figure("longest pause it makes for the driver", pause * 1000, "ms", 50.0 * slowness())
    first = min(_first_words() for _ in range(rounds))
    yield Figure("first words of windlass run in a terminal", first, "s", 1.0 * slowness())


def _cost() -> tuple[float, float]:
    without, _ = asyncio.run(_stream(lambda recorded: None))
    with_view, pause = asyncio.run(_with_view())
    return max(with_view - without, 0.0) / SECONDS, pause


async def _with_view() -> tuple[float, float]:
    from prompt_toolkit.input import create_pipe_input

    from windlass.interfaces.terminal.live import LiveControls, LiveDisplay
    from windlass.interfaces.terminal.screen import terminal_screen

    with ExitStack() as stack:
        sink = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, sink)
        screen = terminal_screen(
            sink, stack.enter_context(create_pipe_input()), encoding="utf-8", color=True, unicode=True,
            environ={"TERM": "xterm-256color"}, size=lambda: (COLUMNS, ROWS), clock=time.time,
        )  # fmt: skip
        display = LiveDisplay(screen, LiveControls(lambda text: None), time.time)
        async with display.alongside(SimpleNamespace()):  # type: ignore[arg-type]
            return await _stream(display.on_event)


async def _stream(on_event: Callable[[Recorded], Any]) -> tuple[float, float]:
    """Processor time while the events come, and the longest time that the loop was late."""
    for n, event in enumerate(_opening(), 1):
        on_event(Recorded(n, "bench", time.time(), event))
    begun, end, late, sent = time.process_time(), time.monotonic() + SECONDS, 0.0, 0
    due = time.monotonic()
    while due < end:
        for _ in range(round(AGENTS * EVENTS_A_SECOND * BEAT_S)):
            on_event(Recorded(0, "bench", time.time(), _activity(sent)))
            sent += 1
        due += BEAT_S
        await asyncio.sleep(max(due - time.monotonic(), 0))
        late = max(late, time.monotonic() - due)
    return time.process_time() - begun, late


def _opening() -> Iterator[e.Event]:
    yield e.RunStarted("Sixteen tasks at once", "plan", "0" * 40, "windlass/sixteen", 20.0, 5.0)
    yield e.PhaseEntered("execute", "execute", "tasks")
    yield e.TasksListed("execute", [{"id": f"t{n}", "title": f"Task number {n}"} for n in range(AGENTS)])
    for n in range(AGENTS):
        yield e.TaskChanged(f"t{n}", "implementing")
        yield e.DispatchStarted(_key(n), 1, "implementer", "claude", "opus", "implement", f"t{n}")


def _activity(n: int) -> e.Activity:
    agent, turn = n % AGENTS, n // AGENTS
    kind = "tool.started" if turn % 2 == 0 else "tool.finished"
    text = f"{WORDS[turn // 2 % len(WORDS)]} {turn}" if kind == "tool.started" else ""
    return e.Activity(
        _key(agent), "implementer", kind, text, task=f"t{agent}", cost_usd=turn / 1000, call=str(turn // 2)
    )


def _key(n: int) -> str:
    return f"execute/t{n}/implement"


def _first_words() -> float:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        sample = make_sample(Path(folder) / "first", tasks=1, pause=0.0)
        master, slave = os.openpty()
        begun = time.perf_counter()
        process = subprocess.Popen(
            sample.windlass("run", "Write files", "--flow", "many-tasks"),
            cwd=sample.root, env={**sample.env, "TERM": "xterm-256color"}, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        select.select([master], [], [], 30)
        took = time.perf_counter() - begun
        while process.poll() is None:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    os.read(master, 65536)
                except OSError:
                    break
        process.wait()
        os.close(master)
        return took
