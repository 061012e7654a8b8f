"""Templates of role files: `{{name}}`, and `{{#name}}…{{/name}}` which is shown when the value is not empty.

Values from outside (a request, a plan, findings) become fenced data, so no text can pose as an instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, assert_never

from msgspec import Struct

from windlass.agents.contracts.fences import fence
from windlass.text import plain

#: written by people, agents or programs: fenced
DATA = frozenset({
    "request", "scout", "plan", "plan_context", "design", "task", "changed_files", "findings", "open_findings",
    "fix_diff", "fix_places", "diff", "completed_tasks", "feedback", "criteria", "checks_output", "conflict", "proof",
    "recovery",
    "test_files",
    "inputs",
    "history",
})  # fmt: skip
#: one line each, or Windlass's own text
WORDS = frozenset({
    "count", "cwd", "date", "slug", "plan_path", "task_id", "task_title", "review_type", "subject", "focus",
})  # fmt: skip
OWN = frozenset({"contract", "reminder", "tdd", "flags"})
VARIABLES = DATA | WORDS | OWN

_TAG = re.compile(r"\{\{(?P<kind>[#/]?)(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\}\}|(?P<odd>\{\{|\}\})")
_OWN_LINE = re.compile(r"^[ \t]*(\{\{[#/][A-Za-z_][A-Za-z0-9_.-]*\}\})[ \t]*\n", re.MULTILINE)


class TemplateError(Exception):
    """`line` counts from 1 within the template."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class TemplateVariable(Struct, frozen=True):
    name: str


class TemplateBlock(Struct, frozen=True):
    name: str
    parts: tuple[Piece, ...]


Piece: TypeAlias = str | TemplateVariable | TemplateBlock


def known(name: str) -> bool:
    return name in VARIABLES or is_out(name)


def is_out(name: str) -> bool:
    """The path of a declared artifact; '' when the dispatch does not have it."""
    return bool(re.fullmatch(r"out\.[A-Za-z0-9_-]+", name))


def compile_template(text: str) -> tuple[Piece, ...]:
    flat = _OWN_LINE.sub(r"\1", text)
    # A tag alone on its line loses its newline: these are the lines of the original.
    lines = [text.count("\n", 0, tag.start()) + 1 for tag in _TAG.finditer(text)]
    return _pieces(_tokens(flat, lines), None)


def names(pieces: tuple[Piece, ...]) -> set[str]:
    found: set[str] = set()
    for piece in pieces:
        match piece:
            case str():
                pass
            case TemplateVariable():
                found.add(piece.name)
            case TemplateBlock():
                found |= {piece.name} | names(piece.parts)
            case _:
                assert_never(piece)
    return found


def fill(pieces: tuple[Piece, ...], values: Mapping[str, str]) -> str:
    filled = []
    for piece in pieces:
        match piece:
            case str():
                filled.append(piece)
            case TemplateVariable():
                filled.append(_format_value(piece.name, _value(piece.name, values)))
            case TemplateBlock():
                filled.append(fill(piece.parts, values) if _value(piece.name, values).strip() else "")
            case _:
                assert_never(piece)
    return "".join(filled)


def _value(name: str, values: Mapping[str, str]) -> str:
    # The flow decides which artifacts a dispatch has; all other variables always exist.
    return values.get(name, "") if is_out(name) else values[name]


def _format_value(name: str, value: str) -> str:
    if name in OWN:
        return value
    if name in DATA:
        return fence(plain(value) or "(none)", f"data-{name.replace('_', '-')}")
    return " ".join(plain(value).replace("`", "'").split())


class _Token(Struct, frozen=True):
    kind: str
    text: str
    line: int


def _tokens(text: str, lines: Sequence[int]) -> Iterator[_Token]:
    """`lines`: the line of each tag."""
    at = 0
    for tag, line in zip(_TAG.finditer(text), lines, strict=True):
        yield _Token("text", text[at : tag.start()], line)
        at = tag.end()
        if tag["odd"]:
            raise TemplateError(f"'{tag['odd']}' without a variable", line)
        yield _Token(tag["kind"] or "var", tag["name"], line)
    yield _Token("text", text[at:], 0)


def _pieces(tokens: Iterator[_Token], opened: _Token | None) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for token in tokens:
        if token.kind == "text":
            pieces.append(token.text)
        elif token.kind == "var":
            pieces.append(TemplateVariable(token.text))
        elif token.kind == "#":
            pieces.append(TemplateBlock(token.text, _pieces(tokens, token)))
        elif opened is None or token.text != opened.text:
            raise TemplateError(f"{{{{/{token.text}}}}} closes nothing", token.line)
        else:
            return tuple(pieces)
    if opened is not None:
        raise TemplateError(f"{{{{#{opened.text}}}}} is never closed", opened.line)
    return tuple(pieces)
