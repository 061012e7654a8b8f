"""`windlass mcp` as a host meets it: the SDK's own client, the server as a real process, runs in the background."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import Implementation, TextContent

from front import LEAN, Front, basics, builder, planner, scout, scripted
from processes_for_tests import until
from windlass.events import QuestionAnswered, RunStarted
from windlass.interfaces.mcp.tools import split
from windlass.model import Choice, Question

TOOLS = {"workflow", "start", "resume", "answer", "pause", "abort", "status", "list", "show"}


@dataclass(frozen=True)
class Told:
    text: str
    failed: bool


@dataclass(frozen=True)
class Host:
    """What an AI host has in its hands."""

    client: Client

    async def __call__(self, tool: str, **arguments: Any) -> Told:
        result = await self.client.call_tool(tool, arguments)
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        return Told("".join(texts), bool(result.is_error))

    async def workflow(self, input: str = "", wait_s: float = 60.0) -> Told:
        return await self("workflow", input=input, wait_s=wait_s)


@asynccontextmanager
async def hosting(front: Front, cwd: Path | None = None) -> AsyncIterator[Host]:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "windlass", "mcp"], env=front.env, cwd=cwd or front.root
    )
    async with Client(server, client_info=Implementation(name="desk", version="1")) as client:
        yield Host(client)


def hosted(front: Front, talk: Callable[[Host], Coroutine[Any, Any, None]], cwd: Path | None = None) -> None:
    async def session() -> None:
        async with hosting(front, cwd) as host:
            await talk(host)

    asyncio.run(asyncio.wait_for(session(), 240))


@pytest.fixture
def front(tmp_path: Path) -> Front:
    made = Front(tmp_path)
    made.configure(scripted(made) + LEAN)
    made.say(basics("sub"))
    return made


@pytest.mark.req("S0-05", "S0-06", "S0-84", "S1-105")
def test_a_host_starts_a_run_answers_its_questions_and_reads_the_report(front: Front) -> None:
    async def talk(host: Host) -> None:
        assert {tool.name for tool in (await host.client.list_tools()).tools} == TOOLS
        asked = await host.workflow("Add sub")
        assert "Approve this plan?" in asked.text
        assert "1) approve - Approve" in asked.text
        assert "'revise' takes a comment" in asked.text
        refused = await host.workflow("perhaps")
        assert refused.failed
        assert "'perhaps' is not an answer to 'approve'" in refused.text
        assert "How shall reviews work?" in (await host.workflow("1")).text
        mode = await host.workflow("iterative")
        done = await host.workflow("Auto")
        assert "State:     finished" in done.text, mode.text + done.text
        assert "Report:" in done.text
        shown = await host("show")
        assert "Decisions" in shown.text
        assert "approve: approve (by mcp (desk))" in shown.text
        assert (await host("list")).text.count("finished") == 1

    hosted(front, talk)
    assert front.view.state == "finished"
    assert "src/t1.py" in front.landed
    assert front.asked == ["approve", "review_mode", "execution_mode"]


@pytest.mark.long
def test_a_run_goes_on_when_the_host_is_gone_and_no_call_waits_longer_than_it_was_told(front: Front) -> None:
    gate = front.tmp / "gate"
    front.say([scout(run=[f"while ! test -e {gate}; do sleep 0.05; done"]), planner("sub"), builder()])

    async def begin(host: Host) -> None:
        told = await host.workflow("Add sub", wait_s=0)
        assert "continues in the background" in told.text
        running = await host("status", wait_s=0.5)
        assert "no driver is alive" not in running.text

    async def go_on(host: Host) -> None:
        assert "Approve this plan?" in (await host("status", wait_s=60)).text
        status = json.loads((await host("status", as_json=True)).text)
        assert [question["id"] for question in status["questions"]] == ["approve"]

    hosted(front, begin)
    gate.touch()
    hosted(front, go_on)


@pytest.mark.long
@pytest.mark.req("S0-04", "S1-98")
def test_abort_and_status_are_words_of_control_and_nothing_is_active_after_an_abort(front: Front) -> None:
    async def talk(host: Host) -> None:
        await host.workflow("Add sub")
        assert "State:     waiting" in (await host.workflow("status")).text
        assert "is aborted" in (await host.workflow(" abort ")).text
        told = await host.workflow("status")
        assert told.text.startswith("No run is active here.")
        assert "No run is active here." in (await host.workflow("abort")).text
        assert "No run is active here." in (await host.workflow("")).text

    hosted(front, talk)
    assert front.view.state == "aborted"


@pytest.mark.long
def test_a_second_request_while_a_run_is_at_work_is_refused_with_the_ways_on(front: Front) -> None:
    gate = front.tmp / "gate"
    front.say([scout(run=[f"while ! test -e {gate}; do sleep 0.05; done"]), planner("sub"), builder()])

    async def talk(host: Host) -> None:
        await host.workflow("Add sub", wait_s=0)
        await asyncio.to_thread(until, lambda: bool(front.view.running), 60)
        refused = await host.workflow("Add mul")
        assert refused.failed
        assert "'abort' ends it" in refused.text
        paused = await host("pause", wait_s=0)
        gate.touch()
        assert not paused.failed
        rested = await host("status", wait_s=60)
        assert "State:     paused" in rested.text
        assert "Approve this plan?" in (await host("resume", wait_s=60)).text

    hosted(front, talk)
    assert len(front.events(RunStarted)) == 1


@pytest.mark.long
def test_what_cannot_be_meant_is_said_and_changes_nothing(front: Front) -> None:
    async def talk(host: Host) -> None:
        assert "No run is active here." in (await host.workflow("")).text
        assert "No run is active here." in (await host("status")).text
        for tool, arguments, words in (
            ("start", {"request": "  "}, "the request is empty"),
            ("start", {"request": "x" * (1 << 20)}, "1048576 characters"),
            ("workflow", {"input": "x" * (1 << 20)}, "1048576 characters"),
            ("start", {"request": "Add sub", "flow": "plam"}, "plam"),
            ("show", {"run": "nope"}, "there are no runs here yet"),
            ("answer", {"value": "approve"}, "there are no runs here yet"),
            ("status", {"wait_s": 10_000}, "less than or equal to 300"),
        ):
            told = await host(tool, **arguments)
            assert told.failed, told
            assert words in told.text
        await host.workflow("Add sub")
        for tool in ("status", "show", "abort", "pause", "resume"):
            assert "there is no run 'nope'" in (await host(tool, run="nope")).text
        assert "it is empty" in (await host("answer", value=" ")).text
        assert "no question 'nope' is open" in (await host("answer", value="1", question="nope")).text

    hosted(front, talk)
    assert front.view.state == "waiting"


@pytest.mark.long
def test_outside_a_repository_the_server_starts_and_says_what_is_missing(front: Front) -> None:
    async def talk(host: Host) -> None:
        told = await host.workflow("Add sub")
        assert told.failed
        assert "is not in a git repository" in told.text

    hosted(front, talk, cwd=front.tmp)


QUESTION = Question(
    "approve",
    "Approve?",
    (Choice("approve", "Approve"), Choice("revise", "Revise: more")),
    comment="required-unless-approve",
    yes="approve",
)


@pytest.mark.parametrize(
    ("text", "value", "comment"),
    [
        ("approve", "approve", ""),
        ("revise: split task 2", "revise", "split task 2"),
        ("2: split: task 2", "2", "split: task 2"),
        ("revise\nsplit task 2\nand 3", "revise", "split task 2\nand 3"),
        ("Revise: more", "Revise: more", ""),
        ("approve: but not really", "approve: but not really", ""),
        ("revise:", "revise:", ""),
        ("later: revise", "later: revise", ""),
    ],
)
def test_an_option_with_a_comment_is_told_in_one_text_where_the_option_takes_one(
    text: str, value: str, comment: str
) -> None:
    assert split(QUESTION, text) == (value, comment)


@pytest.mark.long
def test_abort_answers_a_question_that_offers_it_and_the_tool_ends_the_run(front: Front) -> None:
    front.say([{"when": {"role": "implementer"}, "exit": 1, "times": 3}, *basics("sub")])

    async def talk(host: Host) -> None:
        settings = {"review_mode": "iterative", "execution_mode": "auto"}
        await host("start", request="Add sub", settings=settings, wait_s=60)
        assert "3) abort" in (await host.workflow("approve")).text
        assert "escalation: abort" in (await host.workflow("abort")).text
        await host("start", request="Add mul", settings=settings, wait_s=60)
        told = await host("abort", wait_s=60)
        assert "is aborted" in told.text

    hosted(front, talk)
    first = front.service.runs()[-1].id
    answered = [r.event for r in front.service.events(first) if isinstance(r.event, QuestionAnswered)]
    assert (answered[-1].answer, answered[-1].by) == ("abort", "mcp (desk)")
    assert [row.state for row in front.service.runs()] == ["aborted", "aborted"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("start", {"request": "Add sub", "budget": -1}, "budget"),
    ("start", {"request": "Add sub", "budget_usd": -1}, "budget_usd"),
    ("start", {"request": "Add sub", "beside": "perhaps"}, "beside"),
    ("workflow", {"input": "Add sub", "flow": "task"}, "flow"),
    ("workflow", {"input": "Add sub", "wait_s": -1}, "wait_s"),
    ("answer", {"value": "approve", "key": "approve"}, "key"),
    ("list", {"run": "x"}, "run"),
]


@pytest.mark.long
def test_an_argument_that_a_tool_does_not_know_or_cannot_take_is_refused_by_name(front: Front) -> None:
    async def talk(host: Host) -> None:
        for tool, arguments, named in REFUSED:
            told = await host(tool, **arguments)
            assert told.failed, (tool, arguments)
            assert named in told.text

    hosted(front, talk)
    assert not front.service.has_runs


@pytest.mark.long
def test_with_two_active_runs_a_call_that_changes_something_names_one(front: Front) -> None:
    for name in ("First", "Second"):
        assert front.start(basics("One"), "--new", request=name).code == 10
    runs = {row.id for row in front.service.runs()}

    async def talk(host: Host) -> None:
        calls = [("workflow", {"input": "approve"}), ("workflow", {"input": "abort"}), ("workflow", {"input": ""})]
        calls += [("answer", {"value": "approve"}), ("abort", {}), ("pause", {}), ("resume", {})]
        for tool, arguments in calls:
            told = await host(tool, **arguments)
            assert told.failed, tool
            assert all(run in told.text for run in runs), told.text

    hosted(front, talk)
    assert {row.state for row in front.service.runs()} == {"waiting"}
