"""A dispatch at work, as people see it: what it does, and a warning when it seems to do nothing."""

from __future__ import annotations

import asyncio
from typing import assert_never

from windlass.agents.base import (
    AgentEvent,
    Done,
    Retrying,
    Said,
    SessionSeen,
    Spent,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
)
from windlass.agents.dispatch import Proc
from windlass.agents.liveness import Liveness, sample
from windlass.agents.redacting import redacted_event
from windlass.engine.jobs import Order
from windlass.events import Activity, Warned

TICK_S = 5.0


class Watch:
    """Shows what an agent does while it works, and says when it seems not to."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._clock = order.parts.machine.clock
        self._liveness = Liveness(self._clock())
        self._supervisor = 0

    def started(self, proc: Proc) -> None:
        self._supervisor = proc.supervisor

    def event(self, event: AgentEvent) -> None:
        if isinstance(event, SessionSeen):
            self._order.parts.journal.note_session(self._order.key, self._order.n, event.id)
        self._warn(self._liveness.event(event, self._clock()))
        _show(self._order, redacted_event(event, self._order.parts.redactor))

    async def tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            seen = await asyncio.to_thread(sample, self._supervisor) if self._supervisor else None
            self._warn(self._liveness.tick(self._clock(), seen))

    def _warn(self, text: str) -> None:
        if text:
            order = self._order
            warned = Warned("liveness", f"{order.call.role}: {text}", order.key.text, order.task_id)
            order.parts.journal.emit(f"{order.key}@{order.n}", warned)
            order.parts.journal.flush()


def _show(order: Order, event: AgentEvent) -> None:
    shown = _activity(event)
    if shown:
        kind, text, ok, cost = shown
        call = event.id if isinstance(event, ToolStarted | ToolUpdated | ToolFinished) else ""
        order.parts.journal.show(Activity(order.key.text, order.call.role, kind, text, ok, order.task_id, cost, call))


def _activity(event: AgentEvent) -> tuple[str, str, bool, float | None] | None:
    match event:
        case ToolStarted(text=text):
            return "tool.started", text, True, None
        case ToolUpdated(text=text):
            return "tool.updated", text, True, None
        case ToolFinished(text=text, ok=ok, tool=tool):
            return "tool.finished", text or tool, ok, None
        case Said(text=text):
            # The contract's block is for the engine; what it says is shown as the review's result.
            words = text.split("```superteam", 1)[0].strip()
            return ("text", words, True, None) if words else None
        case Spent(usage=usage):
            return "usage", "", True, usage.cost_usd
        case Retrying(reason=reason):
            return "text", f"its model's server failed, it asks again: {reason}", False, None
        case SessionSeen() | Done():
            return None
        case _:
            assert_never(event)
