from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captured import a_job
from jobs import make_job, run
from windlass.agents.base import AgentEvent, Invocation, Job, Limits, Retrying, ToolFinished, ToolStarted
from windlass.agents.cli import opencode_log
from windlass.agents.cli.opencode import OpencodeAdapter, OpencodeReader
from windlass.model import ErrorClass

HEAD = "timestamp=2026-03-01T09:22:30.784Z level={} run=4f0d034d message={}"
STREAM = "providerID=windlass modelID=model session.id=ses_e217c2741ffe small={} agent=windlass mode=primary"


def failing(told: str, small: str = "false") -> str:
    return f"{HEAD.format('ERROR', json.dumps('stream error'))} {STREAM.format(small)} error.error={json.dumps(told)}"


def allowed(permission: str, pattern: str, action: str = "allow") -> str:
    asked = f"permission={permission} pattern={json.dumps(pattern)}"
    return f"{HEAD.format('INFO', 'evaluated')} {asked} action.permission={permission} action.action={action}"


def tool(name: str, **given: str) -> str:
    state = {"status": "completed", "input": given, "output": ""}
    return json.dumps({"type": "tool_use", "part": {"tool": name, "callID": "c1", "state": state}})


def read(*lines: str) -> list[AgentEvent]:
    """Those of the log and those of the stream, in the order they came."""
    reader = OpencodeReader(a_job())
    return [event for line in lines for event in (reader.parse if line[0] == "{" else reader.parse_error)(line)]


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ("AI_APICallError: scripted api_error", ErrorClass.OVERLOADED),
        ("AI_APICallError: The server had an error while processing your request.", ErrorClass.OVERLOADED),
        ("AI_APICallError: Overloaded", ErrorClass.OVERLOADED),
        ("AI_APICallError: Rate limit reached for gpt-5", ErrorClass.RATE_LIMITED),
        ("AI_APICallError: Your credit balance is too low", ErrorClass.BILLING),
        ("AI_APICallError: Cannot connect to API: The socket connection was closed", ErrorClass.OVERLOADED),
    ],
)
def test_a_request_that_failed_is_told_by_its_words_and_else_the_server_s_fault(told: str, error: ErrorClass) -> None:
    assert read(failing(told)) == [Retrying(error, told)]


def test_a_failed_request_for_a_title_is_nothing() -> None:
    assert read(failing("AI_APICallError: Overloaded", small="true")) == []


def test_a_tool_is_told_when_it_begins_and_counted_once() -> None:
    seen = read(allowed("bash", "pytest -q"), allowed("bash", "true"), tool("bash", command="pytest -q && true"))
    assert seen == [ToolStarted("bash", "running pytest -q"), ToolFinished("bash", True, "", "c1")]


def test_a_tool_of_which_the_log_said_nothing_is_told_at_its_end() -> None:
    seen = read(allowed("edit", "a.py"), tool("write", filePath="a.py"), tool("write", filePath="b.py"))
    assert [type(event) for event in seen] == [ToolStarted, ToolFinished, ToolStarted, ToolFinished]
    assert seen[0] == ToolStarted("edit", "editing a.py")


@pytest.mark.parametrize(
    "line",
    [
        allowed("bash", "rm -rf /", action="deny"),
        allowed("external_directory", "/tmp/*"),
        f"{HEAD.format('INFO', 'loop')} step=0",
        "error: 429",
        "",
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert OpencodeReader(a_job()).parse_error(line) == []


@given(st.text())
def test_no_line_is_too_odd(text: str) -> None:
    reader = OpencodeReader(a_job())
    for line in (text, f"{HEAD.format('ERROR', text)}", failing(text), allowed("bash", text)):
        reader.parse_error(line)
        opencode_log.without_log(line)


def test_what_a_command_says_is_no_reason_for_a_failure() -> None:
    quoted = allowed("bash", "echo 429 rate limit, resets in 20 days")
    stderr = "\n".join([quoted, failing("AI_APICallError: Overloaded"), "Error: it broke"])
    assert opencode_log.without_log(stderr) == "AI_APICallError: Overloaded\nError: it broke"


class Talking(OpencodeAdapter):
    """opencode's reader over a program of the test's own."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self.program = program

    def invocation(self, job: Job) -> Invocation:
        return Invocation((sys.executable, "-I", "-S", "-c", self.program))


def saying(*lines: tuple[str, str]) -> str:
    """Each to `out` or `err`, and no end."""
    steps = "".join(f"print({line!r}, file=sys.std{where}, flush=True)\n" for where, line in lines)
    return f"import sys, time\n{steps}time.sleep(600)\n"


def dispatched(tmp_path: Path, *lines: tuple[str, str], **more: Any) -> Any:
    return run(Talking(saying(*lines)), make_job(tmp_path, limits=Limits(wall_s=30.0)), **more)


def test_a_cli_that_only_asks_a_failing_server_again_is_ended_with_the_class_of_that(tmp_path: Path) -> None:
    limit = failing("AI_APICallError: Rate limit reached, try again in 30s")
    result = dispatched(tmp_path, ("err", failing("AI_APICallError: Overloaded")), ("err", limit), patience_s=0.2)
    assert (result.error, result.code) == (ErrorClass.RATE_LIMITED, None)
    assert result.reason == "AI_APICallError: Rate limit reached, try again in 30s"
    assert result.retry_at is not None


def test_a_failure_that_it_got_over_is_forgotten(tmp_path: Path) -> None:
    """Patience is longer than this takes, so only a failure that stands at the end could break it."""
    done = json.dumps({"type": "step_finish", "part": {"reason": "stop"}})
    text = json.dumps({"type": "text", "part": {"text": "Done."}})
    lines = (("err", failing("AI_APICallError: Overloaded")), ("out", text), ("out", done))
    result = dispatched(tmp_path, *lines, patience_s=20.0, linger_s=0.1)
    assert (result.error, result.text) == (None, "Done.")
