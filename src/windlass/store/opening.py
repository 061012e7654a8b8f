"""Opening a database: schema, migrations, and sqlite's errors in our words."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from windlass.errors import StoppedError, StoreError
from windlass.locks import DriverId, is_stopped

MIGRATIONS = sorted(Path(__file__).parent.glob("[0-9][0-9][0-9]-*.sql"))
VERSION = len(MIGRATIONS)


BUSY_S = 2.0
"""So long is waited for a lock before somebody asks who has it."""
PATIENCE_S = 30.0
"""So long in all, for a holder that is at work."""
WRITE_LOCK = 120
"""The byte of the log's index that a writer locks: sqlite's file format."""


def connect(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=not any_thread)


def begin(db: sqlite3.Connection, path: Path) -> None:
    """A write transaction. A holder that is at work is waited for; one that is stopped is named at once."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            if not _is_busy(error):
                raise in_our_words(error, path) from error
            holder = _writer(path)
            if holder and is_stopped(holder):
                raise _stopped_holder(db, path, holder) from error
            if time.monotonic() >= until:
                raise in_our_words(error, path) from error
        else:
            return


def _is_busy(error: sqlite3.DatabaseError) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


def _writer(path: Path) -> int:
    """The process that has the lock for writing; 0 when the system does not tell."""
    try:
        index = os.stat(f"{path}-shm").st_ino
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return 0
    for words in map(str.split, lines):
        # As in: 7: POSIX ADVISORY WRITE 4711 08:01:2345 120 120
        if words[1:4:2] == ["POSIX", "WRITE"] and words[5].rpartition(":")[2] == str(index):
            first, last = words[6:8]
            if int(first) <= WRITE_LOCK and (last == "EOF" or int(last) >= WRITE_LOCK):
                return int(words[4])
    return 0


def _stopped_holder(db: sqlite3.Connection, path: Path, pid: int) -> StoppedError:
    whose = ""
    with suppress(sqlite3.DatabaseError):
        # Reading needs no lock.
        for run, driver in db.execute("SELECT id, driver FROM run WHERE state = 'running'"):
            known = DriverId.parse(driver)
            whose = f", the driver of run {run}" if known and known.here and known.pid == pid else whose
    return StoppedError(
        f"'{path}' is locked by process {pid}{whose}, which is stopped",
        hint=f"kill -CONT {pid} lets it go on; kill -KILL {pid} ends it, and what it was writing is taken back",
    )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        raise in_our_words(error, path) from error


def in_our_words(error: sqlite3.DatabaseError | OSError, path: Path) -> Exception:
    """What is wrong, where, and that nothing was replaced."""
    if isinstance(error, sqlite3.OperationalError):
        return _operational(str(error), path)
    if isinstance(error, sqlite3.DatabaseError):
        return StoreError(
            f"the database '{path}' cannot be read: {error}",
            hint="it is kept as it is; move it aside to begin anew, or restore a copy of it",
        )
    return StoreError(f"'{path}': {os.strerror(error.errno or 0)}")


def _operational(text: str, path: Path) -> Exception:
    if "full" in text:
        return StoppedError(f"no space left for '{path}'", hint="free some disk space, then: windlass resume")
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"cannot write to '{path}': {text}", hint="check its permissions and those of its folder")
    if "locked" in text or "busy" in text:
        return StoppedError(f"'{path}' is locked by another process", hint="try again: windlass resume")
    return StoreError(f"the database '{path}' cannot be used: {text}", hint="it is kept as it is")


def migrate(db: sqlite3.Connection, path: Path) -> None:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise StoreError(
            f"'{path}' was written by a newer Windlass (schema {version}, this one knows {VERSION})",
            hint="upgrade windlass; nothing was changed",
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        _apply(db, path, number, script.read_text())


def _apply(db: sqlite3.Connection, path: Path, number: int, script: str) -> None:
    begin(db, path)
    try:
        # Another process may have migrated while we waited for the lock.
        if int(db.execute("PRAGMA user_version").fetchone()[0]) < number:
            for statement in _statements(script):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """executescript commits on its own; we want one transaction."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""
