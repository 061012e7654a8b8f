"""Reads and moves refs without a git process: all refs are read before and after every dispatch."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.disk import Barrier
from windlass.git.plumbing.stale_locks import remove_dead
from windlass.text import plain

OBJECT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
HELD = re.compile(r"refs/windlass/[^/]+/hold/.*,@((?:[0-9a-f]{40}|[0-9a-f]{64}))")
SETTLED_NS = 100_000_000
Stamp: TypeAlias = tuple[int, int, int]
PACKED = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^\n]+)", re.MULTILINE)


class Refs:
    """The refs of one repository. Unchanged files are not read again."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir
        self._read: dict[str, tuple[Stamp, str]] = {}

    def all(self) -> dict[str, str]:
        """Name -> object. Runs git when a ref is not a plain file."""
        try:
            # In this order, a ref that is packed meanwhile is found in one place or in both.
            loose = self._loose()
            return {**_packed_refs(self._git_dir), **loose}
        except (OSError, ValueError):
            return git.read_refs(self._git_dir, git_dir=self._git_dir)

    def _loose(self) -> dict[str, str]:
        if not (self._git_dir / "refs" / "heads").is_dir():
            raise ValueError("its refs are not in files")
        old, self._read = self._read, {}
        todo, found = ["refs"], dict[str, str]()
        while todo:
            folder = todo.pop()
            with os.scandir(self._git_dir / folder) as entries:
                listed = list(entries)
            for entry in listed:
                name = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    todo.append(name)
                elif held := HELD.fullmatch(name):
                    # Every head of a run has one, and its name contains the commit.
                    found[name] = held[1]
                elif not name.endswith(".lock"):
                    found[name] = self._value(entry, name, old)
        return found

    def _value(self, entry: os.DirEntry[str], name: str, old: Mapping[str, tuple[Stamp, str]]) -> str:
        if entry.is_symlink():
            raise ValueError(f"'{name}' names another ref")
        seen = entry.stat(follow_symlinks=False)
        stamp = (seen.st_ino, seen.st_size, seen.st_ctime_ns)
        known = old.get(name)
        value = known[1] if known and known[0] == stamp else _object(entry.path)
        # File times are coarse: a file that changed this moment may change again and look the same.
        if time.time_ns() - seen.st_ctime_ns > SETTLED_NS:
            self._read[name] = (stamp, value)
        return value


def move(git_dir: Path, ref: str, new: str, old: str | None, barrier: Barrier | None = None) -> bool:
    """Move a ref as `git update-ref` does. `old`: the value that it must have, '' for none, None for any. False: it has
    another.

    `barrier`: gets the file. Before it is settled, a power cut may leave the ref empty; see `repair`.
    """
    path = git_dir / ref
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path) as file:
            if old is not None and _value(git_dir, ref) != old:
                return False
            file.write(f"{new}\n".encode("ascii"))
            file.flush()
            os.rename(file.name, path)
            if barrier:
                barrier.add([path])
            return True
    except (OSError, ValueError):
        if (lock := path.with_name(f"{path.name}.lock")).exists():
            remove_dead([lock], git_dir.parent)
        return _ask_git(git_dir, ref, new, old)


@contextmanager
def _lock(path: Path) -> Iterator[BinaryIO]:
    """The lock file that every git uses."""
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("xb") as file:
        # Shows others that its maker is alive; see `stale_locks`.
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield file
        finally:
            lock.unlink(missing_ok=True)


def _value(git_dir: Path, ref: str) -> str:
    try:
        return _object(str(git_dir / ref))
    except FileNotFoundError:
        return _packed_refs(git_dir).get(ref, "")


def _ask_git(git_dir: Path, ref: str, new: str, old: str | None) -> bool:
    """For a ref that is locked, not in a file, or in conflict with another name: git waits for locks and explains the
    rest."""
    expected = [] if old is None else [old]
    done = git.run([f"--git-dir={git_dir}", "update-ref", ref, new, *expected], git_dir, check=False)
    if done.code == 0:
        return True
    # A lock file that stays is not a lost race: a retry would never end.
    if old is not None and "cannot lock ref" in done.err and "Unable to create" not in done.err:
        return False
    raise git.lock_in_the_way(done.err) or GitError(
        f"cannot move '{ref}': {plain(done.err).strip()}", hint="`windlass doctor`"
    )


def _object(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read(66)
    if not OBJECT.fullmatch(text):
        raise ValueError(f"'{path}' names another ref, or nothing")
    return text.strip()


def _packed_refs(git_dir: Path) -> dict[str, str]:
    try:
        text = (git_dir / "packed-refs").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {name: sha for sha, name in PACKED.findall(text)}


def torn_refs(git_dir: Path) -> list[str]:
    """Refs without a valid value in their files: a power cut came before their content was on the disk."""
    if not (git_dir / "refs" / "heads").is_dir():
        return []
    files = [path for path in (git_dir / "refs").rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    torn = []
    for path in sorted(files):
        with suppress(FileNotFoundError):
            text = path.read_text(encoding="utf-8", errors="replace")
            if not OBJECT.fullmatch(text) and not text.startswith("ref: "):
                torn.append(str(path.relative_to(git_dir)))
    return torn


def remove_file(git_dir: Path, ref: str) -> None:
    """Remove the file of a ref that git cannot read, and so cannot delete. Its value in `packed-refs` is an earlier
    one."""
    with _lock(git_dir / ref):
        (git_dir / ref).unlink(missing_ok=True)
