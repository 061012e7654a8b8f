from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from captured import URL, a_job, done, events, only, told
from jobs import make_job
from windlass.agents import registry
from windlass.agents.base import Done, Spent, ToolFinished, ToolStarted, Unsure
from windlass.agents.cli.opencode import OpencodeAdapter, OpencodeReader
from windlass.agents.process.agent_run import recount
from windlass.model import ErrorClass


def config(options: dict[str, str] | None = None, **job: Any) -> Any:
    return json.loads(registry.make("opencode", options or {}).invocation(a_job(**job)).env["OPENCODE_CONFIG_CONTENT"])


def finish(reason: str, tokens: int = 10) -> dict[str, Any]:
    return {"type": "step_finish", "part": {"reason": reason, "tokens": {"input": tokens, "output": 1}, "cost": 0.1}}


def test_the_steps_costs_are_summed() -> None:
    costs = [spent.usage.cost_usd for spent in only(Spent, events("opencode", "happy"))]
    assert costs == [pytest.approx(0.00375), pytest.approx(0.007875), pytest.approx(0.012375)]


def test_a_step_whose_usage_is_not_told_is_not_free() -> None:
    untold = {"type": "step_finish", "part": {"reason": "unknown", "tokens": {"input": 0, "output": 0}, "cost": 0}}
    assert only(Spent, told("opencode", untold)) == []


def test_a_price_of_0_is_an_unknown_price() -> None:
    free = {"type": "step_finish", "part": {"reason": "stop", "tokens": {"input": 10, "output": 1}, "cost": 0}}
    assert only(Spent, told("opencode", free))[0].usage.cost_usd is None
    known = told("opencode", free, job=a_job(model="anthropic/claude-sonnet-4-5"))
    assert only(Spent, known)[0].usage.cost_usd == pytest.approx(0.000045)


def test_a_stream_that_is_cut_again_and_again_is_ended_by_us() -> None:
    steps = [{"type": "step_start"}, {"type": "text", "part": {"text": "half"}}, finish("unknown")]
    assert done(told("opencode", *steps * 2)) is None
    end = done(told("opencode", *steps * 3))
    assert end == Done("", error=ErrorClass.OVERLOADED, reason="the model's stream was cut 3 times in a row")
    assert done(told("opencode", *steps * 2, finish("tool-calls"), *steps * 2)) is None


def test_a_step_that_broke_off_has_an_unknown_cost_also_when_the_next_one_came_whole(tmp_path: Path) -> None:
    job = make_job(tmp_path, agent="opencode")
    broken = {"type": "step_finish", "part": {"reason": "unknown", "tokens": {"input": 0, "output": 0}, "cost": 0}}
    start = {"type": "step_start"}
    lines = [start, broken, start, {"type": "text", "part": {"text": "done"}}, finish("stop")]
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "stdout").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = recount(registry.make("opencode", {}), job, lambda: 0.0)
    assert (found.error, found.usage.cost_usd) == (None, 0.1)
    assert (found.unsure, found.unknown_responses) == (Unsure.RESPONSE, 1)


def test_the_log_shows_a_request_that_the_late_stream_does_not_show_yet() -> None:
    request = "timestamp=t level=INFO run=r message=stream providerID=p modelID=m session.id=s small=false agent=a"
    failed = 'timestamp=t level=ERROR run=r message="stream error" small=false error.error="storm 503"'
    reader = OpencodeReader()
    for read, line, asking in (
        (reader.parse_error, request, True),
        (reader.parse_error, request, True),
        (reader.parse, json.dumps(finish("tool-calls")), True),
        (reader.parse_error, request.replace("false", "true"), True),
        (reader.parse_error, failed, False),
    ):
        read(line)
        assert reader.asking is asking


def test_only_the_last_steps_words_are_the_answer() -> None:
    first = [{"type": "step_start"}, {"type": "text", "part": {"text": "first"}}, finish("tool-calls")]
    last = [{"type": "step_start"}, {"type": "text", "part": {"text": "last"}}, finish("stop")]
    assert done(told("opencode", *first, *last)) == Done("last")


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("length", ErrorClass.BAD_OUTPUT),
        ("content-filter", ErrorClass.REFUSED),
        ("error", ErrorClass.OVERLOADED),
        ("other", ErrorClass.CRASHED),
    ],
)
def test_another_end_than_a_stop_is_none(reason: str, error: ErrorClass) -> None:
    end = done(told("opencode", {"type": "text", "part": {"text": "x"}}, finish(reason)))
    assert end is not None
    assert (end.error, end.text) == (error, "")


