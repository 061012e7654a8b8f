"""Files that are harness in part only: what else stands in them may change."""

from __future__ import annotations

import configparser
import json
import tomllib
from collections.abc import Callable
from typing import Any

TOOLS = ("pytest", "coverage", "tox", "nox")
SCRIPTS = ("scripts", "jest", "jest-junit", "vitest", "mocha", "ava", "tap", "c8", "nyc", "wireit")


def changes_harness(path: str, old: str, new: str) -> bool:
    """Whether what decides how tests are run differs; a file that cannot be read is taken to differ."""
    part = PARTS.get(path.rsplit("/", 1)[-1])
    if part is None:
        return old != new
    try:
        return bool(part(old) != part(new))
    except (ValueError, configparser.Error, RecursionError):
        return True


def _pyproject(text: str) -> Any:
    tools = tomllib.loads(text).get("tool", {})
    return {name: tools[name] for name in TOOLS if name in tools} if isinstance(tools, dict) else tools


def _package(text: str) -> Any:
    data = json.loads(text) if text.strip() else {}
    return {name: data[name] for name in SCRIPTS if name in data} if isinstance(data, dict) else data


def _ini(text: str) -> Any:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    wanted = [name for name in parser.sections() if any(tool in name for tool in (*TOOLS, "testenv"))]
    return {name: dict(parser[name]) for name in wanted}


PARTS: dict[str, Callable[[str], Any]] = {
    "pyproject.toml": _pyproject,
    "package.json": _package,
    "setup.cfg": _ini,
    "tox.ini": _ini,
}
