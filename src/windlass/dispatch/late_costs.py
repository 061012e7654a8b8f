"""What attempts cost that no driver saw to their end: read from the files that their agents left, and recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from windlass.agents.base import Adapter, AgentResult, Job, Unsure
from windlass.agents.process.agent_run import CONTINUED, recount
from windlass.cost import ASSUMED_USD, assumed_for
from windlass.dispatch.verdict import assumed_usd, prices_date
from windlass.errors import WindlassError
from windlass.events import DispatchCosted, DispatchFinished, DispatchStarted, Event
from windlass.model import ErrorClass, Usage
from windlass.store.epoch import EpochClaim
from windlass.store.port import Store
from windlass.store.rows import AttemptRow

_COUNTS = ("input", "output", "cached")
NOTHING_READ = AgentResult(error=ErrorClass.DRIVER_LOST, unsure=Unsure.ALL)


class LateCosts(Struct, frozen=True):
    store: Store
    claim: EpochClaim
    folder: Path
    """The run's."""
    adapters: Callable[[str], Adapter] | None
    """None: nobody can say which agents there are, and what they left is not read."""
    unknown_usd: float = ASSUMED_USD

    def interrupt(self, rows: Collection[AttemptRow]) -> None:
        """Close attempts whose driver is gone, with what they cost. Nothing of them is at work any more."""
        read = [(row, self._recount(row) if row.intent.role else None) for row in rows]
        started, attempts = self._started() if any(result for _, result in read) else {}, self.store.attempts
        with self.store.transaction():
            for row, result in read:
                key, n = row.intent.key, row.intent.n
                if result is None:
                    attempts.interrupt(self.claim, key, n)
                    continue
                assumed = assumed_usd(result, self.unknown_usd)
                if attempts.interrupt(self.claim, key, n, result.usage.to_json(assumed), result.usage.cost_usd):
                    self._tell(row, result, assumed, started)

    def settle(self) -> None:
        """Give back what was assumed for attempts that an older version recorded, where their files tell the cost."""
        rows = [row for row in self.store.attempts.all(self.claim.run) if _is_open_to_doubt(row)]
        if not rows:
            return
        started, ended, attempts = self._started(), self._ended(), self.store.attempts
        read = [(row, self._recount(row)) for row in rows]
        with self.store.transaction():
            for row, result in read:
                key, n = row.intent.key, row.intent.n
                assumed = assumed_usd(result, self.unknown_usd)
                attempts.settle_cost(self.claim, key, n, result.usage.to_json(assumed), result.usage.cost_usd)
                self._tell(row, result, assumed, started, ended=(key, n) in ended)

    def _recount(self, row: AttemptRow) -> AgentResult:
        intent = row.intent
        folder = self.folder / intent.folder
        job = Job(
            run=self.claim.run,
            key=intent.key,
            attempt=intent.n,
            role=intent.role,
            purpose="",
            system="",
            prompt="",
            cwd=folder,
            folder=folder,
            agent=intent.agent,
            model=intent.model,
            session=row.session if (folder / CONTINUED).exists() else "",
        )
        try:
            if self.adapters is not None:
                return recount(self.adapters(intent.agent), job, self.store.clock)
        except WindlassError:
            # an agent that is no longer configured: what it left cannot be read
            pass
        return NOTHING_READ

    def _started(self) -> dict[tuple[str, int], DispatchStarted]:
        return {
            (event.key, event.attempt): event for event in self.store.events.of_kinds(self.claim.run, DispatchStarted)
        }

    def _ended(self) -> set[tuple[str, int]]:
        return {(event.key, event.attempt) for event in self.store.events.of_kinds(self.claim.run, DispatchFinished)}

    def _tell(
        self,
        row: AttemptRow,
        result: AgentResult,
        assumed: float,
        started: Mapping[tuple[str, int], DispatchStarted],
        *,
        ended: bool = False,
    ) -> None:
        """`ended`: the end of the attempt was told before, only what it cost is new."""
        intent, usage, before = row.intent, result.usage, _recorded(row) if ended else Usage()
        begun = started.get((intent.key, intent.n))
        told: dict[str, Any] = {
            "key": intent.key,
            "attempt": intent.n,
            "role": intent.role,
            "cost_usd": usage.cost_usd,
            "input": usage.input - before.input,
            "output": usage.output - before.output,
            "cached": usage.cached - before.cached,
            "task": begun.task if begun else "",
            "prices": prices_date(self.store.clock()) if usage.priced else "",
            "assumed_usd": assumed,
        }
        if ended:
            event: Event = DispatchCosted(
                **told, before_usd=row.cost_usd, before_assumed_usd=assumed_for(row.cost_usd, None)
            )
        else:
            event = DispatchFinished(
                **told,
                agent=intent.agent,
                error=ErrorClass.DRIVER_LOST,
                reason="its driver was ended",
                seconds=round(max((row.ended_at or self.store.clock()) - row.started_at, 0.0), 3),
                tools=result.tools,
            )
        self.store.events.add(self.claim, event)


def _is_open_to_doubt(row: AttemptRow) -> bool:
    """Recorded without a word about what is assumed for it, and without its cost."""
    said = isinstance(row.usage, dict) and "assumed_usd" in row.usage
    return bool(row.intent.role) and row.state != "running" and row.cost_usd is None and not said


def _recorded(row: AttemptRow) -> Usage:
    told = row.usage if isinstance(row.usage, dict) else {}
    sent, spoken, cached = (one if isinstance(one := told.get(name), int) else 0 for name in _COUNTS)
    return Usage(sent, spoken, cached)
