"""Converts plain data of YAML, TOML or JSON into structs, by their type hints, and reports every fault at once.

`msgspec.convert` does the same and stops at the first fault. A person who writes a flow or a configuration needs all of
them, each with its place. A value is converted only if its type hint demands it: the text "3" is not a number.

The type hints of a struct are evaluated for its first value, so that a start pays only for what it uses.

In addition to plain types, lists, tables, choices (`Literal`) and structs, a type hint can say:

- `Annotated[T, Before(f)]`: f changes the value, then it is read as a T
- `Annotated[T, Parser(f)]`: f makes the T, or raises ValueError with the reason
- `Annotated[T, After(f)]`: f checks or changes the T
- `Annotated[T, Meta(...)]`: the bounds of msgspec: ge, le, min_length, max_length
- `Annotated[dict[str, T], Rest()]`: takes the keys of the table that no other field has
- `field(name="from")`: the key in the data
- structs in a union are distinguished by their tag (`tag_field`, `tag`)
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import FieldInfo, fields

from windlass.errors import near

T = TypeVar("T")
Path: TypeAlias = tuple[str | int, ...]


class Before(Struct, frozen=True):
    change: Callable[[Any], Any]


class Parser(Struct, frozen=True):
    make: Callable[[Any], Any]


class After(Struct, frozen=True):
    check: Callable[[Any], Any]


class Rest(Struct, frozen=True):
    pass


class Fault(Struct, frozen=True):
    """One value that does not fit."""

    path: Path
    code: str
    """unknown | missing | tag | choice | value | bound, or the expected type: text | flag | whole | number | finite |
    list | table | union"""
    message: str
    """Without the name of the key."""
    hint: str = ""
    value: Any = None
    owner: type | None = None
    """The struct that has no such key."""


class ConversionError(ValueError):
    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__("; ".join(fault_line(fault) for fault in faults))
        self.faults = tuple(faults)


def fault_line(fault: Fault) -> str:
    place = ".".join(str(part) for part in fault.path)
    return f"{place}: {fault.message}" if place else fault.message


def convert(data: object, into: type[T]) -> T:
    """The struct, or a ConversionError with every fault."""
    faults: list[Fault] = []
    value = _reader(cast("Any", into))(data, (), faults)
    if faults:
        raise ConversionError(faults)
    return cast("T", value)


@cache
def fields_of(cls: type) -> tuple[FieldInfo, ...]:
    return fields(cls)


def bare(hint: Any) -> Any:
    """The type without the additions of `Annotated`."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def notes(hint: Any) -> tuple[Any, ...]:
    """The additions of `Annotated` to the type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def members(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


# -- readers: one for each type hint, made when it is first used

Reader: TypeAlias = Callable[[Any, Path, list[Fault]], Any]


@cache
def _reader(hint: Any) -> Reader:
    if get_origin(hint) is Annotated:
        return _annotated(bare(hint), notes(hint))
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _StructReader(hint)
    if hint in _PLAIN:
        return _plain(*_PLAIN[hint])
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(inner)
    if origin is Literal:
        return _choice(inner)
    if origin is dict:
        return _table(_reader(inner[0]), _reader(inner[1]))
    if origin in (tuple, list):
        return _list(_reader(inner[0]), origin)
    if hint is float:
        return _number
    raise TypeError(f"there is no reader for {hint}")


_PLAIN: dict[Any, tuple[type, str, str]] = {
    str: (str, "text", "must be a text"),
    bool: (bool, "flag", "must be true or false"),
    int: (int, "whole", "must be a whole number"),
    type(None): (type(None), "union", "must be null"),
}


def _plain(kind: type, code: str, message: str) -> Reader:
    def read(value: Any, path: Path, faults: list[Fault]) -> Any:
        if type(value) is not kind:
            faults.append(Fault(path, code, message, value=value))
        return value

    return read


def _number(value: Any, path: Path, faults: list[Fault]) -> Any:
    if type(value) not in (int, float):
        faults.append(Fault(path, "number", "must be a number", value=value))
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        faults.append(Fault(path, "finite", "must be a finite number", value=value))
    return number


def _choice(words: tuple[str, ...]) -> Reader:
    allowed = " or ".join(filter(None, (", ".join(f"'{word}'" for word in words[:-1]), f"'{words[-1]}'")))

    def read(value: Any, path: Path, faults: list[Fault]) -> Any:
        if not isinstance(value, str) or value not in words:
            hint = near(value[:100] if isinstance(value, str) else "", [word for word in words if word])
            faults.append(Fault(path, "choice", f"must be {allowed}", hint, value))
        return value

    return read


def _list(item: Reader, kind: type) -> Reader:
    def read(value: Any, path: Path, faults: list[Fault]) -> Any:
        if not isinstance(value, list | tuple):
            faults.append(Fault(path, "list", "must be a list", value=value))
            return value
        return kind(item(one, (*path, index), faults) for index, one in enumerate(value))

    return read


def _table(key: Reader, item: Reader) -> Reader:
    def read(value: Any, path: Path, faults: list[Fault]) -> Any:
        if not isinstance(value, dict):
            faults.append(_no_table(path, value))
            return value
        return {key(name, (*path, name), faults): item(one, (*path, name), faults) for name, one in value.items()}

    return read


def _no_table(path: Path, value: Any) -> Fault:
    return Fault(path, "table", "must be a mapping", value=value)


def _union(kinds: tuple[Any, ...]) -> Reader:
    others = [kind for kind in kinds if kind is not type(None)]
    optional = len(others) < len(kinds)
    tags = [_tag(kind) for kind in others]
    if len(others) > 1 and all(tags):
        return _tagged_reader(dict(zip(tags, others, strict=True)))
    readers = [_reader(kind) for kind in others]

    def read(value: Any, path: Path, faults: list[Fault]) -> Any:
        if optional and value is None:
            return None
        tried: list[list[Fault]] = []
        for reader in readers:
            found: list[Fault] = []
            result = reader(value, path, found)
            if not found:
                return result
            tried.append(found)
        if len(tried) == 1:
            faults += tried[0]
        else:
            wanted = " or ".join(dict.fromkeys(found[0].message.removeprefix("must be ") for found in tried))
            faults.append(Fault(path, "union", f"must be {wanted}", value=value))
        return value

    return read


def _tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag or "") if isinstance(kind, type) and issubclass(kind, Struct) else ""


def _tagged_reader(kinds: dict[str, type[Struct]]) -> Reader:
    key = next(iter(kinds.values())).__struct_config__.tag_field or "type"

    def read(value: Any, path: Path, faults: list[Fault]) -> Any:
        if not isinstance(value, dict):
            faults.append(_no_table(path, value))
        elif key not in value:
            faults.append(Fault((*path, key), "missing", "is missing", f"one of {', '.join(kinds)}"))
        elif value[key] not in list(kinds):
            word = str(value[key])
            faults.append(Fault((*path, key), "tag", f"unknown {key} '{word}'", near(word, kinds), word))
        else:
            return _reader(kinds[value[key]])(value, path, faults)
        return value

    return read


def _annotated(kind: Any, added: tuple[Any, ...]) -> Reader:
    inner = next((_parser_reader(one) for one in added if isinstance(one, Parser)), None) or _reader(kind)
    changes = [one.change for one in added if isinstance(one, Before)]
    checks = [_bounds(one) if isinstance(one, Meta) else one.check for one in added if isinstance(one, Meta | After)]

    def read(value: Any, path: Path, faults: list[Fault]) -> Any:
        before = len(faults)
        try:
            for change in changes:
                value = change(value)
            value = inner(value, path, faults)
            for check in checks if len(faults) == before else ():
                value = check(value)
        except _BoundError as error:
            faults.append(Fault(path, "bound", str(error), value=value))
        except ValueError as error:
            faults.append(Fault(path, "value", str(error), value=value))
        return value

    return read


def _parser_reader(note: Parser) -> Reader:
    return lambda value, path, faults: note.make(value)


class _BoundError(ValueError):
    pass


def _bounds(meta: Meta) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if meta.ge is not None and not value >= meta.ge:
            low = f"must not be negative, it is {value:g}" if meta.ge == 0 else f"must be at least {meta.ge}"
            raise _BoundError(low)
        if meta.le is not None and not value <= meta.le:
            raise _BoundError(f"must be at most {meta.le}")
        if meta.min_length is not None and len(value) < meta.min_length:
            raise _BoundError(f"must have at least {_length(meta.min_length, value)}")
        if meta.max_length is not None and len(value) > meta.max_length:
            raise _BoundError(f"must have at most {_length(meta.max_length, value)}")
        return value

    return check


def _length(count: int, value: object) -> str:
    noun = "character" if isinstance(value, str) else "item"
    return f"{count} {noun}{'' if count == 1 else 's'}"


class _StructReader:
    """Reads a table into a struct. Evaluates the struct's type hints at its first use."""

    def __init__(self, cls: type[Struct]) -> None:
        self._cls = cls
        self._known: dict[str, tuple[FieldInfo, Reader]] = {}
        self._rest: tuple[FieldInfo, Reader] | None = None

    def __call__(self, value: Any, path: Path, faults: list[Fault]) -> Any:
        if isinstance(value, self._cls):
            return value
        if not isinstance(value, dict):
            faults.append(_no_table(path, value))
            return value
        if not self._known:
            self._prepare()
        before = len(faults)
        found: dict[str, Any] = {}
        for key, (info, reader) in self._known.items():
            if key in value:
                found[info.name] = reader(value[key], (*path, key), faults)
            elif info.required:
                faults.append(Fault((*path, key), "missing", "is missing"))
        found |= self._others(value, path, faults)
        if len(faults) > before:
            return value
        try:
            return self._cls(**found)
        except ValueError as error:
            faults.append(Fault(path, "value", str(error), value=value))
            return value

    def _prepare(self) -> None:
        for info in fields_of(self._cls):
            if any(isinstance(note, Rest) for note in notes(info.type)):
                self._rest = info, _reader(get_args(bare(info.type))[1])
            else:
                self._known[info.encode_name] = info, _reader(info.type)

    def _others(self, value: dict[str, Any], path: Path, faults: list[Fault]) -> dict[str, Any]:
        """The keys that no field has: refused, or passed to the field that takes the rest."""
        config = self._cls.__struct_config__
        unknown = [key for key in value if key not in self._known and key != config.tag_field]
        found: dict[str, Any] = {}
        if self._rest:
            info, reader = self._rest
            tables = [key for key in unknown if isinstance(value[key], dict)]
            found[info.name] = {key: reader(value[key], (*path, key), faults) for key in tables}
            unknown = [key for key in unknown if key not in tables]
        if config.forbid_unknown_fields:
            faults += [
                Fault((*path, key), "unknown", f"unknown key '{key}'", near(key, self._known), value[key], self._cls)
                for key in unknown
            ]
        return found
