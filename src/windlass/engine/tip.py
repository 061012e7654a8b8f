"""The run's tip: the journal records it, the ref in the engine's repository shows it."""

from __future__ import annotations

import asyncio

from windlass.engine.journal import Journal
from windlass.events import Warned
from windlass.git.engine_repo import EngineRepo
from windlass.git.run_refs import tip_ref
from windlass.store.tips import tip_of_run


class Tip:
    """Contract: the ref moves only after the journal has the commit. An agent can write to the ref, not to the
    journal."""

    def __init__(self, journal: Journal, engine: EngineRepo) -> None:
        self._journal = journal
        self._engine = engine

    @property
    def now(self) -> str:
        return self._journal.tips.now

    async def show(self) -> None:
        """Move the ref to the journal's tip."""
        journal = self._journal
        self._report(
            await asyncio.to_thread(self._engine.refs.show_tip, journal.run, journal.tips.now, journal.tips.all)
        )

    def restore(self) -> None:
        """At the start of a driver. A driver that was killed before it moved the ref leaves it behind."""
        if not self._journal.tips.now:
            shown = self._engine.refs.tip(self._journal.run)
            with self._journal.writing("tip"):
                self._journal.tips.put("", tip_of_run(self._journal.store, self._journal.run, shown))
        self._report(self._engine.refs.show_tip(self._journal.run, self._journal.tips.now, self._journal.tips.all))

    def _report(self, stray: str) -> None:
        if stray:
            ref, tip = tip_ref(self._journal.run), self._journal.tips.now[:12]
            text = f"{ref} was at {stray}, where this run never put it; it is back at {tip}, what it led to is kept"
            self._journal.emit(f"tip/{stray}/{tip}", Warned("tip", text))
