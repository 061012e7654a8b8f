"""The code of one scope of a run: its base, its head, and the checkout for its dispatches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.dispatch.site import Checkout
from windlass.git import trees
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import Conflict, OpenConflicts, unresolved_conflicts


class Workspace:
    """Each phase and each visit to a task has one. It reads the code from the engine's repository."""

    def __init__(self, engine: EngineRepo, run: str, head: str, checkout: Callable[[], Checkout]) -> None:
        self.base = head
        self.head = head
        self.changed: tuple[str, ...] = ()
        self.conflicts = OpenConflicts()
        """Conflicts of the last join, for the scope's agents to resolve."""
        self.resolved_paths: frozenset[str] = frozenset()
        """Paths that a fixer has named as resolved since the last join."""
        self.checkout = checkout()
        self._engine = engine
        self._run = run
        self._make_checkout = checkout
        self._moved = False
        """The checkout is not at this scope's head, or may have files from outside the scope."""
        self._busy = False

    @contextmanager
    def free_workspace(self) -> Iterator[Workspace]:
        """This workspace or, while another dispatch of the scope uses it, a new one at the same head."""
        free = Workspace(self._engine, self._run, self.head, self._make_checkout) if self._busy else self
        free.base, free.changed, free._busy = self.base, self.changed, True
        try:
            yield free
        finally:
            free._busy = False

    # -- its checkout

    async def ready(self, key: str, n: int) -> None:
        """Keep the work in the checkout, then check out this scope's head."""
        await self.checkout.ready(self.head, key, n, moved=self._moved)
        self._moved = False

    def resume(self, name: str) -> None:
        """Use the checkout of an interrupted agent, unchanged."""
        self.checkout.resume(name, self.head)
        self._moved = False

    def move(self, head: str) -> None:
        """Set the head to the commit of a recorded step."""
        self._moved = self._moved or head != self.head
        self.head = head

    def mark_dirty(self) -> None:
        """The checkout may have files from outside this scope. Clean it before the next use."""
        self._moved = True

    async def undo(self, key: str, n: int) -> tuple[str, ...]:
        """Keep the work, then check out this scope's head again."""
        return await self.checkout.undo(self.head, key, n)

    async def reset(self) -> None:
        """Check out this scope's head. The dropped files are stored elsewhere."""
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
        """The files are the same as at the base."""
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
        """Conflicts that are not resolved yet."""
        if not self.conflicts:
            return ()
        known, resolved = self.conflicts, self.resolved_paths
        return await asyncio.to_thread(unresolved_conflicts, self._engine, self.base, self.head, known, resolved)

    async def diff(self, since: str, limit: int = 60_000) -> str:
        return await asyncio.to_thread(trees.diff, self._engine, since, self.head, limit)

    async def places(self, since: str) -> str:
        return await asyncio.to_thread(trees.places, self._engine, since, self.head)

    async def patch(self) -> str:
        return await asyncio.to_thread(trees.patch_id, self._engine, self.base, self.head)

    async def read_at_base(self, path: str, max_bytes: int) -> tuple[str, bool] | None:
        """The text of a file at this scope's base, without later changes of agents; and whether it was cut."""
        return await asyncio.to_thread(trees.read_at, self._engine, self.base, path, max_bytes)
