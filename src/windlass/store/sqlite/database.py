"""One SQLite connection: reads, write transactions with the epoch compared, and the fence."""

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
from windlass.store.sqlite.errors import is_busy, store_error, translated

BUSY_S = 2.0
"""How long a writer waits for the lock before it looks who holds it."""
PATIENCE_S = 30.0
"""How long a writer waits in all, for a holder that is at work."""
WRITE_LOCK = 120
"""The byte of the log's index that a writer locks: sqlite's file format."""


def connect(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=not any_thread)


def begin(connection: sqlite3.Connection, path: Path) -> None:
    """Begins a write transaction. Waits for a holder of the lock that is at work; names one that is stopped at once."""
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
    whose = ""
    with suppress(sqlite3.DatabaseError):
        # Reading needs no lock.
        for run, driver in connection.execute("SELECT id, driver FROM run WHERE state = 'running'"):
            known = DriverId.parse(driver)
            whose = f", the driver of run {run}" if known and known.here and known.pid == pid else whose
    return StoppedError(
        f"'{path}' is locked by process {pid}{whose}, which is stopped",
        hint=f"kill -CONT {pid} lets it go on; kill -KILL {pid} ends it, and what it was writing is undone",
    )


def compare_epoch(connection: sqlite3.Connection, claim: EpochClaim) -> None:
    """Raises TakenOverError when another driver took over. Certain only inside a write transaction."""
    row = connection.execute("SELECT epoch, state FROM run WHERE id = ?", (claim.run,)).fetchone()
    claim.require(*(row or (0, "")))


class Database:
    def __init__(self, connection: sqlite3.Connection, path: Path, clock: Callable[[], float]) -> None:
        self.connection = connection
        self.path = path
        self.clock = clock
        self.pending = False
        self.compared: EpochClaim | None = None
        """The claim that holds in the open transaction. It cannot be lost before the commit."""

    def transaction(self, *, synced: bool = True) -> Transaction:
        return Transaction(self, None, synced)

    def write(self, writer: Writer | None) -> Transaction:
        """The transaction of one write verb. None: a write that carries no epoch."""
        return Transaction(self, writer if isinstance(writer, EpochClaim) else None, True)

    def one(self, sql: str, *args: object) -> sqlite3.Row | None:
        rows = self.all(sql, *args)
        return rows[0] if rows else None

    def all(self, sql: str, *args: object) -> list[sqlite3.Row]:
        with translated(self.path):
            cursor = self.connection.execute(sql, args)
            cursor.row_factory = sqlite3.Row
            return cursor.fetchall()

    def sync(self) -> None:
        self.pending = False
        # The log only: closing a file of the database would drop sqlite's locks on it.
        with suppress(FileNotFoundError), self.path.with_name(f"{self.path.name}-wal").open("rb") as log:
            os.fsync(log.fileno())


class Transaction:
    """From BEGIN to COMMIT, or a part of the transaction that is open. A class, because a generator is slower and every
    recorded step needs several."""

    __slots__ = ("_claim", "_database", "_joined", "_synced")

    def __init__(self, database: Database, claim: EpochClaim | None, synced: bool) -> None:
        self._database = database
        self._claim = claim
        self._joined = False
        self._synced = synced

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        connection = database.connection
        self._joined = connection.in_transaction
        try:
            if not self._joined:
                if not self._synced:
                    connection.execute("PRAGMA synchronous=NORMAL")
                begin(connection, database.path)
                database.compared = None
            if self._claim is not None and self._claim is not database.compared:
                compare_epoch(connection, self._claim)
                database.compared = self._claim
        except BaseException:
            if not self._joined:
                self._rollback()
            raise
        return connection

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._joined:
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
        self._sync_again()

    def _rollback(self) -> None:
        if self._database.connection.in_transaction:
            self._database.connection.execute("ROLLBACK")
        self._sync_again()

    def _sync_again(self) -> None:
        if not self._synced:
            self._database.connection.execute("PRAGMA synchronous=FULL")


class SqliteFence:
    """A write transaction that writes nothing, on a connection of its own, so that any thread may hold it."""

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
