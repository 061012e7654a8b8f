"""The program behind the `acp` agent: starts an agent that speaks the Agent Client Protocol, and is its client.

Run as `python acp_program.py SPEC`, with the prompt on stdin. It prints the messages, a JSON object a line with `kind`
and `data`. From the protocol: `response:METHOD`, `error:METHOD`, `session_update`, `request_permission`. Its own:
`prompted`, `refused` {toolCallId, why}, `cancelled`, `missing`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from windlass.agents.cli.json_rpc import Connection, RequestError

PROTOCOL = 1
LINE_LIMIT = 64 << 20
FILE_LIMIT = 16 << 20
CANCEL_S = 2.0
GOODBYE_S = 2.0
NEEDS = {
    "read": {"read", "grep", "find", "ls"},
    "search": {"read", "grep", "find", "ls"},
    "edit": {"write", "edit"},
    "delete": {"write", "edit"},
    "move": {"write", "edit"},
    "execute": {"bash"},
    "fetch": {"bash"},
}
WRITES = frozenset({"edit", "delete", "move"})


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    return asyncio.run(run(spec, sys.stdin.read()))


def emit(kind: str, data: object) -> None:
    sys.stdout.write(json.dumps({"kind": kind, "data": data}) + "\n")
    sys.stdout.flush()


async def run(spec: Mapping[str, Any], prompt: str) -> int:
    pipe = asyncio.subprocess.PIPE
    try:
        agent = await asyncio.create_subprocess_exec(*spec["argv"], stdin=pipe, stdout=pipe, limit=LINE_LIMIT)
    except OSError as error:
        emit("missing", {"program": spec["argv"][0], "why": error.strerror})
        return 127
    assert agent.stdin is not None
    assert agent.stdout is not None
    client = Client(spec)
    connection = Connection(client.handle, agent.stdin, agent.stdout)
    turn = asyncio.create_task(AcpTurn(connection, spec).take(prompt))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, turn.cancel)
    code = await wait_for_end(turn)
    with suppress(Exception):
        await asyncio.wait_for(connection.close(), GOODBYE_S)
    return await end_agent(agent, code)


async def wait_for_end(turn: asyncio.Task[None]) -> int:
    try:
        await turn
    except asyncio.CancelledError:
        return 143
    except AcpFailedError as failed:
        emit(f"error:{failed.method}", failed.data)
        return 1
    except ConnectionError:
        # The reason is on the agent's stderr, which is this program's stderr.
        return 1
    return 0


async def end_agent(agent: asyncio.subprocess.Process, code: int) -> int:
    """Closing its input ends an agent; the supervisor ends what remains."""
    with suppress(asyncio.TimeoutError):
        exit_code = await asyncio.wait_for(agent.wait(), GOODBYE_S)
        return code if code != 1 or exit_code <= 0 else exit_code
    return code


class AcpFailedError(Exception):
    def __init__(self, method: str, message: str, code: int = 0, data: object = None) -> None:
        super().__init__(message)
        self.method = method
        self.data = {"code": code, "message": message, "data": data}


class AcpTurn:
    """One session with one prompt."""

    def __init__(self, connection: Connection, spec: Mapping[str, Any]) -> None:
        self.connection = connection
        self.spec = spec

    async def take(self, prompt: str) -> None:
        session = await self.open()
        emit("prompted", {})
        turn = asyncio.create_task(
            self.connection.send_request(
                "session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": prompt}]}
            )
        )
        try:
            answer = await asyncio.shield(turn)
        except asyncio.CancelledError:
            await self.cancel(session, turn)
            raise
        except RequestError as error:
            raise request_failure("session/prompt", error) from None
        emit("response:session/prompt", answer)

    async def cancel(self, session: str, turn: asyncio.Task[Any]) -> None:
        # No terminal event: the caller that stopped it knows why.
        with suppress(Exception):
            await self.connection.send_notification("session/cancel", {"sessionId": session})
            emit("cancelled", await asyncio.wait_for(turn, CANCEL_S))

    async def open(self) -> str:
        # Writes come here, where the role's limits hold. Reads stay with the agent: when this program reports a missing
        # file, gemini takes that for a failure and writes no new one.
        files = {"readTextFile": False, "writeTextFile": True}
        hello = await self.request(
            "initialize",
            protocolVersion=PROTOCOL,
            clientCapabilities={"fs": files, "terminal": False},
        )
        if hello.get("protocolVersion") != PROTOCOL:
            raise AcpFailedError(
                "initialize", f"the agent speaks version {hello.get('protocolVersion')} of the protocol"
            )
        if self.spec["auth"]:
            await self.request("authenticate", methodId=self.spec["auth"])
        made = await self.request("session/new", cwd=self.spec["cwd"], mcpServers=[])
        session = str(made.get("sessionId") or "")
        await self.set_mode(session, made)
        await self.set_model(session, made)
        return session

    async def set_mode(self, session: str, made: Mapping[str, Any]) -> None:
        offered = [str(mode.get("id")) for mode in dicts(mapping(made.get("modes")).get("availableModes"))]
        mode = self.spec["mode"] or next((one for one in self.spec["quiet_modes"] if one in offered), "")
        if mode and not await self.set_option(session, made, "mode", mode):
            await self.request("session/set_mode", sessionId=session, modeId=mode)

    async def set_model(self, session: str, made: Mapping[str, Any]) -> None:
        model = self.spec["model"]
        if not model or await self.set_option(session, made, "model", model):
            return
        if not made.get("models"):
            why = f"the agent does not accept a model; put '{{model}}' into argv, or drop '{model}'"
            raise AcpFailedError("session/new", why)
        await self.request("session/set_model", sessionId=session, modelId=model)

    async def set_option(self, session: str, made: Mapping[str, Any], name: str, value: str) -> bool:
        """The newer way, if the agent offers it."""
        options = dicts(made.get("configOptions"))
        option = next((one for one in options if name in (one.get("category"), one.get("id"))), None)
        if option:
            await self.request("session/set_config_option", sessionId=session, configId=option.get("id"), value=value)
        return bool(option)

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        try:
            answer = mapping(await self.connection.send_request(method, params))
        except RequestError as error:
            raise request_failure(method, error) from None
        emit(f"response:{method}", answer)
        return answer


def request_failure(method: str, error: RequestError) -> AcpFailedError:
    return AcpFailedError(method, str(error), error.code, error.data)


# -- requests of the agent


class Client:
    def __init__(self, spec: Mapping[str, Any]) -> None:
        self.tools = frozenset(spec["tools"])
        self.root = os.path.realpath(spec["cwd"])
        self.kinds: dict[str, set[str]] = {}
        """The description of each tool call; a request for permission may leave it out."""

    async def handle(self, method: str, params: Any) -> dict[str, Any] | None:
        given = mapping(params)
        match method:
            case "session/update":
                self.update(mapping(given.get("update")))
                return None
            case "session/request_permission":
                return self.permission(given)
            case "fs/read_text_file":
                return {"content": self.read(given)}
            case "fs/write_text_file":
                return self.write(given)
            case _:
                raise RequestError.method_not_found(method)

    def update(self, update: dict[str, Any]) -> None:
        if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
            self.kinds.setdefault(str(update.get("toolCallId")), set()).update(kinds_of(update))
        emit("session_update", update)

    def permission(self, given: Mapping[str, Any]) -> dict[str, Any]:
        call, options = mapping(given.get("toolCall")), dicts(given.get("options"))
        emit("request_permission", {"toolCall": call, "options": options})
        kinds = self.kinds.get(str(call.get("toolCallId")), set()) | kinds_of(call)
        why = refusal(kinds, self.tools) or self.outside(kinds, call)
        chosen = choice(options, ("reject_once", "reject_always") if why else ("allow_once", "allow_always"))
        if why:
            emit("refused", {"toolCallId": call.get("toolCallId"), "why": why})
        return {"outcome": {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}}

    def outside(self, kinds: set[str], call: Mapping[str, Any]) -> str:
        strange = [path for path in paths_of(call) if kinds & WRITES and not self.is_inside(path)]
        return f"'{strange[0]}' is outside the working directory" if strange else ""

    def read(self, given: Mapping[str, Any]) -> str:
        path = self.path(given)
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(FILE_LIMIT)
        except OSError as error:
            raise RequestError(-32002, f"Resource not found: {path}: {error.strerror}") from None
        first, limit = given.get("line"), given.get("limit")
        if not isinstance(first, int) and not isinstance(limit, int):
            return text
        start = max(first, 1) - 1 if isinstance(first, int) else 0
        lines = text.splitlines(keepends=True)[start:]
        return "".join(lines[: max(limit, 0)] if isinstance(limit, int) else lines)

    def write(self, given: Mapping[str, Any]) -> dict[str, Any]:
        why = refusal({"edit"}, self.tools)
        if why:
            raise RequestError(-32000, why)
        path = self.path(given)
        if ".git" in os.path.relpath(path, self.root).split(os.sep):
            raise RequestError(-32602, f"'{path}' belongs to git")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(str(given.get("content", "")))
        except OSError as error:
            raise RequestError(-32603, f"{path}: {error.strerror}") from None
        return {}

    def path(self, given: Mapping[str, Any]) -> str:
        path = str(given.get("path", ""))
        if not self.is_inside(path):
            raise RequestError(-32602, f"'{path}' is outside the working directory")
        return os.path.realpath(os.path.join(self.root, path))

    def is_inside(self, path: str) -> bool:
        try:
            full = os.path.realpath(os.path.join(self.root, path))
        except (ValueError, OSError):
            return False
        return full.startswith(self.root + os.sep)


def kinds_of(call: Mapping[str, Any]) -> set[str]:
    """The kinds of a call, from its name and its input: some agents call everything 'other', some call a `cat` in a
    shell 'read'."""
    kinds = {str(call["kind"])} if call.get("kind") else set()
    if {"command", "cmd"} & set(mapping(call.get("rawInput"))):
        kinds.add("execute")
    if any(one.get("type") == "diff" for one in dicts(call.get("content"))):
        kinds.add("edit")
    return kinds - {"other"} if len(kinds) > 1 else kinds


def paths_of(call: Mapping[str, Any]) -> list[str]:
    found = [*dicts(call.get("locations")), *(one for one in dicts(call.get("content")) if one.get("type") == "diff")]
    return [str(one["path"]) for one in found if one.get("path")]


def refusal(kinds: set[str], tools: frozenset[str]) -> str:
    """Why a role with these tools may not make this call; '' when it may."""
    for kind in sorted(kinds - {"other", "think"} if len(kinds) > 1 else kinds or {"other"}):
        if kind == "think":
            continue
        if kind not in NEEDS and not ("bash" in tools and tools & {"write", "edit"}):
            return f"this role may not use tools of kind '{kind}'"
        if kind in NEEDS and not NEEDS[kind] & tools:
            return f"this role may not {kind}"
    return ""


def choice(options: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> str:
    """Prefers 'once' to 'always': a lasting permission outlives the dispatch."""
    return next((str(one.get("optionId")) for kind in kinds for one in options if one.get("kind") == kind), "")


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def dicts(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


if __name__ == "__main__":
    sys.exit(main())
