"""A small agent that speaks the Agent Client Protocol: `python acp_agent.py SCENE`. It tells what it was answered."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from windlass.agents.cli.json_rpc import Connection, RequestError

OPTIONS = [
    {"optionId": "for-ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]
COST = {"amount": 0.25, "currency": "USD"}
USAGE = {"inputTokens": 100, "outputTokens": 20, "cachedReadTokens": 30, "cachedWriteTokens": 5, "totalTokens": 162}


class Agent:
    def __init__(self, scene: str) -> None:
        self.scene, _, self.detail = scene.partition(":")
        self.connection: Connection
        self.cancelled = asyncio.Event()

    async def handle(self, method: str, params: Any) -> Any:
        match method:
            case "initialize":
                return {"protocolVersion": 7 if self.scene == "future" else 1, "agentCapabilities": {}}
            case "session/new":
                return await self.new_session()
            case "session/prompt":
                return await getattr(self, self.scene)(params["prompt"][0]["text"])
            case "session/cancel":
                self.cancelled.set()
                return None
            case _:
                raise RequestError.method_not_found(method)

    async def new_session(self) -> dict[str, Any]:
        if self.scene == "locked":
            raise RequestError(-32000, "Authentication required")
        await self.say("Welcome!\n")
        return {"sessionId": "s1"}

    # -- verbs

    async def update(self, kind: str, /, **more: Any) -> None:
        update = {"sessionUpdate": kind, **more}
        await self.connection.send_notification("session/update", {"sessionId": "s1", "update": update})

    async def say(self, text: str, **more: Any) -> None:
        await self.update("agent_message_chunk", content={"type": "text", "text": text}, **more)

    async def ask(self, id: str, **call: Any) -> str:
        tool = {"toolCallId": id, **call}
        answer = await self.request("session/request_permission", toolCall=tool, options=OPTIONS)
        return str(answer["outcome"].get("optionId", answer["outcome"]["outcome"]))

    async def request(self, method: str, **params: Any) -> Any:
        return await self.connection.send_request(method, {"sessionId": "s1", **params})

    # -- scenes

    async def work(self, prompt: str) -> dict[str, Any]:
        """A file through the client, a command of its own, and what it was allowed."""
        await self.say("On ")
        await self.say("it.")
        path = str(Path.cwd() / "src" / "made.txt")
        await self.update("tool_call", toolCallId="t1", title="write", kind="edit", status="pending", rawInput={})
        wrote = await self.ask("t1", kind="edit", content=[{"type": "diff", "path": path, "newText": "made\n"}])
        if wrote != "no":
            await self.request("fs/write_text_file", path=path, content="made\n")
        await self.update("tool_call_update", toolCallId="t1", status="failed" if wrote == "no" else "completed")
        ran = await self.ask("t2", kind="execute", title="touch ran.txt", rawInput={"command": "touch ran.txt"})
        if ran != "no":
            Path("ran.txt").touch()
        output = [{"type": "content", "content": {"type": "text", "text": '```json\n{"status": "fail"}\n```'}}]
        await self.update("tool_call_update", toolCallId="t2", status="completed", content=output)
        await self.update("usage_update", used=9, size=10, cost=COST)
        await self.say(json.dumps({"wrote": wrote, "ran": ran, "prompt": prompt[:40], "length": len(prompt)}))
        return {"stopReason": "end_turn", "usage": USAGE}

    async def environment(self, prompt: str) -> dict[str, Any]:
        await self.say(json.dumps({"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}))
        return {"stopReason": "end_turn"}

    async def strange(self, prompt: str) -> dict[str, Any]:
        await self.update("brand_new", content={"type": "hologram"})
        await self.update("agent_message_chunk")
        await self.update("tool_call")
        await self.update("tool_call_update", toolCallId=7, content="x", rawInput=[1])
        await self.connection.send_notification("session/update", {"update": 5})
        await self.connection.send_notification("_vendor/news", {"x": 1})
        print("not JSON at all", flush=True)
        await self.say("Fine.")
        return {"stopReason": "end_turn"}

    async def fails(self, prompt: str) -> dict[str, Any]:
        raise RequestError(-32603, "Internal error", {"details": self.detail})

    async def crash(self, prompt: str) -> dict[str, Any]:
        print(self.detail, file=sys.stderr, flush=True)
        os._exit(3)

    async def babbles(self, prompt: str) -> dict[str, Any]:
        print("[1, 2]", flush=True)
        await asyncio.sleep(3600)
        return {}

    async def waits(self, prompt: str) -> dict[str, Any]:
        await self.update("tool_call", toolCallId="t1", title="sleep", kind="execute", status="in_progress")
        await self.cancelled.wait()
        Path("cancelled.txt").touch()
        return {"stopReason": "cancelled", "usage": USAGE}


async def main() -> None:
    agent = Agent(sys.argv[1])
    if agent.scene == "waits":
        import signal

        # everything of a dispatch is told to end at once; here only the client's word shall count
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(1 << 26)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    agent.connection = Connection(agent.handle, writer, reader)
    await agent.connection.wait_closed()


asyncio.run(main())
