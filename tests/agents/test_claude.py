from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from captured import a_job, done, events, only, told
from jobs import make_job
from windlass.agents import registry
from windlass.agents.base import Done, Limits, Spent, ToolFinished, ToolStarted, Unsure
from windlass.agents.cli.claude import ClaudeAdapter, ClaudeReader
from windlass.agents.contracts.registry import json_schema
from windlass.agents.process.agent_run import recount
from windlass.dispatch.verdict import assumed_usd
from windlass.model import ErrorClass, Usage

FAILED: dict[str, Any] = {"type": "result", "subtype": "success", "is_error": True}


def flags(**job: Any) -> list[str]:
    return list(ClaudeAdapter().invocation(a_job(**job)).argv)


def after(name: str, found: list[str]) -> str:
    return found[found.index(name) + 1]


def test_a_schema_is_checked_by_the_cli_and_its_answer_is_structured() -> None:
    end = done(events("claude", "schema"))
    assert end is not None
    assert end.structured == {"status": "ok", "files": ["hello.txt"]}
    assert only(ToolStarted, events("claude", "schemabad")) == []
    assert only(ToolFinished, events("claude", "schemabad")) == []


def test_a_missing_structured_answer_leaves_the_text() -> None:
    end = done(told("claude", {"type": "result", "subtype": "success", "is_error": False, "result": "words"}))
    assert end == Done("words", structured=None)


def test_a_schema_is_given_when_the_contract_has_one() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert json.loads(after("--json-schema", flags(schema=schema))) == schema
    assert "--json-schema" not in flags()
    assert "--json-schema" not in flags(schema={"type": "array"})
    off = registry.make("claude", {"structured": "off"}).invocation(a_job(schema=schema))
    assert "--json-schema" not in off.argv


def test_the_schemas_of_our_contracts_fit_on_a_command_line() -> None:
    assert len(after("--json-schema", flags(schema=json_schema("review")))) < 100_000


def test_several_events_of_one_message_are_counted_once() -> None:
    totals = [spent.usage for spent in only(Spent, events("claude", "happy"))]
    assert [usage.input for usage in totals] == [1300, 2600, 4200, 4200]


def test_what_it_used_is_money_before_it_has_told_its_cost() -> None:
    """Its stream tells of a response before it is spoken, its transcript after: the most that was told counts, once."""
    reader = ClaudeReader()
    usage = {"input_tokens": 1000, "cache_creation_input_tokens": 300, "output_tokens": 1}
    message = {"id": "m1", "model": "claude-sonnet-4-5", "content": [], "usage": usage}
    lines = [
        (reader.parse, {"type": "assistant", "message": message}),
        (reader.parse_ledger, {"type": "assistant", "message": {**message, "usage": {**usage, "output_tokens": 50}}}),
        (reader.parse, {"type": "assistant", "message": message}),
    ]
    told = [event.usage for read, line in lines for event in only(Spent, read(json.dumps(line)))]
    assert [(one.input, one.output) for one in told] == [(1300, 1), (1300, 50)]
    # as the CLI itself reckons it when it comes to its end
    assert told[-1].cost_usd == pytest.approx(0.004875)


def test_a_model_without_a_price_leaves_its_cost_unknown_and_its_tokens_known() -> None:
    message = {"id": "m1", "model": "own-model", "content": [], "usage": {"input_tokens": 10, "output_tokens": 5}}
    [spent] = only(Spent, ClaudeReader().parse(json.dumps({"type": "assistant", "message": message})))
    assert spent.usage == Usage(10, 5, 0, None)


def test_a_continued_session_is_not_paid_again() -> None:
    spent = only(Spent, events("claude", "text-sess2"))[-1]
    assert spent.usage == Usage(1300, 50, 0, pytest.approx(0.004875))


def test_a_continued_session_that_got_no_token_costs_nothing() -> None:
    """What the session cost before stands beside an empty list of what was used since."""
    earlier = {"claude-sonnet-4-5": {"inputTokens": 6667, "outputTokens": 67, "costUSD": 0.021006}}
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": True,
        "api_error_status": 503,
        "result": "API Error: 503",
        "total_cost_usd": 0.021006,
        "modelUsage": earlier,
        "model_usage_since_last_result": {},
    }
    assert only(Spent, told("claude", result))[-1].usage == Usage(0, 0, 0, 0.0)
    del result["model_usage_since_last_result"]
    assert only(Spent, told("claude", result))[-1].usage.cost_usd == 0.021006


