"""Follows a running dispatch: shows its activity, and reports its usage to the budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
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
from windlass.dispatch.request import DispatchRequest
from windlass.engine.budget import Budget
from windlass.engine.journal import Journal
from windlass.errors import TakenOverError
from windlass.events import Activity, Warned
from windlass.model import Usage

NOTE_S = 1.0
"""The delay between a usage report and its record. Later reports join the same record."""


class DispatchMonitor:
    """Listens to one dispatch: shows the agent's activity, and asks the budget whether it may continue."""

    def __init__(
        self,
        request: DispatchRequest,
        journal: Journal,
        budget: Budget,
        stop: asyncio.Event,
        on_answer: Callable[[], None],
    ) -> None:
        self.stop = stop
        self._request = request
        self._journal = journal
        self._budget = budget
        self._on_answer = on_answer
        """Called when the agent's model answers, which shows that its service works."""
        self._usage = Usage()
        self._due: asyncio.TimerHandle | None = None

    def on_event(self, event: AgentEvent) -> None:
        if isinstance(event, SessionSeen):
            self._journal.attempts.note_session(self._request.key, self._request.attempt, event.id)
        if isinstance(event, ToolStarted | ToolFinished | Said) or _has_tokens(event):
            self._on_answer()
        activity = _activity(event)
        if activity:
            kind, text, ok, cost = activity
            tool = event.id if isinstance(event, ToolStarted | ToolUpdated | ToolFinished) else ""
            key, role, task = self._request.key.text, self._request.call.role, self._request.task_id
            self._journal.events.show(Activity(key, role, kind, text, ok, task, cost, tool))

    def on_warning(self, text: str) -> None:
        request = self._request
        warned = Warned("liveness", f"{request.call.role}: {text}", request.key.text, request.task_id)
        self._journal.emit(request.token, warned)
        self._journal.flush()

    def afford(self, usage: Usage) -> str:
        self._usage = usage
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(NOTE_S, self._record_usage)
        return self._budget.spend(self._request.token, usage)

    def end(self) -> None:
        if self._due:
            self._due.cancel()

    def _record_usage(self) -> None:
        self._due = None
        # A replaced driver may still have this timer. Its next recorded step ends the driver with a message.
        with suppress(TakenOverError):
            self._journal.attempts.note_usage(self._request.key, self._request.attempt, self._usage)


def _activity(event: AgentEvent) -> tuple[str, str, bool, float | None] | None:
    match event:
        case ToolStarted(text=text):
            return "tool.started", text, True, None
        case ToolUpdated(text=text):
            return "tool.updated", text, True, None
        case ToolFinished(text=text, ok=ok, tool=tool):
            return "tool.finished", text or tool, ok, None
        case Said(text=text):
            # The contract's block is for the engine. People see it as the result of the review.
            words = text.split("```superteam", 1)[0].strip()
            return ("text", words, True, None) if words else None
        case Spent(usage=usage):
            return "usage", "", True, usage.cost_usd
        case Retrying(reason=reason, wait_s=wait_s):
            when = "" if wait_s is None else f" in {wait_s:.0f} s"
            return "text", f"the model's server failed; the agent tries again{when}: {reason}", False, None
        case SessionSeen() | Done():
            return None
        case _:
            assert_never(event)


def _has_tokens(event: AgentEvent) -> bool:
    """A failed CLI reports its usage too. Without tokens, the model did not answer."""
    return isinstance(event, Spent) and bool(event.usage.input or event.usage.output)
