"""Real ACP agents against the scripted model: dispatches, refusals, failures, and the whole plan demo."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acp_agents import AGENTS, as_config, settings
from clis import PATIENT, READ_TOOLS, left_behind
from msgspec.structs import replace

from demos import TITLES, Demo
from gitrepo import sh
from jobs import dispatch, run
from processes_for_tests import until
from windlass.agents import registry
from windlass.agents.base import Adapter, AgentEvent, Job, SessionSeen, ToolFinished, ToolStarted
from windlass.agents.contracts.registry import parse
from windlass.model import ErrorClass
from windlass.runs.demo import REQUEST, SCRIPT, make_sample
from windlass.testing.scripted_model import ScriptedModel

Model = Callable[..., Any]
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
TELL_COST = {"claude-agent-acp"}
#: takes a refusal for the end of the turn, and answers nothing more
#: opencode starts anew for every dispatch and takes minutes; its dispatches are covered one by one above
DEMO_AGENTS = ("claude-agent-acp", "gemini")
STOPS_AT_REFUSAL = {"opencode"}


@pytest.fixture(params=AGENTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def agent(name: str, tmp_path: Path) -> Callable[[ScriptedModel], Adapter]:
    return lambda server: registry.make("acp", settings(name, server, tmp_path))


def test_it_writes_a_file_runs_a_command_and_answers_with_a_block(
    job: Job, model: Model, agent: Any, name: str
) -> None:
    server = model(
        {
            "files": {"src/bucket.py": "x = 'it works'\n"},
            "run": ["cat src/bucket.py > copy.py"],
            "say": "Built.",
            "json": PASS,
            "usage": {"input": 1200, "output": 90, "cached": 300},
        }
    )
    events: list[AgentEvent] = []
    result = run(agent(server), job, on_event=events.append)
    assert (result.error, result.reason) == (None, "")
    assert [(job.cwd / path).read_text() for path in ("src/bucket.py", "copy.py")] == ["x = 'it works'\n"] * 2
    assert parse("review", result.text).problem == ""
    words = [event.text for event in events if isinstance(event, ToolStarted)]
    assert words == ["writing src/bucket.py", "running cat src/bucket.py > copy.py"]
    assert [event.ok for event in events if isinstance(event, ToolFinished)] == [True, True]
    assert [event for event in events if isinstance(event, SessionSeen)]
    assert {request.job.key for request in server.asked} == {job.key}
    assert (result.usage.cost_usd is not None) == (name in TELL_COST)
    assert left_behind(job.run) == []


def test_a_reviewer_that_is_told_to_write_cannot(job: Job, model: Model, agent: Any, name: str) -> None:
    reviewer = replace(job, role="reviewer", purpose="review", tools=READ_TOOLS, writes="none")
    server = model({"files": {"planted.py": "x\n"}, "run": ["echo x > planted-too.py"], "json": PASS})
    events: list[AgentEvent] = []
    result = run(agent(server), reviewer, on_event=events.append)
    assert sh(job.cwd, "status", "--porcelain", "--ignored") == ""
    assert [event.ok for event in events if isinstance(event, ToolFinished)] == [False] * len(
        [event for event in events if isinstance(event, ToolStarted)]
    )
    assert result.error is None, result.reason
    assert bool(parse("review", result.text).problem) == (name in STOPS_AT_REFUSAL)


def test_a_login_that_is_refused_is_told_as_one(job: Job, model: Model, agent: Any) -> None:
    result = run(agent(model({"json": PASS, "error": {"status": 401}})), job)
    assert (result.error, left_behind(job.run)) == (ErrorClass.AUTH, []), result.reason


def test_a_turn_that_is_stopped_in_a_tool_leaves_nothing_behind(job: Job, model: Model, agent: Any) -> None:
    server = model({"run": ["touch begun && sleep 300"], "json": PASS})

    async def stopped() -> Any:
        stop = asyncio.Event()
        going = asyncio.create_task(dispatch(agent(server), job, stop=stop))
        await asyncio.to_thread(until, (job.cwd / "begun").exists, PATIENT)
        stop.set()
        return await going

    result = asyncio.run(stopped())
    assert (result.error, left_behind(job.run)) == (ErrorClass.KILLED, []), result.reason


@pytest.mark.parametrize("name", DEMO_AGENTS)
def test_the_whole_demo_lands_the_same_three_tasks(name: str, tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "sample"
    home.mkdir()
    folder.mkdir()
    answers = ("approve=approve", "review_mode=iterative", "execution_mode=auto")
    command = [sys.executable, "-m", "windlass", "run", REQUEST, *(f"--answer={one}" for one in answers)]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
    with ScriptedModel.from_file(SCRIPT) as server:
        make_sample(folder, as_config(name, server, tmp_path))
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=5 * PATIENT
        )
    demo = Demo(folder, home, done.returncode, done.stdout, done.stderr)
    assert (demo.code, "3/3 tasks" in demo.out) == (0, True), demo.out + demo.err
    line = "--format=%s|%(trailers:key=Windlass-Task,valueonly,separator=)"
    log = demo.git("log", "--first-parent", "--reverse", line, f"main..{demo.branch}")
    landed = [line.split("|") for line in log.splitlines() if not line.endswith("|")]
    assert landed == [[title, f"t{number}"] for number, title in enumerate(TITLES, 1)]
    assert {event["agent"] for event in demo.events("dispatch.started")} == {"acp"}
    assert demo.git("status", "--porcelain", "--ignored") == ""
