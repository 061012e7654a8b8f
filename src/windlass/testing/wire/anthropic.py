"""Anthropic Messages."""

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


class Anthropic:
    name = "anthropic"

    def read(self, endpoint: str, body: Mapping[str, Any]) -> Asked:
        blocks = (block for message in items(body.get("messages")) for block in items(message.get("content")))
        tools = items(body.get("tools"))
        return Asked(
            model=str(body.get("model", "")),
            tools=tuple(Tool(str(one.get("name")), one.get("input_schema") or {}) for one in tools),
            results=tuple(
                ToolResult(str(block.get("tool_use_id")), text_of(block.get("content")))
                for block in blocks
                if block.get("type") == "tool_result"
            ),
            stream=body.get("stream") is True,
            wants_json="format" in (body.get("output_config") or body.get("output_format") or {}),
        )

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        content = [{"type": "text", "text": answer.text}] if answer.text else []
        if answer.call:
            input = answer.call.input
            content.append(_block(answer.call, {"input": input} if isinstance(input, str) else dict(input)))
        return {**_head(answer), "content": content, "stop_reason": _stop(answer), "usage": _usage(answer.tokens)}

    def stream(self, answer: ModelAnswer) -> Iterator[str]:
        usage = _usage(answer.tokens)
        start = {**_head(answer), "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        yield _event("message_start", message=start)
        parts = [part for part in (answer.text, answer.call) if part]
        for index, part in enumerate(parts):
            if isinstance(part, str):
                yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                deltas = [{"type": "text_delta", "text": piece} for piece in pieces(part)]
            else:
                yield _event("content_block_start", index=index, content_block=_block(part, {}))
                sent = pieces(part.arguments, 4000)
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in sent]
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        end = {"stop_reason": _stop(answer), "stop_sequence": None}
        yield _event("message_delta", delta=end, usage={"output_tokens": usage["output_tokens"]})
        yield _event("message_stop")

    def failure(self, failure: ServerFailure) -> dict[str, Any]:
        return {
            "type": "error",
            "error": {"type": failure.type, "message": failure.message},
            "request_id": "req_scripted",
        }


def _event(type: str, **fields: Any) -> str:
    return sse({"type": type, **fields}, type)


def _block(call: ToolCall, input: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": input}


def _head(answer: ModelAnswer) -> dict[str, Any]:
    fixed = {"type": "message", "role": "assistant", "stop_sequence": None}
    return {"id": f"msg_{answer.id}", "model": answer.model, **fixed}


def _stop(answer: ModelAnswer) -> str:
    ends = {"length": "max_tokens", "refusal": "refusal"}
    return "tool_use" if answer.call else ends.get(answer.stop, "end_turn")


def _usage(tokens: Tokens) -> dict[str, int]:
    return {
        "input_tokens": max(tokens.input - tokens.cached, 0),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
    }
