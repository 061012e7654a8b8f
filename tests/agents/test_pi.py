from __future__ import annotations

import json

import pytest

from captured import URL, a_job, done, events, only, told
from windlass.agents import registry
from windlass.agents.base import Spent, ToolFinished
from windlass.agents.cli.pi import PiAdapter
from windlass.model import ErrorClass

KEY = {"base_url": URL, "api_key": "k"}


def test_what_each_message_cost_is_known_as_it_comes() -> None:
    costs = [spent.usage.cost_usd for spent in only(Spent, events("pi", "happy"))]
    assert costs == [pytest.approx(0.004875), pytest.approx(0.009), pytest.approx(0.0135)]


def test_a_price_of_0_is_an_unknown_price() -> None:
    def cost(model: str) -> float | None:
        usage = {"input": 1000, "output": 100, "cost": {"total": 0}}
        message = {"role": "assistant", "model": model, "usage": usage, "stopReason": "stop"}
        return only(Spent, told("pi", {"type": "message_end", "message": message}))[0].usage.cost_usd

    assert cost("claude-sonnet-4-5") == pytest.approx(0.0045)
    assert cost("a-model-of-my-own") is None


def test_several_ends_of_the_agent_are_not_the_end() -> None:
    found = events("pi", "err429x1")
    assert len([event for event in found if type(event).__name__ == "Done"]) == 1
    assert done(events("pi", "happy")[:-1]) is None


@pytest.mark.parametrize(
    ("stop", "message", "error"),
    [
        ("error", "529 overloaded_error", ErrorClass.OVERLOADED),
        ("error", "terminated", ErrorClass.OVERLOADED),
        ("error", "402 payment", ErrorClass.BILLING),
        ("error", "prompt is too long: 300000 tokens", ErrorClass.CONTEXT_OVERFLOW),
        ("error", "", ErrorClass.CRASHED),
        ("aborted", "", ErrorClass.KILLED),
        ("length", "", ErrorClass.BAD_OUTPUT),
        ("toolUse", "", ErrorClass.CRASHED),
    ],
)
def test_only_a_stop_of_the_model_is_a_good_end(stop: str, message: str, error: ErrorClass) -> None:
    last = {
        "role": "assistant",
        "stopReason": stop,
        "errorMessage": message,
        "content": [{"type": "text", "text": "x"}],
    }
    end = done(told("pi", {"type": "message_end", "message": last}, {"type": "agent_settled"}))
    assert end is not None
    assert (end.error, end.text) == (error, "")


def test_an_end_without_a_word_is_a_crash() -> None:
    end = done(told("pi", {"type": "agent_settled"}))
    assert end is not None
    assert end.error is ErrorClass.CRASHED


def test_a_tool_that_is_not_there_fails() -> None:
    assert only(ToolFinished, events("pi", "write-ro"))[0].text == "Tool Write not found"


def test_both_prompts_are_given_so_that_the_users_own_stays_out() -> None:
    argv = PiAdapter().invocation(a_job(system="")).argv
    assert {"--system-prompt", "--append-system-prompt", "--no-context-files", "--no-approve"} <= set(argv)


def test_its_own_retries_are_off() -> None:
    settings = json.loads(PiAdapter().invocation(a_job()).files["home/settings.json"])
    assert settings["retry"]["enabled"] is False


def test_another_model_server_is_written_down_without_the_key() -> None:
    found = registry.make("pi", KEY).invocation(a_job(model="m"))
    server = json.loads(found.files["home/models.json"])["providers"]["windlass"]
    assert (server["apiKey"], server["api"], server["models"][0]["id"]) == (
        "$WINDLASS_API_KEY",
        "anthropic-messages",
        "m",
    )
    assert found.env["WINDLASS_API_KEY"] == "k"


def test_a_key_goes_where_its_provider_is_looked_for() -> None:
    assert (
        registry.make("pi", {"api_key": "k", "provider": "open-router"}).invocation(a_job()).env["OPEN_ROUTER_API_KEY"]
    )
    assert registry.make("pi", {"api_key": "k"}).invocation(a_job()).env["GEMINI_API_KEY"] == "k"
