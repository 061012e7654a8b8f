"""YAML of people and agents, read strictly: no tags, no anchors, no aliases, every key once.

The one reader of flow files, role files, scripts and answers. It uses the events of PyYAML's C parser, which takes a
twentieth of the time of the parser in Python; a flow is read before the first dispatch. Only a text with an error is
parsed again in Python, because that parser explains errors better.

Every scalar is a text; the caller decides which texts are special.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import yaml
from msgspec import Struct

MAX_CHARS = 8_000_000
MAX_DEPTH = 32
QUOTE = "quote this text"
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

Node: TypeAlias = "YamlScalar | YamlSequence | YamlTable"
Plain: TypeAlias = "None | str | list[Plain] | dict[str, Plain]"


class YamlFault(Struct, frozen=True):
    line: int
    message: str
    hint: str = ""


class YamlError(Exception):
    """The text is not valid strict YAML: every fault, up to the first that ends the reading. `line` counts from 1."""

    def __init__(self, faults: Sequence[YamlFault]) -> None:
        self.faults = tuple(faults)
        self.line, self.message = faults[0].line, faults[0].message
        super().__init__(f"line {self.line}: {self.message}")


class YamlScalar(Struct, frozen=True):
    line: int
    text: str
    quoted: bool = False

    @property
    def value(self) -> str | None:
        """None when nothing is written, or `null`."""
        return None if not self.quoted and self.text in ("", "~", "null") else self.text


class YamlSequence(Struct, frozen=True):
    line: int
    items: tuple[Node, ...]


class YamlTable(Struct, frozen=True):
    line: int
    items: dict[str, Node]
    lines: dict[str, int]
    """The lines of the keys."""


def read(text: str, *, max_chars: int = MAX_CHARS, max_depth: int = MAX_DEPTH) -> Node | None:
    """The document; None when there is none."""
    if len(text) > max_chars:
        raise YamlError([YamlFault(1, f"there are more than {max_chars:,} characters")])
    reader = _YamlReader(max_depth)
    try:
        node = reader.document(yaml.parse(text, Loader=_LOADER))
    except _TooDeepError as error:
        raise YamlError([*reader.faults, YamlFault(error.line, f"nested deeper than {max_depth} levels")]) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise YamlError([*reader.faults, _syntax_fault(text, error)]) from None
    if reader.faults:
        raise YamlError(reader.faults)
    return node


def values(node: Node | None) -> Plain:
    match node:
        case None:
            return None
        case YamlScalar():
            return node.value
        case YamlSequence():
            return [values(item) for item in node.items]
        case YamlTable():
            return {key: values(item) for key, item in node.items.items()}


def _syntax_fault(text: str, error: Exception) -> YamlFault:
    try:
        for _ in yaml.parse(text, Loader=yaml.BaseLoader):
            pass
    except (yaml.YAMLError, ValueError, OverflowError) as better:
        error = better
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = getattr(error, "position", 0)
    line = mark.line + 1 if mark else text.count("\n", 0, position if isinstance(position, int) else 0) + 1
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).splitlines()[0]
    if "mapping values are not allowed" in problem or "but got ':'" in problem:
        return YamlFault(line, "a plain text has ': ' in it", QUOTE)
    return YamlFault(line, f"not readable as YAML: {problem}")


class _TooDeepError(Exception):
    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _YamlReader:
    def __init__(self, max_depth: int) -> None:
        self.faults: list[YamlFault] = []
        self._max_depth = max_depth

    def document(self, events: Iterator[yaml.Event]) -> Node | None:
        node: Node | None = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                self._refuse_if(documents == 2, event, "a second document in one file")
                found = self._node(next(events), events, 0)
                node = node or found
        return node

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
        if depth > self._max_depth:
            raise _TooDeepError(_line(event))
        self._refuse_extras(event)
        match event:
            case yaml.MappingStartEvent():
                return self._table(_line(event), events, depth)
            case yaml.SequenceStartEvent():
                return self._sequence(_line(event), events, depth)
            case yaml.ScalarEvent():
                return YamlScalar(_line(event), str(event.value), not event.implicit[0])
            case _:
                return YamlScalar(_line(event), "")

    def _table(self, line: int, events: Iterator[yaml.Event], depth: int) -> YamlTable:
        items: dict[str, Node] = {}
        lines: dict[str, int] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            if isinstance(event, yaml.ScalarEvent):
                self._refuse_extras(event)
                key = str(event.value)
            else:
                self._refuse_if(True, event, "a key is plain text, nothing else")
                self._node(event, events, depth + 1)
                key = "?"
            self._refuse_if(key in items, event, f"the key '{key}' occurs twice")
            lines[key] = _line(event)
            items[key] = self._node(next(events), events, depth + 1)
        return YamlTable(line, items, lines)

    def _sequence(self, line: int, events: Iterator[yaml.Event], depth: int) -> YamlSequence:
        items: list[Node] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, events, depth + 1))
        return YamlSequence(line, tuple(items))

    def _refuse_extras(self, event: yaml.Event) -> None:
        anchor, tag = getattr(event, "anchor", None), getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent):
            self._refuse_if(True, event, f"an alias '*{anchor}'", "write it out")
            return
        self._refuse_if(bool(anchor), event, f"an anchor '&{anchor}'")
        # A quoted text has the tag `!` from the C parser.
        self._refuse_if(bool(tag) and tag != "!", event, f"a tag '{tag}'")

    def _refuse_if(self, wrong: bool, event: yaml.Event, message: str, hint: str = "") -> None:
        if wrong:
            self.faults.append(YamlFault(_line(event), message, hint))


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
