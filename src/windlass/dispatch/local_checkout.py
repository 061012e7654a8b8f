"""A checkout of the local site. It takes a slot when the first live dispatch or check needs one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from msgspec import Struct

from windlass.checks.run import Check, CheckResult
from windlass.dispatch.commands import CommandRunner
from windlass.dispatch.site import Leftovers
from windlass.errors import GitError, UserError
from windlass.git import trees
from windlass.git.keep import Attempt, keep
from windlass.git.ref_audit import RefChange
from windlass.git.slot import Slot, read_file, remove_artifacts, safe_path, write_artifacts
from windlass.git.slots import Slots
from windlass.git.trees import SlotStatus
from windlass.git.user_repo import UserSignature


class StateBefore(Struct, frozen=True):
    """The state of the engine's repository and the user's repository when a dispatch began."""

    refs: dict[str, str]
    user: UserSignature
    mark: int = 0
    """The position in the engine's own ref changes. `refs` may not show later ones."""


class LocalCheckout:
    """Contract: a replay never takes a slot if it finds all results recorded."""

    def __init__(
        self,
        slots: Slots,
        run: str,
        clock: Callable[[], float],
        commands: CommandRunner,
        spare: list[tuple[Slot, str]] | None = None,
    ) -> None:
        self.slot: Slot | None = None
        self._slots = slots
        self._engine = slots.engine
        self._run = run
        self._clock = clock
        self._commands = commands
        self._spare = spare
        """Slots of the run between two scopes, each clean at its commit. They stay leased, which saves a new lease."""
        self._reserved = False
        """The slot stays unchanged until the session of its last attempt continues."""
        self._seen: SlotStatus | None = None
        """The last status of the slot, if nothing has run in it since."""

    @property
    def name(self) -> str:
        return str(self.slot.n) if self.slot else ""

    @property
    def directory(self) -> str:
        return str(self._own_slot.path)

    @property
    def _own_slot(self) -> Slot:
        assert self.slot is not None
        return self.slot

    # -- the port

    async def ready(self, head: str, key: str, n: int, *, moved: bool) -> None:
        if self.slot is None:
            if self._spare:
                self.slot, at = self._spare.pop()
                self._seen = SlotStatus(at, self._engine.objects.tree_of(at), ())
                await self.undo(head, key, n)
            else:
                self.slot = await asyncio.to_thread(self._slots.take, self._run, key, head)
            await self._commands.prepare(self.slot)
        elif moved:
            await self.undo(head, key, n)
        self._seen = None

    def resume(self, name: str, head: str) -> None:
        slot = self._slots.slot(int(name))
        if self.slot is not None and self.slot.n != slot.n and self._spare is not None:
            self._spare.append((self.slot, head))
        self.slot, self._seen, self._reserved = slot, None, False
        trees.clear_locks(slot)

    async def half_done(self, head: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        slot = self._own_slot
        status = await asyncio.to_thread(self._status, slot, head)
        log = ("log", "--reverse", "--format=%h %s", f"{head}..HEAD")
        commits = await asyncio.to_thread(slot.git, *log) if status.head != head else None
        return tuple(status.dirty), tuple(commits.out.splitlines()) if commits else ()

    async def harvest(self, message: str) -> str:
        self._seen = None
        return await asyncio.to_thread(trees.harvest, self._engine, self._own_slot, message, self._clock())

    async def undo(self, head: str, key: str, n: int) -> tuple[str, ...]:
        seen, self._seen = self._seen, None
        attempt, now = Attempt(self._run, key, n), self._clock()
        return await asyncio.to_thread(self._slots.place, self._own_slot, head, attempt, now, seen)

    async def check_out(self, commit: str) -> None:
        await asyncio.to_thread(self._own_slot.check_out, commit)
        self._seen = None

    async def keep(self, key: str, n: int) -> None:
        self._engine.require_fence()
        slot, attempt, seen = self._own_slot, Attempt(self._run, key, n), self._seen
        await asyncio.to_thread(keep, self._engine, slot, attempt, self._clock(), (), seen)

    async def reserve(self, key: str, n: int) -> None:
        await asyncio.to_thread(self._slots.reserve, self._own_slot, Attempt(self._run, key, n))
        self._reserved = True

    async def leave(self, head: str, key: str) -> None:
        """Keep the work, then leave the slot to the next scope of the run or to other runs."""
        if self.slot is None:
            return
        if self._reserved:
            self.slot, self._reserved = None, False
            return
        if self._spare is not None:
            await self.undo(head, key, 0)
            self._spare.append((self.slot, head))
        else:
            attempt = Attempt(self._run, key, 0)
            await asyncio.to_thread(self._slots.release, self.slot, attempt, self._clock())
        self.slot = None

    def setup_hash(self) -> str:
        return self._commands.setup_hash(self._own_slot)

    async def check(self, check: Check, name: str) -> CheckResult:
        return await self._commands.check(check, self._own_slot, name)

    # -- for the local site

    async def write(self, files: dict[str, str]) -> None:
        self._seen = None
        await asyncio.to_thread(write_artifacts, self._own_slot.path, files)

    async def make_folders(self, paths: Iterable[str]) -> None:
        """Make the folders of these files: the sandbox of a CLI may allow to write in them, but not to make them."""
        for path in paths:
            with suppress(OSError, UserError):
                safe_path(self._own_slot.path, path).parent.mkdir(parents=True, exist_ok=True)

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove these files if they are there. Git ignores them, so a clean checkout may still have them."""
        present = [path for path in paths if os.path.lexists(self._own_slot.path / path)]
        if present:
            self._seen = None
            await asyncio.to_thread(remove_artifacts, self._own_slot.path, present)

    async def read(self, path: str) -> str | None:
        """None also for a link out of the slot, which an agent can make."""
        try:
            return await asyncio.to_thread(read_file, self._own_slot.path, path)
        except UserError:
            return None

    async def state_before(self, ours: tuple[str, ...]) -> StateBefore:
        """`ours`: branches of the user's repository that the run moves."""
        mark, watch = self._engine.audit.mark(), self._engine.watch
        user = watch.fresh(ours)
        if user is None:
            user = await asyncio.to_thread(watch.lately, ours)
        return StateBefore(self._engine.refs.all(), user, mark)

    async def leftovers(
        self, before: StateBefore, ours: tuple[str, ...], head: str, attempt: tuple[str, int]
    ) -> Leftovers:
        """`head`: the head of the scope; `attempt`: its key and number."""
        slot, engine = self._own_slot, self._engine
        broken = engine.seal()
        status, user = await asyncio.gather(
            asyncio.to_thread(self._status, slot, head), asyncio.to_thread(engine.watch.now, ours)
        )
        changes = engine.audit.changes(self._run, before.refs, engine.refs.all(), before.mark)
        if changes or status.refused or slot.own_refs():
            await asyncio.to_thread(self._undo_changes, changes, Attempt(self._run, *attempt))
        else:
            self._seen = status
        trespasses = [f"{name} was changed" for name in (*(change.name for change in changes), *broken)]
        trespasses += [status.refused] if status.refused else []
        noticed = before.user.differences(user)
        return Leftovers(status.head, status.dirty, status.refused, tuple(trespasses), noticed)

    # -- inside

    def _status(self, slot: Slot, head: str) -> SlotStatus:
        # A killed git leaves its lock, and the next attempt, check or commit would fail on it.
        trees.clear_locks(slot)
        try:
            return trees.status(self._engine, slot)
        except GitError:
            # The agent left HEAD on a branch without a commit. The files are intact.
            slot.git("update-ref", "--no-deref", "HEAD", head)
            return trees.status(self._engine, slot)

    def _undo_changes(self, changes: list[RefChange], attempt: Attempt) -> None:
        """Put keep-refs on the agent's branches and stashes, and undo its changes of the engine's refs."""
        # Another driver may have made these changes, so check first that this one is still the run's driver.
        self._engine.require_fence()
        keep(self._engine, self._own_slot, attempt, self._clock(), changes)
        if changes:
            self._engine.audit.undo(changes)
