"""A CLI says in its stream or on its standard error that it waits: that is read, and a long wait becomes ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from front import Front
from jobs import PythonAgent, make_job, run
from windlass.agents.base import Retrying, Unsure
from windlass.agents.cli import claude
from windlass.agents.cli.base import CliSettings
from windlass.agents.cli.claude import ClaudeAdapter, ClaudeReader
from windlass.agents.cli.codex import CodexAdapter, CodexReader
from windlass.agents.cli.failures import reset_time
from windlass.agents.cli.gemini import GeminiReader
from windlass.agents.cli.pi import PiReader
from windlass.model import ErrorClass

RATE, BUSY = ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED
CODEX_LOG = (
    "2026-11-16T01:28:32.268314Z  WARN codex_core::responses_retry: stream disconnected - retrying sampling request"
    " (1/1 in 39.997543948s)... turn_id=01a1 retries=1 max_retries=1 sampling_error=exceeded retry limit, last status:"
    " 429 Too Many Requests"
)


def api_retry(**more: Any) -> str:
    line = {"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 2, "session_id": "s"}
    return json.dumps(line | more)


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (
            api_retry(retry_delay_ms=40_000, error_status=429, error="rate_limit"),
            Retrying(RATE, "429 rate_limit", 40.0, told=True),
        ),
        (
            api_retry(retry_delay_ms=532, error_status=500, error="server_error"),
            Retrying(BUSY, "500 server_error", 0.532, told=False),
        ),
        (
            api_retry(retry_delay_ms=31_415, error_status=None, error="connection_error"),
            Retrying(BUSY, "connection_error", 31.415, told=False),
        ),
    ],
)
def test_claude_tells_its_retries_in_its_stream(line: str, event: Retrying) -> None:
    assert ClaudeReader().parse(line) == [event]


def test_codex_tells_in_its_stream_that_it_asks_again_and_in_its_log_when() -> None:
    reader = CodexReader()
    why = "exceeded retry limit, last status: 429 Too Many Requests"
    line = json.dumps({"type": "error", "message": f"Reconnecting... 1/5 ({why})"})
    assert reader.parse(line) == [Retrying(RATE, why)]
    assert reader.parse_error(CODEX_LOG) == [Retrying(RATE, why, 39.997543948)]
    assert reader.parse_error("error: it broke") == []
    assert reader.without_log(f"{CODEX_LOG}\nerror: it broke") == "error: it broke"


def test_codex_is_asked_for_that_log_only(tmp_path: Path) -> None:
    env = CodexAdapter().invocation(make_job(tmp_path, agent="codex")).env
    assert env["RUST_LOG"] == "error,codex_core::responses_retry=warn"


def test_gemini_tells_on_its_standard_error() -> None:
    reader = GeminiReader()
    assert reader.parse_error("Attempt 1 failed: 429 quota used up") == []
    assert reader.parse_error("Suggested retry after 40s.. Retrying after 41743ms...") == [
        Retrying(RATE, "429 quota used up", 40.0, told=True)
    ]
    assert reader.parse_error("Attempt 1 failed: 503 busy. Retrying after 5120ms...") == [
        Retrying(BUSY, "503 busy", 5.12, told=False)
    ]
    assert reader.parse_error("Attempt 1 failed with 5xx error. Retrying with backoff... ApiError: busy") == [
        Retrying(BUSY, "5xx error", None, told=False)
    ]
    # its last word leaves out what it was
    failed = reader.parse('{"type":"result","status":"error","error":{"message":"[API Error: broken]"},"stats":{}}')
    assert getattr(failed[-1], "error", None) is BUSY
    assert reader.parse_error("Ripgrep is not available. Falling back to GrepTool.") == []


def test_pi_tells_how_long_the_server_asked_it_to_wait() -> None:
    assert reset_time("Server requested 40s retry delay (max: 1s). 429 {}", 1000.0) == 1040.0
    line = json.dumps({"type": "auto_retry_start", "attempt": 1, "delayMs": 2000, "errorMessage": "529 overloaded"})
    assert PiReader().parse(line) == [Retrying(BUSY, "529 overloaded", 2.0, told=False)]


def waiting(seconds: float) -> PythonAgent:
    spent = json.dumps({"type": "usage", "input": 100, "output": 10, "cost_usd": 0.25})
    line = json.dumps({"type": "retrying", "text": "503 busy", "wait_s": seconds})
    return PythonAgent(f"import time\nprint({spent!r}, {line!r}, sep='\\n', flush=True)\ntime.sleep(600)")


def test_a_wait_longer_than_our_patience_ends_the_dispatch_at_once_and_names_the_time(tmp_path: Path) -> None:
    result = run(waiting(20_000), make_job(tmp_path), patience_s=10_000.0)
    assert (result.error, result.reason) == (BUSY, "503 busy")
    # the clock of these tests counts how often it was asked
    assert result.retry_at is not None
    assert 20_000 <= result.retry_at < 20_100


def test_in_an_announced_wait_no_response_is_on_its_way_and_none_is_assumed_to_cost_something(tmp_path: Path) -> None:
    result = run(waiting(20_000), make_job(tmp_path), patience_s=10_000.0)
    assert (result.usage.cost_usd, result.unsure) == (0.25, Unsure.NOTHING)
    # given up after a while: it may just have asked again
    result = run(waiting(0.01), make_job(tmp_path), patience_s=0.05)
    assert (result.usage.cost_usd, result.unsure) == (0.25, Unsure.RESPONSE)


def test_a_wait_within_our_patience_is_left_to_the_cli(tmp_path: Path) -> None:
    line = json.dumps({"type": "retrying", "text": "503 busy", "wait_s": 1})
    done = json.dumps({"type": "done", "text": "ok"})
    agent = PythonAgent(f"import time\nprint({line!r}, flush=True)\ntime.sleep(1)\nprint({done!r}, flush=True)")
    result = run(agent, make_job(tmp_path))
    assert (result.error, result.text) == (None, "ok")


# -- logins


def test_a_keychain_login_reaches_the_clean_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claude, "KEYCHAIN", True)
    job = make_job(tmp_path, agent="claude")
    name = "CLAUDE_SECURESTORAGE_CONFIG_DIR"
    assert ClaudeAdapter(environ={"HOME": "/home/ada"}).invocation(job).env[name] == ""
    chosen = {"HOME": "/home/ada", "CLAUDE_CONFIG_DIR": "/home/ada/.config/claude"}
    assert ClaudeAdapter(environ=chosen).invocation(job).env[name] == "/home/ada/.config/claude"
    for other in ({"CLAUDE_CODE_OAUTH_TOKEN": "t"}, {"ANTHROPIC_API_KEY": "k"}):
        env = ClaudeAdapter(environ=other).invocation(job).env
        assert name not in env
        assert other.items() <= env.items()
    assert name not in ClaudeAdapter(CliSettings(base_url="http://127.0.0.1:1")).invocation(job).env


def test_two_keys_are_two_logins_and_the_key_itself_is_not_shown() -> None:
    one, same, two = (ClaudeAdapter(CliSettings(api_key=key)).credential for key in ("sk-one", "sk-one", "sk-two"))
    assert one == same != two
    assert one.startswith("claude ")
    assert "sk-one" not in one
    assert ClaudeAdapter().credential == "claude"


def test_doctor_says_how_to_install_each_cli_when_none_is_on_the_path(tmp_path: Path) -> None:
    front = Front(tmp_path)
    front.clis()
    said = front("doctor").out
    for package in ("@anthropic-ai/claude-code", "@openai/codex", "@google/gemini-cli", "opencode-ai"):
        assert f"npm install -g {package}" in " ".join(said.split())
    assert "npm install -g @earendil-works/pi-coding-agent@0.87.1" in " ".join(said.split())
