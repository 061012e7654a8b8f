"""Google's generateContent."""

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

STATUS = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 429: "RESOURCE_EXHAUSTED",
          500: "INTERNAL", 503: "UNAVAILABLE"}  # fmt: skip


class Gemini:
    name = "gemini"

    def read(self, endpoint: str, body: Mapping[str, Any]) -> Asked:
        parts = [part for content in items(body.get("contents")) for part in items(content.get("parts"))]
        config = body.get("generationConfig") or {}
        offered = [one for tool in items(body.get("tools")) for one in items(tool.get("functionDeclarations"))]
        return Asked(
            model=endpoint.rsplit("/", 1)[-1].split(":", maxsplit=1)[0],
            tools=tuple(
                Tool(str(one.get("name")), one.get("parametersJsonSchema") or one.get("parameters") or {})
                for one in offered
            ),
            results=tuple(_results(parts)),
            stream="streamGenerateContent" in endpoint,
            # The CLI asks for JSON when it routes, checks for loops or wants to know who speaks next.
            aside=config.get("responseJsonSchema") or config.get("responseSchema"),
        )

    def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": answer.text}] if answer.text else []
        if answer.call:
            parts.append(_call(answer.call))
        return _chunk(answer, parts, _stop(answer))

    def stream(self, answer: ModelAnswer) -> Iterator[str]:
        for piece in pieces(answer.text):
            yield sse(_chunk(answer, [{"text": piece}]))
        yield sse(_chunk(answer, [_call(answer.call)] if answer.call else [{"text": ""}], _stop(answer)))

    def failure(self, failure: ServerFailure) -> dict[str, Any]:
        details = []
        if failure.retry_after is not None:
            info = "type.googleapis.com/google.rpc.RetryInfo"
            details.append({"@type": info, "retryDelay": f"{failure.retry_after:g}s"})
        status = STATUS.get(failure.status, "UNKNOWN")
        error = {"code": failure.status, "message": failure.message, "status": status, "details": details}
        return {"error": error}


def _results(parts: list[dict[str, Any]]) -> Iterator[ToolResult]:
    """A result without an id belongs to the oldest call that has none yet."""
    open_calls: list[str] = []
    for part in parts:
        if "functionCall" in part:
            open_calls.append(str(part["functionCall"].get("id") or ""))
        elif "functionResponse" in part:
            given = part["functionResponse"]
            oldest = open_calls.pop(0) if open_calls else ""
            yield ToolResult(str(given.get("id") or oldest), text_of(given.get("response")))


def _call(call: ToolCall) -> dict[str, Any]:
    args = {"input": call.input} if isinstance(call.input, str) else dict(call.input)
    return {"functionCall": {"id": call.id, "name": call.name, "args": args}}


def _chunk(answer: ModelAnswer, parts: list[dict[str, Any]], stop: str = "") -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    chunk = {"candidates": [candidate], "modelVersion": answer.model, "responseId": answer.id}
    if not stop:
        return chunk
    candidate["finishReason"] = stop
    tokens = answer.tokens
    usage = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output,
        "cachedContentTokenCount": tokens.cached,
        "totalTokenCount": tokens.input + tokens.output,
    }
    return {**chunk, "usageMetadata": usage}


def _stop(answer: ModelAnswer) -> str:
    return {"length": "MAX_TOKENS", "refusal": "SAFETY"}.get(answer.stop, "STOP")
