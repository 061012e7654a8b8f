"""The scripted model: the same rules in four languages, streamed or whole."""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from model_clients import (
    CLIENTS,
    AnthropicClient,
    ChatClient,
    Client,
    GeminiClient,
    ResponsesClient,
    every_way,
    refusal,
)
from windlass.agents.base import Job
from windlass.agents.cli.script import ScriptError
from windlass.agents.job_token import job_of, job_token
from windlass.testing.scripted_model import ScriptedModel

JOB = Job(
    run="r1", key="execute/t1/implement#1", attempt=1, role="implementer", purpose="implement", system="", prompt="",
    cwd=Path("/slots/1"), folder=Path(), agent="claude", contract="review", task_id="t1", task_title="Token bucket",
    phase="execute", cycle=2, outs={"plan": "docs/plan.md"},
)  # fmt: skip
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
BUILD: dict[str, Any] = {
    "when": {"role": "implementer", "task": "Token bucket"},
    "files": {"{plan_path}": "plan\n", "src/a.py": "x = 1\n"},
    "delete": ["old file.py"],
    "run": ["pytest -q"],
    "commit": "feat: {task_id}",
    "say": "Built.",
    "json": PASS,
    "usage": {"input": 1001, "output": 103, "cached": 12},
}


@pytest.fixture
def serve() -> Iterator[Any]:
    started: list[ScriptedModel] = []

    def start(*rules: dict[str, Any]) -> ScriptedModel:
        started.append(ScriptedModel.from_text(json.dumps(rules)).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


def base(server: ScriptedModel, **facts: Any) -> str:
    return server.url_for(job_token(replace(JOB, **facts)))


ways = pytest.mark.parametrize(("kind", "stream"), list(every_way()), ids=lambda it: getattr(it, "__name__", str(it)))
wires = pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.__name__)


@ways
def test_a_rule_becomes_one_tool_call_after_the_other_and_then_the_last_words(
    serve: Any, kind: type[Client], stream: bool
) -> None:
    turns = kind(base(serve(BUILD)), stream).all()
    assert [turn.call for turn in turns] == ["Write", "Write", "Bash", "Bash", "Bash", ""]
    assert [turn.input for turn in turns[:2]] == [
        {"file_path": "/slots/1/docs/plan.md", "content": "plan\n"},
        {"file_path": "/slots/1/src/a.py", "content": "x = 1\n"},
    ]
    commands = [turn.input["command"] for turn in turns[2:5]]
    assert commands[:2] == ["rm -f -- 'old file.py'", "pytest -q"]
    assert "commit -qm 'feat: t1'" in commands[2]
    assert turns[-1].text == f"Built.\n\n```superteam-json\n{json.dumps(PASS)}\n```"


@ways
def test_usage_adds_up_to_what_the_rule_says(serve: Any, kind: type[Client], stream: bool) -> None:
    turns = kind(base(serve(BUILD)), stream).all()
    assert tuple(map(sum, zip(*(turn.tokens for turn in turns), strict=True))) == (989, 103, 12)


@wires
def test_a_request_that_is_repeated_gets_the_same_answer(serve: Any, kind: type[Client]) -> None:
    client = kind(base(serve(BUILD)))
    first = client.ask()
    assert client.ask() == first
    client.history.append((first, "ok"))
    assert client.ask() == client.ask() != first


@wires
def test_an_error_is_given_as_often_as_told_and_says_when_to_come_back(serve: Any, kind: type[Client]) -> None:
    error = {"status": 429, "retry_after": 3, "times": 2, "message": "slow down"}
    client = kind(base(serve({"say": "hello", "error": error})))
    for _ in range(2):
        status, text, headers = refusal(client)
        assert (status, headers["retry-after"]) == (429, "3")
        assert "slow down" in text
    assert client.ask().text == "hello"


def test_an_error_counts_over_the_attempts_of_a_step(serve: Any) -> None:
    server = serve({"say": "hello", "error": {"status": 500, "times": 1}})
    assert refusal(ChatClient(base(server)))[0] == 500
    assert ChatClient(base(server, attempt=2)).ask().text == "hello"
    assert refusal(ChatClient(base(server, key="execute/t2/implement#1")))[0] == 500


def test_an_error_may_come_in_the_middle(serve: Any) -> None:
    client = AnthropicClient(base(serve({**BUILD, "error": {"status": 529, "turn": 3}})))
    for _ in range(2):
        client.history.append((client.ask(), "ok"))
    status, text, _ = refusal(client)
    assert (status, json.loads(text)["error"]["type"]) == (529, "overloaded_error")


@wires
def test_a_stream_is_cut_after_so_many_bytes(serve: Any, kind: type[Client]) -> None:
    client = kind(base(serve({"say": "word " * 400, "cut_after": 700, "cut_times": 1})))
    with pytest.raises(http.client.IncompleteRead) as cut:
        client.ask()
    assert len(cut.value.partial) == 700
    assert client.ask().text == "word " * 400


