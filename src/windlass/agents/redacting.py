"""What an agent said, without the secrets in it. Its transcript stays as it was, in a folder for its owner alone."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from windlass.agents.base import (
    AgentEvent,
    AgentResult,
    Done,
    Retrying,
    Said,
    SessionSeen,
    Spent,
    ToolFinished,
    ToolStarted,
)
from windlass.redact import Redactor


def redacted_event(event: AgentEvent, redactor: Redactor) -> AgentEvent:
    match event:
        case ToolStarted() | ToolFinished() | Said():
            return replace(event, text=redactor.text(event.text))
        case Done():
            text, reason = redactor.text(event.text), redactor.text(event.reason)
            return replace(event, text=text, structured=redactor.json(event.structured), reason=reason)
        case Retrying():
            return replace(event, reason=redactor.text(event.reason))
        case Spent() | SessionSeen():
            return event
        case _:
            assert_never(event)


def redacted_result(result: AgentResult, redactor: Redactor) -> AgentResult:
    return replace(
        result,
        text=redactor.text(result.text),
        structured=redactor.json(result.structured),
        reason=redactor.text(result.reason),
    )
