"""Waits for an agent's service, kept in the state folder: one for each login, obeyed by every run of this user.

A duration is measured by the monotonic clock, so that a clock set back does not stretch a wait. The wall clock can only
end it sooner, after the machine slept. After a restart of the machine a wait is at most as long as was asked for.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct

from windlass.locks import boot_id, process_start
from windlass.private_files import make_private
from windlass.store.opening import begin, connect, in_our_words

LONGEST_S = 32 * 86_400.0
PROBE_S = 120.0
"""A probe that has not heard from the service for so long does not keep others from trying."""
_TABLE = """CREATE TABLE IF NOT EXISTS wait (
  login TEXT PRIMARY KEY, until REAL NOT NULL, asked_s REAL NOT NULL, ends REAL NOT NULL, began REAL NOT NULL,
  boot TEXT NOT NULL, reason TEXT NOT NULL, failures INTEGER NOT NULL, opened REAL NOT NULL DEFAULT 0,
  prober INTEGER NOT NULL DEFAULT 0, prober_start INTEGER NOT NULL DEFAULT 0, probed REAL NOT NULL DEFAULT 0)"""
CALM_S = 60.0
"""After an answer the service has to do without a refusal for so long, and for as long as the last wait, or the next
pause is longer than the one before."""


class SharedWait(Struct, frozen=True):
    login: str
    until: float
    """By the wall clock, for people."""
    left_s: float
    """0 or less: it is over, and somebody may try."""
    reason: str
    failures: int
    """Tries in a row that the service turned away."""


class SharedWaits(Struct, frozen=True):
    path: Path
    clock: Callable[[], float]
    monotonic: Callable[[], float] = time.monotonic
    boot: str = ""

    @classmethod
    def below(cls, state: Path, clock: Callable[[], float]) -> SharedWaits:
        return cls(state / "windlass" / "waits.db", clock, boot=boot_id())

    def find(self, login: str) -> SharedWait | None:
        if not self.path.exists():
            return None
        with self._open() as db:
            row = _row(db, login)
            return self._wait(row) if row and not self._is_open(row) else None

    def hold(
        self, login: str, reason: str, pauses: Sequence[float], *, retry_at: float | None = None, begun: float = 0.0
    ) -> SharedWait:
        """The service turned a dispatch away that began at `begun` on the monotonic clock.

        `retry_at`: when it said to come back. That is believed once; who is turned away again waits longer each time.
        """
        make_private(self.path.parent)
        with self._open() as db, _writing(db, self.path):
            db.execute(_TABLE)
            row = _row(db, login)
            known = self._wait(row) if row else None
            now, asked = self.clock(), _asked(retry_at, self.clock())
            if row and known and row["boot"] == self.boot and begun < row["began"] and not row["opened"]:
                # It was under way when the wait began: it says nothing new, except perhaps for how long.
                if asked is None or asked <= known.left_s or known.left_s <= 0:
                    return known
                failures = known.failures
            else:
                failures = (known.failures if row and known and not self._is_calm(row) else 0) + 1
                pause = pauses[min(failures, len(pauses)) - 1]
                asked = pause if asked is None else asked if failures == 1 else max(asked, pause)
            began = self.monotonic()
            db.execute(
                "INSERT OR REPLACE INTO wait (login, until, asked_s, ends, began, boot, reason, failures)"
                " VALUES (?,?,?,?,?,?,?,?)",
                (login, now + asked, asked, began + asked, began, self.boot, reason, failures),
            )
            return SharedWait(login, now + asked, asked, reason, failures)

    def claim(self, login: str) -> bool:
        """True for the one that may try first. A claim of a process that died, or that hangs, is given again."""
        with self._open() as db, _writing(db, self.path):
            row = _row(db, login)
            if row is None or self._is_open(row):
                return True
            if self._wait(row).left_s > 0 or self._is_probed(row):
                return False
            own = (os.getpid(), process_start(os.getpid()), self.monotonic(), login)
            db.execute("UPDATE wait SET prober = ?, prober_start = ?, probed = ? WHERE login = ?", own)
            return True

    def release(self, login: str) -> None:
        """The claim of this process, if it has it: another may try."""
        if not self.path.exists():
            return
        with self._open() as db, _writing(db, self.path):
            db.execute("UPDATE wait SET prober = 0 WHERE login = ? AND prober = ?", (login, os.getpid()))

    def clear(self, login: str, begun: float) -> None:
        """A dispatch that began at `begun` got an answer. One that was under way before the wait proves nothing."""
        if self.find(login) is None:
            return
        with self._open() as db, _writing(db, self.path):
            now = (self.monotonic(), self.boot)
            db.execute(
                "UPDATE wait SET opened = ?, boot = ?, prober = 0 WHERE login = ? AND (began <= ? OR boot != ?)",
                (*now, login, begun, self.boot),
            )

    def _wait(self, row: sqlite3.Row) -> SharedWait:
        by_wall = row["until"] - self.clock()
        left = min(by_wall, row["ends"] - self.monotonic() if row["boot"] == self.boot else row["asked_s"])
        return SharedWait(row["login"], self.clock() + left, left, row["reason"], row["failures"])

    def _is_open(self, row: sqlite3.Row) -> bool:
        """The service answered since the wait began."""
        return bool(row["opened"])

    def _is_calm(self, row: sqlite3.Row) -> bool:
        if row["boot"] != self.boot:
            return True
        return bool(row["opened"] and self.monotonic() - row["opened"] > max(CALM_S, row["asked_s"]))

    def _is_probed(self, row: sqlite3.Row) -> bool:
        if not row["prober"] or row["boot"] != self.boot:
            return False
        alive = process_start(row["prober"]) == row["prober_start"]
        return alive and bool(self.monotonic() - row["probed"] < PROBE_S)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(connect(self.path)) as db:
                db.row_factory = sqlite3.Row
                yield db
        except sqlite3.DatabaseError as error:
            raise in_our_words(error, self.path) from error


def _asked(retry_at: float | None, now: float) -> float | None:
    return min(retry_at - now, LONGEST_S) if retry_at is not None and retry_at > now else None


def _row(db: sqlite3.Connection, login: str) -> sqlite3.Row | None:
    try:
        found: sqlite3.Row | None = db.execute("SELECT * FROM wait WHERE login = ?", (login,)).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return None
        raise
    return found


@contextmanager
def _writing(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    begin(db, path)
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
