"""What is done behind the fence is done by the run's driver, and by no one that another driver has replaced.

The epoch in the database says who drives. A new driver raises it in a write transaction, so whoever compares it inside
one of his own cannot be replaced before that has ended.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from windlass.errors import TakenOverError
from windlass.model import RunState
from windlass.store.opening import begin, connect


class EpochClaim(Struct, frozen=True):
    """A driver's claim on a run: the epoch it was given, and the lock it holds."""

    run: str
    epoch: int
    require_lock: Callable[[], None] = lambda: None
    """Raises when the lock is lost."""

    def check(self, db: sqlite3.Connection) -> None:
        """Raises TakenOverError when the run is not ours any more."""
        found = db.execute("SELECT epoch, state FROM run WHERE id = ?", (self.run,)).fetchone()
        if found is None or found[0] != self.epoch:
            self.refuse(*(found or (0, "")))
        self.require_lock()

    def refuse(self, epoch: int, state: str) -> NoReturn:
        now = f"; the run is {state}" if state in (RunState.FINISHED, RunState.ABORTED) else ""
        raise TakenOverError(
            f"another driver (epoch {epoch}) took over run {self.run}{now}",
            hint=f"this one changed nothing since; windlass status {self.run} tells where it stands",
        )


class Fence:
    """For effects outside the database. On a connection of its own, so that any thread may hold it."""

    def __init__(self, path: Path, claim: EpochClaim) -> None:
        self._path = path
        self._claim = claim
        self._db = connect(path, any_thread=True)
        self._lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """No other driver can begin until the block ends; hold it for moments only. Raises TakenOverError at once.

        Contract: not inside a transaction of this process, which would wait for itself.
        """
        with self._lock:
            if not self._depth:
                self._enter()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._db.execute("ROLLBACK")  # nothing was written

    def _enter(self) -> None:
        begin(self._db, self._path)
        try:
            self._claim.check(self._db)
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def close(self) -> None:
        with self._lock:
            self._db.close()