def test_a_model_that_hangs_lets_go_when_the_server_stops(serve: Any) -> None:
    server = serve({"say": "hello", "hang": True})
    failed: list[Exception] = []

    def ask() -> None:
        try:
            AnthropicClient(base(server)).ask()
        except (http.client.IncompleteRead, OSError) as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not server.requests:
        thread.join(0.01)
    assert thread.is_alive()
    server.stop()
    thread.join(300)
    assert (thread.is_alive(), len(failed)) == (False, 1)


@wires
def test_whom_no_rule_answers_is_told_who_asked(serve: Any, kind: type[Client]) -> None:
    status, text, _ = refusal(kind(base(serve(BUILD), role="scout", task_title="")))
    assert status == 400
    assert "no rule of the script answers role='scout', phase='execute', task_id='t1'" in text


def test_without_a_token_only_a_rule_for_everyone_answers(serve: Any) -> None:
    server = serve(BUILD, {"say": "for everyone"})
    assert ChatClient(server.url).ask().text == "for everyone"
    assert refusal(ChatClient(serve(BUILD).url))[0] == 400


def test_a_broken_token_is_refused(serve: Any) -> None:
    status, text, _ = refusal(ChatClient(f"{serve({'say': 'hi'}).url}/r1~k"))
    assert (status, "'r1~k' is not a job token" in text) == (400, True)


def test_a_rule_that_is_used_up_leaves_the_next_dispatch_to_the_next_rule(serve: Any) -> None:
    server = serve({"say": "first", "times": 1}, {"say": "second"})
    assert [ChatClient(base(server)).ask().text for _ in range(2)] == ["first", "first"]
    assert ChatClient(base(server, key="execute/t2/implement#1")).ask().text == "second"


def test_a_dispatch_that_never_ended_does_not_use_up_a_rule_of_its_step(serve: Any) -> None:
    server = serve({**BUILD, "times": 1}, {"say": "second"})
    assert AnthropicClient(base(server)).ask().call == "Write"
    again = AnthropicClient(base(server, attempt=2)).all()
    assert again[-1].text.startswith("Built.")
    assert AnthropicClient(base(server, attempt=3)).ask().text == "second"


def test_a_file_that_must_be_read_first_is_read_and_written_again(serve: Any) -> None:
    client = AnthropicClient(base(serve({"files": {"a.py": "x"}, "say": "done"})))
    client.history.append((client.ask(), "File has not been read yet. Read it first before writing to it."))
    look = client.ask()
    assert (look.call, look.input) == ("Read", {"file_path": "/slots/1/a.py"})
    client.history.append((look, "old"))
    again = client.ask()
    assert (again.call, again.input["content"]) == ("Write", "x")
    client.history.append((again, "ok"))
    assert client.ask().text == "done"


def test_without_a_tool_to_write_the_shell_writes(serve: Any) -> None:
    client = ChatClient(base(serve({"files": {"src/it's.py": "x"}})), tools=("Bash",))
    assert client.ask().input["command"] == "mkdir -p src && printf %s x > 'src/it'\"'\"'s.py'"


def test_what_a_role_may_not_use_is_asked_for_all_the_same(serve: Any) -> None:
    client = AnthropicClient(base(serve({"files": {"a.py": "x"}, "run": ["ls"]})), tools=("Read",))
    assert [turn.call for turn in client.all()] == ["Write", "Bash", ""]


def test_a_patch_tool_gets_a_patch_and_a_command_as_list_a_list(serve: Any) -> None:
    client = ResponsesClient(base(serve({"files": {"a.py": "x\n\ny\n"}, "run": ["ls"]})))
    shell = {"type": "object", "properties": {"command": {"type": "array"}}}
    tools = [{"type": "custom", "name": "apply_patch"}, {"type": "function", "name": "shell", "parameters": shell}]
    client.stream = False
    patch = json.loads(client.post({**client.body(), "tools": tools}))["output"][0]
    assert patch["input"] == "*** Begin Patch\n*** Add File: a.py\n+x\n+\n+y\n*** End Patch\n"
    output = {"type": "custom_tool_call_output", "call_id": patch["call_id"], "output": "ok"}
    answer = json.loads(client.post({**client.body(), "tools": tools, "input": [output]}))["output"][0]
    assert json.loads(answer["arguments"]) == {"command": ["bash", "-c", "ls"]}


def test_a_tool_for_the_answer_is_given_the_answer(serve: Any) -> None:
    server = serve({"say": "Fine.", "json": PASS, "usage": {"output": 7}, "times": 1}, {"say": "next"})
    client = AnthropicClient(base(server), stream=False)
    tools = [{"name": "StructuredOutput", "input_schema": {"type": "object"}}]
    got = client.whole(json.loads(client.post({**client.body(), "tools": tools})))
    assert (got.call, got.input, got.text, got.tokens[1]) == ("StructuredOutput", PASS, "Fine.", 7)
    assert ChatClient(base(server, key="other")).ask().text == "next"


@pytest.mark.parametrize(("rule", "text"), [({}, json.dumps(PASS)), ({"structured": False}, "```superteam-json\n")])
def test_an_answer_that_must_be_json_is_nothing_else_unless_the_rule_refuses(serve: Any, rule: Any, text: str) -> None:
    client = ResponsesClient(base(serve({"json": PASS, **rule})), stream=False)
    asked = {**client.body(), "text": {"format": {"type": "json_schema", "schema": {}}}}
    assert client.whole(json.loads(client.post(asked))).text.startswith(text)


def test_a_cli_that_names_the_calls_itself_is_followed_by_their_number(serve: Any) -> None:
    client = GeminiClient(base(serve(BUILD)))
    for _ in range(5):
        client.history.append((dataclasses.replace(client.ask(), id="write_file-1"), "ok"))
    assert client.ask().text.startswith("Built.")


def test_gemini_leaves_the_ids_to_the_calls(serve: Any) -> None:
    client = GeminiClient(base(serve(BUILD)), stream=False)
    first = client.ask()
    calls: list[dict[str, Any]] = [{"functionCall": {"id": "of another dispatch", "name": "Bash", "args": {}}}]
    calls.append({"functionCall": {"id": first.id, "name": "Write", "args": first.input}})
    backs = [{"functionResponse": {"name": name, "response": {"output": "ok"}}} for name in ("Bash", "Write")]
    contents = [{"role": "user", "parts": [part]} for pair in zip(calls, backs, strict=True) for part in pair]
    second = client.whole(json.loads(client.post({**client.body(), "contents": contents})))
    assert second.input == {"file_path": "/slots/1/src/a.py", "content": "x = 1\n"}


def test_a_question_of_the_clis_own_is_answered_by_its_schema_and_is_no_step(serve: Any) -> None:
    server = serve({**BUILD, "error": {"status": 500}})
    client = GeminiClient(base(server), stream=False)
    fields = {"choice": {"type": "string", "enum": ["pro", "flash"]}, "score": {"type": "number"}}
    schema = {"type": "object", "properties": fields, "required": ["choice", "score"]}
    got = client.whole(json.loads(client.post({**client.body(), "generationConfig": {"responseJsonSchema": schema}})))
    assert json.loads(got.text) == {"choice": "pro", "score": 1}
    assert (len(server.requests), server.asked) == (1, [])


def test_every_request_is_kept_without_its_secrets(serve: Any) -> None:
    server = serve(BUILD)
    AnthropicClient(base(server)).ask()
    [request] = server.requests
    assert (request.method, request.path, request.wire, request.status) == ("POST", "/v1/messages", "anthropic", 200)
    assert request.job == replace(JOB, agent="")
    assert request.body["messages"][0]["content"] == "Build it."
    assert (request.headers["authorization"], request.headers["x-api-key"]) == ("(redacted)", "(redacted)")
    assert "sk-secret" not in repr(request)


@pytest.mark.parametrize(
    ("path", "body", "key"),
    [
        ("/v1/messages/count_tokens", {"messages": []}, "input_tokens"),
        ("/v1beta/models/m:countTokens", {"contents": []}, "totalTokens"),
        ("/v1/models", None, "data"),
        ("", None, None),
    ],
)
def test_what_a_cli_asks_beside_the_model_is_answered(serve: Any, path: str, body: Any, key: str | None) -> None:
    server = serve(BUILD)
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(base(server) + path, data, timeout=300) as answer:
        found = json.loads(answer.read())
    assert key is None or key in found
    assert server.asked == []
    assert len(server.requests) == 1


def test_a_body_in_chunks_is_read(serve: Any) -> None:
    server = serve({"say": "hi"})
    body = json.dumps(ChatClient("", stream=False).body()).encode()
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=300)
    connection.request("POST", "/v1/chat/completions", iter([body[:9], body[9:]]), encode_chunked=True)
    assert json.loads(connection.getresponse().read())["choices"][0]["message"]["content"] == "hi"
    connection.close()


def test_the_server_listens_on_loopback_only(serve: Any) -> None:
    port = int(serve({"say": "hi"}).url.rsplit(":", 1)[1])
    with socket.socket() as other:
        other.bind(("127.0.0.2", port))


def test_what_a_model_cannot_do_is_refused_with_its_line() -> None:
    with pytest.raises(ScriptError, match=r"script\.yaml:2: unknown key 'exit'"):
        ScriptedModel.from_text("- say: hi\n  exit: 3\n")


words = st.text(st.characters(codec="utf-8"), max_size=20)


@given(words, words, words, st.integers(0, 99), st.dictionaries(words, words, max_size=2))
def test_a_token_tells_the_job_again(run: str, key: str, title: str, attempt: int, outs: dict[str, str]) -> None:
    job = replace(JOB, run=run, key=key, task_title=title, attempt=attempt, outs=outs, agent="")
    token = job_token(job)
    assert job_of(token) == job
    assert set(token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%")
