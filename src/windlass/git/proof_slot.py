"""Proof slots: folders in which the trees of a proof are checked out, one after the other. No agent works there.

A test must not be able to detect from its surroundings which tree it runs on. So every tree has the same path, a
repository with one commit and no refs, the same file times, an empty folder for temporary files, and no files of an
earlier run. Installed files of the set-up stay, as long as no run changes them.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

from msgspec import Struct, field

from windlass.errors import StoppedError
from windlass.git.disk import MIN_FREE_BYTES, make_writable, remove_tree, space_problem
from windlass.git.engine_repo import EngineRepo
from windlass.git.slot import Slot, copy_into
from windlass.git.trees import commit_tree
from windlass.git.user_repo import checkout_bytes
from windlass.locks import try_lock

Signature: TypeAlias = list[int]
"""Kind, size and times of a file; a write changes it."""


class ProofSlot(Struct):
    """Contract: one process at a time holds it. `kill -9` frees it, and the next holder makes it again."""

    engine: EngineRepo
    n: int
    _lock: IO[str]
    temporary: Path
    """For the tests' temporary files; emptied for every tree. The path is short, because socket names must be short."""
    _copied: list[str] = field(default_factory=list)
    _installed: dict[str, Signature] = field(default_factory=dict)
    """Files of the set-up, by path."""
    _stamp: float = 0.0
    """The time of every file that may differ between trees."""

    @classmethod
    def take(cls, engine: EngineRepo) -> ProofSlot:
        folder = engine.home / "proofs"
        folder.mkdir(parents=True, exist_ok=True)
        n = 1
        while (lock := _try_lock(folder / f"{n}.lock")) is None:
            n += 1
        temporary = Path(tempfile.gettempdir(), f"windlass-{os.getuid()}-{engine.home.name[:8]}-{n}")
        if os.path.lexists(temporary) and (temporary.is_symlink() or temporary.lstat().st_uid != os.getuid()):
            # Another user took the name.
            temporary = Path(tempfile.mkdtemp(prefix="windlass-"))
        taken = cls(engine, n, lock, temporary)
        if taken._busy.exists():
            # Its last holder was killed: its content is unknown.
            taken.wipe()
        if not taken.home.exists():
            # As much as the user's checkout needs.
            problem = space_problem(engine.home, MIN_FREE_BYTES + checkout_bytes(engine.user))
            if problem:
                raise StoppedError(problem, hint="free some space, or run `windlass gc`, then `windlass resume`")
        taken.home.mkdir(exist_ok=True)
        taken._busy.touch()
        return taken

    @property
    def home(self) -> Path:
        return self.engine.home / "proofs" / str(self.n)

    @property
    def slot(self) -> Slot:
        return Slot(self.n, self.home / "tree", self.home / "tree" / ".git", self._sealed_files)

    def _sealed_files(self) -> Mapping[str, str]:
        """The files of a slot, without logs: the time of a checkout would reveal the tree."""
        files = self.engine.slot_files()
        return {**files, "config": f"{files['config']}[core]\n\tlogAllRefUpdates = false\n"}

    @property
    def set_up_for(self) -> str | None:
        """The hash of the set-up that ran here; None without one."""
        try:
            data = json.loads((self.home / "installed.json").read_text())
            self._installed, self._stamp = dict(data["files"]), float(data["stamp"])
            return str(data["setup"])
        except (OSError, ValueError, KeyError):
            return None

    def wipe(self) -> None:
        remove_tree(self.home)
        self.home.mkdir(parents=True)
        self._busy.touch()
        self._installed, self._stamp = {}, 0.0

    def remember(self, setup: str, date: float) -> None:
        """Record the files outside the tree as installed by the set-up; they stay for the trees that follow."""
        self._installed = {path: _signature(f) for path, f in self._untracked() if path not in self._copied}
        self._stamp = float(int(date) + 1)
        data = {"setup": setup, "stamp": self._stamp, "files": self._installed}
        (self.home / "installed.json").write_text(json.dumps(data))

    def check_out(self, tree: str, differing: Collection[str] = (), copied: Sequence[str] = ()) -> bool:
        """Make a clean checkout of `tree`. `differing`: paths that differ between the trees of the proof.

        False: an installed file of the set-up changed, so the set-up has to run again first.
        """
        whole = self._clean()
        slot, index = self.slot, self.home / "index"
        # A repository with one commit, no parents and no refs: a test cannot compare the tree with anything.
        slot.path.mkdir(exist_ok=True)
        remove_tree(slot.git_dir)
        files = {**self._sealed_files(), "HEAD": commit_tree(self.engine, tree, [], "proof", 0.0) + "\n"}
        for name, text in files.items():
            (slot.git_dir / name).parent.mkdir(parents=True, exist_ok=True)
            (slot.git_dir / name).write_text(text)
        (slot.git_dir / "refs" / "heads").mkdir(parents=True)
        slot.git("read-tree", "--reset", "-u", tree, env={"GIT_INDEX_FILE": str(index)})
        (slot.git_dir / "index").write_bytes(index.read_bytes())
        self._copied = copy_into(slot.path, self.engine.user.root, copied)
        # Different times would reveal which files only this tree has.
        root = slot.path
        folders = {parent for path in differing for parent in (root / path).parents if parent.is_relative_to(root)}
        for place in (*(root / path for path in differing), *folders, root):
            with contextlib.suppress(OSError):
                os.utime(place, (self._stamp, self._stamp), follow_symlinks=False)
        remove_tree(self.temporary)
        self.temporary.mkdir(mode=0o700)
        return whole

    def release(self) -> None:
        """Free the slot. Files that tests left are not work."""
        with contextlib.suppress(OSError):
            if (self.home / "index").exists():
                self._clean()
            remove_tree(self.temporary)
        self._busy.unlink(missing_ok=True)
        self._lock.close()

    # -- the checkout

    @property
    def _busy(self) -> Path:
        return self.home / "busy"

    def _clean(self) -> bool:
        """Remove files that are neither in the tree nor installed. False: an installed file has changed."""
        try:
            found = dict(self._untracked())
        except PermissionError:
            make_writable(self.slot.path)
            found = dict(self._untracked())
        for path in found.keys() - self._installed.keys():
            place = self.slot.path / path
            try:
                place.unlink(missing_ok=True)
            except OSError:
                make_writable(place.parent)
                place.unlink(missing_ok=True)
        kept = {parent for path in self._installed for parent in PurePosixPath(path).parents}
        for here, _, _ in os.walk(self.slot.path, topdown=False):
            folder = Path(here).relative_to(self.slot.path)
            if folder.parts[:1] not in ((), (".git",)) and PurePosixPath(folder) not in kept:
                with contextlib.suppress(OSError):
                    Path(here).rmdir()  # rmdir refuses a folder that is not empty
        return all(path in found and _signature(found[path]) == was for path, was in self._installed.items())

    def _untracked(self) -> Iterator[tuple[str, os.stat_result]]:
        """Every file and link in the checkout that is not in the tree, without the repository's own."""
        root, index, tracked = self.slot.path, self.home / "index", frozenset[str]()
        if index.exists() and (self.slot.git_dir / "HEAD").exists():
            # With the engine's repository: a test may have changed the one here.
            tracked = frozenset(self.engine.git("ls-files", "-z", env={"GIT_INDEX_FILE": str(index)}).fields)
        start = len(str(root)) + 1
        waiting = [str(root)] if root.is_dir() else []
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                listed = list(entries)
            for entry in listed:
                path = entry.path[start:]
                if entry.is_dir(follow_symlinks=False):
                    waiting += [entry.path] if path != ".git" else []
                elif path not in tracked:
                    yield path, entry.stat(follow_symlinks=False)


def remove_idle(engine: EngineRepo, *, dry: bool) -> list[str]:
    """Remove the proof slots that no proof holds. Returns their names."""
    folder, gone = engine.home / "proofs", []
    for place in sorted(path for path in folder.glob("*") if path.is_dir()):
        lock = _try_lock(folder / f"{place.name}.lock")
        if lock is not None:
            with lock:
                gone.append(f"proof slot {place.name}")
                if not dry:
                    remove_tree(place)
    return gone


def _try_lock(path: Path) -> IO[str] | None:
    handle = path.open("w")
    if try_lock(handle):
        return handle
    handle.close()
    return None


def _signature(found: os.stat_result) -> Signature:
    # The change time of a file with several names also moves when it gets another name, as package caches do.
    changed = found.st_ctime_ns if found.st_nlink == 1 else 0
    return [stat.S_IFMT(found.st_mode), found.st_size, found.st_mtime_ns, changed]
