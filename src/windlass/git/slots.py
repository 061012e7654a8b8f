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
from windlass.git.disk import MIN_FREE_BYTES, lacking, make_writable, remove_tree
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
# What a slot's repository holds when nothing is unfinished in it; some of it only where the user's is shallow.
PLAIN = frozenset(
    {"HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "index", "logs", "config", "info", "objects", "refs", "shallow", "modules"}
    | {"windlass-setup"}
)


class SlotUse(StrEnum):
    FREE = "free"
    TAKEN = "taken"
    #: an attempt began in it and nobody saw its end: it is not used again
    RETIRED = "retired"
    #: a person asked to keep the run's slots: only that run uses it again
    KEPT = "kept"
    #: being removed; whoever collects next goes on with it
    GOING = "going"


class Lease(Struct, frozen=True):
    n: int
    use: SlotUse
    run: str = ""
    key: str = ""
    attempt: str = ""
    """`KEY@N`: the slot is as that attempt left it, so that the agent's session can continue in it."""


class Slots(Struct, frozen=True):
    """Leases slots to attempts, and keeps what is in a slot before somebody else gets it."""

    engine: EngineRepo
    min_free_bytes: int = MIN_FREE_BYTES
    keeping: bool = False
    """`--keep`: slots stay the run's own, and as they were left, when it gives them back."""

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

    def held(self, run: str) -> list[Lease]:
        return [lease for lease in self.leases() if lease.run == run and lease.use is SlotUse.TAKEN]

    def take(self, run: str, key: str, at: str) -> Slot:
        """A clean slot at that commit, leased until `release` or `retire`, whatever becomes of this process."""
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
        # A slot takes as much as the user's checkout, and so do the others that are made right now.
        slots = 1 + len(list(self.folder.glob("*.changing")))
        problem = lacking(self.folder, self.min_free_bytes + slots * checkout_bytes(self.engine.user))
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
        """None: nobody worked in it since it was made or half made. `seen`: as in `keep.keep`."""
        self._checkout.convert(slot)
        if self._checkout.mark(slot).exists() or not (slot.git_dir / "HEAD").exists():
            return None
        self._checkout.repair(slot)
        return keep(self.engine, slot, attempt, date, undone, seen)

    def place(
        self, slot: Slot, at: str, attempt: Attempt, date: float, seen: SlotStatus | None = None
    ) -> tuple[str, ...]:
        """Keep what is in the slot, then make it a clean checkout of `at`. Ignored files stay. The keep-refs made."""
        self.engine.require_fence()
        kept = self.keep(slot, attempt, date, seen=seen)
        clear_locks(slot)
        self._checkout.renew(slot, at, kept.status if kept else None)
        return kept.refs if kept else ()

    def reserve(self, slot: Slot, attempt: Attempt) -> None:
        """Lease the slot, as it is, until that attempt's session continues in it, whatever becomes of this process."""
        with file_lock(self.folder / "lock"), self.engine.fence():
            write_lease(self.folder, Lease(slot.n, SlotUse.TAKEN, attempt.run, attempt.key, attempt.name))

    def release(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep what is in the slot, then let others have it."""
        if self.keeping:
            return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.KEPT, attempt.run, attempt.key))
        return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.FREE))

    def retire(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep what is in the slot, and never use it again: something may still be writing to it."""
        return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.RETIRED, attempt.run, attempt.key))

    def abandon(self, slot: Slot, attempt: Attempt) -> None:
        """Never use the slot again, and keep nothing of it: git cannot read it any more."""
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
        """Keep what is in the slot, then remove it. False: the slot is not as `lease` says any more.

        A collector that is killed half way is repeated by the next one.
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
            # A power cut tore it: nobody can say what is in it.
            checkout.set_aside(slot)
        # From here on nothing in it is anybody's work, also for the collector that continues this.
        checkout.mark(slot).touch()
        for path in (slot.path, slot.git_dir):
            remove_tree(path)
        (self.folder / f"{slot.n}.json").unlink(missing_ok=True)
        checkout.mark(slot).unlink()
        return True


class SlotCheckout(Struct, frozen=True):
    """Makes a slot a clean checkout of a commit. What was in the slot has been kept before."""

    engine: EngineRepo
    folder: Path

    def mark(self, slot: Slot) -> Path:
        """A file that exists while the slot is being made clean: what is in the slot then is nobody's work."""
        return self.folder / f"{slot.n}.changing"

    def renew(self, slot: Slot, at: str, seen: SlotStatus | None = None) -> None:
        """Make the slot a clean checkout of `at`. `seen`: the slot as it is now, when somebody looked."""
        self.mark(slot).touch()
        if not (seen and self._step(slot, seen, at)):
            try:
                self._reset(slot, at)
            except GitError:
                # The agent left something that may not be written.
                make_writable(slot.path)
                try:
                    self._reset(slot, at)
                except GitError:
                    # After a power cut git may not be able to read it.
                    self.set_aside(slot)
                    self._reset(slot, at)
        _start_log(slot, at)
        self.mark(slot).unlink()

    def _step(self, slot: Slot, seen: SlotStatus, at: str) -> bool:
        """From one clean checkout to another; looks only at what differs. False: the slot has to be reset."""
        unfinished = not {entry.name for entry in slot.git_dir.iterdir()} <= PLAIN
        if seen.dirty or seen.partial or not seen.detached or unfinished or slot.own_refs():
            return False
        changed = self.engine.diffs.between(seen.tree, self.engine.objects.tree_of(at))[1::2]
        # What was ignored so far may be untracked from there on.
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
            self._create(slot, at)
        self.repair(slot)
        slot.clear_index_flags(absent=True)
        for name in UNFINISHED:
            shutil.rmtree(slot.git_dir / name, ignore_errors=True)
        slot.git("checkout", "-q", "--force", "--detach", at)
        if not new:
            slot.git("clean", "-ffdq")
            _forget(slot)

    def repair(self, slot: Slot) -> None:
        """Put back what our own commands rely on and an agent may have changed or removed."""
        self.engine.seal()
        slot.seal()
        clear_locks(slot)
        if (slot.path / ".git").is_dir() and not (slot.path / ".git").is_symlink():
            self._move_aside(slot.path / ".git")
        restore(slot.path / ".git", f"gitdir: {slot.git_dir}\n")
        _detach(slot)

    def _create(self, slot: Slot, at: str) -> None:
        """Make the slot's repository and rename it into place: killed half way, there is none."""
        self.engine.objects.commit(at)  # raises before anything is made when there is no such commit
        self.set_aside(slot)
        new = self.folder / f"{slot.n}.git.new"
        remove_tree(new)
        (new / "refs" / "heads").mkdir(parents=True)
        for name, text in {**slot.sealed(), "HEAD": f"{at}\n"}.items():
            replace_file(new / name, text)
        new.rename(slot.git_dir)

    def convert(self, slot: Slot) -> None:
        """Earlier versions made slots as worktrees of the engine's repository. Their work stays as it is."""
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
            replace_file(new / "HEAD", f"{self.engine.refs.all().get(ref) or _last_logged(old)}\n")
        new.rename(slot.git_dir)
        remove_tree(old)

    def set_aside(self, slot: Slot) -> None:
        """Move the slot away: nobody knows what is in it, so it is not removed."""
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
    """None: it was removed this moment. A lease that nobody can read does not say whose the slot is: retired."""
    try:
        data = json.loads(file.read_text())
        named = (str(data["run"]), str(data["key"]), str(data.get("attempt", "")))
        return Lease(int(data["n"]), SlotUse(data["use"]), *named)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Lease(int(file.stem), SlotUse.RETIRED)