def test_a_request_that_failed_is_no_longer_on_its_way() -> None:
    reader = ClaudeReader()
    for line, asking in (
        ({"type": "api-request"}, True),
        ({"type": "system", "subtype": "api_error", "error": {"status": 429}, "retryInMs": 26000}, False),
        ({"type": "api-request"}, True),
        ({"type": "assistant", "message": {"id": "m1", "usage": {}}}, False),
    ):
        reader.parse_ledger(json.dumps(line))
        assert reader.asking is asking


@pytest.mark.parametrize(
    ("sources", "cost"),
    [(["request_retry"] * 2, 0.0), (["connection_retry"] * 2, None), (["request_retry", "connection_retry"], None)],
)
def test_a_connection_that_broke_before_a_response_costs_nothing(
    tmp_path: Path, sources: list[str], cost: float | None
) -> None:
    job = make_job(tmp_path, agent="claude")
    folder = job.folder / "home" / "projects" / "p"
    folder.mkdir(parents=True)
    lines = [{"type": "system", "subtype": "api_error", "source": source} for source in sources]
    (folder / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dropped = "API Error: Connection dropped (ECONNRESET). Try again."
    result = {"type": "result", "subtype": "success", "is_error": True, "result": dropped, "usage": {}}
    (job.folder / "stdout").write_text(json.dumps({**result, "model_usage_since_last_result": {}}) + "\n")
    found = recount(registry.make("claude", {}), job, lambda: 0.0)
    assert (found.error, found.usage.cost_usd) == (ErrorClass.OVERLOADED, cost)
    assert found.unsure is (Unsure.NOTHING if cost == 0.0 else Unsure.ALL)


@pytest.mark.parametrize(
    ("sources", "unknown"),
    [(["request_retry"] * 2, 0), (["connection_retry"] * 2, 2), (["request_retry", "connection_retry"], 1)],
)
def test_a_response_that_broke_off_has_an_unknown_cost_also_when_the_next_one_came_whole(
    tmp_path: Path, sources: list[str], unknown: int
) -> None:
    job = make_job(tmp_path, agent="claude")
    folder = job.folder / "home" / "projects" / "p"
    folder.mkdir(parents=True)
    lines = [{"type": "system", "subtype": "api_error", "source": source} for source in sources]
    answer = {"id": "m1", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 100_000, "output_tokens": 0}}
    lines.append({"type": "assistant", "message": answer})
    (folder / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    used = {"claude-sonnet-4-5": {"inputTokens": 100_000, "outputTokens": 0, "costUSD": 0.3}}
    result = {"type": "result", "subtype": "success", "result": "done", "model_usage_since_last_result": used}
    (job.folder / "stdout").write_text(json.dumps(result) + "\n")
    found = recount(registry.make("claude", {}), job, lambda: 0.0)
    assert (found.error, found.usage.cost_usd, found.unknown_responses) == (None, 0.3, unknown)
    assert found.unsure is (Unsure.RESPONSE if unknown else Unsure.NOTHING)
    assert assumed_usd(found, 0.5) == pytest.approx(0.3 * unknown)


def test_a_price_that_the_cli_does_not_know_is_ours_or_unknown() -> None:
    def cost(model: str) -> float | None:
        used = {"inputTokens": 1000, "outputTokens": 100, "costUSD": 0.5, "costBasis": "unknown"}
        result = {"type": "result", "subtype": "success", "total_cost_usd": 0.5, "modelUsage": {model: used}}
        return only(Spent, told("claude", result))[-1].usage.cost_usd

    assert cost("claude-sonnet-4-5") == pytest.approx(0.0045)
    assert cost("a-model-of-my-own") is None


def test_limits_of_the_job_are_given_to_the_cli_too() -> None:
    found = flags(limits=Limits(60.0, turns=7, usd=1.5))
    assert (after("--max-turns", found), after("--max-budget-usd", found)) == ("7", "1.5000")
    assert "--max-turns" not in flags()


def test_tools_have_the_names_of_the_cli() -> None:
    assert after("--tools", flags()) == "Read,Grep,Glob,Bash,Write,Edit"
    assert after("--tools", flags(tools=("read", "ls"), writes="none")) == "Read,Glob"
    assert after("--tools", flags(tools=(), writes="none")) == "Read,Grep,Glob"


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"result": "API Error: 429", "api_error_status": 429}, ErrorClass.RATE_LIMITED),
        ({"result": "You've hit your session limit · resets 3pm (UTC)"}, ErrorClass.RATE_LIMITED),
        ({"result": "You've hit your weekly limit · resets Nov 20, 3pm (UTC)"}, ErrorClass.RATE_LIMITED),
        ({"result": "Claude AI usage limit reached|1763300000"}, ErrorClass.RATE_LIMITED),
        ({"result": "API Error: 529 Overloaded", "api_error_status": 529}, ErrorClass.OVERLOADED),
        ({"result": "API Error: Connection error."}, ErrorClass.OVERLOADED),
        ({"result": "Invalid API key · Please run /login"}, ErrorClass.AUTH),
        ({"result": "Not logged in · Please run /login"}, ErrorClass.AUTH),
        ({"result": "OAuth token has expired", "api_error_status": 401}, ErrorClass.AUTH),
        ({"result": "Credit balance is too low", "api_error_status": 400}, ErrorClass.BILLING),
        ({"result": "Prompt is too long", "api_error_status": 400}, ErrorClass.CONTEXT_OVERFLOW),
        ({"result": "API Error: 413 too large", "api_error_status": 413}, ErrorClass.CONTEXT_OVERFLOW),
        ({"result": "API Error: 400 tools.0: bad", "api_error_status": 400}, ErrorClass.CRASHED),
        ({"subtype": "error_during_execution", "errors": ["boom"]}, ErrorClass.CRASHED),
        ({"subtype": "error_max_structured_output_retries"}, ErrorClass.BAD_OUTPUT),
        ({}, ErrorClass.CRASHED),
    ],
)
def test_errors_by_their_words(result: dict[str, Any], error: ErrorClass) -> None:
    end = done(told("claude", FAILED | result))
    assert end is not None
    assert end.error is error


