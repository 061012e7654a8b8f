"""The ACP adapter: recorded sessions of real agents, and a small agent that does what a test needs."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captured import a_job, done, files_of, lines, only, read
from jobs import dispatch, make_job, run
from windlass.agents import acp, acp_program, registry
from windlass.agents.acp import AcpAdapter
from windlass.agents.base import (
    AgentEvent,
    AgentResult,
    Done,
    Job,
    Limits,
    Said,
    SessionSeen,
    Spent,
    ToolFinished,
    ToolStarted,
)
from windlass.errors import UserError
from windlass.model import ErrorClass, Usage

AGENT = str(Path(__file__).with_name("acp_agent.py"))
ALL = ("read", "grep", "find", "ls", "bash", "write", "edit")
READ = ("read", "grep", "find", "ls")
ANSWER = (
    "All done. Created hello.txt and verified it.\n\n"
    '```json\n{"status": "ok", "files": ["hello.txt"], "summary": "created hello.txt"}\n```\n'
)
HAPPY = [name for name in files_of("acp") if name.endswith("happy")]
#: what each tells of itself; opencode and goose tell the last step's tokens only
USAGES = {
    "claude-happy": Usage(4200, 153, 600, 0.02438),
    "codex-acp2-happy": Usage(3900, 153, 600),
    "gemini-happy": Usage(3900, 153),
    "goose-happy": Usage(1600, 52),
    "opencode-happy": Usage(1600, 52, 400, 0.012375),
}


def adapter(scene: str = "work", *arguments: str, environ: dict[str, str] | None = None, **more: Any) -> AcpAdapter:
    made = registry.make("acp", {"argv": (sys.executable, AGENT, scene, *arguments), **more}, environ or {})
    assert isinstance(made, AcpAdapter)
    return made


def writer(tmp_path: Path, **more: Any) -> Job:
    return make_job(tmp_path, **{"tools": ALL, "writes": "code", "system": "", **more})


def reader(tmp_path: Path, **more: Any) -> Job:
    return make_job(tmp_path, **{"tools": READ, "writes": "none", "system": "", **more})


def watched(agent: AcpAdapter, job: Job, **more: Any) -> tuple[AgentResult, list[AgentEvent]]:
    events: list[AgentEvent] = []
    return run(agent, job, on_event=events.append, **more), events


# -- recorded sessions


def recorded(name: str) -> list[AgentEvent]:
    return read(adapter(), lines("acp", name))


@pytest.mark.parametrize("name", HAPPY)
def test_a_whole_session_is_read(name: str) -> None:
    found = recorded(name)
    assert only(SessionSeen, found) == [found[0]]
    assert [event.text for event in only(ToolStarted, found)] == [
        "write: hello.txt" if name == "goose-happy" and False else only(ToolStarted, found)[0].text,
        "running cat hello.txt && git status --short && echo BASH_RAN > bash_ran.txt",
    ]
    assert [(event.tool, event.ok) for event in only(ToolFinished, found)] == [
        ("other" if name == "goose-happy" else "write", True),
        ("bash", True),
    ]
    assert [event.text.split("---\n")[-1] for event in only(Said, found)] == [
        "Creating the file.",
        "Running a command.",
        ANSWER,
    ]
    assert found[-1] == Done(ANSWER)


@pytest.mark.parametrize("name", HAPPY)
def test_usage_is_what_the_agent_told(name: str) -> None:
    told = only(Spent, recorded(name))
    assert (told[-1].usage if told else None) == USAGES.get(name)


def test_a_recorded_failure_to_log_in_is_one() -> None:
    end = done(recorded("claude-err401"))
    assert end is not None
    assert (end.error, end.text) == (ErrorClass.AUTH, "")
    assert "401" in end.reason


def test_a_turn_that_the_agent_cancelled_is_no_answer() -> None:
    end = done(recorded("claude-slow-cancel"))
    assert end == Done("", error=ErrorClass.CRASHED, reason="cancelled by the agent itself")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
KINDS = ["session_update", "request_permission", "refused", "response:session/new", "response:session/prompt",
         "error:session/prompt", "cancelled", "missing", "prompted"]  # fmt: skip
FIELDS = ["sessionUpdate", "toolCallId", "toolCall", "content", "rawInput", "locations", "status", "usage", "data"]


@given(
    kinds=st.lists(st.sampled_from(KINDS), max_size=5),
    data=st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(["tool_call", "usage_update"])),
)
def test_no_json_makes_the_reader_raise(kinds: list[str], data: dict[str, Any]) -> None:
    read(adapter(), [json.dumps({"kind": kind, "data": data}) for kind in kinds])
    read(adapter(), ["", "{", "null", "[1]", '{"kind": 3}', '{"kind": "session_update", "data": 7}'])


@pytest.mark.parametrize("name", files_of("acp"))
def test_half_a_line_breaks_nothing(name: str) -> None:
    mixed = [part for line in lines("acp", name) for part in (line[: len(line) // 2], line)]
    assert read(adapter(), mixed) == recorded(name)


# -- a turn


def test_a_writer_is_allowed_once_and_its_file_goes_through_the_client(tmp_path: Path) -> None:
    job = writer(tmp_path, system="You build.", prompt="Build it.")
    result, events = watched(adapter(), job)
    assert (result.error, result.reason, result.session) == (None, "", "s1")
    said = {"wrote": "once", "ran": "once", "prompt": "You build.\n\nBuild it.", "length": 21}
    assert json.loads(result.text) == said
    assert (job.cwd / "src" / "made.txt").read_text() == "made\n"
    assert (job.cwd / "ran.txt").exists()
    assert result.usage == Usage(135, 27, 30, 0.25)
    assert only(ToolStarted, events) == [
        ToolStarted("write", "writing src/made.txt", "t1"),
        ToolStarted("bash", "running touch ran.txt", "t2"),
    ]
    assert [(event.tool, event.ok) for event in only(ToolFinished, events)] == [("write", True), ("bash", True)]


def test_a_greeting_and_a_verdict_in_a_tools_output_are_no_answer(tmp_path: Path) -> None:
    result, events = watched(adapter(), writer(tmp_path))
    assert [event.text for event in only(Said, events)][:1] == ["On it."]
    assert "Welcome" not in result.text
    assert "fail" not in result.text


def test_a_reader_may_neither_write_nor_run(tmp_path: Path) -> None:
    job = reader(tmp_path)
    result, events = watched(adapter(), job)
    said = json.loads(result.text)
    assert (result.error, said["wrote"], said["ran"]) == (None, "no", "no")
    assert list(job.cwd.iterdir()) == []
    assert [(event.tool, event.ok, event.text) for event in only(ToolFinished, events)] == [
        ("write", False, "this role may not edit"),
        ("bash", False, "this role may not execute"),
    ]


def test_a_reader_with_a_shell_may_run(tmp_path: Path) -> None:
    job = reader(tmp_path, tools=(*READ, "bash"))
    said = json.loads(run(adapter(), job).text)
    assert (said["wrote"], said["ran"]) == ("no", "once")


CALLS: list[tuple[dict[str, Any], bool, bool]] = [
    ({"kind": "read", "rawInput": {"path": "x"}}, True, True),
    ({"kind": "search"}, True, True),
    ({"kind": "think"}, True, True),
    ({"kind": "read", "rawInput": {"command": "cat x; rm x"}}, False, True),
    ({"kind": "edit"}, False, True),
    ({"kind": "delete"}, False, True),
    ({"kind": "move"}, False, True),
    ({"kind": "execute"}, False, True),
    ({"kind": "fetch"}, False, True),
    ({"kind": "switch_mode"}, False, True),
    ({"kind": "other", "rawInput": {"command": "ls"}}, False, True),
    ({"kind": "other", "title": "mystery"}, False, True),
    ({"kind": "brand_new"}, False, True),
    ({}, False, True),
    ({"kind": "read", "content": [{"type": "diff", "path": "a.py", "newText": ""}]}, False, True),
    ({"kind": "edit", "locations": [{"path": "/etc/passwd"}]}, False, False),
    ({"kind": "edit", "locations": [{"path": "../../x"}]}, False, False),
]


@pytest.mark.parametrize("writes", [False, True], ids=["reader", "writer"])
def test_permission_is_given_by_what_the_role_may_do(tmp_path: Path, writes: bool) -> None:
    prompt = json.dumps([call for call, _, _ in CALLS])
    job = writer(tmp_path, prompt=prompt) if writes else reader(tmp_path, prompt=prompt)
    answers = json.loads(run(adapter("asks"), job).text)
    wanted = [as_writer if writes else as_reader for _, as_reader, as_writer in CALLS]
    assert answers == ["once" if allowed else "no" for allowed in wanted]


@pytest.mark.parametrize(
    ("offered", "kinds", "chosen"),
    [
        (["allow_always", "allow_once"], ("allow_once", "allow_always"), "allow_once"),
        (["allow_always"], ("allow_once", "allow_always"), "allow_always"),
        (["reject_always"], ("reject_once", "reject_always"), "reject_always"),
        (["allow_once"], ("reject_once", "reject_always"), ""),
        ([], ("allow_once",), ""),
    ],
)
def test_the_smallest_option_is_chosen(offered: list[str], kinds: tuple[str, ...], chosen: str) -> None:
    options = [{"optionId": kind, "kind": kind} for kind in offered]
    assert acp_program.choice(options, kinds) == chosen


def tried(tmp_path: Path, job: Job, *requests: tuple[str, dict[str, Any]]) -> list[str]:
    result = run(adapter("tries"), replace(job, prompt=json.dumps(requests)))
    assert result.error is None, result.reason
    answers: list[str] = json.loads(result.text)
    return answers


def test_files_are_served_inside_the_working_directory_only(tmp_path: Path) -> None:
    job = writer(tmp_path)
    (tmp_path / "secret.txt").write_text("secret")
    (job.cwd / "link.txt").symlink_to(tmp_path / "secret.txt")
    (job.cwd / "away").symlink_to(tmp_path)
    (job.cwd / "own.txt").write_text("one\ntwo\nthree\n")
    strange = [str(tmp_path / "secret.txt"), "../secret.txt", str(job.cwd / "link.txt"), "away/x.txt", "", "\0", "."]
    reads = [("fs/read_text_file", {"path": path}) for path in strange]
    writes = [("fs/write_text_file", {"path": path, "content": "gone"}) for path in strange]
    answers = tried(tmp_path, job, *reads, *writes)
    assert [answer.split()[0] for answer in answers] == ["-32602"] * 14
    assert (tmp_path / "secret.txt").read_text() == "secret"
    assert not (tmp_path / "x.txt").exists()
    assert tried(
        tmp_path,
        job,
        ("fs/read_text_file", {"path": str(job.cwd / "own.txt")}),
        ("fs/read_text_file", {"path": "own.txt", "line": 2, "limit": 1}),
        ("fs/read_text_file", {"path": "own.txt", "line": 3}),
    ) == [f"ok {json.dumps({'content': text})}" for text in ("one\ntwo\nthree\n", "two\n", "three\n")]


def test_what_belongs_to_git_is_not_written(tmp_path: Path) -> None:
    job = writer(tmp_path)
    for path in (".git", ".git/config", "sub/.git/hooks/pre-commit"):
        assert tried(tmp_path, job, ("fs/write_text_file", {"path": path, "content": "x"}))[0].startswith("-32602")
    assert list(job.cwd.iterdir()) == []


def test_a_reader_cannot_write_through_the_client_without_asking(tmp_path: Path) -> None:
    job = reader(tmp_path)
    request = ("fs/write_text_file", {"path": "x.txt", "content": "x"})
    assert tried(tmp_path, job, request) == ["-32000 this role may not edit"]
    assert list(job.cwd.iterdir()) == []


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    [answer] = tried(tmp_path, writer(tmp_path), ("fs/read_text_file", {"path": "no.txt"}))
    assert answer.startswith("-32002")
    assert "No such file" in answer


def test_terminals_and_unknown_requests_are_not_offered(tmp_path: Path) -> None:
    methods = ("terminal/create", "elicitation/create", "_vendor/thing")
    answers = tried(tmp_path, writer(tmp_path), *((method, {"command": "ls"}) for method in methods))
    assert [answer.split()[0] for answer in answers] == ["-32601"] * 3


def test_unknown_updates_and_noise_are_ignored(tmp_path: Path) -> None:
    result = run(adapter("strange"), writer(tmp_path))
    assert (result.error, result.text) == (None, "Fine.")
    assert '"brand_new"' in (tmp_path / "attempt" / "stdout").read_text()


def test_a_prompt_of_900_kb_arrives_whole(tmp_path: Path) -> None:
    prompt = "é" * 450_000
    assert json.loads(run(adapter(), writer(tmp_path, prompt=prompt)).text)["length"] == len(prompt)


# -- setting up


def heard(tmp_path: Path, scene: str, job: Job, **settings: Any) -> list[dict[str, Any]]:
    result = run(adapter(scene, **settings), job)
    assert result.error is None, result.reason
    found: list[dict[str, Any]] = json.loads(result.text)
    return found


def test_the_session_is_fresh_in_the_jobs_folder_and_offers_files_but_no_terminal(tmp_path: Path) -> None:
    job = writer(tmp_path)
    first, second = heard(tmp_path, "heard_of", job)
    assert first["clientCapabilities"] == {"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": False}
    assert second == {"method": "session/new", "cwd": str(job.cwd), "mcpServers": []}


@pytest.mark.parametrize(
    ("scene", "asked"),
    [
        (
            "heard_of:options",
            {"method": "session/set_config_option", "sessionId": "s1", "configId": "llm", "value": "m1"},
        ),
        ("heard_of:models", {"method": "session/set_model", "sessionId": "s1", "modelId": "m1"}),
    ],
)
def test_the_model_is_asked_for_as_the_agent_offers_it(tmp_path: Path, scene: str, asked: dict[str, Any]) -> None:
    assert heard(tmp_path, scene, writer(tmp_path, model="m1"), model="other")[-1] == asked
    assert heard(tmp_path, scene, writer(tmp_path), model="m1")[-1] == asked


def test_a_model_that_cannot_be_asked_for_is_not_ignored(tmp_path: Path) -> None:
    result = run(adapter("work"), writer(tmp_path, model="m1"))
    assert result.error is ErrorClass.CRASHED
    assert "'{model}'" in result.reason
    assert run(adapter("work", "--model", "{model}"), writer(tmp_path, model="m1")).error is None


def test_modes_and_login_are_as_configured_and_a_reader_has_the_quiet_mode(tmp_path: Path) -> None:
    def modes(job: Job, **settings: Any) -> list[str]:
        return [one["modeId"] for one in heard(tmp_path, "heard_of", job, **settings) if "modeId" in one]

    assert modes(writer(tmp_path)) == []
    assert modes(reader(tmp_path)) == ["read-only"]
    assert modes(reader(tmp_path, tools=(*READ, "bash"))) == []
    assert modes(writer(tmp_path), mode="agent", read_mode="plan") == ["agent"]
    assert modes(reader(tmp_path), mode="agent", read_mode="plan") == ["plan"]
    assert heard(tmp_path, "heard_of", writer(tmp_path), auth="key")[1] == {"method": "authenticate", "methodId": "key"}


def test_variables_are_handed_on_by_name_or_set(tmp_path: Path) -> None:
    env = ("MINE", "MISSING", "URL=http://127.0.0.1:9/{job}/v1", 'CONF={"a": {"home": "{folder}"}}')
    agent = adapter("environment", "{cwd}", "{model}", env=env, environ={"MINE": "m", "OTHER": "o"})
    job = writer(tmp_path, model="m1")
    found = json.loads(run(agent, job).text)
    assert found["argv"] == [str(job.cwd), "m1"]
    assert found["cwd"] == str(job.cwd)
    assert {name: found["env"].get(name) for name in ("MINE", "MISSING", "OTHER")} == {
        "MINE": "m",
        "MISSING": None,
        "OTHER": None,
    }
    assert f"/{job.run}~" in found["env"]["URL"]
    assert json.loads(found["env"]["CONF"]) == {"a": {"home": str(job.folder)}}


def test_an_agent_of_another_name_can_speak_the_protocol(tmp_path: Path) -> None:
    made = registry.make("goose", {"protocol": "acp", "argv": (sys.executable, AGENT, "work")})
    assert made.name == "goose"
    assert run(made, writer(tmp_path)).error is None
    assert registry.make("goose", {"argv": ("goose",)}).capabilities.best_effort is False


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs 'argv'"),
        ({"argv": ("x",), "modle": "m"}, "no setting 'modle'"),
        ({"argv": "x acp"}, "wrong type"),
        ({"argv": ("x",), "model": ("m",)}, "wrong type"),
        ({"argv": ("x",), "protocol": "abc"}, "unknown protocol"),
    ],
)
def test_a_setting_that_is_wrong_is_said_before_the_run(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        registry.make("acp", options)


def test_without_the_sdk_the_extra_is_named_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(acp, "version", missing)
    with pytest.raises(UserError, match="agent-client-protocol") as caught:
        adapter()
    assert "windlass[acp]" in caught.value.hint


def test_it_claims_no_more_than_it_can() -> None:
    can = adapter().capabilities
    assert (can.resume, can.cost, can.structured, can.read_only, can.effort) == (False, "none", False, True, False)
    assert can.best_effort


# -- failures


@pytest.mark.parametrize(
    ("scene", "error", "reason"),
    [
        ("stops:max_tokens", ErrorClass.BAD_OUTPUT, "output limit"),
        ("stops:max_turn_requests", ErrorClass.TIMED_OUT, "limit of turns"),
        ("stops:refusal", ErrorClass.REFUSED, "refused"),
        ("stops:cancelled", ErrorClass.CRASHED, "cancelled"),
        ("stops:brand_new", ErrorClass.CRASHED, "brand_new"),
        ("stops:", ErrorClass.CRASHED, "no reason"),
        ("locked", ErrorClass.AUTH, "Authentication required"),
        ("future", ErrorClass.CRASHED, "version 7"),
        ("fails:429 rate limit, try again in 3s", ErrorClass.RATE_LIMITED, "429"),
        ("fails:500 Internal server error", ErrorClass.OVERLOADED, "500"),
        ("fails:401 invalid api key", ErrorClass.AUTH, "401"),
        ("fails:prompt is too long", ErrorClass.CONTEXT_OVERFLOW, "too long"),
        ("fails:who knows", ErrorClass.CRASHED, "who knows"),
        ("crash:Not logged in. Please run /login", ErrorClass.AUTH, "logged in"),
        ("crash:segfault", ErrorClass.CRASHED, "ended with code 3: segfault"),
        ("babbles", ErrorClass.CRASHED, "ended with code 1"),
    ],
)
def test_a_failure_has_its_class_and_says_why(tmp_path: Path, scene: str, error: ErrorClass, reason: str) -> None:
    result = run(adapter(scene), writer(tmp_path))
    assert (result.error, result.text) == (error, "")
    assert reason in result.reason


def test_a_limit_that_tells_its_end_is_waited_for(tmp_path: Path) -> None:
    assert run(adapter("fails:429, try again in 30s"), writer(tmp_path)).retry_at is not None


def test_an_agent_that_is_not_there_is_missing(tmp_path: Path) -> None:
    result = run(registry.make("acp", {"argv": ("/nowhere/agent",)}), writer(tmp_path))
    assert (result.error, result.reason) == (
        ErrorClass.MISSING_BINARY,
        "'/nowhere/agent' cannot be started: No such file or directory",
    )


def test_stopping_cancels_the_turn_and_what_was_spent_is_known(tmp_path: Path) -> None:
    job, stop = writer(tmp_path), asyncio.Event()

    async def stopped() -> AgentResult:
        return await dispatch(
            adapter("waits"),
            job,
            stop=stop,
            on_event=lambda event: stop.set() if isinstance(event, ToolStarted) else None,
        )

    result = asyncio.run(stopped())
    assert (result.error, result.reason) == (ErrorClass.KILLED, "stopped")
    assert (job.cwd / "cancelled.txt").exists()
    assert replace(result.usage, cost_usd=None) == Usage(135, 27, 30)


def test_a_turn_that_takes_too_long_is_timed_out(tmp_path: Path) -> None:
    result = run(adapter("waits"), writer(tmp_path, limits=Limits(wall_s=2.0)))
    assert result.error is ErrorClass.TIMED_OUT


def test_a_turn_beyond_its_money_is_stopped(tmp_path: Path) -> None:
    result = run(adapter("work"), writer(tmp_path, limits=Limits(60.0, usd=0.1)))
    assert result.error is ErrorClass.OVER_BUDGET
