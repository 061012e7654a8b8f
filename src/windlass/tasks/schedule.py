"""Which tasks start next. Pure: from the tasks, their order and what has become of each, to what may begin now.

A task is looked at when something it waits for changes, never all of them at each step: a plan may have 10,000.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TypeAlias

from windlass.kinds.task_graph import chains, layers
from windlass.kinds.tasks import Order
from windlass.model import Task

Path: TypeAlias = tuple[str, ...]
Rank: TypeAlias = tuple[bool, int, int]
Entry: TypeAlias = tuple[Rank, str]
WILD = frozenset("*?[")


class Schedule:
    """What has become of each task: not started, started, landed or lost (it failed or was skipped)."""

    def __init__(self, tasks: Sequence[Task], order: Order, begun: Collection[str] = ()) -> None:
        """`begun`: under an earlier driver; these go on before anything new starts."""
        self._tasks = {task.id: task for task in tasks}
        self._order = order
        self._unmet = {task.id: {id for id in task.depends_on if id in self._tasks} for task in tasks}
        self._dependents: dict[str, list[str]] = {task.id: [] for task in tasks}
        for task in tasks:
            for id in self._unmet[task.id]:
                self._dependents[id].append(task.id)
        chain = chains(tasks) if order == "deps" else {}
        self._rank: dict[str, Rank] = {
            task.id: (task.id not in begun, -chain.get(task.id, 0), place) for place, task in enumerate(tasks)
        }
        self._layer = layers(tasks)
        self._left_in = Counter(self._layer.values())
        """Tasks of each wave that have not ended."""
        self._wave = 1
        self._waiting = set(self._tasks)
        self._lost: set[str] = set()
        self._doomed: set[str] = set()
        self._ready: dict[int, list[Entry]] = {}
        """Everything whose dependencies have landed, best first; with waves by wave, else under 0."""
        self._blocked: dict[Path, list[Entry]] = {}
        """Of these, who was found to declare what another task at work declares: by that one's path. They are looked at
        again when nobody claims the path any more."""
        for task in tasks:
            self._rank_if_ready(task.id)

    def start(self, free: int, claims: Iterable[str] = ()) -> list[Task]:
        """The tasks that begin now, best first: at most `free`, and none that declares a file which another one of
        them or of `claims` (the tasks at work, by id) declares."""
        taken = Claims(path for id in claims for path in self._tasks[id].files)
        ready = self._ready.get(self.wave if self._order == "waves" else 0, [])
        heaps = [ready, *(heap for path, heap in self._blocked.items() if path not in taken.paths)]
        started: list[Task] = []
        while len(started) < free and (heaps := [heap for heap in heaps if heap]):
            entry = heapq.heappop(min(heaps, key=lambda heap: heap[0]))
            task = self._tasks[entry[1]]
            if task.id not in self._waiting:
                continue
            path = taken.overlap(task.files)
            if path is not None:
                heapq.heappush(self._blocked.setdefault(path, []), entry)
                continue
            self._waiting.discard(task.id)
            started.append(task)
            taken.add(task.files)
            heaps = [ready, *(heap for path, heap in self._blocked.items() if path not in taken.paths)]
        self._blocked = {path: heap for path, heap in self._blocked.items() if heap}
        return started

    def land(self, id: str) -> None:
        self._end(id)
        for other in self._dependents[id]:
            self._unmet[other].discard(id)
            self._rank_if_ready(other)

    def lose(self, id: str) -> None:
        """It ended without landing: who depends on it is doomed."""
        self._end(id)
        self._lost.add(id)
        self._doomed.update(other for other in self._dependents[id] if other in self._waiting)

    def take_doomed(self) -> dict[str, tuple[str, ...]]:
        """Not started, and never to be: by id, what each waits for in vain. Each is told once."""
        found, self._doomed = self._doomed & self._waiting, set()
        ordered = sorted(found, key=lambda id: self._rank[id][2])
        return {id: tuple(one for one in self._tasks[id].depends_on if one in self._lost) for id in ordered}

    def is_awaited(self, id: str) -> bool:
        """Other tasks depend on it."""
        return bool(self._dependents[id])

    @property
    def wave(self) -> int:
        """The lowest wave with a task that has not ended; 0 when all have."""
        while self._wave in self._left_in and not self._left_in[self._wave]:
            self._wave += 1
        return self._wave if self._wave in self._left_in else 0

    def wave_of(self, id: str) -> int:
        return self._layer[id]

    def _end(self, id: str) -> None:
        self._waiting.discard(id)
        self._left_in[self._layer[id]] -= 1

    def _rank_if_ready(self, id: str) -> None:
        if not self._unmet[id] and id in self._waiting:
            wave = self._layer[id] if self._order == "waves" else 0
            heapq.heappush(self._ready.setdefault(wave, []), (self._rank[id], id))


class Claims:
    """Declared files. A folder overlaps with what is in it, a pattern with everything below its fixed beginning."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        self.paths: set[Path] = set()
        self._below: dict[Path, Path] = {}
        """For every folder above one of the paths: that path."""
        self.add(files)

    def add(self, files: Iterable[str]) -> None:
        for file in files:
            path = _fixed(file)
            self.paths.add(path)
            self._below.update((path[:end], path) for end in range(len(path)))

    def overlap(self, files: Iterable[str]) -> Path | None:
        """One of the claimed paths that the files overlap with."""
        return next((found for file in files if (found := self._claimed(_fixed(file))) is not None), None)

    def _claimed(self, path: Path) -> Path | None:
        above = (path[:end] for end in range(len(path) + 1))
        return next((one for one in above if one in self.paths), self._below.get(path))


@lru_cache(maxsize=20_000)
def _fixed(path: str) -> Path:
    parts = [part for part in PurePosixPath(path).parts if part not in (".", "/")]
    wild = next((n for n, part in enumerate(parts) if WILD & set(part)), len(parts))
    return tuple(parts[:wild])
