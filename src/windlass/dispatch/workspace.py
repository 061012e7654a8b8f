"""The code of one scope of a run: where it began, where it is now, and the checkout in which its dispatches work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.dispatch.site import Checkout
from windlass.git import trees
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import Conflict, OpenConflicts, unresolved_conflicts


class Workspace:
    """A phase has one, and each visit to a task. Questions about the code are answered by the engine's repository."""

    def __init__(self, engine: EngineRepo, run: str, head: str, checkout: Callable[[], Checkout]) -> None:
        self.base = head
        self.head = head
        self.changed: tuple[str, ...] = ()
        self.conflicts = OpenConflicts()
        """What the last join left for the scope's agents to resolve."""
        self.said_resolved: frozenset[str] = frozenset()
        """Paths that a fixer named as resolved since then."""
        self.checkout = checkout()
        self._engine = engine
        self._run = run
        self._make_checkout = checkout
        self._moved = False
        """What is checked out is not this scope's head, or may hold what does not belong to the scope."""
        self._busy = False

    @contextmanager
    def seat(self) -> Iterator[Workspace]:
        """This workspace, or another one at the same head while a dispatch of the scope is at work here."""
        free = Workspace(self._engine, self._run, self.head, self._make_checkout) if self._busy else self
        free.base, free.changed, free._busy = self.base, self.changed, True
        try:
            yield free
        finally:
            free._busy = False

    # -- its checkout

    async def ready(self, key: str, n: int) -> None:
        """Check out this scope's head. What was there is kept first."""
        await self.checkout.ready(self.head, key, n, moved=self._moved)
        self._moved = False

    def resume(self, name: str) -> None:
        """An interrupted agent goes on in this checkout, which stays as it was left."""
        self.checkout.resume(name, self.head)
        self._moved = False

    def move(self, head: str) -> None:
        """A recorded step left the code here."""
        self._moved = self._moved or head != self.head
        self.head = head

    def disturb(self) -> None:
        """The checkout may hold what does not belong to this scope: clean it before the next use."""
        self._moved = True

    async def harvest(self, message: str) -> str:
        return await self.checkout.harvest(message)

    async def undo(self, key: str, n: int) -> tuple[str, ...]:
        """Keep what is there, then check out this scope's head again."""
        return await self.checkout.undo(self.head, key, n)

    async def reset(self) -> None:
        """Back to this scope's head; what is dropped is stored elsewhere."""
        await self.checkout.check_out(self.head)
        self._moved = False

    async def leave(self, key: str) -> None:
        await self.checkout.leave(self.head, key)

    # -- its code

    @property
    def tree(self) -> str:
        return self._engine.objects.tree_of(self.head)

    @property
    def is_unchanged(self) -> bool:
        """The files are those that this scope began with."""
        return self.head == self.base or self.tree == self._engine.objects.tree_of(self.base)

    def hold(self, name: str, sha: str) -> None:
        self._engine.refs.hold(self._run, name, sha)

    async def point(self, branch: str) -> None:
        """Show this scope's head as a branch of the engine's repository."""
        await asyncio.to_thread(self._engine.refs.point, f"refs/heads/{branch}", self.head)

    async def files_since_base(self, *, nested: bool = False) -> tuple[str, ...]:
        """`nested`: only folders that are repositories of their own."""
        found = await asyncio.to_thread(trees.changes, self._engine, self.base, self.head)
        return tuple(change.path for change in found if change.nested or not nested)

    async def unresolved(self) -> tuple[Conflict, ...]:
        """Conflicts that nobody has resolved yet."""
        if not self.conflicts:
            return ()
        known, said = self.conflicts, self.said_resolved
        return await asyncio.to_thread(unresolved_conflicts, self._engine, self.base, self.head, known, said)

    async def diff(self, since: str, limit: int = 60_000) -> str:
        return await asyncio.to_thread(trees.diff, self._engine, since, self.head, limit)

    async def places(self, since: str) -> str:
        return await asyncio.to_thread(trees.places, self._engine, since, self.head)

    async def patch(self) -> str:
        return await asyncio.to_thread(trees.patch_id, self._engine, self.base, self.head)

    async def read_at_base(self, path: str, max_bytes: int) -> tuple[str, bool] | None:
        """A file as it was when this scope began, and whether it was cut: what agents did since is not in it."""
        return await asyncio.to_thread(trees.read_at, self._engine, self.base, path, max_bytes)
