"""Money: no dispatch starts unless what is spent, what is reserved and its own reservation fit the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from windlass.engine.journal import Journal
from windlass.errors import OverBudgetError
from windlass.events import Warned

#: a role seen before gets room for its dearest dispatch and some more
HEADROOM = 4.0
LEAST_USD = 0.10
#: this part of the limit is told once more, while there is time to raise it
NEAR = 0.8


@dataclass(frozen=True)
class Prices:
    dispatch_usd: float = 5.0
    """No single dispatch may cost more."""
    unknown_usd: float = 0.5
    """What a dispatch that does not tell its cost counts for against the limit."""


@dataclass(frozen=True)
class Shortage:
    """A dispatch that does not fit the limit."""

    refusal: OverBudgetError
    spent: float
    limit: float
    expected: float


#: asks a person to go beyond the limit. Contract: returns when the limit was raised, else raises the refusal.
Beyond: TypeAlias = Callable[[Shortage], Awaitable[None]]


class Budget:
    def __init__(self, journal: Journal, prices: Prices, beyond: Beyond | None = None) -> None:
        self._journal = journal
        self._prices = prices
        self._beyond = beyond
        self._reserved: dict[str, float] = {}
        self._freed = asyncio.Event()

    async def reserve(self, token: str, role: str, cap: float | None = None) -> float:
        """The dollars this dispatch may use. Waits for others to give back what they hold; raises if it cannot fit."""
        while True:
            amount = self._fitting(role, cap)
            if amount is not None:
                self._reserved[token] = amount
                return amount
            if not self._reserved:
                await self._ask_for_more(role)
                continue
            self._freed.clear()
            await self._freed.wait()

    async def _ask_for_more(self, role: str) -> None:
        refusal = self._refusal(role)
        if self._beyond is None:
            raise refusal
        await self._beyond(Shortage(refusal, self._spent(), self._limit(), self._expected(role)))

    def release(self, token: str) -> None:
        self._reserved.pop(token, None)
        self._freed.set()
        self._warn()

    def _fitting(self, role: str, cap: float | None) -> float | None:
        most = min(self._prices.dispatch_usd, cap) if cap else self._prices.dispatch_usd
        limit = self._journal.store.run(self._journal.run).budget_usd
        expected = self._journal.store.spend(self._journal.run).by_role.get(role)
        wanted = most if expected is None else min(most, max(expected * HEADROOM, LEAST_USD))
        if limit is None:
            return wanted
        room = limit - self._spent() - sum(self._reserved.values())
        least = expected if expected is not None else min(self._typical(), most)
        # A cent's fraction of rounding must not refuse what fits exactly.
        return min(wanted, room) if room + 1e-9 >= least else None

    def _typical(self) -> float:
        """A role that has not run is taken to cost what the others did."""
        seen = self._journal.store.spend(self._journal.run).by_role.values()
        return max(LEAST_USD, sum(seen) / len(seen)) if seen else LEAST_USD

    def _spent(self) -> float:
        spend = self._journal.store.spend(self._journal.run)
        return spend.known_usd + spend.unknown * self._prices.unknown_usd

    def _refusal(self, role: str) -> OverBudgetError:
        run = self._journal.store.run(self._journal.run)
        return OverBudgetError(
            f"the next dispatch ({role}, about ${self._expected(role):.2f}) does not fit: ${self._spent():.2f} of"
            f" ${run.budget_usd or 0:.2f} are spent",
            hint=f"windlass resume {run.id} --budget USD raises the limit",
        )

    def _expected(self, role: str) -> float:
        return self._journal.store.spend(self._journal.run).by_role.get(role, self._typical())

    def _limit(self) -> float:
        return self._journal.store.run(self._journal.run).budget_usd or 0.0

    def _warn(self) -> None:
        """Once for each mark that the sum passes, the highest only; what it adds up to changes with every dispatch."""
        run, spent = self._journal.store.run(self._journal.run), self._spent()
        marks = {f"warn.{run.warn_usd}": run.warn_usd, f"near.{run.budget_usd}": _near(run.budget_usd)}
        passed = [(usd, name) for name, usd in marks.items() if usd is not None and spent > usd]
        place = f"budget.{max(passed)[1]}" if passed else ""
        if place and not self._journal.said(place):
            usd = max(passed)[0]
            limit = f" (limit ${run.budget_usd:.2f}{self._guess()})" if run.budget_usd is not None else ""
            self._journal.emit(place, Warned("budget", f"more than ${usd:.2f} are spent{limit}"))

    def _guess(self) -> str:
        unknown = self._journal.store.spend(self._journal.run).unknown
        if not unknown:
            return ""
        return f", {unknown} dispatches of unknown cost taken as ${self._prices.unknown_usd:.2f} each"


def _near(limit: float | None) -> float | None:
    return None if limit is None else limit * NEAR
