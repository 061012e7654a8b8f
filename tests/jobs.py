"""Jobs for tests of agents, and a run_agent with everything but the point of the test filled in."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.agents.base import Adapter, AgentEvent, AgentResult, Capabilities, Invocation, Job, Limits
from windlass.agents.cli.failures import classify_text
from windlass.agents.cli.scripted import ScriptedAdapter
from windlass.agents.process.supervise import SupervisedProcess, agent_env
from windlass.dispatch.local_site import run_agent
from windlass.model import ErrorClass, content_id

A_MINUTE = Limits(wall_s=60.0)


def run_id(tmp_path: Path) -> str:
    """Another test's processes must not carry the same marker."""
    return content_id(str(tmp_path))[:12]


def make_job(tmp_path: Path, *, limits: Limits = A_MINUTE, **more: Any) -> Job:
    cwd = tmp_path / "cwd"
    cwd.mkdir(exist_ok=True)
    facts: dict[str, Any] = {
        "run": run_id(tmp_path),
        "key": "execute/t1/implement",
        "attempt": 1,
        "role": "implementer",
        "purpose": "implement",
        "system": "You build.",
        "prompt": "Build it.",
        "cwd": cwd,
        "folder": tmp_path / "attempt",
        "agent": "scripted",
        "phase": "execute",
        "task_id": "t1",
        "task_title": "Token bucket",
        "options": {"state": str(tmp_path / "state")},
    }
    return Job(**(facts | more), limits=limits)


class PythonAgent(ScriptedAdapter):
    """The scripted agent's event format, streamed by any Python text a test gives."""

    capabilities = Capabilities()

    def __init__(self, program: str) -> None:
        super().__init__((), {})
        self.program = program

    def invocation(self, job: Job) -> Invocation:
        return Invocation((sys.executable, "-I", "-S", "-c", self.program), stdin=job.prompt, env={"MINE": "1"})

    def classify(self, stderr: str, code: int | None) -> tuple[ErrorClass, str]:
        return classify_text(stderr, code)


async def dispatch(
    adapter: Adapter,
    job: Job,
    *,
    stop: asyncio.Event | None = None,
    on_event: Callable[[AgentEvent], None] = lambda event: None,
    on_started: Callable[[SupervisedProcess], None] = lambda proc: None,
    **more: Any,
) -> AgentResult:
    ticks = iter(range(1_000_000))
    return await run_agent(
        adapter,
        job,
        env=agent_env(os.environ),
        stop=stop or asyncio.Event(),
        on_event=on_event,
        on_started=on_started,
        clock=lambda: float(next(ticks)),
        grace_s=0.3,
        **more,
    )


def run(adapter: Adapter, job: Job, **more: Any) -> AgentResult:
    return asyncio.run(dispatch(adapter, job, **more))