def test_a_tool_that_is_denied_failed_under_its_own_name() -> None:
    found = events("opencode", "happy-deny")
    assert [(event.tool, event.ok) for event in only(ToolFinished, found)] == [("write", False), ("bash", False)]
    assert "unavailable tool 'Write'" in only(ToolFinished, found)[0].text


def test_names_of_tools_are_ours() -> None:
    part = {"tool": "glob", "callID": "c", "state": {"status": "completed", "input": {"pattern": "*"}}}
    assert only(ToolStarted, told("opencode", {"type": "tool_use", "part": part}))[0] == ToolStarted(
        "find", "finding files", "c"
    )


def test_the_time_of_the_next_try_comes_from_the_header() -> None:
    end = done(events("opencode", "err429"))
    assert end is not None
    assert end.retry_at == pytest.approx(1794717316.839 + 1)


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("APIError", {"statusCode": 429, "message": "x"}, ErrorClass.RATE_LIMITED),
        ("APIError", {"statusCode": 503, "message": "x"}, ErrorClass.OVERLOADED),
        ("APIError", {"statusCode": 402, "message": "x"}, ErrorClass.BILLING),
        (
            "APIError",
            {"statusCode": 400, "message": "x", "responseBody": "prompt is too long"},
            ErrorClass.CONTEXT_OVERFLOW,
        ),
        ("ProviderAuthError", {"message": "no key"}, ErrorClass.AUTH),
        ("ContextOverflowError", {"message": "x"}, ErrorClass.CONTEXT_OVERFLOW),
        ("MessageAbortedError", {"message": "aborted"}, ErrorClass.KILLED),
        ("UnknownError", {"message": "fetch failed"}, ErrorClass.OVERLOADED),
        ("UnknownError", {"message": "x"}, ErrorClass.CRASHED),
        ("UnknownError", {}, ErrorClass.CRASHED),
    ],
)
def test_errors_by_name_status_and_words(name: str, data: dict[str, Any], error: ErrorClass) -> None:
    end = done(told("opencode", {"type": "error", "error": {"name": name, "data": data}}))
    assert end is not None
    assert end.error is error
    assert end.reason


def test_what_is_not_allowed_is_denied_not_asked() -> None:
    permission = config(tools=("read", "bash"), writes="none")["agent"]["windlass"]["permission"]
    assert permission == {"*": "deny", "read": "allow", "bash": "allow", "external_directory": "allow"}


def test_another_model_server_is_configured_without_the_key() -> None:
    provider = config({"base_url": URL, "api_key": "k"}, model="m")["provider"]["windlass"]
    assert provider["options"]["apiKey"] == "{env:WINDLASS_API_KEY}"
    assert provider["options"]["baseURL"].endswith("/v1")
    assert list(provider["models"]) == ["m"]
    assert "--model windlass/m" in " ".join(
        registry.make("opencode", {"base_url": URL}).invocation(a_job(model="m")).argv
    )


def test_plugins_and_downloads_are_off() -> None:
    env = OpencodeAdapter().invocation(a_job()).env
    assert env["OPENCODE_PURE"] == env["OPENCODE_DISABLE_CLAUDE_CODE"] == env["OPENCODE_DISABLE_MODELS_FETCH"] == "1"


def test_its_plug_in_folder_counts_as_installed_so_that_nothing_is_fetched() -> None:
    files = registry.make("opencode", {}).invocation(a_job()).files
    assert "home/config/opencode/node_modules/.keep" in files
    lock = json.loads(files["home/config/opencode/package-lock.json"])
    assert list(lock["packages"][""]["dependencies"]) == ["@opencode-ai/plugin"]


def test_a_step_whose_tools_have_not_ended_has_not_told_its_cost() -> None:
    reader = OpencodeReader()
    for kind, asking in (("step_start", True), ("step_finish", False), ("step_start", True)):
        reader.parse(json.dumps({"type": kind, "part": {"reason": "tool-calls"}}))
        assert reader.asking is asking
