"""Quota waits: one persisted timer per credential, obeyed by every dispatch of every run in the repository."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from windlass.engine.journal import Journal
from windlass.events import WaitStarted
from windlass.store.rows import TimerRow

TICK_S = 0.5


class Governor:
    def __init__(self, journal: Journal, wanted: Callable[[], None]) -> None:
        self._journal = journal
        self._store = journal.store
        self._wanted = wanted

    def hold(self, key: str, credential: str, seconds: float, reason: str) -> None:
        now = self._store.clock()
        with self._journal.writing(f"{key}.wait", WaitStarted(key, credential, now + seconds, reason)):
            self._store.set_timer(TimerRow(credential, now + seconds, now, reason))

    async def wait(self, credential: str) -> None:
        """Until nothing holds this credential back; another run may have set the timer."""
        while True:
            left = self._left(credential)
            if left <= 0:
                return
            self._wanted()
            await asyncio.sleep(min(left, TICK_S))

    def _left(self, credential: str) -> float:
        timers = {timer.credential: timer.until for timer in self._store.timers()}
        return timers.get(credential, 0.0) - self._store.clock()
