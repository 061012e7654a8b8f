"""A JSON-RPC 2.0 connection over lines of JSON, as the Agent Client Protocol uses it.

The protocol's SDK has one too. Loading the SDK takes more than a second of processor time in each dispatch: it builds a
model class for every message of the protocol, and Windlass needs none of them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

INTERNAL_ERROR = -32603
METHOD_NOT_FOUND = -32601

Handler = Callable[[str, Any], Awaitable[Any]]
"""Gets a method and its parameters. Its result answers a request; a `RequestError` refuses it."""


class RequestError(Exception):
    """A request that one of the sides refused."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    @classmethod
    def method_not_found(cls, method: str) -> RequestError:
        return cls(METHOD_NOT_FOUND, "Method not found", {"method": method})


class Connection:
    """Requests and notifications in both directions. It reads until the other side closes, or `close` is called."""

    def __init__(self, handler: Handler, writer: asyncio.StreamWriter, reader: asyncio.StreamReader) -> None:
        self._handler = handler
        self._writer = writer
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._sent = 0
        self._closed = False
        self._handlers: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read(reader))

    async def send_request(self, method: str, params: Any) -> Any:
        """The result of the request. Raises RequestError, or ConnectionError when the other side is gone."""
        if self._closed:
            raise ConnectionError("the connection is closed")
        self._sent += 1
        id, answer = self._sent, asyncio.get_running_loop().create_future()
        self._pending[id] = answer
        try:
            await self._send({"id": id, "method": method, "params": params})
            return await answer
        finally:
            del self._pending[id]

    async def send_notification(self, method: str, params: Any) -> None:
        await self._send({"method": method, "params": params})

    async def wait_closed(self) -> None:
        """Wait until the other side closes."""
        await asyncio.wait([self._reading])

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        for handler in self._handlers:
            handler.cancel()
        self._writer.close()
        await self._writer.wait_closed()

    async def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self._writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            # a line over the reader's limit raises ValueError
            while line := await reader.readline():
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    continue  # agents print other text too
                if not isinstance(message, dict):
                    break  # a batch, which the protocol does not have
                await self._take(message)
        except (ValueError, OSError):
            pass
        finally:
            self._closed = True
            for answer in self._pending.values():
                if not answer.done():
                    answer.set_exception(ConnectionError("the connection is closed"))

    async def _take(self, message: dict[str, Any]) -> None:
        method, id = message.get("method"), message.get("id")
        if isinstance(method, str) and "id" not in message:
            # in order, and before the answer that follows
            await self._result(method, message.get("params"))
            return
        if isinstance(method, str):
            # concurrently: the answer may need requests to the other side
            handler = asyncio.create_task(self._answer(id, method, message.get("params")))
            self._handlers.add(handler)
            handler.add_done_callback(self._handlers.discard)
            return
        answer = self._pending.get(id) if isinstance(id, int) else None
        if answer is None or answer.done():
            return
        error = message.get("error")
        if "result" in message or not isinstance(error, dict):
            answer.set_result(message.get("result"))
            return
        code, text = error.get("code"), error.get("message")
        answer.set_exception(
            RequestError(code if isinstance(code, int) else INTERNAL_ERROR, str(text or "Error"), error.get("data"))
        )

    async def _answer(self, id: object, method: str, params: Any) -> None:
        with suppress(OSError):  # the other side is gone; the reader notices that
            await self._send({"id": id, **await self._result(method, params)})

    async def _result(self, method: str, params: Any) -> dict[str, Any]:
        try:
            return {"result": await self._handler(method, params)}
        except RequestError as refused:
            return {"error": {"code": refused.code, "message": str(refused), "data": refused.data}}
        except Exception as failed:
            # no message of an agent may end the dispatch
            return {"error": {"code": INTERNAL_ERROR, "message": "Internal error", "data": {"details": str(failed)}}}
