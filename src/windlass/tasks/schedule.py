"""The state of every task of a list, and the scheduler's next actions. Pure: no clock, no await.

A plan may have 10,000 tasks. So `TaskStates` visits a task only when one of its dependencies changes, and
`next_actions` never walks over all of them.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TypeAlias

from msgspec import Struct

from windlass.kinds.task_graph import chains, layers
from windlass.kinds.tasks import Order
from windlass.model import Task
from windlass.tasks.context import FAILED, LANDED, Ending

Path: TypeAlias = tuple[str, ...]
Rank: TypeAlias = tuple[bool, int, int]
Entry: TypeAlias = tuple[Rank, str]
WILD = frozenset("*?[")


class TaskStatus(StrEnum):
    #: not started
    WAITING = "waiting"
    #: in a slot
    WORKING = "working"
    #: its steps are done; it lands when the whole wave has done its steps
    SETTLED = "settled"
    #: landing, with its slot given to others
    LANDING = "landing"
    #: sent back from landing; it needs a slot again
    RETURNING = "returning"
    #: it failed, and is repeated once when the others of its wave have done their steps
    RETRYING = "retrying"
    #: it cannot continue in this driver: it waits for a person, or an error ends the run
    HELD = "held"
    ENDED = "ended"


WITHOUT_SLOT = (TaskStatus.SETTLED, TaskStatus.LANDING, TaskStatus.RETURNING, TaskStatus.RETRYING)
ACTIVE = (TaskStatus.WORKING, TaskStatus.LANDING, TaskStatus.RETURNING)
"""These end, or change their state, without an action."""
BEGUN = (TaskStatus.WORKING, *WITHOUT_SLOT, TaskStatus.HELD)


class TaskState(Struct, frozen=True):
    status: TaskStatus = TaskStatus.WAITING
    ending: Ending | None = None
    """The end of the task; only with `ended`."""
    error: BaseException | None = None
    """Why it cannot continue; only with `held`."""


class SchedulePolicy(Struct, frozen=True):
    """How the tasks of a list are scheduled."""

    order: Order = "list"
    slots: int = 1
    failure: str = "stop"
    """retry | continue | stop"""


class StartTask(Struct, frozen=True):
    """Begin a task."""

    id: str


class GiveSlot(Struct, frozen=True):
    """Let a task that was sent back work again."""

    id: str


class SkipTask(Struct, frozen=True):
    """End a task that depends on a task that did not land."""

    id: str
    causes: tuple[str, ...]


class RetryTasks(Struct, frozen=True):
    """The wave is idle: repeat the failed tasks once."""

    ids: tuple[str, ...]


class LandWave(Struct, frozen=True):
    """The wave is idle: land its tasks in this order."""

    ids: tuple[str, ...]


TaskAction: TypeAlias = StartTask | GiveSlot | SkipTask | RetryTasks | LandWave


class TaskStates(Mapping[str, TaskState]):
    """The state of each task, in the plan's order, with the indexes that `next_actions` needs."""

    def __init__(self, tasks: Sequence[Task], order: Order = "list", begun: Collection[str] = ()) -> None:
        """`begun`: by an earlier driver; these continue before anything new starts."""
        self.tasks = {task.id: task for task in tasks}
        self.places = {id: place for place, id in enumerate(self.tasks)}
        self.closed = False
        """Nothing new starts."""
        self._states = dict.fromkeys(self.tasks, TaskState())
        self._ids: dict[TaskStatus, dict[str, None]] = {status: {} for status in TaskStatus}
        """The tasks in each state, in the order of their arrival."""
        self._ids[TaskStatus.WAITING] = dict.fromkeys(self.tasks)
        self._unmet = {task.id: {id for id in task.depends_on if id in self.tasks} for task in tasks}
        self._dependents: dict[str, list[str]] = {task.id: [] for task in tasks}
        for task in tasks:
            for id in self._unmet[task.id]:
                self._dependents[id].append(task.id)
        self._doomed: dict[str, None] = {}
        self._layer = layers(tasks)
        self._left_in = Counter(self._layer.values())
        """Tasks of each wave that have not ended."""
        self._wave = 1
        self._failed_wave = 0
        """The last wave in which a task failed."""
        self._waves = order == "waves"
        chain = chains(tasks) if order == "deps" else {}
        self._ready = _ReadyTasks(
            {task.id: (task.id not in begun, -chain.get(task.id, 0), self.places[task.id]) for task in tasks}
        )
        for task in tasks:
            if not self._unmet[task.id]:
                self._ready.add(task.id, self._layer[task.id] if self._waves else 0)

    def __getitem__(self, id: str) -> TaskState:
        return self._states[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._states)

    def __len__(self) -> int:
        return len(self._states)

    def set(self, id: str, state: TaskState) -> None:
        del self._ids[self._states[id].status][id]
        self._states[id] = state
        self._ids[state.status][id] = None
        if state.ending is not None:
            self._end(id, state.ending)

    def _end(self, id: str, ending: Ending) -> None:
        self._left_in[self._layer[id]] -= 1
        if ending.state == FAILED:
            self._failed_wave = max(self._failed_wave, self._layer[id])
        if ending.state not in LANDED:
            self._doomed.update(dict.fromkeys(self._dependents[id]))
            return
        for other in self._dependents[id]:
            self._unmet[other].discard(id)
            if not self._unmet[other] and self._states[other].status is TaskStatus.WAITING:
                self._ready.add(other, self._layer[other] if self._waves else 0)

    def ids(self, *wanted: TaskStatus) -> list[str]:
        """The tasks in these states; those of one state in the order of their arrival."""
        return [id for status in wanted for id in self._ids[status]]

    def in_plan_order(self, *wanted: TaskStatus) -> tuple[str, ...]:
        return tuple(sorted(self.ids(*wanted), key=self.places.__getitem__))

    def count(self, *wanted: TaskStatus) -> int:
        return sum(len(self._ids[status]) for status in wanted)

    @property
    def endings(self) -> dict[str, Ending]:
        """By task, in the order in which they ended."""
        found = {id: self._states[id].ending for id in self._ids[TaskStatus.ENDED]}
        return {id: ending for id, ending in found.items() if ending is not None}

    @property
    def wave(self) -> int:
        """The lowest wave with a task that has not ended; 0 when all have."""
        while self._wave in self._left_in and not self._left_in[self._wave]:
            self._wave += 1
        return self._wave if self._wave in self._left_in else 0

    @property
    def fails_in_wave(self) -> bool:
        """Whether a task failed in the current wave, or in a later one."""
        return 0 < self.wave <= self._failed_wave

    def is_awaited(self, id: str) -> bool:
        """Whether other tasks depend on it."""
        return bool(self._dependents[id])

    def doomed(self) -> dict[str, tuple[str, ...]]:
        """Tasks that can never start, in the plan's order, each with its dependencies that did not land."""
        # The others have been skipped since.
        self._doomed = {id: None for id in self._doomed if self._states[id].status is TaskStatus.WAITING}
        endings = {id: [(one, self._states[one].ending) for one in self._unmet[id]] for id in self._doomed}
        lost = {id: {one for one, ending in found if ending is not None} for id, found in endings.items()}
        ordered = sorted(lost, key=self.places.__getitem__)
        return {id: tuple(one for one in self.tasks[id].depends_on if one in lost[id]) for id in ordered}

    def startable(self, free: int) -> list[str]:
        """The tasks that may begin now, best first: at most `free`, and none that declares a file of another one of
        them, or of one that has begun. Repeated calls without a change of state return the same."""
        if free <= 0:
            return []
        claims = Claims(path for id in self.ids(*BEGUN) for path in self.tasks[id].files)
        wave = self.wave if self._waves else 0
        return self._ready.best(free, wave, claims, self.tasks, self._ids[TaskStatus.WAITING])


