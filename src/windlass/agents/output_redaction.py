"""Removes secrets from an agent's output: from events, from results, and at the end from the transcript."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import assert_never

from msgspec.structs import replace

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
    ToolUpdated,
)
from windlass.private_files import replace_file
from windlass.redaction import Redactor

TRANSCRIPT = ("prompt.md", "stdin", "stdout", "stderr", "output", "events.jsonl")
"""Text files of an attempt's folder. Other files there belong to the CLI."""
BLOCK = 4 << 20


def redacted_event(event: AgentEvent, redactor: Redactor) -> AgentEvent:
    match event:
        case ToolStarted() | ToolUpdated() | ToolFinished() | Said():
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


def redact_transcript(folder: Path, redactor: Redactor) -> None:
    """Contract: nothing writes to the folder any more. After a crash each file is complete, old or new."""
    for name in TRANSCRIPT:
        path = folder / name
        with suppress(FileNotFoundError, NotADirectoryError):
            if path.is_symlink() or not path.is_file():
                continue
            # Most files hold no secret and are only read.
            if all(redactor.text(text) == text for text in _blocks(path)):
                continue
            redacted = (redactor.text(text).encode("utf-8", "surrogateescape") for text in _blocks(path))
            replace_file(path, redacted, scratch=path.with_name(f"{path.name}.redacted"))


def _blocks(path: Path) -> Iterator[str]:
    """Does not hold a large transcript in memory. Blocks end at a line end."""
    with path.open("rb") as raw:
        while block := raw.read(BLOCK):
            yield (block + raw.readline(BLOCK)).decode("utf-8", "surrogateescape")
