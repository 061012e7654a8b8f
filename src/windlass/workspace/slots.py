"""The pool of folders agents work in. Who has which is in files, so that it outlives processes and is seen by all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path

from windlass.errors import GitError, StoppedError
from windlass.workspace.disk import MIN_FREE_BYTES, lacking, make_writable, remove_tree
from windlass.workspace.durable import write_atomically, write_durably
from windlass.workspace.files import copy_into
from windlass.workspace.index import checkout_bytes, may_hide, unhide
from windlass.workspace.keep import PSEUDO_REFS, Attempt, Kept, keep
from windlass.workspace.repo import EngineRepo, RefChange, locked
from windlass.workspace.slot import Slot
from windlass.workspace.trees import SlotStatus, clear_locks

# An agent's `git worktree prune` must not take another slot's history with it.
LOCKED = "a slot of Windlass\n"
# `checkout --force` ends a merge, but not these.
UNFINISHED = ("rebase-merge", "rebase-apply", "sequencer")
PLAIN = {"HEAD", "ORIG_HEAD", "COMMIT_EDITMSG", "index", "logs", "commondir", "gitdir", "locked", "windlass-setup"}


class Use(StrEnum):
    FREE = "free"
    TAKEN = "taken"
    #: an attempt began in it and its end was never seen: it is not used again
    RETIRED = "retired"
    #: a person asked to keep the run's slots: only that run uses it again
    KEPT = "kept"
    #: being removed; whoever collects next goes on with it
    GOING = "going"


@dataclass(frozen=True)
class Lease:
    n: int
    use: Use
    run: str = ""
    key: str = ""


@dataclass(frozen=True)
class Slots:
    engine: EngineRepo
    min_free_bytes: int = MIN_FREE_BYTES
    keeping: bool = False
    """`--keep`: slots stay the run's own, and as they were left, when it gives them back."""

    @property
    def folder(self) -> Path:
        return self.engine.home / "slots"

    def slot(self, n: int) -> Slot:
        return Slot(n, self.folder / str(n), self.engine.path / "worktrees" / str(n))

    def leases(self) -> list[Lease]:
        files = sorted(self.folder.glob("*.json"), key=lambda file: int(file.stem))
        return [lease for file in files if (lease := _parse(file))]

    def held(self, run: str) -> list[Lease]:
        return [lease for lease in self.leases() if lease.run == run and lease.use is Use.TAKEN]

    def take(self, run: str, key: str, at: str) -> Slot:
        """A clean slot at that commit, leased until `release` or `retire`, whatever becomes of this process."""
        with locked(self.folder / "lock"):
            lease = self._choose(run, key)
            self._write(lease)
            slot = self.slot(lease.n)
            self._mark(slot).touch()
        self._renew(slot, at)
        return slot

    def _choose(self, run: str, key: str) -> Lease:
        leases = self.leases()
        usable = [lease.n for lease in leases if lease.use is Use.FREE or (lease.use, lease.run) == (Use.KEPT, run)]
        if usable:
            return Lease(usable[0], Use.TAKEN, run, key)
        self._require_space()
        return Lease(max((lease.n for lease in leases), default=0) + 1, Use.TAKEN, run, key)

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
        if self._mark(slot).exists() or not (slot.git_dir / "HEAD").exists():
            return None
        self._mend(slot)
        return keep(self.engine, slot, attempt, date, undone, seen)

    def place(
        self, slot: Slot, at: str, attempt: Attempt, date: float, seen: SlotStatus | None = None
    ) -> tuple[str, ...]:
        """Keep what is in the slot, then make it a clean checkout of `at`. Ignored files stay. The keep-refs made."""
        kept = self.keep(slot, attempt, date, seen=seen)
        clear_locks(slot)
        self._renew(slot, at, kept.status if kept and _is_plain(slot) else None)
        return kept.refs if kept else ()

    def release(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep what is in the slot, then let others have it."""
        if self.keeping:
            return self._leave(slot, attempt, date, Lease(slot.n, Use.KEPT, attempt.run, attempt.key))
        return self._leave(slot, attempt, date, Lease(slot.n, Use.FREE))

    def retire(self, slot: Slot, attempt: Attempt, date: float) -> tuple[str, ...]:
        """Keep what is in the slot, and never use it again: something may still be writing to it."""
        return self._leave(slot, attempt, date, Lease(slot.n, Use.RETIRED, attempt.run, attempt.key))

    def abandon(self, slot: Slot, attempt: Attempt) -> None:
        """Never used again, and nothing of it is kept: git cannot read it any more."""
        with locked(self.folder / "lock"):
            self._write(Lease(slot.n, Use.RETIRED, attempt.run, attempt.key))

    def _leave(self, slot: Slot, attempt: Attempt, date: float, lease: Lease) -> tuple[str, ...]:
        kept = self.keep(slot, attempt, date)
        with locked(self.folder / "lock"):
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
            self._write(replace(lease, use=Use.GOING))
        if lease.run:
            self.keep(slot, Attempt(lease.run, lease.key, 0), date)
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
        write_durably(self._file(lease.n), json.dumps(asdict(lease)))

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
        _restore(slot.git_dir / "HEAD", f"{at}\n")
        return True

    def _reset(self, slot: Slot, at: str) -> None:
        new = not (slot.git_dir / "HEAD").exists()
        if new:
            self._register(slot, at)
        self._mend(slot)
        clear_locks(slot)
        unhide(slot, absent=True)
        for name in UNFINISHED:
            shutil.rmtree(slot.git_dir / name, ignore_errors=True)
        slot.git("checkout", "-q", "--force", "--detach", at)
        if not new:
            slot.git("clean", "-ffdq")

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
        if slot.path.is_symlink():
            # It may lead to the user's checkout: nothing may be reset there.
            slot.path.unlink()
        slot.path.mkdir(exist_ok=True)
        for name, text in _metadata(slot).items():
            _restore(slot.git_dir / name, text)
        if (slot.path / ".git").is_dir():
            self._set_aside(slot.path / ".git")
        _restore(slot.path / ".git", f"gitdir: {slot.git_dir}\n")
        _detach(slot)

    def _register(self, slot: Slot, at: str) -> None:
        """What `git worktree add` does, but whole at once: a git that meets a half-made worktree fails, in any slot."""
        self.engine.objects.commit(at)  # an error before anything is made, should there be none
        self._set_aside(slot.path)
        self._set_aside(slot.git_dir)
        new = self.engine.path / f"worktree-{slot.n}.new"
        shutil.rmtree(new, ignore_errors=True)
        for name, text in {**_metadata(slot), "HEAD": f"{at}\n", "locked": LOCKED}.items():
            write_atomically(new / name, text)
        slot.git_dir.parent.mkdir(exist_ok=True)
        new.rename(slot.git_dir)

    def _set_aside(self, path: Path) -> None:
        """Nobody knows what is in it, so it is moved, not removed."""
        if path.exists():
            aside = self.engine.home / "aside"
            aside.mkdir(exist_ok=True)
            path.rename(aside / f"{path.parent.name}-{path.name}-{path.stat().st_mtime_ns}")


def _metadata(slot: Slot) -> dict[str, str]:
    return {"commondir": "../..\n", "gitdir": f"{slot.path / '.git'}\n"}


def _parse(file: Path) -> Lease | None:
    """None: it was removed this moment. One that nobody can read says nothing of whose the slot is: it is retired."""
    try:
        data = json.loads(file.read_text())
        return Lease(int(data["n"]), Use(data["use"]), str(data["run"]), str(data["key"]))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return Lease(int(file.stem), Use.RETIRED)


def _is_plain(slot: Slot) -> bool:
    """Nothing in its git folder that tells of an unfinished merge, rebase or bisect, or of a partial checkout."""
    return {entry.name for entry in slot.git_dir.iterdir()} <= PLAIN and not may_hide(slot.git_dir / "index")


def _start_log(slot: Slot, at: str) -> None:
    """All that the log named is reachable now; from here on it names what is done in the slot."""
    for name in PSEUDO_REFS:
        (slot.git_dir / name).unlink(missing_ok=True)
    first = f"{'0' * len(at)} {at} Windlass <windlass@localhost> 0 +0000\tplaced\n"
    write_atomically(slot.git_dir / "logs" / "HEAD", first)


def _detach(slot: Slot) -> None:
    """A HEAD on a branch would move, or be left without a commit, when that branch is put back."""
    if not (slot.git_dir / "HEAD").read_text().startswith("ref:"):
        return
    here = slot.git("rev-parse", "--verify", "-q", "HEAD^{commit}", check=False).line or _last_logged(slot)
    if not here:
        raise GitError(f"slot {slot.n} is on a branch without a commit", hint="`windlass doctor`")
    slot.git("update-ref", "--no-deref", "HEAD", here)


def _last_logged(slot: Slot) -> str:
    lines = (slot.git_dir / "logs" / "HEAD").read_text(errors="replace").splitlines()
    return lines[-1].split(" ")[1] if lines else ""


def _restore(file: Path, text: str) -> None:
    if file.is_symlink() or not file.is_file() or file.read_bytes() != text.encode():
        write_atomically(file, text)
