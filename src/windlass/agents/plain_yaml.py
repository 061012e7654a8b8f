"""YAML as agents and people write it, read strictly: strings only, no tags, no aliases, every key once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import yaml
from msgspec import Struct

MAX_CHARS = 8_000_000
MAX_DEPTH = 32
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

Node: TypeAlias = "YamlScalar | YamlSequence | YamlTable"
Plain: TypeAlias = "None | str | list[Plain] | dict[str, Plain]"


class YamlError(Exception):
    """The text is not the YAML we read; `line` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


class YamlScalar(Struct, frozen=True):
    line: int
    text: str | None
    quoted: bool = False


class YamlSequence(Struct, frozen=True):
    line: int
    items: tuple[Node, ...]


class YamlTable(Struct, frozen=True):
    line: int
    items: dict[str, Node]
    lines: dict[str, int]


def read(text: str) -> Node:
    if len(text) > MAX_CHARS:
        raise YamlError(f"more than {MAX_CHARS:,} characters", 1)
    try:
        return _document(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(error.problem or "not valid YAML", mark.line + 1 if mark else 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlError("a character that YAML does not allow", line) from None
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError(str(error).splitlines()[0], 1) from None


def values(node: Node) -> Plain:
    match node:
        case YamlScalar():
            return node.text
        case YamlSequence():
            return [values(item) for item in node.items]
        case YamlTable():
            return {key: values(item) for key, item in node.items.items()}


def _document(events: Iterator[yaml.Event]) -> Node:
    node: Node = YamlScalar(1, None)
    documents = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YamlError("more than one document", _line(event))
            node = _node(next(events), events, 0)
    return node


def _node(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
    _refuse(event, depth)
    match event:
        case yaml.ScalarEvent():
            bare = bool(event.implicit[0])
            return YamlScalar(
                _line(event), None if bare and event.value in ("", "~", "null") else event.value, not bare
            )
        case yaml.SequenceStartEvent():
            return _sequence(_line(event), events, depth)
        case _:
            return _table(_line(event), events, depth)


def _sequence(line: int, events: Iterator[yaml.Event], depth: int) -> YamlSequence:
    items: list[Node] = []
    for event in events:
        if isinstance(event, yaml.SequenceEndEvent):
            break
        items.append(_node(event, events, depth + 1))
    return YamlSequence(line, tuple(items))


def _table(line: int, events: Iterator[yaml.Event], depth: int) -> YamlTable:
    items: dict[str, Node] = {}
    lines: dict[str, int] = {}
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            break
        key = _key(event, items)
        lines[key] = _line(event)
        items[key] = _node(next(events), events, depth + 1)
    return YamlTable(line, items, lines)


def _key(event: yaml.Event, seen: dict[str, Node]) -> str:
    _refuse(event, 0)
    if not isinstance(event, yaml.ScalarEvent):
        raise YamlError("a key must be a word", _line(event))
    key = str(event.value)
    if key in seen:
        raise YamlError(f"'{key}' stands here twice", _line(event))
    return key


def _refuse(event: yaml.Event, depth: int) -> None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise YamlError("anchors and aliases are not read", _line(event))
    tag = getattr(event, "tag", None)
    if tag and tag != "!":
        raise YamlError(f"the tag '{tag}' is not read", _line(event))
    if depth > MAX_DEPTH:
        raise YamlError(f"nested deeper than {MAX_DEPTH} levels", _line(event))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
