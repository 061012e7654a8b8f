"""Ends background processes that keep a command of the agent from ending.

Some CLIs wait until the output of a command is closed. They wait for ever when the command left a process that holds it
(`server & echo started`). Its parent has ended, so that process is a child of the supervisor.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import Protocol, runtime_checkable

import psutil

from windlass.agents.process.supervise import SupervisedProcess

LOOK_S = 2.0
HELD_S = 10.0
"""How long such a process may hold the output after the command's shell has ended."""


@runtime_checkable
class WaitsForOutput(Protocol):
    """An adapter of a CLI that waits for such processes."""

    waits_for_output: bool


async def release_output(proc: SupervisedProcess) -> None:
    """End orphans of the dispatch that hold a command's output; runs until it is cancelled. Linux only: elsewhere there
    is no /proc, and the wall time ends such a dispatch."""
    since: dict[int, int] = {}
    while True:
        await asyncio.sleep(LOOK_S)
        held = _holders(proc)
        since = {pid: since.get(pid, 0) + 1 for pid in held}
        for pid in (pid for pid, looks in since.items() if looks * LOOK_S >= HELD_S):
            try:
                psutil.Process(pid).kill()
            except psutil.Error:
                continue


def _holders(proc: SupervisedProcess) -> set[int]:
    """Children of the supervisor, other than the agent, that write to a pipe or terminal to which no running command
    writes."""
    try:
        children = psutil.Process(proc.supervisor).children()
        at_work = psutil.Process(proc.agent).children(recursive=True)
    except psutil.Error:
        return set()
    left = [child for child in children if child.pid != proc.agent]
    for orphan in [*left]:
        with suppress(psutil.Error):
            left += orphan.children(recursive=True)
    in_use = {target for one in at_work for target in _outputs(one.pid)}
    own = _outputs(proc.agent)
    return {one.pid for one in left if _outputs(one.pid) - in_use - own}


def _outputs(pid: int) -> set[str]:
    found: set[str] = set()
    for number in (1, 2):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
        except OSError:
            continue
    return {target for target in found if target.startswith(("pipe:", "socket:", "/dev/pts/"))}
