"""Turns errors of sqlite into errors with a message and a hint for a person."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windlass.errors import ExhaustedError, StoppedError, StoreError, exhausted

LEAST_BYTES = 64 * 1024
"""A disk with less free space counts as full."""
KEPT = "Windlass does not change it; restore a copy of it, or move it aside to start with an empty one"
PERMISSIONS = "check its permissions and those of its folder"


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of sqlite and of the file system as errors of Windlass."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        raise store_error(error, path) from error


def is_busy(error: sqlite3.DatabaseError) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


def store_error(error: sqlite3.DatabaseError | OSError, path: Path) -> Exception:
    """An error that names the file and the problem. The file was not changed."""
    if isinstance(error, sqlite3.OperationalError):
        return _operational(error, path)
    if isinstance(error, sqlite3.DatabaseError):
        return StoreError(f"the database '{path}' cannot be read: {error}", hint=KEPT)
    if isinstance(error, PermissionError):
        return StoreError(f"cannot write to '{path}': {error.strerror}", hint=PERMISSIONS)
    return exhausted(error, path) or StoreError(f"'{path}': {os.strerror(error.errno or 0)}")


def _operational(error: sqlite3.OperationalError, path: Path) -> Exception:
    text = str(error)
    if "full" in text:
        return StoppedError(f"no space left for '{path}'", hint="free some disk space, then: windlass resume")
    if is_busy(error):
        return StoppedError(f"'{path}' is locked by another process", hint="try again: windlass resume")
    shortage = _shortage(path)
    if shortage:
        return shortage
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"cannot write to '{path}': {text}", hint=PERMISSIONS)
    return StoreError(f"the database '{path}' cannot be used: {text}", hint="Windlass does not change it")


def _shortage(path: Path) -> ExhaustedError | None:
    """sqlite does not report why it cannot open or write a file. Find the reason with the folder, because opening the
    database file here would drop sqlite's locks on it."""
    try:
        os.close(os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC))
        space = os.statvfs(path.parent)
    except OSError as error:
        return exhausted(error, path)
    if space.f_flag & os.ST_RDONLY:
        return exhausted(OSError(errno.EROFS, "", str(path)))
    if space.f_bavail * space.f_frsize < LEAST_BYTES:
        return exhausted(OSError(errno.ENOSPC, "", str(path)))
    return None
