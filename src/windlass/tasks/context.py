"""The protocols of the `tasks` kind: its phase, a visit to a task, and the end of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from windlass.events import Event
from windlass.kinds.base import Context, Outcome, Place, Values
from windlass.kinds.routes import Target
from windlass.model import Finding, Task

COMPLETE, SKIPPED, FAILED, ESCAPED = "complete", "skipped", "failed", "escaped"
IMPLEMENTED = "implemented"
UNCHANGED = "unchanged"
LANDED = frozenset({COMPLETE, IMPLEMENTED})


class Ending(Struct, frozen=True):
    """How a task ended."""

    state: str
    reason: str = ""
    visit: int = 1


class Landed(Struct, frozen=True):
    """The result of a landing: landed | conflict | red | unproved | unchanged, with the facts for the fixer."""

    kind: str
    detail: str = ""
    files: tuple[str, ...] = ()
    ours: str = ""
    """The changes of the task, as a diff."""
    theirs: str = ""
    """The changes that landed since the task began, as a diff."""


class EndRunError(Exception):
    """A route out of a task that ends the whole run."""

    def __init__(self, target: Target, reason: str) -> None:
        super().__init__(reason)
        self.target = target
        self.reason = reason


class TasksContext(Protocol):
    """What the `tasks` kind may do in its phase."""

    @property
    def place(self) -> Place: ...

    @property
    def values(self) -> Values: ...

    def emit(self, *events: Event, at: str = "") -> None: ...

    def flush(self) -> None: ...

    def slots(self, wanted: int | str) -> int:
        """How many tasks may run at once: set by the command line or the config, otherwise by the flow."""
        ...

    def begun(self, task: Task) -> bool:
        """Whether a driver has begun this visit to it."""
        ...

    def enter_task(self, task: Task, visit: int, why: str = "") -> TaskContext: ...

    def land_in_turn(self, ids: Sequence[str]) -> None:
        """These tasks land in this order, each after the ones before it have landed or been refused."""
        ...

    async def halt(self, id: str, reason: str, *, stop: bool = False) -> None:
        """Pause or stop here once: the first time the driver ends, a resume passes."""
        ...

    async def mark_halt(self, id: str, reason: str) -> None:
        """As `halt`, for one of several reasons to pause: recorded, but it does not end the driver."""
        ...

    async def mark_failure(self, id: str) -> None:
        """Record a failure that the flow reports."""
        ...

    def retried(self, id: str) -> bool:
        """Whether a person asked to continue after the report of that failure."""
        ...

    def halted(self, id: str) -> bool:
        """Whether a driver has paused here before."""
        ...

    def wind_down(self, *, now: bool = False) -> None:
        """Let running dispatches end and be recorded, or stop them `now`; refuse new ones."""
        ...

    def go_on(self) -> None:
        """Undo `wind_down`."""
        ...

    def rested_after(self) -> set[tuple[str, int]]:
        """Tasks by id and visit. The run has paused after they landed, so the next pause does not count them."""
        ...

    @property
    def completed_later(self) -> bool:
        """Whether a review of the flow completes this phase's tasks; until then they are implemented."""
        ...

    def implemented(self, task: Task) -> None:
        """Record that it has landed; the review that completes this phase completes it."""
        ...


class TaskContext(Protocol):
    """One visit to one task."""

    @property
    def place(self) -> Place: ...

    @property
    def values(self) -> Values: ...

    def emit(self, *events: Event, at: str = "") -> None: ...

    async def leave(self) -> None:
        """Give the checkout back."""
        ...

    def step_scope(
        self, id: str, *, visit: int = 1, to_fix: tuple[Finding, ...] = (), since: str = "", why: str = ""
    ) -> Context: ...

    def ended(self, step: str, outcome: Outcome) -> None:
        """Record the outcome of a step, for the steps after it."""
        ...

    async def begin(self) -> None:
        """Take the run's tip as the base, once."""
        ...

    async def land(self, cycle: int, *, checked: bool, waived: bool = False) -> Landed:
        """`waived`: a person accepts it as it is, without checks."""
        ...

    async def catch_up(self, cycle: int) -> None:
        """Merge the landed work into the task's work, with conflicts marked in the files; once per cycle."""
        ...

    async def has_open_conflicts(self) -> bool:
        """Whether a join brought conflicts that are not resolved yet."""
        ...

    def mark_resolved(self, paths: Sequence[str]) -> None:
        """Record paths of the last join that a fixer declared as resolved."""
        ...

    async def patch(self) -> str:
        """The id of the task's change: the same on another base, different when one of its lines changes."""
        ...
