"""The pool of folders agents work in. Who has which is in files, so that it outlives processes and is seen by all."""

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
from windlass.git.engine_repo import EngineRepo, RefChange, locked
from windlass.git.index_flags import checkout_bytes, may_hide, unhide
from windlass.git.keep import PSEUDO_REFS, Attempt, Kept, keep
from windlass.git.slot import Slot, restore
from windlass.git.slot_files import copy_into
from windlass.git.trees import SlotStatus, clear_locks
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
    #: an attempt began in it and its end was never seen: it is not used again
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
    """`KEY@N`: the slot is as that attempt left it, so that the agent's session can go on in it."""


class Slots(Struct, frozen=True):
    engine: EngineRepo
    min_free_bytes: int = MIN_FREE_BYTES
    keeping: bool = False
    """`--keep`: slots stay the run's own, and as they were left, when it gives them back."""

    @property
    def folder(self) -> Path:
        return self.engine.home / "slots"

    def slot(self, n: int) -> Slot:
        return Slot(n, self.folder / str(n), self.folder / f"{n}.git", self.engine.slot_files)

    def leases(self) -> list[Lease]:
        files = sorted(self.folder.glob("*.json"), key=lambda file: int(file.stem))
        return [lease for file in files if (lease := _parse(file))]

    def held(self, run: str) -> list[Lease]:
        return [lease for lease in self.leases() if lease.run == run and lease.use is SlotUse.TAKEN]

    def take(self, run: str, key: str, at: str) -> Slot:
        """A clean slot at that commit, leased until `release` or `retire`, whatever becomes of this process."""
        with locked(self.folder / "lock"):
            lease = self._choose(run, key)
            with self.engine.fence():
                self._write(lease)
            slot = self.slot(lease.n)
            self._mark(slot).touch()
        self._renew(slot, at)
        return slot

    def _choose(self, run: str, key: str) -> Lease:
        leases = self.leases()
        usable = [
            lease.n for lease in leases if lease.use is SlotUse.FREE or (lease.use, lease.run) == (SlotUse.KEPT, run)
        ]
        if usable:
            return Lease(usable[0], SlotUse.TAKEN, run, key)
        self._require_space()
        return Lease(max((lease.n for lease in leases), default=0) + 1, SlotUse.TAKEN, run, key)

    def _require_space(self) -> None:
        """As much as the user's checkout takes. Others that are being made right now will need theirs too."""
        making = len(list(self.folder.glob("*.changing")))
        each = checkout_bytes(self.engine.user.git_dir / "index")
        problem = lacking(self.folder, self.min_free_bytes + (1 + making) * each)
        if problem:
            raise StoppedError(problem, hint="free some space, or run `windlass gc`, then `windlass resume`")

    def keep(
        self,
        slot: Slot,
        attempt: Attempt,
        date: float,
        undone: Sequence[RefChange] = (),
        seen: SlotStatus | None = None,
    ) -> Kept | None:
        """None: nobody worked in it since it was made or half made. `seen`: as in `keep.keep`."""
        self._convert(slot)
        if self._mark(slot).exists() or not (slot.git_dir / "HEAD").exists():
            return None
        self._mend(slot)
        return keep(self.engine, slot, attempt, date, undone, seen)

    def place(
        self, slot: Slot, at: str, attempt: Attempt, date: float, seen: SlotStatus | None = None
    ) -> tuple[str, ...]:
        """Keep what is in the slot, then make it a clean checkout of `at`. Ignored files stay. The keep-refs made."""
        self.engine.require_fence()
        kept = self.keep(slot, attempt, date, seen=seen)
        clear_locks(slot)
        self._renew(slot, at, kept.status if kept and _is_plain(slot) else None)
        return kept.refs if kept else ()

    def reserve(self, slot: Slot, attempt: Attempt) -> None:
        """The slot stays leased and as it is until that attempt's session goes on in it, whatever becomes of us."""
        with locked(self.folder / "lock"), self.engine.fence():
            self._write(Lease(slot.n, SlotUse.TAKEN, attempt.run, attempt.key, attempt.name))

    def release(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep what is in the slot, then let others have it."""
        if self.keeping:
            return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.KEPT, attempt.run, attempt.key))
        return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.FREE))

    def retire(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep what is in the slot, and never use it again: something may still be writing to it."""
        return self._leave(slot, attempt, date, Lease(slot.n, SlotUse.RETIRED, attempt.run, attempt.key))

    def abandon(self, slot: Slot, attempt: Attempt) -> None:
        """Never used again, and nothing of it is kept: git cannot read it any more."""
        with locked(self.folder / "lock"):
            self._write(Lease(slot.n, SlotUse.RETIRED, attempt.run, attempt.key))

    def _leave(self, slot: Slot, attempt: Attempt, date: float, lease: Lease) -> tuple[str, ...]:
        self.engine.require_fence()
        kept = self.keep(slot, attempt, date)
        with locked(self.folder / "lock"), self.engine.fence():
            self._write(lease)
        return kept.refs if kept else ()

    def copy(self, slot: Slot, globs: tuple[str, ...]) -> list[str]:
        """`.env` and the like, from the user's checkout; they are never committed."""
        copied = copy_into(slot.path, self.engine.user.root, globs)
        self.engine.ignore(copied)
        return copied

    def remove(self, lease: Lease, date: float) -> bool:
        """False: it is not as `lease` says any more. What is in it is kept first. Killed half way, it is repeated."""
        slot = self.slot(lease.n)
        with locked(self.folder / "lock"):
            if lease not in self.leases():
                return False
            self._write(replace(lease, use=SlotUse.GOING))
        try:
            if lease.run:
                self.keep(slot, Attempt(lease.run, lease.key, 0), date)
        except GitError:
            # A power cut tore it: nobody can say what is in it.
            self._set_aside(slot.path)
            self._set_aside(slot.git_dir)
        # From here on there is nothing in it that anybody wants, also for whoever goes on with it.
        self._mark(slot).touch()
        for path in (slot.path, slot.git_dir):
            remove_tree(path)
        self._file(slot.n).unlink(missing_ok=True)
        self._mark(slot).unlink()
        return True

    def _file(self, n: int) -> Path:
        return self.folder / f"{n}.json"

    def _mark(self, slot: Slot) -> Path:
        """There while the slot is being made clean: what is in it then is nobody's work."""
        return self.folder / f"{slot.n}.changing"

    def _write(self, lease: Lease) -> None:
        replace_file(self._file(lease.n), json.dumps(to_builtins(lease)), sync_to="name")

    def _renew(self, slot: Slot, at: str, seen: SlotStatus | None = None) -> None:
        """A clean checkout of `at`. What was in the slot is kept; killed half way, nothing of it is taken for work.

        `seen`: as it is now, with nothing unfinished in it.
        """
        self._mark(slot).touch()
        if not (seen and self._step(slot, seen, at)):
            try:
                self._reset(slot, at)
            except GitError:
                # What may not be written stands in the way: the agent's own doing.
                make_writable(slot.path)
                self._reset_or_replace(slot, at)
        _start_log(slot, at)
        self._mark(slot).unlink()

    def _step(self, slot: Slot, seen: SlotStatus, at: str) -> bool:
        """From one clean checkout to another: only what differs is looked at. False: it has to be made anew."""
        if seen.dirty or not seen.detached:
            return False
        changed = self.engine.differences(seen.tree, self.engine.tree_of(at))[1::2]
        # What was ignored so far may be untracked from there on.
        if any(path.endswith(".gitignore") for path in changed):
            return False
        if changed and slot.git("read-tree", "-m", "-u", seen.tree, at, check=False).code != 0:
            return False
        restore(slot.git_dir / "HEAD", f"{at}\n")
        return True

    def _reset(self, slot: Slot, at: str) -> None:
        self._convert(slot)
        new = not (slot.git_dir / "HEAD").exists()
        if new:
            self._create(slot, at)
        self._mend(slot)
        unhide(slot, absent=True)
        for name in UNFINISHED:
            shutil.rmtree(slot.git_dir / name, ignore_errors=True)
        slot.git("checkout", "-q", "--force", "--detach", at)
        if not new:
            slot.git("clean", "-ffdq")
            _forget(slot)

    def _reset_or_replace(self, slot: Slot, at: str) -> None:
        """What git cannot read any more, after a power cut, is set aside."""
        try:
            self._reset(slot, at)
        except GitError:
            self._set_aside(slot.path)
            self._set_aside(slot.git_dir)
            self._reset(slot, at)

    def _mend(self, slot: Slot) -> None:
        """Put back what an agent may have changed or removed that our own commands rely on."""
        self.engine.seal()
        slot.seal()
        clear_locks(slot)
        if (slot.path / ".git").is_dir() and not (slot.path / ".git").is_symlink():
            self._set_aside(slot.path / ".git")
        restore(slot.path / ".git", f"gitdir: {slot.git_dir}\n")
        _detach(slot)

    def _create(self, slot: Slot, at: str) -> None:
        """A repository of the slot's own, whole at once: killed half way, there is none."""
        self.engine.objects.commit(at)  # an error before anything is made, should there be none
        self._set_aside(slot.path)
        self._set_aside(slot.git_dir)
        new = self.folder / f"{slot.n}.git.new"
        remove_tree(new)
        (new / "refs" / "heads").mkdir(parents=True)
        for name, text in {**slot.sealed(), "HEAD": f"{at}\n"}.items():
            replace_file(new / name, text)
        new.rename(slot.git_dir)

    def _convert(self, slot: Slot) -> None:
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
            # A branch of the shared repository, where every agent's branches were.
            ref = head.removeprefix("ref: ").strip()
            replace_file(new / "HEAD", f"{self.engine.refs().get(ref) or _last_logged(old)}\n")
        new.rename(slot.git_dir)
        remove_tree(old)

    def _set_aside(self, path: Path) -> None:
        """Nobody knows what is in it, so it is moved, not removed."""
        if path.exists():
            aside = self.engine.home / "aside"
            aside.mkdir(exist_ok=True)
            path.rename(aside / f"{path.parent.name}-{path.name}-{path.stat().st_mtime_ns}")


def _parse(file: Path) -> Lease | None:
    """None: it was removed this moment. One that nobody can read says nothing of whose the slot is: it is retired."""
    try:
        data = json.loads(file.read_text())
        named = (str(data["run"]), str(data["key"]), str(data.get("attempt", "")))
        return Lease(int(data["n"]), SlotUse(data["use"]), *named)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Lease(int(file.stem), SlotUse.RETIRED)


def _is_plain(slot: Slot) -> bool:
    """No ref of an agent's, nothing that tells of an unfinished merge, rebase or bisect, no partial checkout."""
    known = {entry.name for entry in slot.git_dir.iterdir()} <= PLAIN
    return known and not slot.own_refs() and not may_hide(slot.git_dir / "index")


def _forget(slot: Slot) -> None:
    """All that the slot's repository named is kept elsewhere now: the next agent finds none of it."""
    for file in slot.own_refs():
        file.unlink(missing_ok=True)
    remove_tree(slot.git_dir / "worktrees")
    for folder in (slot.git_dir / "objects").iterdir():
        if folder.name == "pack" or len(folder.name) == 2:
            remove_tree(folder)


def _start_log(slot: Slot, at: str) -> None:
    """All that the log named is reachable now; from here on it names what is done in the slot."""
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
