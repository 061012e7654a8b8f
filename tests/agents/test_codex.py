from __future__ import annotations

import json
from typing import Any

import pytest

from captured import URL, a_job, done, events, lines, only, reader_of, told, written_down
from windlass.agents import registry
from windlass.agents.base import Spent, ToolFinished, ToolStarted
from windlass.agents.cli.codex import CodexAdapter, CodexReader
from windlass.model import ErrorClass, Usage


def flags(options: dict[str, str] | None = None, **job: Any) -> str:
    return " ".join(registry.make("codex", options or {}).invocation(a_job(**job)).argv)


def test_tokens_are_priced_by_the_model_that_was_asked_for() -> None:
    spent = only(Spent, events("codex", "happy", a_job(model="gpt-5")))
    assert [one.usage for one in spent] == [Usage(3900, 153, 600, pytest.approx(0.00573))]


def test_the_tokens_of_a_continued_session_are_not_counted_again() -> None:
    assert only(Spent, events("codex", "happy", a_job(model="gpt-5", session="s"))) == []


def test_the_rollout_tells_each_response_before_its_tool_is_at_its_end() -> None:
    spent = written_down(reader_of("codex", model="gpt-5"), "codex")
    assert [one.usage for one in spent] == [
        Usage(15000, 10, 34, pytest.approx(0.01881175), True),
        Usage(30000, 20, 67, pytest.approx(0.037624625), True),
    ]
    assert all(one.total for one in spent)


def test_of_a_continued_session_the_rollout_tells_what_is_new() -> None:
    reader = reader_of("codex", model="gpt-5", session="s")
    spent = written_down(reader, "codex-continued")
    assert spent[-1].usage == Usage(45000, 30, 100, pytest.approx(0.0564375), True)
    # its last word is of the whole thread
    usage = {"input_tokens": 60000, "cached_input_tokens": 134, "output_tokens": 40}
    assert only(Spent, reader.parse(json.dumps({"type": "turn.completed", "usage": usage}))) == []


def test_the_last_word_about_a_turn_is_not_added_to_what_the_rollout_told() -> None:
    reader = reader_of("codex", model="gpt-5")
    written_down(reader, "codex")
    more = {"input_tokens": 45000, "cached_input_tokens": 100, "output_tokens": 30}
    spent = only(Spent, reader.parse(json.dumps({"type": "turn.completed", "usage": more})))
    assert [one.usage for one in spent] == [Usage(45000, 30, 100, pytest.approx(0.0564375), True)]


def test_a_model_that_nobody_asked_for_by_name_is_told_by_the_rollout() -> None:
    assert written_down(reader_of("codex"), "codex")[-1].usage.cost_usd == pytest.approx(0.037624625)


def test_a_model_without_a_price_has_tokens_but_no_cost() -> None:
    assert written_down(reader_of("codex", model="mine"), "codex")[-1].usage == Usage(30000, 20, 67, None)


@pytest.mark.parametrize("cut", [0, 1, 40, 200, -1])
def test_a_line_of_the_rollout_that_is_damaged_says_nothing(cut: int) -> None:
    reader = CodexAdapter().reader(a_job())
    assert [event for line in lines("ledgers", "codex") for event in reader.parse_ledger(line[:cut])] == []


def test_a_role_that_writes_is_confined_to_its_directory() -> None:
    assert 'sandbox_mode="workspace-write"' in flags()
    assert "sandbox_workspace_write.exclude_slash_tmp=true" in flags()
    assert CodexAdapter().invocation(a_job()).env["TMPDIR"] == "/runs/r1/attempt/tmp"


def test_a_protected_folder_of_a_declared_output_is_writable() -> None:
    root = f'sandbox_workspace_write.writable_roots=["{a_job().cwd}/.agents"]'
    assert root in flags(outs={"plan": ".agents/tmp/phases/1.2-plan.md"})
    assert "writable_roots" not in flags(outs={"plan": "docs/plans/plan.md"})


def test_a_role_that_writes_nothing_has_a_shell_that_cannot_write() -> None:
    found = flags(tools=("read", "bash"), writes="none")
    assert 'sandbox_mode="read-only"' in found
    assert "workspace-write" not in found


