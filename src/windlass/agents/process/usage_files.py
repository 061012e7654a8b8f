"""Reads the usage files of a CLI while they grow."""

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
"""Lines with token counts are short; a longer line holds text and is not read."""
MOST_FILES = 1_000
"""Limit for one folder: an agent can fill it."""


class GrowingFile(Struct):
    read: int
    lines: Lines


class UsageFiles:
    """New bytes of these files, line by line. Their content at the start belongs to an earlier attempt.

    `before`: the size of that content by path, for a recount after the attempt ended.
    """

    def __init__(
        self,
        attempt: Path,
        ledger: UsageFileNames,
        on_line: Callable[[str], None],
        before: Mapping[str, int] | None = None,
    ) -> None:
        # the folder itself may be Windlass's link to an earlier attempt's folder; below it, no link is followed
        self._folder = (attempt / ledger.folder).resolve()
        self._parts = tuple(ledger.files.split("/"))
        self._on_line = on_line
        #: by path below the folder: an attempt's folder may move with the repository
        self.sizes = {self._below(path): size for path, size in self._find()} if before is None else dict(before)
        self._files = {str(self._folder / name): self._new_file(size) for name, size in self.sizes.items()}

    def pull(self) -> bool:
        """Whether there was anything new. Reads at most a chunk of each file: the driver has other work."""
        news = False
        for path, size in self._find():
            file = self._files.setdefault(path, self._new_file(0))
            data = _bytes(path, file.read) if size > file.read else b""
            file.read += len(data)
            news = file.lines.read(data) or news
        return news

    def _below(self, path: str) -> str:
        return os.path.relpath(path, self._folder)

    def _new_file(self, size: int) -> GrowingFile:
        return GrowingFile(size, Lines(self._on_line, MAX_LINE))

    def _find(self) -> list[tuple[str, int]]:
        moved = self._folder.resolve() != self._folder
        return [] if moved else list(_below(str(self._folder), self._parts))


def _below(folder: str, parts: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Files and their sizes; skips files that disappear meanwhile."""
    first, *rest = parts
    try:
        with os.scandir(folder) as entries:
            found = list(islice(entries, MOST_FILES))
    except OSError:
        return
    for entry in found:
        with suppress(OSError):
            if not fnmatchcase(entry.name, first):
                continue
            if rest and entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, tuple(rest))
            elif not rest and entry.is_file(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False).st_size


def _bytes(path: str, start: int) -> bytes:
    """b"" when the path is no longer the same file."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb", buffering=0) as file:
            file.seek(start)
            return file.read(CHUNK)
    except OSError:
        return b""
