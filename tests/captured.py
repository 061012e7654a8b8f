"""Recorded streams of the real CLIs, read by their adapters."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from windlass.agents import registry
from windlass.agents.base import Adapter, AgentEvent, Done, HasReader, Job, Limits, Reader, Spent, WritesUsageFiles

CAPTURES = Path(__file__).parent / "captures"
CLIS = ("claude", "codex", "gemini", "opencode", "pi")
URL = "http://127.0.0.1:9/{job}"
Kind = TypeVar("Kind")


def a_job(**more: Any) -> Job:
    """Of the repository in which the streams were recorded."""
    facts: dict[str, Any] = {
        "run": "r1",
        "key": "execute/t1/implement#1",
        "attempt": 1,
        "role": "implementer",
        "purpose": "implement",
        "system": "You build.",
        "prompt": "Build it.",
        "cwd": Path("/repo"),
        "folder": Path("/runs/r1/attempt"),
        "agent": "",
        "tools": ("read", "grep", "find", "ls", "bash", "write", "edit"),
        "writes": "code",
        "phase": "execute",
        "task_id": "t1",
        "limits": Limits(60.0),
    }
    return Job(**(facts | more))


def lines(cli: str, name: str) -> list[str]:
    return (CAPTURES / cli / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()


def read(adapter: Adapter, stream: Iterable[str], job: Job | None = None) -> list[AgentEvent]:
    assert isinstance(adapter, HasReader)
    reader = adapter.reader(job or a_job())
    return [event for line in stream for event in reader.parse(line)]


def events(cli: str, name: str, job: Job | None = None) -> list[AgentEvent]:
    return read(registry.make(cli, {}), lines(cli, name), job)


def told(cli: str, *stream: object, job: Job | None = None) -> list[AgentEvent]:
    """What lines written by hand say."""
    return read(registry.make(cli, {}), [json.dumps(line, separators=(",", ":")) for line in stream], job)


def reader_of(cli: str, **job: Any) -> Reader:
    adapter = registry.make(cli, {})
    assert isinstance(adapter, HasReader)
    return adapter.reader(a_job(**job))


def written_down(reader: Reader, name: str) -> list[Spent]:
    """What the CLI's own record of its session says; recorded in `ledgers`."""
    assert isinstance(reader, WritesUsageFiles)
    return only(Spent, [event for line in lines("ledgers", name) for event in reader.parse_ledger(line)])


def only(kind: type[Kind], found: Iterable[AgentEvent]) -> list[Kind]:
    return [event for event in found if isinstance(event, kind)]


def done(found: Iterable[AgentEvent]) -> Done | None:
    ends = only(Done, found)
    return ends[-1] if ends else None


def files_of(cli: str) -> list[str]:
    return sorted(path.stem for path in (CAPTURES / cli).glob("*.jsonl"))
