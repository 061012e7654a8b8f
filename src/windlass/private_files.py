"""Files and folders for their owner alone, whatever the umask, and the one way to replace a file atomically.

A run's record contains everything that agents read, so other users of the machine must not read it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO

from windlass.errors import StoppedError

OTHERS = stat.S_IRWXG | stat.S_IRWXO
FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS `fsync` leaves the data in the drive's own cache; this does not."""


def make_private(folder: Path) -> None:
    """Make the folder and its missing parents, and close it to others, also when it exists."""
    if not folder.parent.is_dir():
        make_private(folder.parent)
    folder.mkdir(exist_ok=True, mode=stat.S_IRWXU)
    close_to_others(folder)


def close_to_others(path: Path) -> None:
    """Close a path that an older version or another umask left open. Raises FileNotFoundError or PermissionError as
    chmod does."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        path.chmod(mode & ~OTHERS)


def open_private(path: Path, *, errors: str = "replace", newline: str | None = None) -> TextIO:
    """Open a file to append to it."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(opened, 0o600)
    return open(opened, "a", encoding="utf-8", errors=errors, newline=newline)


def replace_file(
    path: Path,
    content: str | bytes | Iterable[bytes],
    *,
    sync_to: Literal["memory", "content", "name"] = "memory",
    private: bool = True,
    errors: str = "surrogateescape",
    scratch: Path | None = None,
) -> None:
    """Replace the content of a file completely or not at all, even when the process dies. No link is written through.

    `sync_to`: after a power cut the file may be empty ("memory"), has the old or the new content ("content"), or has
    the new content once this returns ("name"). `private`: for the owner alone, otherwise as the umask says. `errors`:
    how a text with lone surrogates is encoded. `scratch`: where the content is written first. Give it for a file with
    one writer, so that the next call reuses a killed process's file; the default is one for each thread.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = scratch or path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    scratch.unlink(missing_ok=True)
    parts = [content.encode("utf-8", errors)] if isinstance(content, str) else content
    opened = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if private else 0o666)
    try:
        with open(opened, "wb") as file:
            file.writelines([parts] if isinstance(parts, bytes) else parts)
        if sync_to != "memory":
            sync(scratch)
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    if sync_to == "name":
        sync(path.parent)


def sync(path: Path) -> None:
    """Write a file or a folder to the disk. A path that has disappeared is skipped."""
    with suppress(FileNotFoundError):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if FULL_SYNC is not None:
                fcntl.fcntl(handle, FULL_SYNC)
            else:
                os.fsync(handle)
        except OSError as error:
            raise StoppedError(
                f"cannot write '{path}' to the disk: {os.strerror(error.errno or 0)}",
                hint="check the disk, then: windlass resume",
            ) from error
        finally:
            os.close(handle)
