"""The table of quota waits, in a file of the state folder that all repositories of the user share.

The monotonic clock measures a wait, so that a wall clock that is set back does not make it longer. The wall clock can
only end it sooner, after the machine slept. After a restart of the machine, a wait lasts at most its original length.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from windlass.locks import boot_id, process_start
from windlass.private_files import make_private
from windlass.store.epoch import EpochClaim
from windlass.store.port import PROBE_S
from windlass.store.rows import QuotaWait
from windlass.store.sqlite.database import Database, begin, connect
from windlass.store.sqlite.errors import store_error

LONGEST_S = 32 * 86_400.0
CALM_S = 60.0
"""If the service refuses a dispatch within this time after an answer, or within the length of the last wait, the next
pause is longer than the last one."""
_TABLE = """CREATE TABLE IF NOT EXISTS wait (
  login TEXT PRIMARY KEY, until REAL NOT NULL, asked_s REAL NOT NULL, ends REAL NOT NULL, began REAL NOT NULL,
  boot TEXT NOT NULL, reason TEXT NOT NULL, failures INTEGER NOT NULL, opened REAL NOT NULL DEFAULT 0,
  prober INTEGER NOT NULL DEFAULT 0, prober_start INTEGER NOT NULL DEFAULT 0, probed REAL NOT NULL DEFAULT 0)"""


class QuotaTable:
    def __init__(
        self, path: Path, runs: Database, monotonic: Callable[[], float] = time.monotonic, boot: str = ""
    ) -> None:
        """`runs`: the database of the runs. Each write happens inside a transaction of it, which compares the epoch."""
        self._path = path
        self._runs = runs
        self._clock = runs.clock
        self._monotonic = monotonic
        self._boot = boot

    @property
    def boot(self) -> str:
        self._boot = self._boot or boot_id()
        return self._boot

    def find(self, login: str) -> QuotaWait | None:
        if not self._path.exists():
            return None
        with self._open() as connection:
            row = _row(connection, login)
            return self._wait(row) if row and not row["opened"] else None

    def hold(
        self,
        claim: EpochClaim,
        login: str,
        reason: str,
        pauses: Sequence[float],
        *,
        retry_at: float | None = None,
        begun: float = 0.0,
    ) -> QuotaWait:
        with self._write(claim) as connection:
            connection.execute(_TABLE)
            row = _row(connection, login)
            known = self._wait(row) if row else None
            now = self._clock()
            asked = min(retry_at - now, LONGEST_S) if retry_at is not None and retry_at > now else None
            if row and known and row["boot"] == self.boot and begun < row["began"] and not row["opened"]:
                # The dispatch started before the wait, so its refusal is not new. It may ask for a longer wait.
                if asked is None or asked <= known.left_s or known.left_s <= 0:
                    return known
                failures = known.failures
            else:
                failures = (known.failures if row and known and not self._is_calm(row) else 0) + 1
                pause = pauses[min(failures, len(pauses)) - 1]
                asked = pause if asked is None else asked if failures == 1 else max(asked, pause)
            began = self._monotonic()
            connection.execute(
                "INSERT OR REPLACE INTO wait (login, until, asked_s, ends, began, boot, reason, failures)"
                " VALUES (?,?,?,?,?,?,?,?)",
                (login, now + asked, asked, began + asked, began, self.boot, reason, failures),
            )
            return QuotaWait(login, now + asked, asked, reason, failures)

    def probe(self, claim: EpochClaim, login: str) -> bool:
        """Takes over the probe of a process that died, or that got no answer for a long time."""
        with self._write(claim) as connection:
            row = _row(connection, login)
            if row is None or row["opened"]:
                return True
            if self._wait(row).left_s > 0 or self._is_probed(row):
                return False
            own = (os.getpid(), process_start(os.getpid()), self._monotonic(), login)
            connection.execute("UPDATE wait SET prober = ?, prober_start = ?, probed = ? WHERE login = ?", own)
            return True

    def release(self, claim: EpochClaim, login: str) -> None:
        if not self._path.exists():
            return
        with self._write(claim) as connection:
            connection.execute("UPDATE wait SET prober = 0 WHERE login = ? AND prober = ?", (login, os.getpid()))

    def clear(self, claim: EpochClaim, login: str, begun: float) -> None:
        if self.find(login) is None:
            return
        with self._write(claim) as connection:
            connection.execute(
                "UPDATE wait SET opened = ?, boot = ?, prober = 0 WHERE login = ? AND (began <= ? OR boot != ?)",
                (self._monotonic(), self.boot, login, begun, self.boot),
            )

    def _wait(self, row: sqlite3.Row) -> QuotaWait:
        by_wall = row["until"] - self._clock()
        left = min(by_wall, row["ends"] - self._monotonic() if row["boot"] == self.boot else row["asked_s"])
        return QuotaWait(row["login"], self._clock() + left, left, row["reason"], row["failures"])

    def _is_calm(self, row: sqlite3.Row) -> bool:
        if row["boot"] != self.boot:
            return True
        return bool(row["opened"] and self._monotonic() - row["opened"] > max(CALM_S, row["asked_s"]))

    def _is_probed(self, row: sqlite3.Row) -> bool:
        if not row["prober"] or row["boot"] != self.boot:
            return False
        alive = process_start(row["prober"]) == row["prober_start"]
        return alive and bool(self._monotonic() - row["probed"] < PROBE_S)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(connect(self._path)) as connection:
                connection.row_factory = sqlite3.Row
                yield connection
        except sqlite3.DatabaseError as error:
            raise store_error(error, self._path) from error

    @contextmanager
    def _write(self, claim: EpochClaim) -> Iterator[sqlite3.Connection]:
        with self._runs.write(claim):
            make_private(self._path.parent)
            with self._open() as connection:
                begin(connection, self._path)
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")


def _row(connection: sqlite3.Connection, login: str) -> sqlite3.Row | None:
    try:
        found: sqlite3.Row | None = connection.execute("SELECT * FROM wait WHERE login = ?", (login,)).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return found
