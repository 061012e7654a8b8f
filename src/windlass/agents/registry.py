"""The adapters, written by hand; a test walks the folder and compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from windlass.agents.base import Adapter
from windlass.agents.command import CommandAdapter
from windlass.agents.contracts import CONTRACTS
from windlass.agents.script import load_script
from windlass.agents.scripted import ScriptedAdapter
from windlass.errors import UserError, near


def _scripted(options: Mapping[str, Any]) -> Adapter:
    if not options.get("script"):
        raise UserError(
            "the scripted agent needs a script", hint="--script FILE, or script = … under [agents.scripted]"
        )
    script = load_script(Path(str(options["script"])))
    tags = {name: contract.tags[0] for name, contract in CONTRACTS.items()}
    return ScriptedAdapter(script.rules, tags, str(script.path))


def _command(options: Mapping[str, Any]) -> Adapter:
    return CommandAdapter(tuple(options.get("argv") or ()), str(options.get("name") or "command"))


ADAPTERS: dict[str, Callable[[Mapping[str, Any]], Adapter]] = {
    "command": _command,
    "scripted": _scripted,
}


def make(name: str, options: Mapping[str, Any]) -> Adapter:
    """An adapter by name; a name of the user's own with `argv` is a command."""
    if name in ADAPTERS:
        return ADAPTERS[name](options)
    if options.get("argv"):
        return _command({**options, "name": name})
    raise UserError(f"there is no agent '{name}'", hint=near(name, ADAPTERS))
