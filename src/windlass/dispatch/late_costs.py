"""Finds and records the cost of attempts that outlived their driver. It reads the files that their agents left."""

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
    """The run's folder."""
    adapters: Callable[[str], Adapter] | None
    """None: the adapters are unknown, so their files are not read."""
    unknown_usd: float = ASSUMED_USD

    def interrupt(self, rows: Collection[AttemptRow]) -> None:
        """Record the end and the cost of attempts of an earlier driver. All their processes have ended."""
        read = [(row, self._recount(row) if row.intent.role else None) for row in rows]
        started, attempts = self._start_events() if any(result for _, result in read) else {}, self.store.attempts
        with self.store.transaction():
            for row, result in read:
                key, n = row.intent.key, row.intent.n
                if result is None:
                    attempts.interrupt(self.claim, key, n)
                    continue
                assumed = assumed_usd(result, self.unknown_usd)
                if attempts.interrupt(self.claim, key, n, result.usage.to_json(assumed), result.usage.cost_usd):
                    self._emit_cost(row, result, assumed, started)

    def settle(self) -> None:
        """Replace the assumed cost of attempts of an older version, if their files show the real cost."""
        rows = [row for row in self.store.attempts.all(self.claim.run) if _has_no_cost(row)]
        if not rows:
            return
        started, attempts = self._start_events(), self.store.attempts
        ended = {(event.key, event.attempt) for event in self.store.events.of_kinds(self.claim.run, DispatchFinished)}
        read = [(row, self._recount(row)) for row in rows]
        with self.store.transaction():
            for row, result in read:
                key, n = row.intent.key, row.intent.n
                assumed = assumed_usd(result, self.unknown_usd)
                attempts.settle_cost(self.claim, key, n, result.usage.to_json(assumed), result.usage.cost_usd)
                self._emit_cost(row, result, assumed, started, ended=(key, n) in ended)

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
            # The agent is no longer configured, so its files cannot be read.
            pass
        return NOTHING_READ

    def _start_events(self) -> dict[tuple[str, int], DispatchStarted]:
        return {
            (event.key, event.attempt): event for event in self.store.events.of_kinds(self.claim.run, DispatchStarted)
        }

    def _emit_cost(
        self,
        row: AttemptRow,
        result: AgentResult,
        assumed: float,
        started: Mapping[tuple[str, int], DispatchStarted],
        *,
        ended: bool = False,
    ) -> None:
        """`ended`: the end of the attempt is already recorded, only its cost is new."""
        intent, usage, before = row.intent, result.usage, _recorded_usage(row) if ended else Usage()
        begun = started.get((intent.key, intent.n))
        fields: dict[str, Any] = {
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
                **fields, before_usd=row.cost_usd, before_assumed_usd=assumed_for(row.cost_usd, None)
            )
        else:
            event = DispatchFinished(
                **fields,
                agent=intent.agent,
                error=ErrorClass.DRIVER_LOST,
                reason="its driver ended",
                seconds=round(max((row.ended_at or self.store.clock()) - row.started_at, 0.0), 3),
                tools=result.tools,
            )
        self.store.events.add(self.claim, event)


def _has_no_cost(row: AttemptRow) -> bool:
    """The attempt has neither a cost nor an assumed cost."""
    is_assumed = isinstance(row.usage, dict) and "assumed_usd" in row.usage
    return bool(row.intent.role) and row.state != "running" and row.cost_usd is None and not is_assumed


def _recorded_usage(row: AttemptRow) -> Usage:
    usage = row.usage if isinstance(row.usage, dict) else {}
    sent, received, cached = (one if isinstance(one := usage.get(name), int) else 0 for name in _COUNTS)
    return Usage(sent, received, cached)