def _forget(slot: Slot) -> None:
    """Remove all that the slot's repository named, which is kept elsewhere now: the next agent finds none of it."""
    for file in slot.own_refs():
        file.unlink(missing_ok=True)
    remove_tree(slot.git_dir / "worktrees")
    for folder in (slot.git_dir / "objects").iterdir():
        if folder.name == "pack" or len(folder.name) == 2:
            remove_tree(folder)


def _start_log(slot: Slot, at: str) -> None:
    """Begin a new log of HEAD. All that the old one named is reachable by now."""
    for name in PSEUDO_REFS:
        (slot.git_dir / name).unlink(missing_ok=True)
    logs = slot.git_dir / "logs"
    for entry in logs.iterdir() if logs.is_dir() else ():
        if entry.name != "HEAD":
            remove_tree(entry)
    first = f"{'0' * len(at)} {at} Windlass <windlass@localhost> 0 +0000\tplaced\n"
    replace_file(logs / "HEAD", first)


def _detach(slot: Slot) -> None:
    """A HEAD on a branch would move, or be left without a commit, when that branch is put back."""
    if not (slot.git_dir / "HEAD").read_text().startswith("ref:"):
        return
    here = slot.git("rev-parse", "--verify", "-q", "HEAD^{commit}", check=False).line or _last_logged(slot.git_dir)
    if not here:
        raise GitError(f"slot {slot.n} is on a branch without a commit", hint="`windlass doctor`")
    slot.git("update-ref", "--no-deref", "HEAD", here)


def _last_logged(git_dir: Path) -> str:
    log = git_dir / "logs" / "HEAD"
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return lines[-1].split(" ")[1] if lines else ""
