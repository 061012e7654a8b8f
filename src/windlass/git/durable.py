"""What is on the disk, and since when: files that the journal names are synced before the journal names them.

A file that was renamed into place without a sync may be empty after a power cut, whatever its name promises.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from windlass.errors import GitError
from windlass.private_files import open_private

FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS `fsync` leaves the data in the drive's own cache; this does not."""
AT_ONCE = 8


def write_atomically(path: Path, text: str) -> None:
    """The old text or the new one, whatever kills this process; a power cut may leave it empty."""
    _scratch(path, text).replace(path)


def write_durably(path: Path, text: str) -> None:
    """The old text or the new one, also after a power cut; the new one once this returns."""
    scratch = _scratch(path, text)
    sync(scratch)
    scratch.replace(path)
    sync(path.parent)


def _scratch(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    scratch.unlink(missing_ok=True)
    with open_private(scratch, errors="surrogateescape") as file:
        file.write(text)
    return scratch


def sync(path: Path) -> None:
    """A file or a folder, to the disk. One that is gone meanwhile has nothing to lose."""
    with suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if FULL_SYNC is not None:
                fcntl.fcntl(handle, FULL_SYNC)
            else:
                os.fsync(handle)
        except OSError as error:
            raise GitError(
                f"cannot write '{path}' to the disk: {os.strerror(error.errno or 0)}",
                hint="check the disk, then: windlass resume",
            ) from error
        finally:
            os.close(handle)


def sync_tree(top: Path) -> None:
    """Everything below a folder, and the folder."""
    for folder, _, files in os.walk(top, topdown=False):
        for name in files:
            sync(Path(folder) / name)
        sync(Path(folder))


class Barrier:
    """Files that wait for the disk. Safe to be used by several threads; whoever settles first settles for all.

    The files are synced side by side: the file system then writes its own journal once for many of them.
    """

    def __init__(self) -> None:
        self._waiting: dict[Path, None] = {}
        self._access = threading.Lock()
        self._turn = threading.Lock()

    def add(self, paths: Iterable[Path]) -> None:
        with self._access:
            self._waiting.update(dict.fromkeys(paths))

    @property
    def is_clear(self) -> bool:
        """Nothing waits, and nobody is at work on what waited."""
        return not self._waiting and not self._turn.locked()

    def settle(self) -> None:
        """Contract: everything that was added before the call is on the disk when it returns."""
        with self._turn:
            with self._access:
                waiting, self._waiting = self._waiting, {}
            try:
                # Files first: a folder's entry is worth nothing before its file is.
                self._sync_all(list(waiting))
                self._sync_all(list(dict.fromkeys(path.parent for path in waiting)))
            except BaseException:
                self.add(waiting)
                raise

    def _sync_all(self, paths: list[Path]) -> None:
        if len(paths) > 1:
            list(self._threads.map(sync, paths))
        elif paths:
            sync(paths[0])

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sync")