def test_the_sandbox_can_be_switched_off_for_those_that_write_only() -> None:
    assert "--dangerously-bypass-approvals-and-sandbox" in flags({"sandbox": "off"})
    assert "dangerously" not in flags({"sandbox": "off"}, tools=("read", "bash"), writes="none")


def test_another_model_server_is_a_provider_of_its_own_with_few_retries() -> None:
    found = flags({"base_url": "http://127.0.0.1:9/x"})
    assert 'base_url="http://127.0.0.1:9/x/v1"' in found
    assert "request_max_retries=1,stream_max_retries=1" in found
    assert "-m gpt-5" in found
    assert "/v1/v1" not in flags({"base_url": f"{URL}/v1"})


def test_a_session_is_resumed_with_the_prompt_on_stdin() -> None:
    assert CodexAdapter().invocation(a_job(session="s-1")).argv[-3:] == ("resume", "s-1", "-")


def test_quotes_and_line_breaks_of_the_system_prompt_stay_inside_it() -> None:
    assert 'developer_instructions="a\\n\\"b\\" = c"' in flags(system='a\n"b" = c')


def test_the_shell_around_a_command_is_not_shown() -> None:
    started = only(ToolStarted, events("codex", "bash-ro"))
    assert started[0].text.startswith("running cat hello.txt && git status")
    assert only(ToolFinished, events("codex", "bash-ro"))[0].ok is False


def test_files_that_change_are_named() -> None:
    changes = [{"path": "/repo/src/a.py", "kind": "update"}, {"path": "/repo/b.py", "kind": "add"}]
    item = {"id": "i", "type": "file_change", "changes": changes, "status": "completed"}
    found = told("codex", {"type": "item.completed", "item": item})
    assert found == [ToolStarted("edit", "editing src/a.py, b.py", "i"), ToolFinished("edit", True, "", "i")]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("exceeded retry limit, last status: 429 Too Many Requests", ErrorClass.RATE_LIMITED),
        ("You’ve hit your usage limit. Upgrade to Plus … or try again at 3:45 PM.", ErrorClass.RATE_LIMITED),
        ("Rate limit reached for gpt-5 … Please try again in 1.898s.", ErrorClass.RATE_LIMITED),
        ("unexpected status 401 Unauthorized: x, url: http://h/429/quota", ErrorClass.AUTH),
        ("unexpected status 500 Internal Server Error: x", ErrorClass.OVERLOADED),
        ("We’re currently experiencing high demand, which may cause temporary errors.", ErrorClass.OVERLOADED),
        ("stream disconnected before completion: x", ErrorClass.OVERLOADED),
        ("Your input exceeds the context window of this model.", ErrorClass.CONTEXT_OVERFLOW),
        ("Quota exceeded. Check your plan: insufficient_quota", ErrorClass.BILLING),
        ("This content was flagged for possible biological risk.", ErrorClass.REFUSED),
        ("", ErrorClass.CRASHED),
    ],
)
def test_errors_by_their_words(message: str, error: ErrorClass) -> None:
    end = done(told("codex", {"type": "turn.failed", "error": {"message": message}}))
    assert end is not None
    assert end.error is error
    assert "http" not in end.reason


@pytest.mark.parametrize(
    ("why", "broken"),
    [
        ("stream disconnected before completion: Transport error: network error: error decoding response body", 1),
        ("stream disconnected before completion: error sending request for url (http://127.0.0.1:1/responses)", 0),
        ("unexpected status 503 Service Unavailable, url: http://127.0.0.1:1/aborted/responses", 0),
    ],
)
def test_a_response_that_broke_off_is_told_from_a_request_without_one(why: str, broken: int) -> None:
    reader = CodexReader()
    reader.parse(json.dumps({"type": "error", "message": f"Reconnecting... 1/5 ({why})"}))
    assert reader.broken_responses == broken


def test_an_error_before_the_first_turn_is_told_at_the_exit() -> None:
    reader = CodexAdapter().reader(a_job())
    assert reader.at_exit("", 1) is None
    assert reader.parse('{"type":"error","message":"401 Unauthorized"}') == []
    end = reader.at_exit("", 1)
    assert end is not None
    assert end.error is ErrorClass.AUTH
