"""What the places of a run have in common, and how one is entered another time."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from windlass.dispatch.dispatcher import Dispatcher
from windlass.dispatch.workspace import Workspace
from windlass.driver.publisher import Publisher
from windlass.engine.services import RunServices
from windlass.git.keep import Attempt
from windlass.git.slot import Slot
from windlass.kinds.base import Outcome
from windlass.model import Finding, Task
from windlass.tasks.checker import Checker
from windlass.tasks.lander import Lander


class RunScope(Struct):
    """What all places of a run have in common while it is driven."""

    parts: RunServices
    dispatcher: Dispatcher
    checker: Checker
    lander: Lander
    publisher: Publisher
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    completed: list[Task] = field(default_factory=list)
    implemented: dict[str, list[Task]] = field(default_factory=dict)
    """Tasks that have landed and that a later review completes, by their phase."""
    first_base: tuple[int, str] = (0, "")
    """Where the first task began, and when: the final review looks at everything since."""
    spare: list[tuple[Slot, str]] = field(default_factory=list)
    """Slots that a finished scope left for the next one, each with the commit it stands on."""

    def desk(self, head: str) -> Workspace:
        parts = self.parts
        place = (parts.engine, parts.slots, parts.world.facts.id, head)
        return Workspace(*place, parts.machine.clock, self.checker.prepare, self.spare)

    async def leave(self) -> None:
        """Give the slots back to the pool."""
        parts = self.parts
        whose = Attempt(parts.world.facts.id, "driver", 0)
        while self.spare:
            slot, _ = self.spare.pop()
            await asyncio.to_thread(parts.slots.release, slot, whose, parts.machine.clock())


class Reentry(Struct, frozen=True):
    """How and why a place is entered another time."""

    visit: int = 1
    """Of a step inside a task; a phase and a task have theirs in the key."""
    to_fix: tuple[Finding, ...] = ()
    since: str = ""
    why: str = ""


FIRST = Reentry()
