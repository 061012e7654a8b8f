"""Finds the line of a key in a TOML or JSON text, for error messages. The texts are known to parse."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Path: TypeAlias = tuple[str, ...]
Lines: TypeAlias = dict[Path, int]
Token: TypeAlias = tuple[str, int]

TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[A-Za-z0-9_-]+"
    r"|.",
    re.DOTALL,
)
JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]:,]|\n|[^\s{}\[\]:,"]+|[^\S\n]+')


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """The line of the key, or of the nearest table around it, or 1."""
    return next((lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in lines), 1)


def toml_lines(text: str) -> Lines:
    found: Lines = {}
    table: Path = ()
    for statement in _statements(text):
        line = statement[0][1]
        if statement[0][0] == "[":
            table = _toml_key(token for token, _ in statement if token not in "[]")
            found.setdefault(table, line)
        else:
            names = [token for token, _ in statement]
            key = _toml_key(names[: names.index("=")])
            for n in range(1, len(key) + 1):
                found.setdefault((*table, *key[:n]), line)
    return found


def _statements(text: str) -> Iterator[list[Token]]:
    """The tokens of each `[table]` or `key = value`. A value continues while a bracket is open."""
    statement: list[Token] = []
    depth = 0
    for token, line in _tokens(TOML_TOKEN, text):
        depth += (token in "[{") - (token in "]}")
        if token == "\n" and depth == 0:
            if statement:
                yield statement
            statement = []
        elif not token.isspace() and not token.startswith("#"):
            statement.append((token, line))
    if statement:
        yield statement


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[Token]:
    line = 1
    for match in pattern.finditer(text):
        yield match[0], line
        line += match[0].count("\n")


def _toml_key(tokens: Iterator[str] | list[str]) -> Path:
    names = [token for token in tokens if token != "."]
    return tuple(str(tomllib.loads(f"x = {name}")["x"]) if name[0] in "\"'" else name for name in names)


def json_lines(text: str) -> Lines:
    """Only keys of objects below objects. The content of a list has the line of the list."""
    found: Lines = {}
    path: list[str] = []
    key: Token | None = None
    for token, line in _tokens(JSON_TOKEN, text):
        if token.startswith('"'):
            key = (str(json.loads(token)), line)
        elif token == ":" and key:
            found.setdefault((*path, key[0]), key[1])
        elif token in "{[":
            path.append(key[0] if key else "")
            key = None
        elif token in "}]":
            path.pop()
        elif token == ",":
            key = None
    return {tuple(part for part in where if part): line for where, line in found.items()}
