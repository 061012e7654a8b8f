"""Reads all settings.

If several places have a value, the first of these wins:

1. the command line
2. `.superteam.json` at the root of the repository: only its `costs` and `agents.<role>`
3. `.windlass/config.toml` in the repository
4. `config.toml` in the user's configuration folder
5. the defaults in `windlass.config.schema`

Tables are merged key by key. A list replaces the whole list.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windlass.config.problems import ConfigError
from windlass.config.schema import (
    Config,
    Superteam,
)
from windlass.config.source_files import REPO_FILE, SUPERTEAM_FILE, USER_FILE, SettingsSource, read_json, read_toml
from windlass.conversion import convert

COMMAND_LINE = "command line"


def load_config(repo_root: Path, user_dir: Path, overrides: Mapping[str, Any]) -> Config:
    """The settings in force. `overrides` has the shape of the file: {"budget": {"stop_usd": 3.0}}."""
    weakest_first = [
        read_toml(user_dir / USER_FILE, str(user_dir / USER_FILE)),
        read_toml(repo_root / REPO_FILE, REPO_FILE),
        _from_superteam(read_json(repo_root / SUPERTEAM_FILE, SUPERTEAM_FILE)),
        SettingsSource(COMMAND_LINE, dict(overrides)).check(Config),
    ]
    problems = [problem for source in weakest_first for problem in source.problems]
    if problems:
        raise ConfigError(problems)
    merged: dict[str, Any] = {}
    for source in weakest_first:
        merged = _merge(merged, source.data)
    return convert(merged, Config)


def _from_superteam(source: SettingsSource) -> SettingsSource:
    if source.problems:
        return source
    found = convert(source.data, Superteam)
    costs = {"warn_usd": found.costs.warnAtUsd, "stop_usd": found.costs.hardLimitUsd}
    roles = {name: {"model": one.model, "effort": one.thinking} for name, one in found.agents.items()}
    data = {
        "budget": {key: value for key, value in costs.items() if value is not None},
        "roles": {name: {key: value for key, value in role.items() if value} for name, role in roles.items()},
    }
    return SettingsSource(source.name, data)


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _merge(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged
