"""The disk: files that wait to be synced, free space, and folders that are hard to remove.

The journal names commits and refs. Their files are synced first: after a power cut, a file that was renamed into place
without a sync may be empty.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from windlass.private_files import sync

AT_ONCE = 8
MIN_FREE_BYTES = 200 * 1024 * 1024


def space_problem(folder: Path, needed: int) -> str:
    """Why there is not enough space; '' when there is enough. `folder` need not exist yet; nothing is written."""
    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    left = shutil.disk_usage(there).free
    if left >= needed:
        return ""
    return f"only {left // 2**20} MiB left on the disk of '{folder}', {needed // 2**20} MiB are needed"


def read_or_empty(path: Path) -> str:
    """A file of Windlass or git that may not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def remove_tree(folder: Path) -> None:
    """Remove a folder, also a read-only one, as the caches of some tools are. Links are removed, never followed."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        make_writable(folder)
        shutil.rmtree(folder)


def make_writable(folder: Path) -> None:
    """Make all folders below writable: to remove or replace a file, its folder must be writable, not the file."""
    for here, folders, _ in os.walk(folder):
        for place in (Path(here), *(Path(here, name) for name in folders)):
            mode = place.lstat().st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                place.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


def sync_tree(top: Path) -> None:
    """Sync everything below a folder, and the folder."""
    for folder, _, files in os.walk(top, topdown=False):
        for name in files:
            sync(Path(folder) / name)
        sync(Path(folder))


class Barrier:
    """Files that wait to be synced. Several threads may use it at once; the first one to settle it settles it for all.

    The files are synced at the same time: the file system then writes its own journal once for many of them.
    """

    def __init__(self) -> None:
        self._waiting: dict[Path, None] = {}
        self._access = threading.Lock()
        self._turn = threading.Lock()
        # Its threads start with the first file.
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="sync")

    def add(self, paths: Iterable[Path]) -> None:
        with self._access:
            self._waiting.update(dict.fromkeys(paths))

    @property
    def is_clear(self) -> bool:
        """Whether nothing waits and no thread is syncing."""
        return not self._waiting and not self._turn.locked()

    def settle(self) -> None:
        """Contract: everything that was added before the call is on the disk when it returns."""
        if self.is_clear:
            return
        with self._turn:
            with self._access:
                waiting, self._waiting = self._waiting, {}
            try:
                # Files first: a folder's entry is useless without its file.
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
