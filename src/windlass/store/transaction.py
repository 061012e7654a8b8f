"""From BEGIN to COMMIT, synced or not."""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import TYPE_CHECKING

from windlass.store.opening import begin, in_our_words

if TYPE_CHECKING:
    from windlass.store.database import Store


class Transaction:
    """A class and no generator: it stands around every recorded step."""

    def __init__(self, store: Store, synced: bool = True) -> None:
        self._store = store
        self._db = store.db
        self._path = store.path
        self._joined = False
        self._synced = synced

    def __enter__(self) -> None:
        self._joined = self._db.in_transaction
        if not self._joined:
            if not self._synced:
                self._db.execute("PRAGMA synchronous=NORMAL")
            self._begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._joined:
            return
        if error is None:
            self._say("COMMIT")
            self._store.pending = not self._synced
            self._sync_again()
            return
        self._rollback()
        if isinstance(error, sqlite3.DatabaseError | OSError):
            raise in_our_words(error, self._path) from error

    def _begin(self) -> None:
        """A driver's transaction is its own only as long as nobody has replaced it."""
        try:
            begin(self._db, self._path)
            if self._store.claim:
                self._store.claim.check(self._db)
        except BaseException:
            self._rollback()
            raise

    def _say(self, sql: str) -> None:
        try:
            self._db.execute(sql)
        except sqlite3.DatabaseError as error:
            self._rollback()
            raise in_our_words(error, self._path) from error

    def _rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._sync_again()

    def _sync_again(self) -> None:
        if not self._synced:
            self._db.execute("PRAGMA synchronous=FULL")
