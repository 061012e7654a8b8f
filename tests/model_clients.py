"""A CLI reduced to its talk with the model: offers tools, takes calls, gives results back. One for each language."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

WRITE = {"file_path": {"type": "string"}, "content": {"type": "string"}}
SHELL = {"command": {"type": "string"}, "description": {"type": "string"}}
READ = {"file_path": {"type": "string"}}
TOOLS: dict[str, dict[str, Any]] = {
    name: {"type": "object", "properties": fields, "required": list(fields)}
    for name, fields in (("Write", WRITE), ("Bash", SHELL), ("Read", READ))
}


@dataclass(frozen=True)
class Got:
    text: str = ""
    call: str = ""
    input: Any = None
    id: str = ""
    tokens: tuple[int, int, int] = (0, 0, 0)
    """Input without the cached, output, cached."""


@dataclass
class Client:
    base: str
    stream: bool = True
    tools: tuple[str, ...] = ("Write", "Bash", "Read")
    history: list[tuple[Got, str]] = field(default_factory=list)
    """Calls and what came of them."""

    path: ClassVar[str]

    def ask(self) -> Got:
        raw = self.post(self.body())
        if not self.stream:
            return self.whole(json.loads(raw))
        return self.joined([json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")])

    def all(self) -> list[Got]:
        """Until the model says something; every call is answered with `ok`."""
        found = [self.ask()]
        while found[-1].call:
            self.history.append((found[-1], "ok"))
            found.append(self.ask())
        return found

    def post(self, body: dict[str, Any]) -> str:
        headers = {"content-type": "application/json", "authorization": "Bearer sk-secret", "x-api-key": "sk-secret"}
        request = urllib.request.Request(self.base + self.endpoint, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=300) as answer:
            return str(answer.read().decode())

    @property
    def endpoint(self) -> str:
        return self.path

    def body(self) -> dict[str, Any]:
        raise NotImplementedError

    def whole(self, data: dict[str, Any]) -> Got:
        raise NotImplementedError

    def joined(self, events: list[dict[str, Any]]) -> Got:
        raise NotImplementedError


class AnthropicClient(Client):
    path = "/v1/messages"

    def body(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Build it."}]
        for got, result in self.history:
            use = {"type": "tool_use", "id": got.id, "name": got.call, "input": got.input}
            back = {"type": "tool_result", "tool_use_id": got.id, "content": [{"type": "text", "text": result}]}
            messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [back]}]
        tools = [{"name": name, "input_schema": TOOLS[name]} for name in self.tools]
        return {"model": "m", "stream": self.stream, "messages": messages, "tools": tools}

    def whole(self, data: dict[str, Any]) -> Got:
        text = "".join(block["text"] for block in data["content"] if block["type"] == "text")
        uses = [block for block in data["content"] if block["type"] == "tool_use"]
        assert data["stop_reason"] == ("tool_use" if uses else "end_turn")
        named = {"call": uses[0]["name"], "input": uses[0]["input"], "id": uses[0]["id"]} if uses else {}
        usage = data["usage"]
        tokens = (usage["input_tokens"], usage["output_tokens"], usage["cache_read_input_tokens"])
        return Got(text, tokens=tokens, **named)

    def joined(self, events: list[dict[str, Any]]) -> Got:
        message = events[0]["message"]
        deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
        blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
        for block in blocks:
            if block["type"] == "text":
                block["text"] = "".join(delta.get("text", "") for delta in deltas)
            else:
                block["input"] = json.loads("".join(delta.get("partial_json", "") for delta in deltas))
        [end] = [event for event in events if event["type"] == "message_delta"]
        assert events[-1]["type"] == "message_stop"
        return self.whole({**message, **end["delta"], "content": blocks, "usage": {**message["usage"], **end["usage"]}})


class ResponsesClient(Client):
    path = "/v1/responses"

    def body(self) -> dict[str, Any]:
        given: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "Build it."}]
        for got, result in self.history:
            arguments = json.dumps(got.input)
            given.append({"type": "function_call", "call_id": got.id, "name": got.call, "arguments": arguments})
            given.append({"type": "function_call_output", "call_id": got.id, "output": result})
        tools = [{"type": "function", "name": name, "parameters": TOOLS[name]} for name in self.tools]
        return {"model": "m", "stream": self.stream, "input": given, "tools": tools}

    def whole(self, data: dict[str, Any]) -> Got:
        texts = [item["content"][0]["text"] for item in data["output"] if item["type"] == "message"]
        calls = [item for item in data["output"] if item["type"] == "function_call"]
        usage = data["usage"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        tokens = (usage["input_tokens"] - cached, usage["output_tokens"], cached)
        if not calls:
            return Got("".join(texts), tokens=tokens)
        return Got("".join(texts), calls[0]["name"], json.loads(calls[0]["arguments"]), calls[0]["call_id"], tokens)

    def joined(self, events: list[dict[str, Any]]) -> Got:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        said = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        assert said == "".join(item["content"][0]["text"] for item in done if item["type"] == "message")
        assert events[-1]["type"] == "response.completed"
        assert events[-1]["response"]["output"] == done
        return self.whole(events[-1]["response"])


class ChatClient(Client):
    path = "/v1/chat/completions"

    def body(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Build it."}]
        for got, result in self.history:
            function = {"name": got.call, "arguments": json.dumps(got.input)}
            call = {"id": got.id, "type": "function", "function": function}
            messages += [
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": got.id, "content": result},
            ]
        tools = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in self.tools]
        return {"model": "m", "stream": self.stream, "messages": messages, "tools": tools}

    def whole(self, data: dict[str, Any]) -> Got:
        message = data["choices"][0]["message"]
        usage, calls = data["usage"], message.get("tool_calls") or []
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        tokens = (usage["prompt_tokens"] - cached, usage["completion_tokens"], cached)
        text = message.get("content") or ""
        if not calls:
            return Got(text, tokens=tokens)
        function = calls[0]["function"]
        return Got(text, function["name"], json.loads(function["arguments"]), calls[0]["id"], tokens)

    def joined(self, events: list[dict[str, Any]]) -> Got:
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        message = {"content": "".join(delta.get("content") or "" for delta in deltas)}
        calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
        return self.whole({"choices": [{"message": {**message, "tool_calls": calls}}], "usage": events[-1]["usage"]})


class GeminiClient(Client):
    @property
    def endpoint(self) -> str:
        return f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if self.stream else 'generateContent'}"

    def body(self) -> dict[str, Any]:
        contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": "Build it."}]}]
        for got, result in self.history:
            call = {"functionCall": {"name": got.call, "args": got.input}}
            back = {"functionResponse": {"id": got.id, "name": got.call, "response": {"output": result}}}
            contents += [{"role": "model", "parts": [call]}, {"role": "user", "parts": [back]}]
        tools = [{"name": name, "parametersJsonSchema": TOOLS[name]} for name in self.tools]
        return {"contents": contents, "tools": [{"functionDeclarations": tools}]}

    def whole(self, data: dict[str, Any]) -> Got:
        [candidate] = data["candidates"]
        assert candidate["finishReason"] == "STOP"
        parts = candidate["content"]["parts"]
        text = "".join(part.get("text", "") for part in parts)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        usage = data["usageMetadata"]
        cached = usage["cachedContentTokenCount"]
        tokens = (usage["promptTokenCount"] - cached, usage["candidatesTokenCount"], cached)
        if not calls:
            return Got(text, tokens=tokens)
        return Got(text, calls[0]["name"], calls[0]["args"], calls[0]["id"], tokens)

    def joined(self, events: list[dict[str, Any]]) -> Got:
        parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
        last = events[-1]
        candidate = {**last["candidates"][0], "content": {"parts": parts}}
        return self.whole({**last, "candidates": [candidate]})


CLIENTS: tuple[type[Client], ...] = (AnthropicClient, ResponsesClient, ChatClient, GeminiClient)


def refusal(client: Client) -> tuple[int, str, dict[str, str]]:
    try:
        client.ask()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), {name.lower(): value for name, value in error.headers.items()}
    raise AssertionError("the model answered")


def every_way() -> Iterator[tuple[type[Client], bool]]:
    for client in CLIENTS:
        yield client, True
        yield client, False
