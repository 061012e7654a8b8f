"""OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.testing.wire.base import (
    Asked,
    ModelAnswer,
    ServerFailure,
    Tokens,
    Tool,
    ToolCall,
    ToolResult,
    items,
    pieces,
    sse,
    text_of,
)


class Chat:
    name = "chat"

    def read(self, endpoint: str, body: Mapping[str, Any]) -> Asked:
        functions = [one.get("function") or {} for one in items(body.get("tools"))]
        given = (message for message in items(body.get("messages")) if message.get("role") == "tool")
        return Asked(
            model=str(body.get("model", "")),
            tools=tuple(Tool(str(one.get("name")), one.get("parameters") or {}) for one in functions),
            results=tuple(ToolResult(str(one.get("tool_call_id")), text_of(one.get("content"))) for one in given),
            stream=body.get("stream") is True,
            wants_json=(body.get("response_format") or {}).get("type") == "json_schema",
        )

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.call:
            message["tool_calls"] = [_call(answer.call)]
        choice = {"index": 0, "message": message, "finish_reason": _stop(answer)}
        return {**_head(answer, "chat.completion"), "choices": [choice], "usage": _usage(answer.tokens)}

    def stream(self, answer: ModelAnswer) -> Iterator[str]:
        yield _chunk(answer, {"role": "assistant", "content": ""})
        for piece in pieces(answer.text):
            yield _chunk(answer, {"content": piece})
        if answer.call:
            yield _chunk(answer, {"tool_calls": [{"index": 0, **_call(answer.call)}]})
        yield _chunk(answer, {}, _stop(answer))
        yield sse({**_head(answer, "chat.completion.chunk"), "choices": [], "usage": _usage(answer.tokens)})
        yield sse("[DONE]")

    def failure(self, failure: ServerFailure) -> dict[str, Any]:
        return {"error": {"message": failure.message, "type": failure.type, "code": failure.type, "param": None}}


def _head(answer: ModelAnswer, object: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": object, "created": 0, "model": answer.model}


def _chunk(answer: ModelAnswer, delta: dict[str, Any], stop: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": stop}
    return sse({**_head(answer, "chat.completion.chunk"), "choices": [choice]})


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _stop(answer: ModelAnswer) -> str:
    ends = {"length": "length", "refusal": "content_filter"}
    return "tool_calls" if answer.call else ends.get(answer.stop, "stop")


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }
