"""Strict YAML: only true, false and null are special, and every value knows its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import yaml
from msgspec import Struct, field
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from windlass.conversion import Path
from windlass.flow.problem import FlowError, FlowProblem
from windlass.model import Json

MAX_CHARS = 400_000
MAX_DEPTH = 24
SPECIAL: Mapping[str, Json] = {"true": True, "false": False, "null": None}
QUOTE = "quote this text"


class Located(Struct, frozen=True):
    """A document's value, and the line of every key and item in it."""

    value: Json
    where: str
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of the path, or of the nearest thing around it that stands in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def load_strict(text: str, where: str) -> Located:
    """Raises FlowError with every problem found; a syntax error ends the search."""
    if len(text) > MAX_CHARS:
        raise FlowError(where, [FlowProblem(1, f"the file has more than {MAX_CHARS} characters")])
    reader = _YamlReader(where)
    try:
        value = reader.document(yaml.parse(text, Loader=yaml.SafeLoader))
    except _TooDeepError as error:
        reader.problems.append(FlowProblem(error.line, f"nested deeper than {MAX_DEPTH} levels"))
    except yaml.YAMLError as error:
        reader.problems.append(_syntax(error))
    except (ValueError, OverflowError) as error:
        reader.problems.append(FlowProblem(1, f"not readable as YAML: {error}"))
    if reader.problems:
        raise FlowError(where, reader.problems)
    return Located(value, where, reader.lines)


def _syntax(error: yaml.YAMLError) -> FlowProblem:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else 1
    said = str(getattr(error, "problem", None) or getattr(error, "reason", None) or error)
    if "mapping values are not allowed" in said or "but got ':'" in said:
        return FlowProblem(line, "a plain text has ': ' in it", QUOTE)
    return FlowProblem(line, f"not readable as YAML: {said}")


class _TooDeepError(Exception):
    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _YamlReader:
    """Turns the parser's events into one value; there is no composer, so no anchor is ever followed."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: dict[Path, int] = {}
        self.problems: list[FlowProblem] = []

    def document(self, events: Iterator[Event]) -> Json:
        value: Json = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                self._refuse_if(documents > 1, event, "a second document in one file")
            elif not isinstance(event, StreamStartEvent | StreamEndEvent | DocumentEndEvent):
                value = self._value(event, events, ())
        if not documents:
            self.problems.append(FlowProblem(1, "the file is empty"))
        return value

    def _value(self, event: Event, events: Iterator[Event], path: Path) -> Json:
        if len(path) > MAX_DEPTH:
            raise _TooDeepError(_line(event))
        self.lines.setdefault(path, _line(event))
        self._refuse_extras(event)
        match event:
            case MappingStartEvent():
                return self._mapping(events, path)
            case SequenceStartEvent():
                return self._sequence(events, path)
            case ScalarEvent():
                return self._scalar(event)
            case _:
                return None

    def _mapping(self, events: Iterator[Event], path: Path) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            key = self._key(event, events, path)
            self._refuse_if(key in found, event, f"the key '{key}' stands here twice")
            self.lines[(*path, key)] = _line(event)
            found[key] = self._value(next(events), events, (*path, key))
        return found

    def _key(self, event: Event, events: Iterator[Event], path: Path) -> str:
        self._refuse_extras(event)
        if isinstance(event, ScalarEvent):
            return str(event.value)
        self._refuse_if(True, event, "a key is plain text, nothing else")
        self._value(event, events, (*path, "?"))
        return "?"

    def _sequence(self, events: Iterator[Event], path: Path) -> list[Json]:
        found: list[Json] = []
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            found.append(self._value(event, events, (*path, len(found))))
        return found

    def _scalar(self, event: ScalarEvent) -> Json:
        text = str(event.value)
        if not event.implicit[0]:
            return text
        self._refuse_if(text == "", event, "a value is missing here", 'write null or "" if that is meant')
        self._refuse_if("?" in text or ": " in text, event, f"'{_short(text)}' has '?' or ': ' in it", QUOTE)
        return SPECIAL.get(text, text)

    def _refuse_extras(self, event: Event) -> None:
        if isinstance(event, AliasEvent):
            self._refuse_if(True, event, f"an alias '*{event.anchor}'", "write it out")
            return
        self._refuse_if(bool(getattr(event, "anchor", None)), event, f"an anchor '&{getattr(event, 'anchor', '')}'")
        self._refuse_if(bool(getattr(event, "tag", None)), event, f"a tag '{getattr(event, 'tag', '')}'")

    def _refuse_if(self, wrong: bool, event: Event, message: str, hint: str = "") -> None:
        if wrong:
            self.problems.append(FlowProblem(_line(event), message, hint))


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 40 else flat[:37] + "..."
