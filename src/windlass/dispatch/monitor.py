"""A dispatch at work, as people see it: what it does, and a warning when it seems to do nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
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
from windlass.agents.output_redaction import redacted_event
from windlass.agents.process.liveness import Liveness, sample
from windlass.agents.process.supervise import SupervisedProcess
from windlass.dispatch.request import DispatchRequest
from windlass.events import Activity, Warned

TICK_S = 5.0


class DispatchMonitor:
    """Shows what an agent does while it works, and says when it seems not to."""

    def __init__(self, order: DispatchRequest, folders: Sequence[Path] = ()) -> None:
        self._order = order
        self._liveness = Liveness(time.monotonic(), frozen_s=order.parts.config.limits.frozen)
        self._folders = folders
        """Where files are touched while it works: its slot, and its own folder with the CLI's session."""
        self._supervisor = 0
        self.frozen: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Why there is no sign of life any more."""

    def started(self, proc: SupervisedProcess) -> None:
        self._supervisor = proc.supervisor

    def event(self, event: AgentEvent) -> None:
        if isinstance(event, SessionSeen):
            self._order.parts.journal.attempts.note_session(self._order.key, self._order.n, event.id)
        if isinstance(event, ToolStarted | ToolFinished | Said) or _has_tokens(event):
            self._order.answered()
        self._warn(self._liveness.event(event, time.monotonic()))
        _show(self._order, redacted_event(event, self._order.parts.redactor))

    async def tick(self) -> None:
        pause = min(TICK_S, self._liveness.frozen_s / 4)
        while True:
            await asyncio.sleep(pause)
            folders = self._folders if self._liveness.is_quiet(time.monotonic()) else ()
            seen = await asyncio.to_thread(sample, self._supervisor, folders) if self._supervisor else None
            now = time.monotonic()
            self._warn(self._liveness.tick(now, seen))
            if (why := self._liveness.frozen(now)) and not self.frozen.done():
                self._warn(f"{why}; it is ended, and goes on by retries.timed_out")
                self.frozen.set_result(why)

    def _warn(self, text: str) -> None:
        if text:
            order = self._order
            warned = Warned("liveness", f"{order.call.role}: {text}", order.key.text, order.task_id)
            order.parts.journal.emit(f"{order.key}@{order.n}", warned)
            order.parts.journal.flush()


def _show(order: DispatchRequest, event: AgentEvent) -> None:
    shown = _activity(event)
    if shown:
        kind, text, ok, cost = shown
        call = event.id if isinstance(event, ToolStarted | ToolUpdated | ToolFinished) else ""
        order.parts.journal.events.show(
            Activity(order.key.text, order.call.role, kind, text, ok, order.task_id, cost, call)
        )


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
        case Retrying(reason=reason, wait_s=wait_s):
            when = "" if wait_s is None else f" in {wait_s:.0f} s"
            return "text", f"its model's server failed, it asks again{when}: {reason}", False, None
        case SessionSeen() | Done():
            return None
        case _:
            assert_never(event)


def _has_tokens(event: AgentEvent) -> bool:
    """A CLI that failed tells its usage too: without a token, the model did not answer."""
    return isinstance(event, Spent) and bool(event.usage.input or event.usage.output)
