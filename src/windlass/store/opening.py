"""Opening a database: schema, migrations, and sqlite's errors in our words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windlass.errors import StoppedError, StoreError

MIGRATIONS = sorted(Path(__file__).parent.glob("[0-9][0-9][0-9]-*.sql"))
VERSION = len(MIGRATIONS)


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
        _apply(db, number, script.read_text())


def _apply(db: sqlite3.Connection, number: int, script: str) -> None:
    db.execute("BEGIN IMMEDIATE")
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
