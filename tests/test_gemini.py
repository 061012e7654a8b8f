from __future__ import annotations

import json

import pytest

from captured import a_job, done, events, only, told
from windlass.agents import registry
from windlass.agents.base import Done, Limits, Said, Spent, ToolFinished
from windlass.agents.gemini import GeminiAdapter
from windlass.model import ErrorClass, Usage


def settings(**job: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(GeminiAdapter().invocation(a_job(**job)).files["home/.gemini/settings.json"])
    return found


def test_thoughts_are_paid_as_output() -> None:
    spent = only(Spent, events("gemini", "happy"))
    assert [one.usage for one in spent] == [Usage(3900, 174, 600, pytest.approx(0.00594))]


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
