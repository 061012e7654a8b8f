"""The settings of one file or of the command line: the data, and all its problems."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.config.lines import Lines, json_lines, toml_lines
from windlass.config.problems import ConfigProblem, problem_of
from windlass.config.schema import Config, SettingsTable, Superteam
from windlass.conversion import ConversionError, convert

REPO_FILE = ".windlass/config.toml"
USER_FILE = "config.toml"
SUPERTEAM_FILE = ".superteam.json"


class SettingsSource(Struct, frozen=True):
    name: str
    """As shown in errors: a file, or the command line."""
    data: dict[str, Any] = field(default_factory=dict)
    problems: tuple[ConfigProblem, ...] = ()
    lines: Lines | None = None

    def check(self, model: type[SettingsTable]) -> SettingsSource:
        try:
            convert(self.data, model)
        except ConversionError as error:
            found = [problem_of(fault, self.name, self.lines) for fault in error.faults]
            return replace(self, problems=tuple(sorted(found, key=lambda problem: problem.line)))
        return self


def read_toml(path: Path, name: str) -> SettingsSource:
    text = _read(path, name)
    if isinstance(text, SettingsSource):
        return text
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else max(1, len(text.splitlines()))
        return _broken_source(name, line, f"not valid TOML: {error}")
    return SettingsSource(name, data, lines=toml_lines(text)).check(Config)


def read_json(path: Path, name: str) -> SettingsSource:
    text = _read(path, name)
    if isinstance(text, SettingsSource):
        return text
    try:
        data = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg} (column {error.colno})"
        if text[error.pos :].lstrip().startswith(("//", "/*", "#")):
            message = "JSON has no comments; remove this one"
        return _broken_source(name, error.lineno, message)
    except ValueError as error:
        return _broken_source(name, 1, str(error))
    if not isinstance(data, dict):
        return _broken_source(name, 1, "must be one object: {...}")
    return SettingsSource(name, data, lines=json_lines(text)).check(Superteam)


def _read(path: Path, name: str) -> str | SettingsSource:
    """The text of the file, or an empty source if it does not exist, or a source with a problem."""
    try:
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return SettingsSource(name)
    except UnicodeDecodeError as error:
        return _broken_source(name, error.object[: error.start].count(b"\n") + 1, "is not UTF-8 text")
    except OSError as error:
        return _broken_source(name, 1, f"cannot be read: {error.strerror}")
    if text.startswith("\ufeff"):
        return _broken_source(name, 1, "starts with a byte order mark; save it as UTF-8 without one")
    return text


def _broken_source(name: str, line: int, message: str) -> SettingsSource:
    return SettingsSource(name, problems=(ConfigProblem(name, line, "", message),))


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen = dict(pairs)
    if len(seen) < len(pairs):
        twice = next(key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1)
        raise ValueError(f"the key '{twice}' appears twice")
    return seen


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"'{word}' is not a valid number in JSON")
