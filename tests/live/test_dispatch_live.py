"""One dispatch through each real CLI: the file is written, the block comes back, the bill is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clis import READ_TOOLS, binary_of, left_behind
from msgspec.structs import replace
from runs_live import FIRST, Tiny, build

from gitrepo import sh
from jobs import run
from windlass.agents.base import AgentEvent, AgentResult, Job, SessionSeen, ToolFinished, ToolStarted
from windlass.agents.contracts.registry import check, parse
from windlass.agents.installed import known_version

Model = Callable[..., Any]
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
BUILD: dict[str, Any] = {
    "when": {"role": "implementer", "task": "Token bucket"},
    "files": {"src/bucket.py": "x = 'it works'\n"},
    "run": ["cat src/bucket.py > copy.py"],
    "say": "Built.",
    "json": PASS,
    "usage": {"input": 1200, "output": 90, "cached": 300},
}


def answer(result: AgentResult) -> Any:
    return parse("review", result.text) if result.structured is None else check("review", result.structured)


def test_it_writes_a_file_runs_a_command_and_answers_with_a_block(job: Job, model: Model, agent: Any) -> None:
    server = model(BUILD)
    events: list[AgentEvent] = []
    result = run(agent(server), job, on_event=events.append)
    assert (result.error, result.reason) == (None, "")
    assert [(job.cwd / path).read_text() for path in ("src/bucket.py", "copy.py")] == ["x = 'it works'\n"] * 2
    assert answer(result) == parse("review", f"```superteam-json\n{json.dumps(PASS)}\n```")
    assert len([event for event in events if isinstance(event, ToolStarted)]) >= 2
    assert {event.ok for event in events if isinstance(event, ToolFinished)} == {True}
    assert [event for event in events if isinstance(event, SessionSeen)]
    assert {request.job.key for request in server.asked} == {job.key}
    assert (result.usage.input, result.usage.output, result.usage.cached) == (1200, 90, 300)
    assert left_behind(job.run) == []


def test_a_file_that_is_there_already_is_overwritten(job: Job, model: Model, agent: Any) -> None:
    result = run(agent(model({"files": {"README.md": "# new\n"}, "json": PASS})), job)
    assert (result.error, (job.cwd / "README.md").read_text()) == (None, "# new\n")


def test_a_reviewer_that_is_told_to_write_cannot(job: Job, model: Model, agent: Any) -> None:
    reviewer = replace(job, role="reviewer", purpose="review", tools=READ_TOOLS, writes="none")
    server = model({"files": {"planted.py": "x\n"}, "run": ["echo x > planted-too.py"], "json": PASS})
    result = run(agent(server), reviewer)
    assert sh(job.cwd, "status", "--porcelain", "--ignored") == ""
    assert len(server.asked) == 3
    assert (result.error, answer(result).problem) == (None, "")


def test_a_prompt_of_900_kb_arrives_whole(job: Job, model: Model, agent: Any) -> None:
    server = model({"json": PASS})
    prompt = "".join(f"line {number:06}: Grüße\n" for number in range(44_000))
    assert 900_000 < len(prompt.encode()) < 1_048_576
    result = run(agent(server), replace(job, prompt=prompt))
    assert (result.error, result.reason) == (None, "")
    sent = json.dumps(server.asked[0].body, ensure_ascii=False)
    assert json.dumps(prompt.strip(), ensure_ascii=False)[1:-1] in sent


OTHER = '#!/bin/sh\n[ "$1" = --version ] && echo 99.1.2 && exit\nexec \'{binary}\' "$@"\n'


def test_a_version_that_nobody_tried_is_said_once_and_the_run_goes_on(name: str, tmp_path: Path, model: Model) -> None:
    newer = tmp_path / name
    newer.write_text(OTHER.format(binary=binary_of(name)))
    newer.chmod(0o755)
    server = model({"when": FIRST, "error": {"status": 401}}, build())
    tiny = Tiny(tmp_path, name, server, bin=str(newer))
    assert tiny.start().code == 12
    # another driver, another dispatch: it was said
    tiny.ended_right(tiny.front("resume"))
    said = [text for text in tiny.front.warnings if "was not tested with Windlass" in text]
    assert said == [f"{name} 99.1.2 was not tested with Windlass; {known_version(name)} was"]
