"""The database's schema in numbered migrations. An older database is migrated, a newer one is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from windlass.errors import StoreError
from windlass.store.sqlite.database import begin

MIGRATIONS = sorted(Path(__file__).with_name("migrations").glob("[0-9][0-9][0-9]-*.sql"))
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    version = _version(connection)
    if version > VERSION:
        raise StoreError(
            f"'{path}' was written by a newer Windlass (schema {version}, this one knows {VERSION})",
            hint="upgrade windlass; nothing was changed",
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        _apply(connection, path, number, script.read_text())


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _apply(connection: sqlite3.Connection, path: Path, number: int, script: str) -> None:
    begin(connection, path)
    try:
        # Another process may have migrated it while this one waited for the lock.
        if _version(connection) < number:
            for statement in _statements(script):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {number}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """The single statements. `executescript` would commit, but a migration is one transaction."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""
