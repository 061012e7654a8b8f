"""One dispatch through each real CLI: the file is written, the block comes back, the bill is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gitrepo import sh
from jobs import make_job, run
from windlass.agents.base import AgentEvent, AgentResult, Job, SessionSeen, ToolFinished, ToolStarted
from windlass.agents.contracts import check, parse

Model = Callable[..., Any]
CODE = ("read", "grep", "find", "ls", "bash", "write", "edit")
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
BUILD: dict[str, Any] = {
    "when": {"role": "implementer", "task": "Token bucket"},
    "files": {"src/bucket.py": "x = 'it works'\n"},
    "run": ["cat src/bucket.py > copy.py"],
    "say": "Built.",
    "json": PASS,
    "usage": {"input": 1200, "output": 90, "cached": 300},
}


@pytest.fixture
def job(tmp_path: Path, name: str) -> Job:
    made = make_job(tmp_path, agent=name, tools=CODE, writes="code", contract="review", options={})
    sh(made.cwd, "init", "--quiet", "--initial-branch=main")
    sh(made.cwd, "commit", "--quiet", "--allow-empty", "--message", "start")
    return made


def test_it_writes_a_file_runs_a_command_and_answers_with_a_block(job: Job, model: Model, agent: Any) -> None:
    server = model(BUILD)
    events: list[AgentEvent] = []
    result = run(agent(server), job, on_event=events.append)
    assert (result.error, result.reason) == (None, "")
    assert [(job.cwd / path).read_text() for path in ("src/bucket.py", "copy.py")] == ["x = 'it works'\n"] * 2
    assert answer(result) == parse("review", f"```superteam-json\n{json.dumps(PASS)}\n```")
    assert len([event for event in events if isinstance(event, ToolStarted)]) == 2
    assert [event.ok for event in events if isinstance(event, ToolFinished)] == [True, True]
    assert [event for event in events if isinstance(event, SessionSeen)]
    assert {request.job.key for request in server.asked} == {job.key}


def test_the_tokens_are_those_the_model_told(job: Job, model: Model, agent: Any) -> None:
    usage = run(agent(model(BUILD)), job).usage
    assert (usage.input, usage.output, usage.cached) == (1200, 90, 300)


def answer(result: AgentResult) -> Any:
    return parse("review", result.text) if result.structured is None else check("review", result.structured)
