"""The question at a reached budget limit, if the flow asks it: raise the limit, or stop."""

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
#: the limit grows by at least this many dispatches like the next one, so that not each of them asks again
DISPATCHES = 10


class LimitQuestion:
    def __init__(self, journal: Journal, broker: Questions) -> None:
        self._journal = journal
        self._broker = broker
        self._lock = asyncio.Lock()

    async def __call__(self, shortage: Shortage) -> None:
        """Several dispatches may reach the limit: the first one asks, the others see the result."""
        async with self._lock:
            row = self._journal.store.runs.get(self._journal.run)
            if (row.budget_usd or 0.0) != shortage.limit:
                return
            raised, key = self._raised_limit(shortage), self._next()
            self._journal.emit(key.text, Warned("budget", _words(shortage)))
            answer = await self._broker.ask(key, _question(shortage, raised))
            if answer.value != CONTINUE:

                async def refuse(previous: Json) -> Json:
                    return ABORT

                await self._journal.step(key, None, refuse)
                raise shortage.refusal
            with self._journal.writing(BY, BudgetChanged(raised, f"{key} ({answer.by})")):
                warn = self._journal.store.runs.get(self._journal.run).warn_usd
                self._journal.store.runs.set_budget(self._journal.claim, raised, warn)

    def _raised_limit(self, shortage: Shortage) -> float:
        """Raised by the run's first limit: the run has used that up, and may need as much again."""
        events = (recorded.event for recorded in self._journal.store.events.all(self._journal.run))
        first = next((event.budget_usd for event in events if isinstance(event, RunStarted)), None)
        more = max(first or 0.0, DISPATCHES * shortage.expected)
        return math.ceil((max(shortage.limit, shortage.cost.spent) + more) * 100) / 100

    def _next(self) -> Key:
        """The first question with an answer that had no effect yet: it neither raised the limit nor stopped the run."""
        changes = self._journal.store.events.of_kinds(self._journal.run, BudgetChanged)
        raised = {change.by.split(" ")[0] for change in changes}
        keys = (Key().child(BY, cycle=number) for number in count(1))
        return next(key for key in keys if key.text not in raised and self._journal.recorded(key) is None)


def _words(shortage: Shortage) -> str:
    return f"Cost budget exceeded (${shortage.cost.spent:.2f} of ${shortage.limit:.2f})"


def _question(shortage: Shortage, raised: float) -> Question:
    """`--yes` does not answer it: no default may exceed a limit."""
    return Question(
        id=BY,
        title="Over Budget",
        text=f"{_words(shortage)}: {shortage.refusal.message}",
        options=(
            Choice(CONTINUE, "Continue anyway", f"raises the limit of this run to ${raised:.2f}"),
            Choice(ABORT, "Abort", "stop here; a resume with --budget goes on"),
        ),
    )