class _ReadyTasks:
    """Tasks with all dependencies landed, best first."""

    def __init__(self, rank: Mapping[str, Rank]) -> None:
        self._rank = rank
        self._heaps: dict[int, list[Entry]] = {}
        """By wave. The entry of a task that has started since is dropped later."""
        self._blocked: dict[Path, list[Entry]] = {}
        """Tasks that declare a path of a running task, by that path: they are checked again when no task claims the
        path any more."""

    def add(self, id: str, wave: int) -> None:
        heapq.heappush(self._heaps.setdefault(wave, []), (self._rank[id], id))

    def best(
        self, most: int, wave: int, claims: Claims, tasks: Mapping[str, Task], waiting: Collection[str]
    ) -> list[str]:
        """At most `most` waiting tasks, none with a claimed path. They stay here until they no longer wait."""
        found: list[tuple[Entry, list[Entry]]] = []
        heaps = self._open(wave, claims)
        while len(found) < most and (heaps := [heap for heap in heaps if heap]):
            heap = min(heaps, key=lambda heap: heap[0])
            entry = heapq.heappop(heap)
            if entry[1] not in waiting:
                continue
            files = tasks[entry[1]].files
            path = claims.overlap(files)
            if path is not None:
                heapq.heappush(self._blocked.setdefault(path, []), entry)
                continue
            found.append((entry, heap))
            claims.add(files)
            heaps = self._open(wave, claims)
        for entry, heap in found:
            heapq.heappush(heap, entry)
        self._blocked = {path: heap for path, heap in self._blocked.items() if heap}
        return [id for (_, id), _ in found]

    def _open(self, wave: int, claims: Claims) -> list[list[Entry]]:
        unclaimed = (heap for path, heap in self._blocked.items() if path not in claims.paths)
        return [self._heaps.get(wave, []), *unclaimed]


