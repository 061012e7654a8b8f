"""Quota waits: one persisted timer per credential, obeyed by every dispatch of every run in the repository.

After the reset one dispatch goes ahead as a probe; the others follow when it got through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windlass.engine.journal import Journal
from windlass.events import WaitStarted
from windlass.model import ErrorClass
from windlass.store.rows import TimerRow

TICK_S = 0.25
#: a probe that nobody heard of again
STALE_S = 900.0
WAITS = (ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED)


class Governor:
    def __init__(self, journal: Journal, wanted: Callable[[], None]) -> None:
        self._journal = journal
        self._store = journal.store
        self._wanted = wanted

    def hold(self, key: str, credential: str, until: float, reason: str) -> None:
        with self._journal.writing(f"{key}.wait", WaitStarted(key, credential, until, reason)):
            self._store.set_timer(TimerRow(credential, until, self._store.clock(), reason))

    async def wait(self, credential: str) -> None:
        """Until this credential may be used; another run may have set the timer, and may clear it."""
        while self._timer(credential) is not None:
            if self._is_over(credential) and self._claim(credential):
                return
            self._wanted()
            await asyncio.sleep(TICK_S)

    def passed(self, credential: str, error: ErrorClass | None) -> None:
        """A dispatch came back: unless it was turned away again, the quota is no longer the matter."""
        if error not in WAITS and self._timer(credential) is not None:
            with self._store.tx():
                self._store.clear_timer(credential)

    def _timer(self, credential: str) -> TimerRow | None:
        return next((timer for timer in self._store.timers() if timer.credential == credential), None)

    def _is_over(self, credential: str) -> bool:
        timer = self._timer(credential)
        return timer is not None and timer.until <= self._store.clock()

    def _claim(self, credential: str) -> bool:
        with self._store.tx():
            return self._store.claim_probe(credential, STALE_S)
