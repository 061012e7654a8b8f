"""A limit that is reached leads to a question, where the flow says so: go beyond it, or stop here."""

from __future__ import annotations

import asyncio
import math
from itertools import count

from windlass.engine.budget import Shortage
from windlass.engine.journal import Journal
from windlass.engine.questions import Questions
from windlass.events import BudgetChanged, RunStarted, Warned
from windlass.model import Choice, Json, Key, Question

CONTINUE, ABORT = "continue", "abort"
BY = "over-budget"
#: the limit grows by at least as many dispatches like the next one, so that not every one asks again
DISPATCHES = 10


class LimitQuestion:
    def __init__(self, journal: Journal, broker: Questions) -> None:
        self._journal = journal
        self._broker = broker
        self._lock = asyncio.Lock()

    async def __call__(self, shortage: Shortage) -> None:
        """Several dispatches may find the limit reached: the first asks, the others see what became of it."""
        async with self._lock:
            if self._limit() != shortage.limit:
                return
            raised, key = self._raised(shortage), self._next()
            self._journal.emit(key.text, Warned("budget", _words(shortage)))
            answer = await self._broker.ask(key, _question(shortage, raised))
            if answer.value != CONTINUE:
                await self._journal.step(key, None, _refused)
                raise shortage.refusal
            self._raise(key, raised, answer.by)

    def _raised(self, shortage: Shortage) -> float:
        """By the whole of what the run was given at first: it has used that up, and may need as much again."""
        events = (recorded.event for recorded in self._journal.store.events(self._journal.run))
        first = next((event.budget_usd for event in events if isinstance(event, RunStarted)), None)
        more = max(first or 0.0, DISPATCHES * shortage.expected)
        return math.ceil((max(shortage.limit, shortage.cost.spent) + more) * 100) / 100

    def _raise(self, key: Key, limit: float, by: str) -> None:
        store, run = self._journal.store, self._journal.run
        with self._journal.writing(BY, BudgetChanged(limit, f"{key} ({by})")):
            store.set_budget(run, limit, store.run(run).warn_usd)

    def _next(self) -> Key:
        """The first question whose answer had no effect yet: the limit was not raised by it, nor the run stopped."""
        changes = self._journal.store.events_of(self._journal.run, BudgetChanged)
        raised = {change.by.split(" ")[0] for change in changes}
        keys = (Key().child(BY, cycle=number) for number in count(1))
        return next(key for key in keys if key.text not in raised and self._journal.recorded(key) is None)

    def _limit(self) -> float:
        return self._journal.store.run(self._journal.run).budget_usd or 0.0


async def _refused(previous: Json) -> Json:
    return ABORT


def _words(shortage: Shortage) -> str:
    return f"Cost budget exceeded (${shortage.cost.spent:.2f} of ${shortage.limit:.2f})"


def _question(shortage: Shortage, raised: float) -> Question:
    """No answer of `--yes`: nobody spends beyond a limit by default."""
    return Question(
        id=BY,
        title="Over Budget",
        text=f"{_words(shortage)}: {shortage.refusal.message}",
        options=(
            Choice(CONTINUE, "Continue anyway", f"raises the limit of this run to ${raised:.2f}"),
            Choice(ABORT, "Abort", "stop here; a resume with --budget goes on"),
        ),
    )
