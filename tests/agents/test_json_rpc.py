"""JSON-RPC with another side that says odd things, at the wrong time, or nothing more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.agents.cli.json_rpc import Connection, RequestError

LIMIT = 1 << 16
FIELDS = st.sampled_from(["id", "method", "params", "result", "error"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner),
    max_leaves=8,
)


class Other:
    """The other side of a connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, *messages: object) -> None:
        for message in messages:
            self.writer.write((message if isinstance(message, str) else json.dumps(message)).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        return dict(json.loads(await self.reader.readline()))


class Seen:
    """Answers `double`, refuses `never`, breaks at `broken`, and remembers notifications."""

    def __init__(self) -> None:
        self.notices: list[Any] = []

    async def __call__(self, method: str, params: Any) -> Any:
        match method:
            case "double":
                return params * 2
            case "never":
                raise RequestError(-32000, "may not", {"why": "no"})
            case "broken":
                raise KeyError("it")
            case "notice":
                self.notices.append(params)
                return None
            case _:
                raise RequestError.method_not_found(method)


def talk(story: Callable[[Connection, Other, Seen], Awaitable[None]]) -> None:
    async def run() -> None:
        met: asyncio.Future[Other] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda *ends: met.set_result(Other(*ends)), "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2], limit=LIMIT)
            seen = Seen()
            connection, other = Connection(seen, writer, reader), await met
            await asyncio.wait_for(story(connection, other, seen), 30)
            await connection.close()
            other.writer.close()

    asyncio.run(run())


def test_answers_reach_who_asked_in_whatever_order_they_come() -> None:
    async def story(connection: Connection, other: Other, seen: Seen) -> None:
        asked = [asyncio.create_task(connection.send_request("x", n)) for n in (1, 2)]
        ids = {request["params"]: request["id"] for request in [await other.read(), await other.read()]}
        other.write({"id": ids[2], "result": "two"}, {"id": ids[1], "error": {"code": 7, "message": "no", "data": 8}})
        assert await asked[1] == "two"
        with pytest.raises(RequestError, match="no") as refused:
            await asked[0]
        assert (refused.value.code, refused.value.data) == (7, 8)

    talk(story)


def test_requests_of_the_other_side_are_answered_refused_or_said_to_be_unknown() -> None:
    async def story(connection: Connection, other: Other, seen: Seen) -> None:
        methods = ("double", "never", "broken", "strange")
        other.write(*({"id": method, "method": method, "params": 2} for method in methods))
        answers = {answer["id"]: answer for answer in [await other.read() for _ in methods]}
        assert answers["double"]["result"] == 4
        assert {method: answers[method]["error"]["code"] for method in methods[1:]} == {
            "never": -32000,
            "broken": -32603,
            "strange": -32601,
        }

    talk(story)


def test_a_notification_is_seen_before_the_answer_that_follows_it() -> None:
    async def story(connection: Connection, other: Other, seen: Seen) -> None:
        asked = asyncio.create_task(connection.send_request("x", {}))
        id = (await other.read())["id"]
        other.write({"method": "notice", "params": 1}, {"method": "notice", "params": 2}, {"id": id, "result": None})
        await asked
        assert seen.notices == [1, 2]

    talk(story)


@pytest.mark.parametrize("last", ["", "[1, 2]\n", "x" * (LIMIT + 1) + "\n"], ids=["closed", "a batch", "a long line"])
def test_a_connection_that_ends_ends_every_request(last: str) -> None:
    async def story(connection: Connection, other: Other, seen: Seen) -> None:
        asked = asyncio.create_task(connection.send_request("x", {}))
        await other.read()
        other.writer.write(last.encode())
        if not last:
            other.writer.close()
        with pytest.raises(ConnectionError):
            await asked
        with pytest.raises(ConnectionError):
            await connection.send_request("y", {})

    talk(story)


@given(st.lists(st.dictionaries(FIELDS, ANY_JSON), max_size=4))
def test_no_message_keeps_a_later_request_from_its_answer(odd: list[dict[str, Any]]) -> None:
    async def story(connection: Connection, other: Other, seen: Seen) -> None:
        other.write("no JSON", "", *odd)
        asked = asyncio.create_task(connection.send_request("x", {}))
        while (request := await other.read()).get("method") != "x":
            pass
        other.write({"id": request["id"], "result": "right"})
        # an odd message may have been an answer to the same id
        if not any(one.get("id") == request["id"] for one in odd):
            assert await asked == "right"
        else:
            await asyncio.wait([asked])

    talk(story)
