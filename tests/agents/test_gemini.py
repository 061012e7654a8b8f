from __future__ import annotations

import json

import pytest

from captured import a_job, done, events, lines, only, reader_of, told, written_down
from windlass.agents import prices as pricing
from windlass.agents import registry
from windlass.agents.base import Done, Limits, Said, Spent, ToolFinished
from windlass.agents.cli.base import CliSettings
from windlass.agents.cli.gemini import GeminiAdapter
from windlass.model import ErrorClass, Usage


def settings(**job: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(GeminiAdapter().invocation(a_job(**job)).files["home/.gemini/settings.json"])
    return found


def test_thoughts_are_paid_as_output() -> None:
    spent = only(Spent, events("gemini", "happy"))
    assert [one.usage for one in spent] == [Usage(3900, 174, 600, pytest.approx(0.00594))]


def test_the_recorded_chat_tells_each_response_once() -> None:
    spent = written_down(reader_of("gemini"), "gemini")
    assert [one.usage for one in spent] == [
        Usage(15000, 10, 34, pytest.approx(0.01881175), True),
        Usage(30000, 20, 67, pytest.approx(0.037624625), True),
    ]
    assert all(one.total for one in spent)


def test_of_a_continued_chat_what_is_new_is_told() -> None:
    spent = written_down(reader_of("gemini", session="s"), "gemini-continued")
    assert spent[-1].usage == Usage(45000, 30, 100, pytest.approx(0.0564375), True)


def test_thoughts_in_the_recorded_chat_are_paid_as_output() -> None:
    tokens = {"input": 100, "output": 10, "cached": 0, "thoughts": 40, "tool": 0, "total": 150}
    line = json.dumps({"id": "1", "type": "gemini", "content": "", "tokens": tokens, "model": "mine"})
    assert only(Spent, GeminiAdapter().reader(a_job()).parse_ledger(line))[0].usage == Usage(100, 50, 0, None)


def test_the_last_word_counts_what_was_asked_on_the_side_too_and_is_not_added() -> None:
    reader = reader_of("gemini")
    written_down(reader, "gemini")
    models = {
        "gemini-2.5-pro": {"input_tokens": 30000, "output_tokens": 20, "total_tokens": 30020, "cached": 67},
        "gemini-2.5-flash-lite": {"input_tokens": 500, "output_tokens": 5, "total_tokens": 505},
    }
    end = {"type": "result", "status": "success", "stats": {"models": models}}
    [spent] = only(Spent, reader.parse(json.dumps(end)))
    assert (spent.usage.input, spent.usage.output, spent.total) == (30500, 25, True)
    assert written_down(reader, "gemini") == []


@pytest.mark.parametrize("cut", [0, 1, 40, 200, -1])
def test_a_line_of_the_recorded_chat_that_is_damaged_says_nothing(cut: int) -> None:
    reader = GeminiAdapter().reader(a_job())
    assert [event for line in lines("ledgers", "gemini") for event in reader.parse_ledger(line[:cut])] == []


@pytest.mark.parametrize("tokens", [None, 5, [], {}, {"input": "x"}, {"input": -1}, {"input": 1e300}])
def test_a_recorded_message_without_tokens_says_nothing(tokens: object) -> None:
    line = json.dumps({"id": "1", "type": "gemini", "tokens": tokens, "model": "gemini-2.5-pro"})
    assert GeminiAdapter().reader(a_job()).parse_ledger(line) == []


@pytest.mark.parametrize(
    ("job", "config", "init"),
    [
        ({"model": "gemini-2.5-pro"}, "", ""),
        ({}, "gemini-2.5-pro", ""),
        ({}, "", "gemini-2.5-pro"),
        ({"model": "mine"}, "mine", "gemini-2.5-pro"),
    ],
    ids=["asked for by the job", "by the config", "named at the start", "another one named at the start"],
)
def test_a_reply_that_names_no_model_costs_what_the_model_in_use_costs(
    job: dict[str, str], config: str, init: str
) -> None:
    reader = GeminiAdapter(CliSettings(model=config)).reader(a_job(**job))
    if init:
        reader.parse(json.dumps({"type": "init", "session_id": "s", "model": init}))
    tokens = {"input": 1_000_000, "output": 0, "total": 1_000_000}
    [spent] = only(Spent, reader.parse_ledger(json.dumps({"id": "1", "type": "gemini", "tokens": tokens})))
    expected = pricing.cost("gemini-2.5-pro", Usage(1_000_000))
    assert expected
    assert spent.usage == Usage(1_000_000, 0, 0, pytest.approx(expected), True)
    stats = {"input_tokens": 2_000_000, "output_tokens": 0, "total_tokens": 2_000_000}
    [last] = only(Spent, reader.parse(json.dumps({"type": "result", "status": "success", "stats": stats})))
    assert last.usage.cost_usd == pytest.approx(pricing.cost("gemini-2.5-pro", Usage(2_000_000)))


def test_one_model_without_a_price_makes_the_cost_unknown() -> None:
    one = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    stats = {"models": {"gemini-2.5-pro": one, "mine": one}}
    spent = only(Spent, told("gemini", {"type": "result", "status": "success", "stats": stats}))[0]
    assert spent.usage == Usage(20, 2, 0, None)


def test_words_that_come_in_pieces_are_one_answer() -> None:
    def said(piece: str) -> dict[str, object]:
        return {"type": "message", "role": "assistant", "content": piece, "delta": True}

    tool = {"type": "tool_use", "tool_name": "read_file", "tool_id": "1", "parameters": {"file_path": "/repo/a"}}
    found = told(
        "gemini",
        said("Let me "),
        said("look."),
        tool,
        said("It is "),
        said("fine."),
        {"type": "result", "status": "success"},
    )
    assert [event.text for event in only(Said, found)] == ["Let me look.", "It is fine."]
    assert found[-1] == Done("It is fine.")


def test_the_users_prompt_is_not_an_answer() -> None:
    prompt = {"type": "message", "role": "user", "content": "```superteam-json\n{}\n```"}
    assert done(told("gemini", prompt, {"type": "result", "status": "success"})) == Done("")


def test_a_write_that_was_denied_failed() -> None:
    finished = only(ToolFinished, events("gemini", "write-plan"))[0]
    assert (finished.tool, finished.ok) == ("write", False)
    assert "Access denied" in finished.text


def test_the_roles_tools_are_all_that_exist() -> None:
    assert settings(tools=("read", "ls"), writes="none")["tools"] == {
        "core": ["read_file", "read_many_files", "list_directory"]
    }


def test_its_turns_and_tries_are_limited() -> None:
    assert settings(limits=Limits(60.0, turns=9))["model"] == {"maxSessionTurns": 9}
    general = settings()["general"]
    assert isinstance(general, dict)
    assert general["maxAttempts"] == 2


def test_git_still_knows_the_user_in_the_other_home() -> None:
    found = registry.make("gemini", {}, {"HOME": "/home/me"}).invocation(a_job())
    assert (found.env["HOME"], found.env["GIT_CONFIG_GLOBAL"]) == ("/runs/r1/attempt/home", "/home/me/.gitconfig")


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"GEMINI_API_KEY": "k"}, "gemini-api-key"),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true"}, "vertex-ai"),
        ({"HOME": "/home/me"}, "oauth-personal"),
    ],
)
def test_the_way_of_the_users_login_is_kept(environ: dict[str, str], kind: str) -> None:
    files = registry.make("gemini", {}, environ).invocation(a_job()).files
    assert json.loads(files["home/.gemini/settings.json"])["security"]["auth"]["selectedType"] == kind


@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("You exceeded your current quota, please check your plan and billing details. 429", ErrorClass.RATE_LIMITED),
        ('{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}', ErrorClass.RATE_LIMITED),
        ("[API Error: terminated]", ErrorClass.OVERLOADED),
        ('{"error":{"code":403,"status":"PERMISSION_DENIED"}}', ErrorClass.AUTH),
        ("The input token count exceeds the maximum number of tokens allowed", ErrorClass.CONTEXT_OVERFLOW),
        ("something else", ErrorClass.CRASHED),
    ],
)
def test_errors_by_their_words(message: str, error: ErrorClass) -> None:
    end = done(told("gemini", {"type": "result", "status": "error", "error": {"type": "unknown", "message": message}}))
    assert end is not None
    assert end.error is error


def test_an_error_without_a_result_is_told_at_the_exit() -> None:
    reader = GeminiAdapter().reader(a_job())
    reader.parse('{"type":"error","severity":"error","message":"500 Internal"}')
    end = reader.at_exit("", 1)
    assert end is not None
    assert end.error is ErrorClass.OVERLOADED