def next_actions(states: TaskStates, policy: SchedulePolicy) -> list[TaskAction]:
    """What to do now. [] with an active task: wait for it. [] without one: the list is idle."""
    doomed = states.doomed()
    if doomed:
        return [SkipTask(id, causes) for id, causes in doomed.items()]
    # A returned task goes before anything new. A task that waits for a person has left its slot, but still keeps new
    # tasks out of it: the person may answer at any moment.
    free = policy.slots - states.count(TaskStatus.WORKING)
    back = states.in_plan_order(TaskStatus.RETURNING)[: max(0, free)]
    actions: list[TaskAction] = [GiveSlot(id) for id in back]
    free -= len(back) + states.count(TaskStatus.HELD)
    if not states.closed or _finishes_wave(states, policy):
        actions += [StartTask(id) for id in states.startable(free)]
    if actions or states.count(*ACTIVE):
        return actions
    if states.count(TaskStatus.RETRYING):
        return [RetryTasks(states.in_plan_order(TaskStatus.RETRYING))]
    if states.count(TaskStatus.SETTLED) and not states.count(TaskStatus.HELD):
        return [LandWave(states.in_plan_order(TaskStatus.SETTLED))]
    return []


def _finishes_wave(states: TaskStates, policy: SchedulePolicy) -> bool:
    """A wave with a failed task still runs to its end."""
    waves = policy.order == "waves" and policy.failure == "stop"
    return waves and states.fails_in_wave and not states.count(TaskStatus.HELD)


def stop_reason(states: TaskStates, policy: SchedulePolicy) -> str | None:
    """Why the list stops with its failed tasks; None: the run continues without them."""
    endings = states.endings
    failed = [f"{states.tasks[id].title}: {one.reason}" for id, one in endings.items() if one.state == FAILED]
    # The run continues without failed tasks only if there is other work.
    in_vain = len(endings) == len(states) and not any(one.state in LANDED for one in endings.values())
    return "; ".join(failed) if failed and (policy.failure == "stop" or in_vain) else None


class Claims:
    """Declared files. A folder overlaps with everything in it, a pattern with everything below its fixed part."""

    def __init__(self, files: Iterable[str] = ()) -> None:
        self.paths: set[Path] = set()
        self._below: dict[Path, Path] = {}
        """For every folder above one of the paths: that path."""
        self.add(files)

    def add(self, files: Iterable[str]) -> None:
        for file in files:
            path = _fixed_part(file)
            self.paths.add(path)
            self._below.update((path[:end], path) for end in range(len(path)))

    def overlap(self, files: Iterable[str]) -> Path | None:
        """One of the claimed paths that the files overlap with."""
        for path in map(_fixed_part, files):
            above = (path[:end] for end in range(len(path) + 1))
            found = next((one for one in above if one in self.paths), self._below.get(path))
            if found is not None:
                return found
        return None


@lru_cache(maxsize=20_000)
def _fixed_part(path: str) -> Path:
    """The names of a path up to its first pattern."""
    names = [name for name in PurePosixPath(path).parts if name not in (".", "/")]
    wild = next((n for n, name in enumerate(names) if WILD & set(name)), len(names))
    return tuple(names[:wild])
