"""Where the dispatches of one scope work: a slot, taken when the first live dispatch needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from windlass.workspace import Attempt, EngineRepo, Slot, Slots, SlotStatus, UserSignature, files, trees, user_signature
from windlass.workspace.keep import keep


@dataclass(frozen=True)
class Before:
    """What the engine's repository and the user's looked like when a dispatch began."""

    refs: dict[str, str]
    user: UserSignature


@dataclass(frozen=True)
class Seen:
    """What a dispatch left: the slot, and what it should not have touched."""

    status: SlotStatus
    trespasses: tuple[str, ...]
    noticed: tuple[str, ...]
    """Changes of the user's own checkout or refs: reported, never undone."""


class Desk:
    """Contract: a replay that finds every result recorded never takes a slot."""

    def __init__(
        self,
        engine: EngineRepo,
        slots: Slots,
        run: str,
        head: str,
        clock: Callable[[], float],
        prepare: Callable[[Slot], Awaitable[None]],
    ) -> None:
        self.engine = engine
        self.base = head
        self.head = head
        self.changed: tuple[str, ...] = ()
        self.slot: Slot | None = None
        self._moved = False
        self._taken = False
        self._slots = slots
        self._run = run
        self._clock = clock
        self._prepare = prepare

    @property
    def tree(self) -> str:
        return self.engine.tree_of(self.head)

    @contextmanager
    def seat(self) -> Iterator[Desk]:
        """This desk, or one of its own beside it while another dispatch of the scope is at work here."""
        desk = self._beside() if self._taken else self
        desk.base, desk.changed, desk._taken = self.base, self.changed, True
        try:
            yield desk
        finally:
            desk._taken = False

    def _beside(self) -> Desk:
        return Desk(self.engine, self._slots, self._run, self.head, self._clock, self._prepare)

    async def ready(self, key: str, n: int) -> Slot:
        """The slot, clean, at this scope's head. What was in it is kept first."""
        if self.slot is None:
            self.slot = await asyncio.to_thread(self._slots.take, self._run, key, self.head)
            await self._prepare(self.slot)
        elif self._moved:
            await asyncio.to_thread(self._slots.place, self.slot, self.head, self._attempt(key, n), self._clock())
        self._moved = False
        return self.slot

    def move(self, head: str) -> None:
        """A recorded step left the code here."""
        self._moved = self._moved or head != self.head
        self.head = head

    def disturbed(self) -> None:
        """The slot may hold what does not belong to this scope: clean it before the next use."""
        self._moved = True

    async def before(self, ours: tuple[str, ...]) -> Before:
        return await asyncio.to_thread(lambda: Before(self.engine.refs(), user_signature(self.engine.user, ours)))

    async def after(self, before: Before, ours: tuple[str, ...], key: str, n: int) -> Seen:
        return await asyncio.to_thread(self._after, before, ours, key, n)

    def _after(self, before: Before, ours: tuple[str, ...], key: str, n: int) -> Seen:
        assert self.slot is not None
        broken = self.engine.seal()
        refs = self.engine.refs()
        changes = self.engine.audit(self._run, before.refs, refs)
        if changes:
            keep(self.engine, self.slot, self._attempt(key, n), self._clock(), changes)
            self.engine.undo(changes)
        noticed = before.user.differences(user_signature(self.engine.user, ours))
        trespasses = tuple(f"{change.name} was changed" for change in changes) + tuple(
            f"{b} was changed" for b in broken
        )
        return Seen(trees.status(self.engine, self.slot), trespasses, noticed)

    async def harvest(self, message: str) -> str:
        assert self.slot is not None
        return await asyncio.to_thread(trees.harvest, self.engine, self.slot, message, self._clock())

    async def undo(self, key: str, n: int) -> tuple[str, ...]:
        """Keep what is there, then put the slot back to this scope's head."""
        assert self.slot is not None
        place = self._slots.place
        return await asyncio.to_thread(place, self.slot, self.head, self._attempt(key, n), self._clock())

    async def reset(self) -> None:
        """Back to this scope's head; what is dropped is stored elsewhere."""
        assert self.slot is not None
        await asyncio.to_thread(self.slot.stand_on, self.head)
        self._moved = False

    async def hold(self, name: str, sha: str) -> None:
        await asyncio.to_thread(self.engine.hold, self._run, name, sha)

    async def files_since_base(self) -> tuple[str, ...]:
        found = await asyncio.to_thread(trees.changes, self.engine, self.base, self.head)
        return tuple(change.path for change in found)

    async def diff(self, since: str, limit: int = 60_000) -> str:
        return await asyncio.to_thread(trees.diff, self.engine, since, self.head, limit)

    async def read(self, path: str) -> str | None:
        assert self.slot is not None
        return await asyncio.to_thread(files.read_file, self.slot.path, path)

    async def write(self, contents: dict[str, str]) -> None:
        assert self.slot is not None
        await asyncio.to_thread(files.write_artifacts, self.slot.path, contents)

    async def leave(self, key: str) -> None:
        if self.slot is not None:
            await asyncio.to_thread(self._slots.release, self.slot, self._attempt(key, 0), self._clock())
            self.slot = None

    def _attempt(self, key: str, n: int) -> Attempt:
        return Attempt(self._run, key, n)
