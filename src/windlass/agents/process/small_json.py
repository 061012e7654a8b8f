"""JSON for our own small programs: importing `json` takes as long again as starting the interpreter does."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

try:
    from _json import encode_basestring_ascii as quoted
    from _json import make_scanner
except ImportError:  # not CPython
    from json.encoder import py_encode_basestring_ascii as quoted
    from json.scanner import py_make_scanner as make_scanner  # type: ignore[no-redef,attr-defined]


class JsonSettings:
    strict = True
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = None
    memo: dict[str, str] = {}


def parse_json(text: str) -> Any:
    """For what we wrote ourselves: what stands behind the value is not looked at."""
    return make_scanner(JsonSettings)(text, 0)[0]  # type: ignore[arg-type]


def to_json(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join([f"{quoted(key)}: {to_json(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([to_json(item) for item in value]) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else repr(value)
