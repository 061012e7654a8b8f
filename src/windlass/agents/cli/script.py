"""Scripts of the scripted agent: a YAML list of rules; the first match answers. Checked before the run starts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from windlass.errors import UserError, near
from windlass.model import Json
from windlass.strict_yaml import Node, YamlError, YamlScalar, YamlSequence, YamlTable, read

WHEN = ("role", "phase", "task", "step", "cycle", "attempt", "purpose")
Fields: TypeAlias = Mapping[str, Callable[[Node], Json]]
USAGE = ("input", "output", "cached", "cost_usd")


class ScriptError(UserError):
    """A script that cannot be used, with every problem as file:line."""


class Script(Struct, frozen=True):
    path: Path
    rules: tuple[dict[str, Json], ...]


def load_script(path: Path, fields: Fields | None = None) -> Script:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"the script {path} cannot be read: {error}", hint="give a file with --script") from None
    return parse_script(text, path, fields)


def parse_script(text: str, path: Path, fields: Fields | None = None) -> Script:
    try:
        node = read(text)
    except YamlError as error:
        faults = "\n".join(f"{path}:{fault.line}: {fault.message}" for fault in error.faults)
        raise ScriptError(faults, hint="a script is a YAML list of rules") from None
    if not isinstance(node, YamlSequence):
        raise ScriptError(f"{path}:1: a script is a list of rules", hint="begin each rule with '- when: {role: …}'")
    problems: list[str] = []
    rules = tuple(_rule(item, fields or FIELDS, problems) for item in node.items)
    if problems:
        raise ScriptError(
            "\n".join(f"{path}:{problem}" for problem in problems), hint="see 'The scripted agent' in the docs"
        )
    return Script(path, rules)


def _rule(node: Node, fields: Fields, problems: list[str]) -> dict[str, Json]:
    if not isinstance(node, YamlTable):
        problems.append(f"{node.line}: a rule is a mapping")
        return {}
    rule: dict[str, Json] = {}
    for key, item in node.items.items():
        if key not in fields:
            problems.append(f"{node.lines[key]}: unknown key '{key}'; {near(key, fields)}")
            continue
        try:
            rule[key] = fields[key](item)
        except ValueError as error:
            problems.append(f"{node.lines[key]}: '{key}' {error}")
    return rule


def _text(node: Node) -> Json:
    if isinstance(node, YamlScalar):
        return node.value or ""
    raise ValueError("is text")


def _number(node: Node) -> float:
    if not isinstance(node, YamlScalar) or not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", node.text or ""):
        raise ValueError("is a number, 0 or more")
    return float(node.text or "")


def _integer(node: Node) -> Json:
    number = _number(node)
    if number != int(number):
        raise ValueError("is a whole number")
    return int(number)


def _truth(node: Node) -> Json:
    if not isinstance(node, YamlScalar) or node.text not in ("true", "false"):
        raise ValueError("is true or false")
    return node.text == "true"


def _list_of(item: Callable[[Node], Any]) -> Callable[[Node], Json]:
    def take(node: Node) -> Json:
        if isinstance(node, YamlSequence):
            return [item(one) for one in node.items]
        raise ValueError("is a list")

    return take


def _table_of(item: Callable[[Node], Any], keys: tuple[str, ...] = ()) -> Callable[[Node], Json]:
    def take(node: Node) -> Json:
        if isinstance(node, YamlTable):
            _only(keys or tuple(node.items), node)
            return {key: item(one) for key, one in node.items.items()}
        raise ValueError("is a mapping")

    return take


def _record(fields: Fields) -> Callable[[Node], Json]:
    def take(node: Node) -> Json:
        if isinstance(node, YamlTable):
            _only(tuple(fields), node)
            return {key: fields[key](one) for key, one in node.items.items()}
        raise ValueError("is a mapping")

    return take


def _only(keys: tuple[str, ...], node: YamlTable) -> None:
    for key in node.items:
        if key not in keys:
            raise ValueError(f"has an unknown key '{key}'; {near(key, keys)}")


def _usage(node: Node) -> Json:
    found = _table_of(_number, USAGE)(node)
    return {key: value if key == "cost_usd" else int(value) for key, value in found.items()}  # type: ignore[union-attr,arg-type]


def _any(node: Node) -> Json:
    """Like JSON: a plain true, 12 or 1.5 has its type, everything quoted is text."""
    match node:
        case YamlSequence():
            return [_any(item) for item in node.items]
        case YamlTable():
            return {key: _any(item) for key, item in node.items.items()}
        case YamlScalar(text=text, quoted=False) if text in ("true", "false"):
            return text == "true"
        case YamlScalar(text=str(text), quoted=False) if re.fullmatch(r"-?(0|[1-9][0-9]{0,14})", text):
            return int(text)
        case YamlScalar(text=str(text), quoted=False) if re.fullmatch(r"-?[0-9]{1,15}\.[0-9]{1,15}", text):
            return float(text)
        case YamlScalar():
            return node.value


FIELDS: Fields = {
    "when": _table_of(_text, WHEN),
    "times": _integer,
    "files": _table_of(_text),
    "delete": _list_of(_text),
    "run": _list_of(_text),
    "commit": _text,
    "say": _text,
    "json": _any,
    "events": _integer,
    "usage": _usage,
    "usage_steps": _list_of(_number),
    "sleep": _number,
    "hang": _truth,
    "ignore_term": _truth,
    "exit": _integer,
    "stderr": _text,
}

_ERROR: Fields = {
    "status": _integer,
    "type": _text,
    "message": _text,
    "retry_after": _number,
    "times": _integer,
    "turn": _integer,
    "headers": _table_of(_text),
}
#: actions of a program only; a model cannot make the CLI around it exit
_OF_THE_PROGRAM = ("ignore_term", "exit", "stderr", "usage_steps")

#: the same script for a model server, with the failures between a CLI and its model
MODEL_FIELDS: Fields = {
    **{key: take for key, take in FIELDS.items() if key not in _OF_THE_PROGRAM},
    "error": _record(_ERROR),
    "cut_after": _integer,
    "cut_times": _integer,
    "delay": _number,
    "structured": _truth,
    "stop": _text,
    "then": _text,
    "call": _list_of(_record({"tool": _text, "input": _table_of(_any)})),
}
