"""Waits for an agent's service: one timer per login, for every dispatch of every run of this user.

After the reset one dispatch goes first as a probe; the others follow as soon as the service answers it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from windlass.engine.journal import Journal
from windlass.errors import StoppedError
from windlass.events import WaitStarted
from windlass.model import ErrorClass
from windlass.store.port import PROBE_S
from windlass.store.rows import QuotaWait

TICK_S = 0.25
WAITS = (ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED)


class QuotaPatience(Struct, frozen=True):
    pauses: Sequence[float]
    """Seconds before each try in a row when the service names no time; the last one repeats."""
    longest_s: float
    """How long in a row a run waits before it stops."""


class QuotaTurn:
    """A dispatch that may use a login. It reports the service's first answer, and returns its probe when it ends."""

    def __init__(self, waits: QuotaWaits, login: str, *, probes: bool) -> None:
        self._waits = waits
        self._login = login
        self._probes = probes
        self._answered = False
        self.begun = time.monotonic()

    def answered(self) -> None:
        """The model answered: the wait is over."""
        if not self._answered:
            self._answered = True
            self._waits.clear(self._login, self.begun)

    def end(self) -> None:
        if self._probes and not self._answered:
            self._waits.release(self._login)


class QuotaWaits:
    def __init__(self, journal: Journal, patience: QuotaPatience, wanted: Callable[[], None] = lambda: None) -> None:
        self._journal = journal
        self._claim = journal.claim
        self._table = journal.store.quota
        self._patience = patience
        self._wanted = wanted
        self._since: dict[str, float] = {}
        """When a login's unbroken wait began under this driver, by the monotonic clock."""
        self._shown: dict[tuple[str, str], float] = {}

    def hold(self, key: str, login: str, turn: QuotaTurn, reason: str, retry_at: float | None) -> None:
        """The service refused a dispatch: every user of the login waits."""
        self._since.setdefault(login, turn.begun)
        wait = self._table.hold(self._claim, login, reason, self._patience.pauses, retry_at=retry_at, begun=turn.begun)
        self._show(key, wait)

    async def turn(self, key: str, login: str) -> QuotaTurn:
        """Wait until the login may be used; another run may have set the timer, and may clear it."""
        probes = False
        while not probes and (wait := self._table.find(login)) is not None:
            probes = wait.left_s <= 0 and self._table.probe(self._claim, login)
            if not probes:
                self._since.setdefault(login, time.monotonic())
                self._show(key, wait)
                self._wanted()
                waited = time.monotonic() - self._since[login]
                if waited >= self._patience.longest_s:
                    del self._since[login]
                    raise StoppedError(
                        f"{login} could not be used for {_duration_text(waited)} (retries.longest_wait): {wait.reason}",
                        hint="windlass resume continues it",
                    )
                await asyncio.sleep(TICK_S)
        return QuotaTurn(self, login, probes=probes)

    def clear(self, login: str, begun: float) -> None:
        self._since.pop(login, None)
        self._table.clear(self._claim, login, begun)

    def release(self, login: str) -> None:
        self._table.release(self._claim, login)

    def _show(self, key: str, wait: QuotaWait) -> None:
        """Once for each wait. `until` is computed at each call and may differ by a fraction of a second."""
        known, probing = self._shown.get((key, wait.login)), wait.left_s <= 0
        until = wait.until + PROBE_S if probing else wait.until
        if known is not None and abs(known - until) < 1.0:
            return
        self._shown[key, wait.login] = until
        reason = f"another dispatch tries first: {wait.reason}" if probing else wait.reason
        with self._journal.writing(f"{key}.wait", WaitStarted(key, wait.login, until, reason), synced=False):
            pass


def _duration_text(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
