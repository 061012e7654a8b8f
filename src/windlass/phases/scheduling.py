"""Which tasks start next. Pure: from the tasks, their order and what has become of each, to what may begin now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias

from windlass.model import Task

Order: TypeAlias = Literal["list", "deps", "waves"]
WILD = frozenset("*?[")


@dataclass(frozen=True)
class Board:
    """What has become of each task, by id. Who is in none of these has not been started."""

    working: frozenset[str] = frozenset()
    """At work, each in a slot of its own."""
    parked: frozenset[str] = frozenset()
    """Done with its steps and waiting to land with its wave: no slot, but its files are still its own."""
    landed: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    """Ended without landing: failed or skipped."""
    begun: frozenset[str] = frozenset()
    """Begun under an earlier driver: they go on before anything new starts."""

    @property
    def known(self) -> frozenset[str]:
        return self.working | self.parked | self.landed | self.lost


def to_start(tasks: Sequence[Task], order: Order, slots: int, board: Board) -> list[Task]:
    """The tasks that begin now, best first."""
    free = slots - len(board.working)
    claims = [task for task in tasks if task.id in board.working | board.parked]
    started: list[Task] = []
    for task in ranked(tasks, order, board):
        if len(started) >= free:
            break
        if not any(overlap(task.files, other.files) for other in claims):
            started.append(task)
            claims.append(task)
    return started


def ranked(tasks: Sequence[Task], order: Order, board: Board) -> list[Task]:
    """Everything whose dependencies have landed, in the order in which it should begin."""
    ready = [task for task in _open(tasks, order, board) if _satisfied(task, tasks, board)]
    if order == "deps":
        chain = chains(tasks)
        ready.sort(key=lambda task: -chain[task.id])
    return sorted(ready, key=lambda task: task.id not in board.begun)


def doomed(tasks: Sequence[Task], board: Board) -> dict[str, tuple[str, ...]]:
    """Not started, and never to be: by id, what each waits for in vain."""
    waiting = [task for task in tasks if task.id not in board.known]
    lacking = {task.id: tuple(id for id in task.depends_on if id in board.lost) for task in waiting}
    return {id: ids for id, ids in lacking.items() if ids}


def layers(tasks: Sequence[Task]) -> dict[str, int]:
    """A wave's number by task: one more than the highest of what it depends on."""
    return _longest({task.id: task.depends_on for task in tasks})


def chains(tasks: Sequence[Task]) -> dict[str, int]:
    """How many tasks one after the other still hang on this one, itself included."""
    after: dict[str, list[str]] = {task.id: [] for task in tasks}
    for task in tasks:
        for id in task.depends_on:
            if id in after:
                after[id].append(task.id)
    return _longest(after)


def wave_of(tasks: Sequence[Task], board: Board) -> int:
    """The lowest wave with a task that has not ended; 0 when all have."""
    ended, layer = board.landed | board.lost, layers(tasks)
    return min((layer[task.id] for task in tasks if task.id not in ended), default=0)


def overlap(one: Sequence[str], other: Sequence[str]) -> bool:
    """A folder overlaps with what is in it, a pattern with everything below its fixed beginning."""
    ours, theirs = [_fixed(path) for path in one], [_fixed(path) for path in other]
    return any(a[: len(b)] == b[: len(a)] for a in ours for b in theirs)


# -- inside


def _open(tasks: Sequence[Task], order: Order, board: Board) -> list[Task]:
    waiting = [task for task in tasks if task.id not in board.known]
    if order != "waves":
        return waiting
    layer, now = layers(tasks), wave_of(tasks, board)
    return [task for task in waiting if layer[task.id] == now]


def _satisfied(task: Task, tasks: Sequence[Task], board: Board) -> bool:
    ids = {other.id for other in tasks}
    return all(id in board.landed for id in task.depends_on if id in ids)


def _longest(next_of: Mapping[str, Collection[str]]) -> dict[str, int]:
    """The longest way from each node, in nodes. Without recursion: a plan may be one long chain."""
    found: dict[str, int] = {}
    for start in next_of:
        todo = [start]
        while todo:
            ahead = [id for id in next_of[todo[-1]] if id in next_of and id not in found]
            if ahead and len(todo) <= len(next_of):
                todo.append(ahead[0])
                continue
            id = todo.pop()
            found[id] = 1 + max((found.get(to, 0) for to in next_of[id]), default=0)
    return found


def _fixed(path: str) -> tuple[str, ...]:
    parts = [part for part in PurePosixPath(path).parts if part not in (".", "/")]
    wild = next((n for n, part in enumerate(parts) if WILD & set(part)), len(parts))
    return tuple(parts[:wild])
