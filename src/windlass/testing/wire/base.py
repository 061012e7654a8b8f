"""What all model APIs have in common: offered tools, tool results, and an answer with text or a tool call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from windlass.model import Json


class Tool(Struct, frozen=True):
    name: str
    schema: Mapping[str, Any]
    freeform: bool = False
    """The tool takes a text, not JSON."""

    @property
    def fields(self) -> Mapping[str, Any]:
        found = self.schema.get("properties")
        return found if isinstance(found, dict) else {}

    @property
    def required(self) -> Sequence[str]:
        found = self.schema.get("required")
        return found if isinstance(found, list) else ()


class ToolResult(Struct, frozen=True):
    """The CLI's result of a tool call."""

    id: str
    text: str


class Asked(Struct, frozen=True):
    model: str
    tools: tuple[Tool, ...]
    results: tuple[ToolResult, ...]
    stream: bool
    wants_json: bool = False
    """The answer must be JSON and nothing else."""
    aside: Mapping[str, Any] | None = None
    """The schema of the answer to a side request, such as the choice of a model. Not a step of the dispatch."""

    def tool(self, *names: str) -> Tool | None:
        """The first of these tools that is offered, ignoring case."""
        known = {tool.name.lower(): tool for tool in self.tools}
        return next((known[name] for name in names if name in known), None)


class ToolCall(Struct, frozen=True):
    id: str
    name: str
    input: Mapping[str, Json] | str
    """A text for a freeform tool."""

    @property
    def arguments(self) -> str:
        return self.input if isinstance(self.input, str) else json.dumps(dict(self.input), ensure_ascii=False)

    @property
    def freeform(self) -> bool:
        return isinstance(self.input, str)


class Tokens(Struct, frozen=True):
    input: int = 0
    """Including cached tokens."""
    output: int = 0
    cached: int = 0


class ModelAnswer(Struct, frozen=True):
    id: str
    model: str
    text: str = ""
    call: ToolCall | None = None
    tokens: Tokens = Tokens()
    stop: str = ""
    """How the last words end: '' well, `length` cut at the model's limit, `refusal` by the model or a filter."""


class ServerFailure(Struct, frozen=True):
    status: int
    type: str
    message: str
    retry_after: float | None = None


class Wire(Protocol):
    """Contract: pure. `read` never raises for a body that is a JSON object."""

    name: str

    def read(self, endpoint: str, body: Mapping[str, Any]) -> Asked: ...

    def whole(self, answer: ModelAnswer) -> dict[str, Any]: ...

    def stream(self, answer: ModelAnswer) -> Iterator[str]:
        """Server-sent events, each ended by an empty line."""
        ...

    def failure(self, failure: ServerFailure) -> dict[str, Any]: ...


def sse(data: Mapping[str, Any] | str, event: str = "") -> str:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"event: {event}\ndata: {text}\n\n" if event else f"data: {text}\n\n"


def pieces(text: str, size: int = 400) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def text_of(content: Any) -> str:
    """The words in a message's content, however it is nested."""
    match content:
        case str():
            return content
        case list():
            return "\n".join(filter(None, map(text_of, content)))
        case dict():
            return "\n".join(
                filter(None, (text_of(content.get(key)) for key in ("text", "content", "output", "error")))
            )
        case _:
            return ""


def items(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
