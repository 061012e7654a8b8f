"""A run's budget: its spending, the reservations of running dispatches, and when one may not start or continue.

A reservation is an estimate. It decides how many dispatches may run at once, never how much one of them may cost: the
role's limit and the rest of the run's limit bound that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from windlass.cost import ASSUMED_USD, Cost, dollars
from windlass.engine.journal import Journal
from windlass.errors import OverBudgetError
from windlass.events import Warned
from windlass.model import Usage
from windlass.store.rows import Spend

#: with less than this left, nothing starts
LEAST_USD = 0.01
#: a run that has spent this part of its limit warns once, in time to raise it
NEAR = 0.8


class Prices(Struct, frozen=True):
    dispatch_usd: float = 5.0
    """Reserved while no dispatch has a known cost."""
    unknown_usd: float = ASSUMED_USD
    """The cost that counts against the limit for a dispatch of unknown cost."""
    dispatch_tokens: int = 0
    """The most tokens of one dispatch of a model without a price; 0: no limit."""
    run_tokens: int = 0
    """The same, for all such dispatches of a run."""


class Shortage(Struct, frozen=True):
    """A dispatch that does not fit the limit."""

    refusal: OverBudgetError
    cost: Cost
    expected: float

    @property
    def limit(self) -> float:
        return self.cost.limit or 0.0


class Reservation(Struct):
    """A running dispatch."""

    reserved: float
    usage: Usage = Usage()

    @property
    def usd(self) -> float:
        return self.usage.cost_usd or 0.0

    @property
    def tokens(self) -> int:
        """Tokens without a price."""
        return self.usage.input + self.usage.output if self.usage.cost_usd is None else 0


#: asks a person to exceed the limit. Contract: returns when the limit was raised, otherwise raises the refusal.
Beyond: TypeAlias = Callable[[Shortage], Awaitable[None]]


class Budget:
    def __init__(self, journal: Journal, prices: Prices, beyond: Beyond | None = None) -> None:
        self._journal = journal
        self._prices = prices
        self._beyond = beyond
        self._held: dict[str, Reservation] = {}
        self._freed = asyncio.Event()
        self._ended: Spend | None = None
        """The spending of ended attempts; read again when one ends."""

    async def reserve(self, token: str, role: str, cap: float | None = None, *, reports: bool = True) -> float:
        """Reserve the expected dollars of this dispatch and return them. Waits for others to end; raises if nothing is
        left.

        `cap`: the role's own limit. `reports`: the agent reports its cost while it works, and can be stopped in time;
        otherwise its whole estimate must fit.
        """
        while True:
            self._ended = None
            amount = self._reservation_for(role, cap, reports)
            if amount is not None:
                self._held[token] = Reservation(amount)
                return amount
            if not self._held:
                await self.require_room(role, cap, reports=reports)
                continue
            self._freed.clear()
            await self._freed.wait()

    async def require_room(self, role: str, cap: float | None = None, *, reports: bool = True) -> None:
        """Returns when the run has money for this dispatch; otherwise asks for more, or raises."""
        if self._held or self._reservation_for(role, cap, reports) is not None:
            return
        refusal = self._refusal(role)
        if self._beyond is None:
            raise refusal
        await self._beyond(Shortage(refusal, self.cost, self._expected_usd(role)))

    def spend(self, token: str, usage: Usage) -> str:
        """Record the usage of this dispatch so far. Its reservation grows with it. Returns why it must stop, or ''.

        Only spent money counts, not the reservations of others.
        """
        held = self._held[token]
        held.usage = usage
        held.reserved = max(held.reserved, held.usd)
        cost = self.cost
        if cost.limit is not None and cost.spent > cost.limit + 1e-9:
            return f"the run's limit is reached: {cost.spent_of_limit} are spent"
        return self._over_tokens(held)

    def release(self, token: str) -> None:
        self._held.pop(token, None)
        self._ended = None
        self._freed.set()
        self._warn()

    @property
    def cost(self) -> Cost:
        """The cost of the whole run, with the reports of running dispatches."""
        run = self._journal.store.runs.get(self._journal.run)
        spend = self._spend
        at_work = sum(held.usd for held in self._held.values())
        return Cost(spend.known_usd + at_work, spend.assumed_usd, spend.unknown, run.budget_usd)

    @property
    def _spend(self) -> Spend:
        if self._ended is None:
            self._ended = self._journal.store.attempts.spend(self._journal.run)
        return self._ended

    @property
    def left(self) -> float | None:
        """None: there is no limit."""
        return self.cost.left

    def _reservation_for(self, role: str, cap: float | None, reports: bool) -> float | None:
        """The reservation for it; None: it does not fit now."""
        expected = min(self._expected_usd(role), cap) if cap else self._expected_usd(role)
        left = self.left
        if left is None:
            return expected
        # Unspent reservations of others stay reserved until they end.
        room = left - sum(held.reserved - held.usd for held in self._held.values())
        alone = not self._held
        least = expected if not reports or not alone else LEAST_USD
        # A rounding error must not refuse an exact fit.
        return min(expected, room) if room + 1e-9 >= least else None

    def _expected_usd(self, role: str) -> float:
        """The role's most expensive dispatch; for a role that has not run yet, the average of the other roles'."""
        seen = self._spend.by_role
        if role in seen:
            return max(seen[role], LEAST_USD)
        if seen:
            return max(sum(seen.values()) / len(seen), LEAST_USD)
        if self._spend.unknown:
            return self._prices.unknown_usd
        limit = self._journal.store.runs.get(self._journal.run).budget_usd
        return self._prices.dispatch_usd if limit is None else min(self._prices.dispatch_usd, max(limit, LEAST_USD))

    def _over_tokens(self, held: Reservation) -> str:
        most, all_of_them = self._prices.dispatch_tokens, self._prices.run_tokens
        if not held.tokens:
            return ""
        if most and held.tokens > most:
            return f"it used {held.tokens} tokens of a model without a price, more than budget.dispatch_tokens = {most}"
        used = self._spend.unpriced_tokens + sum(one.tokens for one in self._held.values())
        if all_of_them and used > all_of_them:
            return f"the run used {used} tokens of models without a price, more than budget.run_tokens = {all_of_them}"
        return ""

    def _refusal(self, role: str) -> OverBudgetError:
        return OverBudgetError(
            f"the next dispatch ({role}, about {dollars(self._expected_usd(role))}) does not fit:"
            f" {self.cost.spent_of_limit} are spent",
            hint=f"windlass resume {self._journal.run} --budget USD raises the limit",
        )

    def _warn(self) -> None:
        """Warn once for each mark that the sum passes, for the highest one only."""
        run, cost = self._journal.store.runs.get(self._journal.run), self.cost
        near = None if run.budget_usd is None else run.budget_usd * NEAR
        marks = {f"warn.{run.warn_usd}": run.warn_usd, f"near.{run.budget_usd}": near}
        passed = [(usd, name) for name, usd in marks.items() if usd is not None and cost.spent > usd]
        place = f"budget.{max(passed)[1]}" if passed else ""
        if place and not self._journal.events.has_mark(place):
            self._journal.emit(place, Warned("budget", f"more than {dollars(max(passed)[0])} are spent: {cost.line}"))
