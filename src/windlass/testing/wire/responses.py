"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.testing.wire.base import (
    Asked,
    ModelAnswer,
    ServerFailure,
    Tool,
    ToolCall,
    ToolResult,
    items,
    pieces,
    sse,
    text_of,
)

OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class Responses:
    name = "responses"

    def read(self, endpoint: str, body: Mapping[str, Any]) -> Asked:
        given = (item for item in items(body.get("input")) if item.get("type") in OUTPUTS)
        format = (body.get("text") or {}).get("format") or {}
        return Asked(
            model=str(body.get("model", "")),
            tools=tuple(
                Tool(str(one["name"]), one.get("parameters") or {}, freeform=one["type"] == "custom")
                for one in items(body.get("tools"))
                if one.get("type") in ("function", "custom") and one.get("name")
            ),
            results=tuple(ToolResult(str(item.get("call_id")), text_of(item.get("output"))) for item in given),
            stream=body.get("stream") is True,
            wants_json=format.get("type") == "json_schema",
        )

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        whole = {**_response(answer, "completed"), "output": [_item(answer, part) for part in _parts(answer)]}
        if not answer.stop:
            return whole
        reason = "content_filter" if answer.stop == "refusal" else "max_output_tokens"
        return {**whole, "status": "incomplete", "incomplete_details": {"reason": reason}}

    def stream(self, answer: ModelAnswer) -> Iterator[str]:
        numbers = iter(range(1_000_000))

        def event(type: str, **fields: Any) -> str:
            return sse({"type": type, "sequence_number": next(numbers), **fields}, type)

        yield event("response.created", response=_response(answer, "in_progress"))
        for index, part in enumerate(_parts(answer)):
            item = _item(answer, part)
            emptied: dict[str, Any] = {"message": {"content": []}, "custom_tool_call": {"input": ""}}
            begun = {**item, "status": "in_progress", **emptied.get(item["type"], {"arguments": ""})}
            yield event("response.output_item.added", output_index=index, item=begun)
            for kind, fields in _deltas(item):
                yield event(kind, output_index=index, item_id=item["id"], **fields)
            yield event("response.output_item.done", output_index=index, item=item)
        ended = "response.incomplete" if answer.stop else "response.completed"
        yield event(ended, response=self.whole(answer))

    def failure(self, failure: ServerFailure) -> dict[str, Any]:
        return {"error": {"message": failure.message, "type": failure.type, "code": failure.type, "param": None}}


def _parts(answer: ModelAnswer) -> list[str | ToolCall]:
    return [part for part in (answer.text, answer.call) if part]


def _item(answer: ModelAnswer, part: str | ToolCall) -> dict[str, Any]:
    if isinstance(part, str):
        content = [{"type": "output_text", "text": part, "annotations": []}]
        fixed = {"type": "message", "role": "assistant", "status": "completed"}
        return {"id": f"msg_{answer.id}", **fixed, "content": content}
    base = {"id": f"item_{part.id}", "call_id": part.id, "name": part.name, "status": "completed"}
    if part.freeform:
        return {"type": "custom_tool_call", **base, "input": part.arguments}
    return {"type": "function_call", **base, "arguments": part.arguments}


def _deltas(item: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    match item["type"]:
        case "message":
            part = item["content"][0]
            yield "response.content_part.added", {"content_index": 0, "part": {**part, "text": ""}}
            for piece in pieces(part["text"]):
                yield "response.output_text.delta", {"content_index": 0, "delta": piece}
            yield "response.output_text.done", {"content_index": 0, "text": part["text"]}
            yield "response.content_part.done", {"content_index": 0, "part": part}
        case "custom_tool_call":
            yield "response.custom_tool_call_input.delta", {"delta": item["input"]}
            yield "response.custom_tool_call_input.done", {"input": item["input"]}
        case _:
            yield "response.function_call_arguments.delta", {"delta": item["arguments"]}
            yield "response.function_call_arguments.done", {"arguments": item["arguments"]}


def _response(answer: ModelAnswer, status: str) -> dict[str, Any]:
    fixed = {"object": "response", "created_at": 0, "error": None, "incomplete_details": None, "output": []}
    tokens = answer.tokens
    usage = {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.input + tokens.output,
    }
    return {
        "id": f"resp_{answer.id}",
        "model": answer.model,
        "status": status,
        **fixed,
        "usage": usage if status == "completed" else None,
    }
