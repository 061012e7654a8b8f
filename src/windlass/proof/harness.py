"""Files with some harness settings. The other content of these files may change."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

TOOLS = ("pytest", "coverage", "tox", "nox")
SCRIPTS = ("scripts", "jest", "jest-junit", "vitest", "mocha", "ava", "tap", "c8", "nyc", "wireit", "babel")
PLUGINS = "pytest11"
"""The entry points from which pytest loads plug-ins automatically."""


def changes_harness(path: str, old: str, new: str) -> bool:
    """Whether the settings that decide how tests run differ. A file that does not parse counts as different."""
    part = PARTS.get(path.rsplit("/", 1)[-1])
    if part is None:
        return old != new
    try:
        return bool(part(old) != part(new))
    except (ValueError, AttributeError, configparser.Error, RecursionError):
        return True


def _pyproject(text: str) -> Any:
    data = tomllib.loads(text)
    tools = data.get("tool", {})
    found = {name: tools[name] for name in TOOLS if name in tools} if isinstance(tools, dict) else {"": tools}
    return found, list(_values_of(PLUGINS, data))


def _values_of(key: str, data: Any) -> Iterator[Any]:
    """The values of `key` at any depth, because each build tool has its own table for entry points."""
    if isinstance(data, dict):
        yield from (value for name, value in data.items() if name == key)
        for value in data.values():
            yield from _values_of(key, value)


def _cargo(text: str) -> Any:
    data = tomllib.loads(text)
    package, lib = data.get("package", {}), data.get("lib", {})
    targets = {name: data.get(name) for name in ("test", "profile", "patch", "replace")}
    return targets, package.get("autotests"), package.get("build"), lib.get("test"), lib.get("harness"), lib.get("path")


def _tsconfig(text: str) -> Any:
    # It may have comments, which do not parse. Then it counts as different.
    options = (json.loads(text) if text.strip() else {}).get("compilerOptions", {})
    return {name: options.get(name) for name in ("paths", "baseUrl", "rootDirs", "plugins", "noEmitOnError")}


def _go_mod(text: str) -> Any:
    """Only `replace` lines can replace the code of a package."""
    return [line for line in re.split(r"\n(?=\S)", text) if line.startswith(("replace", "toolchain", "exclude"))]


def _package(text: str) -> Any:
    data = json.loads(text) if text.strip() else {}
    return {name: data[name] for name in SCRIPTS if name in data} if isinstance(data, dict) else data


def _ini(text: str) -> Any:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    wanted = [name for name in parser.sections() if any(tool in name for tool in (*TOOLS, "testenv"))]
    plugins = [value for name in parser.sections() for key, value in parser[name].items() if key == PLUGINS]
    return {name: dict(parser[name]) for name in wanted}, plugins


PARTS: dict[str, Callable[[str], Any]] = {
    "pyproject.toml": _pyproject,
    "Cargo.toml": _cargo,
    "go.mod": _go_mod,
    "tsconfig.json": _tsconfig,
    "package.json": _package,
    "setup.cfg": _ini,
    "tox.ini": _ini,
}
