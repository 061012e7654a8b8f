"""What the `tasks` kind may do, and what becomes of a task."""

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
    """What became of a landing: landed | conflict | red | unproved | unchanged, with the facts for whoever
    mends it."""

    kind: str
    detail: str = ""
    files: tuple[str, ...] = ()
    ours: str = ""
    """What the task changed, as a diff."""
    theirs: str = ""
    """What landed since the task began, as a diff."""


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
        """How many tasks may be at work at once: what the command line or the config says, else what the flow does."""
        ...

    def begun(self, task: Task) -> bool:
        """True: some driver has begun this visit to it."""
        ...

    def enter_task(self, task: Task, visit: int, why: str = "") -> TaskContext: ...

    def land_in_turn(self, ids: Sequence[str]) -> None:
        """These tasks land in this order, each after the ones before it have landed or been refused."""
        ...

    async def halt(self, id: str, reason: str, *, stop: bool = False) -> None:
        """Rest here once, paused or stopped: the first time the driver ends, a resume passes."""
        ...

    async def mark_halt(self, id: str, reason: str) -> None:
        """As `halt`, for one of several reasons to rest: recorded, but it does not end the driver."""
        ...

    async def mark_failure(self, id: str) -> None:
        """A failure that the flow goes on to report."""
        ...

    def retried(self, id: str) -> bool:
        """True: a person asked to go on after that failure was reported."""
        ...

    def halted(self, id: str) -> bool:
        """True: some driver has rested here before."""
        ...

    def wind_down(self, *, now: bool = False) -> None:
        """Dispatches at work end and are recorded, or are stopped `now`; whoever wants another one is turned away."""
        ...

    def go_on(self) -> None:
        """Take `wind_down` back."""
        ...

    def rested_after(self) -> set[tuple[str, int]]:
        """Tasks by id and visit: after they landed the run has rested, so they count towards no pause any more."""
        ...

    @property
    def completed_later(self) -> bool:
        """A review of the flow completes this phase's tasks; until then they are implemented."""
        ...

    def implemented(self, task: Task) -> None:
        """It has landed; the review that completes this phase completes it."""
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
        """What a step came to, for the steps after it."""
        ...

    async def begin(self) -> None:
        """Take the run's tip as the base, once."""
        ...

    async def land(self, cycle: int, *, checked: bool, waived: bool = False) -> Landed:
        """`waived`: a person accepts it as it is, without checks."""
        ...

    async def catch_up(self, cycle: int) -> None:
        """Join what has landed meanwhile into the task's own work, conflicts marked in the files; once per cycle."""
        ...

    async def has_open_conflicts(self) -> bool:
        """True: a join brought conflicts that nobody has resolved yet."""
        ...

    def say_resolved(self, paths: Sequence[str]) -> None:
        """A fixer named these paths of the last join as resolved as they are."""
        ...

    async def patch(self) -> str:
        """Names the task's own change: the same on another base, another when a line of it changed."""
        ...
