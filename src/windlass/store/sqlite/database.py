"""One SQLite connection: reads, write transactions that compare the epoch, and the fence."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from windlass.errors import StoppedError
from windlass.locks import DriverId, is_stopped, lock_holder
from windlass.store.epoch import EpochClaim, Writer
from windlass.store.sqlite.errors import is_busy, store_error, translate_errors

BUSY_S = 2.0
"""How long a writer waits for the lock before it checks the process that holds it."""
PATIENCE_S = 30.0
"""The longest time that a writer waits for a process that runs."""
WRITE_LOCK = 120
"""The byte of the log's index that a writer locks: sqlite's file format."""


def connect(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=not any_thread)


def begin(connection: sqlite3.Connection, path: Path) -> None:
    """Begins a write transaction. It waits while another process holds the lock, unless that process is stopped."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            if not is_busy(error):
                raise store_error(error, path) from error
            holder = lock_holder(Path(f"{path}-shm"), "POSIX", WRITE_LOCK)
            if holder and is_stopped(holder):
                raise _stopped_holder(connection, path, holder) from error
            if time.monotonic() >= until:
                raise store_error(error, path) from error
        else:
            return


def _stopped_holder(connection: sqlite3.Connection, path: Path, pid: int) -> StoppedError:
    owner = ""
    with suppress(sqlite3.DatabaseError):
        # Reading needs no lock.
        for run, driver in connection.execute("SELECT id, driver FROM run WHERE state = 'running'"):
            known = DriverId.parse(driver)
            owner = f", the driver of run {run}" if known and known.here and known.pid == pid else owner
    return StoppedError(
        f"'{path}' is locked by process {pid}{owner}, which is stopped",
        hint=f"to let it continue: kill -CONT {pid}; to end it and undo its write: kill -KILL {pid}",
    )


def compare_epoch(connection: sqlite3.Connection, claim: EpochClaim) -> None:
    """Raises TakenOverError when another driver took over. The result is certain only inside a write transaction."""
    row = connection.execute("SELECT epoch, state FROM run WHERE id = ?", (claim.run,)).fetchone()
    claim.require(*(row or (0, "")))


class Database:
    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Callable[[], float]) -> None:
        self.connection = connection
        self.path = path
        self.clock = clock
        self.pending = False
        self.valid_claim: EpochClaim | None = None
        """The claim that was compared in the open transaction. It stays valid until the commit."""

    def transaction(self, *, synced: bool = True) -> Transaction:
        return Transaction(self, None, synced)

    def write(self, writer: Writer | None) -> Transaction:
        """The transaction of one write verb. None: a write without an epoch."""
        return Transaction(self, writer if isinstance(writer, EpochClaim) else None, True)

    def one(self, sql: str, *args: object) -> sqlite3.Row | None:
        rows = self.all(sql, *args)
        return rows[0] if rows else None

    def all(self, sql: str, *args: object) -> list[sqlite3.Row]:
        with translate_errors(self.path):
            cursor = self.connection.execute(sql, args)
            cursor.row_factory = sqlite3.Row
            return cursor.fetchall()

    def sync(self) -> None:
        self.pending = False
        # Only the log: closing the database file would drop sqlite's locks on it.
        with suppress(FileNotFoundError), self.path.with_name(f"{self.path.name}-wal").open("rb") as log:
            os.fsync(log.fileno())


class Transaction:
    """From BEGIN to COMMIT, or a part of the open transaction. It is a class because a generator is slower, and every
    recorded step needs several."""

    __slots__ = ("_claim", "_database", "_is_nested", "_synced")

    def __init__(self, database: Database, claim: EpochClaim | None, synced: bool) -> None:
        self._database = database
        self._claim = claim
        self._is_nested = False
        self._synced = synced

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        connection = database.connection
        self._is_nested = connection.in_transaction
        try:
            if not self._is_nested:
                if not self._synced:
                    connection.execute("PRAGMA synchronous=NORMAL")
                begin(connection, database.path)
                database.valid_claim = None
            if self._claim is not None and self._claim is not database.valid_claim:
                compare_epoch(connection, self._claim)
                database.valid_claim = self._claim
        except BaseException:
            if not self._is_nested:
                self._rollback()
            raise
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._is_nested:
            return
        database = self._database
        if error is not None:
            self._rollback()
            if isinstance(error, sqlite3.DatabaseError | OSError):
                raise store_error(error, database.path) from error
            return
        try:
            database.connection.execute("COMMIT")
        except sqlite3.DatabaseError as failed:
            self._rollback()
            raise store_error(failed, database.path) from failed
        database.pending = not self._synced
        self._restore_sync()

    def _rollback(self) -> None:
        if self._database.connection.in_transaction:
            self._database.connection.execute("ROLLBACK")
        self._restore_sync()

    def _restore_sync(self) -> None:
        if not self._synced:
            self._database.connection.execute("PRAGMA synchronous=FULL")


class SqliteFence:
    """A write transaction without writes. It has its own connection, so that any thread may hold it."""

    def __init__(self, path: Path, claim: EpochClaim) -> None:
        self._path = path
        self._claim = claim
        self._connection = connect(path, any_thread=True)
        self._lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if not self._depth:
                self._enter()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._connection.execute("ROLLBACK")

    def _enter(self) -> None:
        begin(self._connection, self._path)
        try:
            compare_epoch(self._connection, self._claim)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        with self._lock:
            self._connection.close()
