"""Where the dispatches of one scope work: a slot, taken when the first live dispatch needs it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct

from windlass.errors import GitError
from windlass.git import slot as files
from windlass.git import trees
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt, keep
from windlass.git.merge import Conflict, OpenConflicts, unresolved
from windlass.git.ref_audit import RefChange
from windlass.git.slot import Slot
from windlass.git.slots import Slots
from windlass.git.trees import SlotStatus
from windlass.git.user_repo import UserSignature


class StateBefore(Struct, frozen=True):
    """What the engine's repository and the user's looked like when a dispatch began."""

    refs: dict[str, str]
    user: UserSignature
    mark: int = 0
    """Which of the engine's own moves the refs may not show yet."""


class Leftovers(Struct, frozen=True):
    """What a dispatch left: the slot, and what it should not have touched."""

    status: SlotStatus
    trespasses: tuple[str, ...]
    noticed: tuple[str, ...]
    """Changes of the user's own checkout or refs: reported, never undone."""


class Workspace:
    """Contract: a replay that finds every result recorded never takes a slot."""

    def __init__(
        self,
        engine: EngineRepo,
        slots: Slots,
        run: str,
        head: str,
        clock: Callable[[], float],
        prepare: Callable[[Slot], Awaitable[None]],
        spare: list[tuple[Slot, str]] | None = None,
    ) -> None:
        self.engine = engine
        self.base = head
        self.head = head
        self.changed: tuple[str, ...] = ()
        self.conflicts = OpenConflicts()
        """What the last join left for the scope's agents to resolve."""
        self.said_resolved: frozenset[str] = frozenset()
        """Paths that a fixer named as resolved since then."""
        self.slot: Slot | None = None
        self._moved = False
        self._taken = False
        self._reserved = False
        """The slot waits, as it is, for the session of its last attempt to go on."""
        self._slots = slots
        self._run = run
        self._clock = clock
        self._prepare = prepare
        self._spare = spare
        """Slots of the run between two scopes: still leased, clean at that commit, so nobody asks the pool."""
        self._seen: SlotStatus | None = None
        """The slot as it is, while nothing has run in it since it was looked at."""

    @property
    def tree(self) -> str:
        return self.engine.objects.tree_of(self.head)

    @property
    def is_unchanged(self) -> bool:
        """The files are those that this scope began with."""
        return self.head == self.base or self.tree == self.engine.objects.tree_of(self.base)

    @contextmanager
    def seat(self) -> Iterator[Workspace]:
        """This desk, or one of its own beside it while another dispatch of the scope is at work here."""
        desk = self._beside() if self._taken else self
        desk.base, desk.changed, desk._taken = self.base, self.changed, True
        try:
            yield desk
        finally:
            desk._taken = False

    def _beside(self) -> Workspace:
        return Workspace(self.engine, self._slots, self._run, self.head, self._clock, self._prepare, self._spare)

    async def ready(self, key: str, n: int) -> Slot:
        """The slot, clean, at this scope's head. What was in it is kept first."""
        if self.slot is None:
            self.slot = await self._sit_down(key, n)
            await self._prepare(self.slot)
        elif self._moved:
            await self._put_at_head(key, n)
        self._moved, self._seen = False, None
        return self.slot

    def sit_at(self, slot: Slot) -> Slot:
        """An interrupted agent goes on here: the slot stays as it was left."""
        if self.slot is not None and self.slot.n != slot.n and self._spare is not None:
            self._spare.append((self.slot, self.head))
        self.slot, self._moved, self._seen, self._reserved = slot, False, None, False
        return slot

    async def _sit_down(self, key: str, n: int) -> Slot:
        if not self._spare:
            return await asyncio.to_thread(self._slots.take, self._run, key, self.head)
        self.slot, at = self._spare.pop()
        self._seen = SlotStatus(at, self.engine.objects.tree_of(at), ())
        await self._put_at_head(key, n)
        return self.slot

    async def _put_at_head(self, key: str, n: int) -> tuple[str, ...]:
        """Keep what is in the slot, then make it a clean checkout of this scope's head."""
        assert self.slot is not None
        seen, self._seen = self._seen, None
        place, attempt = self._slots.place, self._attempt(key, n)
        return await asyncio.to_thread(place, self.slot, self.head, attempt, self._clock(), seen)

    def move(self, head: str) -> None:
        """A recorded step left the code here."""
        self._moved = self._moved or head != self.head
        self.head = head

    def disturbed(self) -> None:
        """The slot may hold what does not belong to this scope: clean it before the next use."""
        self._moved = True

    async def before(self, ours: tuple[str, ...]) -> StateBefore:
        mark = self.engine.audit.mark()
        watch = self.engine.watch
        user = watch.fresh(ours)
        if user is None:
            user = await asyncio.to_thread(watch.lately, ours)
        return StateBefore(self.engine.refs.all(), user, mark)

    async def after(self, before: StateBefore, ours: tuple[str, ...], key: str, n: int) -> Leftovers:
        assert self.slot is not None
        broken = self.engine.seal()
        status, user = await asyncio.gather(
            asyncio.to_thread(self._status, self.slot), asyncio.to_thread(self.engine.watch.now, ours)
        )
        changes = self.engine.audit.changes(self._run, before.refs, self.engine.refs.all(), before.mark)
        if changes or status.refused or self.slot.own_refs():
            await asyncio.to_thread(self._put_back, changes, self._attempt(key, n))
        else:
            self._seen = status
        trespasses = [f"{name} was changed" for name in (*(change.name for change in changes), *broken)]
        trespasses += [status.refused] if status.refused else []
        return Leftovers(status, tuple(trespasses), before.user.differences(user))

    def _status(self, slot: Slot) -> SlotStatus:
        try:
            return trees.status(self.engine, slot)
        except GitError:
            # HEAD was left on a branch that has no commit; the files are all there.
            slot.git("update-ref", "--no-deref", "HEAD", self.head)
            return trees.status(self.engine, slot)

    def _put_back(self, changes: list[RefChange], attempt: Attempt) -> None:
        """Branches and stashes that the agent left in its slot are kept under its attempt; they may stay there."""
        assert self.slot is not None
        # What looks like an agent's trespass may be what another driver has done.
        self.engine.require_fence()
        keep(self.engine, self.slot, attempt, self._clock(), changes)
        if changes:
            self.engine.audit.undo(changes)

    async def harvest(self, message: str) -> str:
        assert self.slot is not None
        self._seen = None
        return await asyncio.to_thread(trees.harvest, self.engine, self.slot, message, self._clock())

    async def undo(self, key: str, n: int) -> tuple[str, ...]:
        """Keep what is there, then put the slot back to this scope's head."""
        return await self._put_at_head(key, n)

    async def keep_half_done(self, key: str, n: int) -> None:
        """Refs lead to what the attempt made so far; the slot itself stays as it is."""
        assert self.slot is not None
        self.engine.require_fence()
        slot, attempt, seen = self.slot, self._attempt(key, n), self._seen
        await asyncio.to_thread(keep, self.engine, slot, attempt, self._clock(), (), seen)

    async def reserve(self, key: str, n: int) -> None:
        """The attempt's session can go on in this slot, also under another driver."""
        assert self.slot is not None
        await asyncio.to_thread(self._slots.reserve, self.slot, self._attempt(key, n))
        self._reserved = True

    async def half_done(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What lies in the slot beyond this scope's head: changed files, and subjects of commits, oldest first."""
        assert self.slot is not None
        slot, head = self.slot, self.head
        status = await asyncio.to_thread(self._status, slot)
        log = ("log", "--reverse", "--format=%h %s", f"{head}..HEAD")
        commits = await asyncio.to_thread(slot.git, *log) if status.head != head else None
        return tuple(status.dirty), tuple(commits.out.splitlines()) if commits else ()

    async def reset(self) -> None:
        """Back to this scope's head; what is dropped is stored elsewhere."""
        assert self.slot is not None
        await asyncio.to_thread(self.slot.stand_on, self.head)
        self._moved, self._seen = False, None

    def hold(self, name: str, sha: str) -> None:
        self.engine.refs.hold(self._run, name, sha)

    async def files_since_base(self) -> tuple[str, ...]:
        found = await asyncio.to_thread(trees.changes, self.engine, self.base, self.head)
        return tuple(change.path for change in found)

    async def unresolved(self) -> tuple[Conflict, ...]:
        """Conflicts that nobody has resolved yet."""
        if not self.conflicts:
            return ()
        known, said = self.conflicts, self.said_resolved
        return await asyncio.to_thread(unresolved, self.engine, self.base, self.head, known, said)

    async def nested_since_base(self) -> tuple[str, ...]:
        found = await asyncio.to_thread(trees.changes, self.engine, self.base, self.head)
        return tuple(change.path for change in found if change.nested)

    async def diff(self, since: str, limit: int = 60_000) -> str:
        return await asyncio.to_thread(trees.diff, self.engine, since, self.head, limit)

    async def places(self, since: str) -> str:
        return await asyncio.to_thread(trees.places, self.engine, since, self.head)

    async def patch(self) -> str:
        return await asyncio.to_thread(trees.patch_id, self.engine, self.base, self.head)

    async def read(self, path: str) -> str | None:
        assert self.slot is not None
        return await asyncio.to_thread(files.read_file, self.slot.path, path)

    async def read_at_base(self, path: str, max_bytes: int) -> tuple[str, bool] | None:
        """A file as it was when this scope began, and whether it was cut: what agents did since is not in it."""
        return await asyncio.to_thread(trees.read_at, self.engine, self.base, path, max_bytes)

    async def write(self, contents: dict[str, str]) -> None:
        assert self.slot is not None
        self._seen = None
        await asyncio.to_thread(files.write_artifacts, self.slot.path, contents)

    async def leave(self, key: str) -> None:
        """For the next scope of the run, or for others; what was in it is kept either way."""
        if self.slot is None:
            return
        if self._reserved:
            self.slot, self._reserved = None, False
            return
        if self._spare is not None:
            await self._put_at_head(key, 0)
            self._spare.append((self.slot, self.head))
        else:
            await asyncio.to_thread(self._slots.release, self.slot, self._attempt(key, 0), self._clock())
        self.slot = None

    def _attempt(self, key: str, n: int) -> Attempt:
        return Attempt(self._run, key, n)
