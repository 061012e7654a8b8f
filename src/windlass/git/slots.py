"""The pool of slots. Leases are files, so that they outlive processes and every process sees them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from windlass.errors import GitError, StoppedError
from windlass.git.disk import MIN_FREE_BYTES, make_writable, remove_tree, space_problem
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import PSEUDO_REFS, Attempt, Kept, keep
from windlass.git.ref_audit import RefChange
from windlass.git.slot import Slot, copy_into, restore
from windlass.git.trees import SlotStatus, clear_locks
from windlass.git.user_repo import checkout_bytes
from windlass.locks import file_lock
from windlass.private_files import replace_file

# `checkout --force` ends a merge, but not these.
UNFINISHED = ("rebase-merge", "rebase-apply", "sequencer")
# The files of a slot's repository with nothing unfinished; some exist only in a shallow clone.
PLAIN = frozenset(
    {"HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "index", "logs", "config", "info", "objects", "refs", "shallow", "modules"}
    | {"windlass-setup"}
)


class SlotUse(StrEnum):
    FREE = "free"
    TAKEN = "taken"
    #: an attempt began in it and its end is unknown: it is not used again
    RETIRED = "retired"
    #: kept on request of a person: only its run uses it again
    KEPT = "kept"
    #: being removed; the next collector continues
    GOING = "going"


class Lease(Struct, frozen=True):
    n: int
    use: SlotUse
    run: str = ""
    key: str = ""
    attempt: str = ""
    """`KEY@N`: the slot is as that attempt left it, so that the agent's session can continue in it."""


class Slots(Struct, frozen=True):
    """Leases slots to attempts, and keeps the work in a slot before its next use."""

    engine: EngineRepo
    min_free_bytes: int = MIN_FREE_BYTES
    keep_slots: bool = False
    """`--keep`: the run keeps its slots, unchanged, after it releases them."""

    @property
    def folder(self) -> Path:
        return self.engine.home / "slots"

    @property
    def _checkout(self) -> SlotCheckout:
        return SlotCheckout(self.engine, self.folder)

    def slot(self, n: int) -> Slot:
        return Slot(n, self.folder / str(n), self.folder / f"{n}.git", self.engine.slot_files)

    def leases(self) -> list[Lease]:
        files = sorted(self.folder.glob("*.json"), key=lambda file: int(file.stem))
        return [lease for file in files if (lease := _parse(file))]

    def leases_of(self, run: str) -> list[Lease]:
        return [lease for lease in self.leases() if lease.run == run and lease.use is SlotUse.TAKEN]

    def take(self, run: str, key: str, at: str) -> Slot:
        """A clean slot at that commit. The lease lasts until `release` or `retire`, also when this process dies."""
        with file_lock(self.folder / "lock"):
            lease = self._choose(run, key)
            with self.engine.fence():
                write_lease(self.folder, lease)
            slot = self.slot(lease.n)
            self._checkout.mark(slot).touch()
        self._checkout.renew(slot, at)
        return slot

    def _choose(self, run: str, key: str) -> Lease:
        leases = self.leases()
        usable = [
            lease.n for lease in leases if lease.use is SlotUse.FREE or (lease.use, lease.run) == (SlotUse.KEPT, run)
        ]
        if usable:
            return Lease(usable[0], SlotUse.TAKEN, run, key)
        # A slot needs as much space as the user's checkout, and so do the others that are being made now.
        slots = 1 + len(list(self.folder.glob("*.changing")))
        problem = space_problem(self.folder, self.min_free_bytes + slots * checkout_bytes(self.engine.user))
        if problem:
            raise StoppedError(problem, hint="free some space, or run `windlass gc`, then `windlass resume`")
        return Lease(max((lease.n for lease in leases), default=0) + 1, SlotUse.TAKEN, run, key)

    def keep(
        self,
        slot: Slot,
        attempt: Attempt,
        date: float,
        undone: Sequence[RefChange] = (),
        seen: SlotStatus | None = None,
    ) -> Kept | None:
        """None: no agent has worked in it since it was made or half made. `seen`: as in `keep.keep`."""
        self._checkout.convert(slot)
        if self._checkout.mark(slot).exists() or not (slot.git_dir / "HEAD").exists():
            return None
        self._checkout.repair(slot)
        return keep(self.engine, slot, attempt, date, undone, seen)

    def place(
        self, slot: Slot, at: str, attempt: Attempt, date: float, seen: SlotStatus | None = None
    ) -> tuple[str, ...]:
        """Keep the work in the slot, then make it a clean checkout of `at`. Ignored files stay. Returns the new
        keep-refs."""
        self.engine.require_fence()
        kept = self.keep(slot, attempt, date, seen=seen)
        clear_locks(slot)
        self._checkout.renew(slot, at, kept.status if kept else None)
        return kept.refs if kept else ()

    def reserve(self, slot: Slot, attempt: Attempt) -> None:
        """Lease the slot unchanged until that attempt's session continues in it, also when this process dies."""
        with file_lock(self.folder / "lock"), self.engine.fence():
            write_lease(self.folder, Lease(slot.n, SlotUse.TAKEN, attempt.run, attempt.key, attempt.name))

    def release(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep the work in the slot, then free it for others."""
        if self.keep_slots:
            return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.KEPT, attempt.run, attempt.key))
        return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.FREE))

    def retire(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep the work in the slot, and never use it again: a process may still write to it."""
        return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.RETIRED, attempt.run, attempt.key))

    def abandon(self, slot: Slot, attempt: Attempt) -> None:
        """Never use the slot again, and keep nothing: git cannot read it any more."""
        with file_lock(self.folder / "lock"):
            write_lease(self.folder, Lease(slot.n, SlotUse.RETIRED, attempt.run, attempt.key))

    def _leave(self, slot: Slot, attempt: Attempt, date: float, lease: Lease) -> tuple[str, ...]:
        self.engine.require_fence()
        kept = self.keep(slot, attempt, date)
        with file_lock(self.folder / "lock"), self.engine.fence():
            write_lease(self.folder, lease)
        return kept.refs if kept else ()

    def copy(self, slot: Slot, globs: tuple[str, ...]) -> list[str]:
        """Copy `.env` and the like from the user's checkout; they are never committed."""
        copied = copy_into(slot.path, self.engine.user.root, globs)
        self.engine.ignore(copied)
        return copied

    def remove(self, lease: Lease, date: float) -> bool:
        """Keep the work in the slot, then remove it. False: the slot no longer matches `lease`.

        The next collector repeats a removal that was killed half way.
        """
        slot, checkout = self.slot(lease.n), self._checkout
        with file_lock(self.folder / "lock"):
            if lease not in self.leases():
                return False
            write_lease(self.folder, replace(lease, use=SlotUse.GOING))
        try:
            if lease.run:
                self.keep(slot, Attempt(lease.run, lease.key, 0), date)
        except GitError:
            # A power cut damaged it: its content is unknown.
            checkout.set_aside(slot)
        # From here on the slot holds no work, also for a collector that continues this.
        checkout.mark(slot).touch()
        for path in (slot.path, slot.git_dir):
            remove_tree(path)
        (self.folder / f"{slot.n}.json").unlink(missing_ok=True)
        checkout.mark(slot).unlink()
        return True


