"""Creates the files of the database, makes them private, and checks them for damage after a crash."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from windlass.errors import StoreError
from windlass.private_files import close_to_others
from windlass.store.sqlite.errors import KEPT
from windlass.store.sqlite.schema import migrate

CHECK_S = 1.0
"""The longest time that a driver checks for damage when it opens the database after a crash."""
CHECK_STEPS = 10_000
"""The number of sqlite's instructions between two reads of the clock."""
SMALLEST_PAGE = 512


def create_database(path: Path) -> None:
    """Creates it under another name first, so that `path` is always a complete database, also after a kill."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.path.lexists(path):
        return
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            migrate(connection, path)
        with suppress(FileExistsError):  # another process was first, and its database counts
            os.link(draft, path)
    finally:
        for left in (draft, *_log_files(draft)):
            left.unlink(missing_ok=True)


def require_database(path: Path) -> None:
    """Contract: `create_database` only makes complete files, so an empty file is damaged."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise StoreError(
            f"no runs yet: '{path}' does not exist", hint='start one: windlass run "what to build"'
        ) from None
    if size < SMALLEST_PAGE:
        # sqlite would use it as a new database
        raise StoreError(f"the database '{path}' is damaged: it has {size} bytes", hint=KEPT)


def make_database_private(path: Path) -> None:
    """The database has prompts and answers. An older version or another umask may have made it readable for others."""
    for file in (path.parent, path, *_log_files(path)):
        with suppress(FileNotFoundError, PermissionError):
            close_to_others(file)


def was_left_open(path: Path) -> bool:
    """The log exists: the last process to close a database removes its log."""
    with suppress(OSError):
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    return False


def require_undamaged(connection: sqlite3.Connection, path: Path, *, limit_s: float = CHECK_S) -> None:
    """Checks for damage for at most `limit_s`. In a large database, other damage shows when it is read."""
    end = time.monotonic() + limit_s
    connection.set_progress_handler(lambda: time.monotonic() > end, CHECK_STEPS)
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(1)")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        connection.set_progress_handler(None, 0)
    if found != ["ok"]:
        raise StoreError(f"the database '{path}' is damaged: {found[0]}", hint=KEPT)


def _log_files(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