def test_a_refusal_is_no_answer() -> None:
    end = done(told("claude", {"type": "result", "subtype": "success", "stop_reason": "refusal", "result": "No."}))
    assert end == Done("", error=ErrorClass.REFUSED, reason="No.")


def test_the_end_of_a_limit_is_told_by_the_server() -> None:
    info = {"status": "rejected", "resetsAt": 1_763_300_000, "rateLimitType": "five_hour"}
    limit = {"type": "rate_limit_event", "rate_limit_info": info}
    end = done(told("claude", limit, FAILED | {"result": "session limit", "api_error_status": 429}))
    assert end is not None
    assert end.retry_at == 1_763_300_000.0


def test_a_pause_of_whole_seconds_is_the_servers_and_another_is_the_clis_own() -> None:
    def retry_at(delay: int) -> float | None:
        retry = {"type": "system", "subtype": "api_retry", "retry_delay_ms": delay, "error_status": 429}
        said = {"type": "assistant", "timestamp": "2026-01-01T00:00:00Z", "is_api_error_message": True}
        end = done(told("claude", retry, said, FAILED | {"result": "429", "api_error_status": 429}))
        assert end is not None
        return end.retry_at

    assert retry_at(3000) == 1_767_225_603.0
    assert retry_at(3017) is None


def test_its_own_retries_are_cut_short() -> None:
    assert ClaudeAdapter().invocation(a_job()).env["CLAUDE_CODE_MAX_RETRIES"] == "2"


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("Read", {"file_path": "/repo/src/x.py"}, "reading src/x.py"),
        ("Bash", {"command": "pytest   -q\n  tests"}, "running pytest -q tests"),
        ("Write", {"file_path": "/repo/a"}, "writing a"),
        ("Edit", {"file_path": "/elsewhere/a"}, "editing /elsewhere/a"),
        ("Grep", {"pattern": "def .*"}, "searching for def .*"),
        ("Glob", {"pattern": "**/*.py"}, "finding files"),
        ("WebFetch", {"url": "x"}, "using webfetch"),
    ],
)
@pytest.mark.req("S1-13")
def test_a_tools_doing_in_words(name: str, given: dict[str, str], words: str) -> None:
    use = {"type": "tool_use", "id": "t", "name": name, "input": given}
    assert only(ToolStarted, told("claude", {"type": "assistant", "message": {"content": [use]}}))[0].text == words


def test_a_prompt_that_begins_like_a_command_is_no_command() -> None:
    assert ClaudeAdapter().invocation(a_job(prompt="/help me")).stdin == "\n/help me"


def test_a_path_in_the_prompt_sends_no_file_along() -> None:
    assert ClaudeAdapter().invocation(a_job()).env["CLAUDE_CODE_DISABLE_FILE_MENTIONS"] == "1"


def test_commits_do_not_name_the_cli_as_their_author() -> None:
    assert json.loads(after("--settings", flags()))["attribution"] == {"commit": "", "pr": ""}