class SlotCheckout(Struct, frozen=True):
    """Makes a slot a clean checkout of a commit. The caller has kept its work."""

    engine: EngineRepo
    folder: Path

    def mark(self, slot: Slot) -> Path:
        """A file that exists while the slot is being cleaned: the slot holds no work then."""
        return self.folder / f"{slot.n}.changing"

    def renew(self, slot: Slot, at: str, seen: SlotStatus | None = None) -> None:
        """Make the slot a clean checkout of `at`. `seen`: its current status, if known."""
        self.mark(slot).touch()
        if not (seen and self._step(slot, seen, at)):
            try:
                self._reset(slot, at)
            except GitError:
                # The agent left read-only files or folders.
                make_writable(slot.path)
                try:
                    self._reset(slot, at)
                except GitError:
                    # After a power cut git may be unable to read it.
                    self.set_aside(slot)
                    self._reset(slot, at)
        # Begin a new log of HEAD. Everything in the old one is reachable by now.
        for name in PSEUDO_REFS:
            (slot.git_dir / name).unlink(missing_ok=True)
        logs = slot.git_dir / "logs"
        for entry in logs.iterdir() if logs.is_dir() else ():
            if entry.name != "HEAD":
                remove_tree(entry)
        replace_file(logs / "HEAD", f"{'0' * len(at)} {at} Windlass <windlass@localhost> 0 +0000\tplaced\n")
        self.mark(slot).unlink()

    def _step(self, slot: Slot, seen: SlotStatus, at: str) -> bool:
        """From one clean checkout to another; touches only the differences. False: the slot needs a reset."""
        unfinished = not {entry.name for entry in slot.git_dir.iterdir()} <= PLAIN
        if seen.dirty or seen.partial or not seen.detached or unfinished or slot.own_refs():
            return False
        changed = self.engine.diffs.between(seen.tree, self.engine.objects.tree_of(at))[1::2]
        # Files that were ignored may be untracked from there on.
        if any(path.endswith(".gitignore") for path in changed):
            return False
        if changed and slot.git("read-tree", "-m", "-u", seen.tree, at, check=False).code != 0:
            return False
        restore(slot.git_dir / "HEAD", f"{at}\n")
        return True

    def _reset(self, slot: Slot, at: str) -> None:
        self.convert(slot)
        new = not (slot.git_dir / "HEAD").exists()
        if new:
            self.engine.objects.commit(at)  # raises before anything is made if the commit does not exist
            self.set_aside(slot)
            # Renamed into place when complete: a killed call leaves no repository.
            git_dir = self.folder / f"{slot.n}.git.new"
            remove_tree(git_dir)
            (git_dir / "refs" / "heads").mkdir(parents=True)
            for name, text in {**slot.sealed(), "HEAD": f"{at}\n"}.items():
                replace_file(git_dir / name, text)
            git_dir.rename(slot.git_dir)
        self.repair(slot)
        slot.clear_index_flags(absent=True)
        for name in UNFINISHED:
            shutil.rmtree(slot.git_dir / name, ignore_errors=True)
        slot.git("checkout", "-q", "--force", "--detach", at)
        if not new:
            slot.git("clean", "-ffdq")
            # The commits are kept elsewhere: the next agent finds no name and no object of an earlier one.
            for file in slot.own_refs():
                file.unlink(missing_ok=True)
            remove_tree(slot.git_dir / "worktrees")
            for folder in (slot.git_dir / "objects").iterdir():
                if folder.name == "pack" or len(folder.name) == 2:
                    remove_tree(folder)

    def repair(self, slot: Slot) -> None:
        """Restore the files that Windlass's commands rely on: an agent may have changed or removed them."""
        self.engine.seal()
        slot.seal()
        clear_locks(slot)
        if (slot.path / ".git").is_dir() and not (slot.path / ".git").is_symlink():
            self._move_aside(slot.path / ".git")
        restore(slot.path / ".git", f"gitdir: {slot.git_dir}\n")
        # A HEAD on a branch would move, or lose its commit, when that branch is restored.
        if (slot.git_dir / "HEAD").read_text().startswith("ref:"):
            here = slot.git("rev-parse", "--verify", "-q", "HEAD^{commit}", check=False).line
            here = here or _last_log_entry(slot.git_dir)
            if not here:
                raise GitError(f"slot {slot.n} is on a branch without a commit", hint="`windlass doctor`")
            slot.git("update-ref", "--no-deref", "HEAD", here)

    def convert(self, slot: Slot) -> None:
        """Earlier versions made slots as worktrees of the engine's repository. Their work stays unchanged."""
        old = self.engine.path / "worktrees" / str(slot.n)
        if (slot.git_dir / "HEAD").exists() or not (old / "HEAD").is_file():
            return
        new = self.folder / f"{slot.n}.git.new"
        remove_tree(new)
        shutil.copytree(old, new, symlinks=True, ignore=shutil.ignore_patterns("commondir", "gitdir", "locked"))
        (new / "refs" / "heads").mkdir(parents=True, exist_ok=True)
        head = (old / "HEAD").read_text(errors="replace")
        if head.startswith("ref: "):
            # A branch of the shared repository, which held every agent's branches.
            ref = head.removeprefix("ref: ").strip()
            replace_file(new / "HEAD", f"{self.engine.refs.all().get(ref) or _last_log_entry(old)}\n")
        new.rename(slot.git_dir)
        remove_tree(old)

    def set_aside(self, slot: Slot) -> None:
        """Move the slot away instead of removing it: its content is unknown."""
        self._move_aside(slot.path)
        self._move_aside(slot.git_dir)

    def _move_aside(self, path: Path) -> None:
        if path.exists():
            aside = self.engine.home / "aside"
            aside.mkdir(exist_ok=True)
            path.rename(aside / f"{path.parent.name}-{path.name}-{path.stat().st_mtime_ns}")


def write_lease(folder: Path, lease: Lease) -> None:
    replace_file(folder / f"{lease.n}.json", json.dumps(to_builtins(lease)), sync_to="name")


def _parse(file: Path) -> Lease | None:
    """None: it was removed this moment. A lease that cannot be read names no owner: the slot is retired."""
    try:
        data = json.loads(file.read_text())
        named = (str(data["run"]), str(data["key"]), str(data.get("attempt", "")))
        return Lease(int(data["n"]), SlotUse(data["use"]), *named)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Lease(int(file.stem), SlotUse.RETIRED)


def _last_log_entry(git_dir: Path) -> str:
    log = git_dir / "logs" / "HEAD"
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return lines[-1].split(" ")[1] if lines else ""
