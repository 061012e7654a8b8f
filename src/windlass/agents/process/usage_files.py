"""The files that a CLI writes for itself while it works, read as they grow."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from msgspec import Struct

from windlass.agents.base import UsageFileNames
from windlass.agents.process.supervise import CHUNK, Lines

MAX_LINE = 1 << 20
"""What tells tokens is short; what is longer holds an agent's words and is not read."""
MOST_FILES = 1_000
"""In one folder: an agent can fill it."""


class GrowingFile(Struct):
    read: int
    lines: Lines


class UsageFiles:
    """New bytes of these files, line by line. What stands in them at the start is of an earlier attempt.

    `before`: how much that was, by path, for whoever reads them again after the attempt ended.
    """

    def __init__(
        self,
        attempt: Path,
        ledger: UsageFileNames,
        on_line: Callable[[str], None],
        before: Mapping[str, int] | None = None,
    ) -> None:
        # the folder itself may be our link to an earlier attempt's; below it, no link is followed
        self._folder = (attempt / ledger.folder).resolve()
        self._parts = tuple(ledger.files.split("/"))
        self._on_line = on_line
        #: by path below the folder: an attempt's folder may be moved with the repository
        self.sizes = {self._below(path): size for path, size in self._found()} if before is None else dict(before)
        self._files = {str(self._folder / name): self._growing(size) for name, size in self.sizes.items()}

    def pull(self) -> bool:
        """Whether there was anything new. At most a chunk of each file: the driver has more to do."""
        news = [self._read(path, size) for path, size in self._found()]
        return any(news)

    def _below(self, path: str) -> str:
        return os.path.relpath(path, self._folder)

    def _growing(self, size: int) -> GrowingFile:
        return GrowingFile(size, Lines(self._on_line, MAX_LINE))

    def _found(self) -> list[tuple[str, int]]:
        moved = self._folder.resolve() != self._folder
        return [] if moved else list(_below(str(self._folder), self._parts))

    def _read(self, path: str, size: int) -> bool:
        growing = self._files.setdefault(path, self._growing(0))
        data = _bytes(path, growing.read) if size > growing.read else b""
        growing.read += len(data)
        return growing.lines.read(data)


def _below(folder: str, parts: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Files and their sizes; what goes away meanwhile is not there."""
    first, *rest = parts
    for entry in _entries(folder):
        with suppress(OSError):
            if not fnmatchcase(entry.name, first):
                continue
            if rest and entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, tuple(rest))
            elif not rest and entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False).st_size


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, MOST_FILES))
    except OSError:
        return []


def _bytes(path: str, start: int) -> bytes:
    """Nothing where it is no longer the file that was found."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(CHUNK)
    except OSError:
        return b""
