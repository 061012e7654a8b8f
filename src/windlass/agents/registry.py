"""The list of adapters; a test compares it with the folder.

Each adapter is loaded when it is made: a run with one agent does not load the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, TypeAlias

from windlass.agents.base import Adapter
from windlass.agents.cli.base import settings_of
from windlass.errors import UserError, near

Options: TypeAlias = Mapping[str, Any]
Environ: TypeAlias = Mapping[str, str]
FLAT = "cost_usd"
_NOTHING: Environ = MappingProxyType({})


def _scripted(options: Options, environ: Environ) -> Adapter:
    from windlass.agents.cli.script import load_script
    from windlass.agents.cli.scripted import ScriptedAdapter
    from windlass.agents.contracts.registry import CONTRACTS

    if not options.get("script"):
        raise UserError(
            "the scripted agent needs a script", hint="--script FILE, or script = … under [agents.scripted]"
        )
    script = load_script(Path(str(options["script"])))
    tags = {name: contract.tags[0] for name, contract in CONTRACTS.items()}
    return ScriptedAdapter(script.rules, tags, str(script.path))


def _command(options: Options, environ: Environ) -> Adapter:
    from windlass.agents.cli.command import CommandAdapter

    return CommandAdapter(tuple(options.get("argv") or ()), str(options.get("name") or "command"))


def _acp(options: Options, environ: Environ, name: str = "acp") -> Adapter:
    from windlass.agents.cli import acp

    settings = acp.settings_of(name, options)
    return acp.AcpAdapter(settings, name, environ)


def _cli(name: str, options: Options, environ: Environ) -> Adapter:
    adapter: Adapter = cli_module(name).ADAPTER(settings_of(name, options, environ), environ)
    return adapter


def cli_module(name: str) -> ModuleType:
    """The module of a CLI with its own login: `ADAPTER`, `ACCOUNT`, `TESTED` and `INSTALL`. Loaded when needed."""
    return import_module(f"windlass.agents.cli.{name}")


CLIS = (
    "claude",
    "codex",
    "pi",
    "gemini",
    "opencode",
)
"""CLIs with their own login, each a file in `cli/`. `init` proposes the first installed one."""
ADAPTERS: dict[str, Callable[[Options, Environ], Adapter]] = {
    "acp": _acp,
    "command": _command,
    "scripted": _scripted,
    **{name: partial(_cli, name) for name in CLIS},
}


def make(name: str, options: Options, environ: Environ = _NOTHING) -> Adapter:
    """An adapter by name. An unknown name with `argv` is a command, or an agent that speaks `protocol`.

    `environ` holds the user's login. Every agent accepts the option `cost_usd`: the cost of one dispatch.
    """
    own = {key: value for key, value in options.items() if key != FLAT}
    if name in ADAPTERS:
        adapter = ADAPTERS[name](own, environ)
    elif own.get("protocol"):
        adapter = _acp(own, environ, name)
    elif own.get("argv"):
        adapter = _command({**own, "name": name}, environ)
    else:
        raise UserError(f"there is no agent '{name}'", hint=near(name, ADAPTERS))
    if FLAT in options:
        try:
            adapter.flat_usd = float(str(options[FLAT]))
        except ValueError:
            adapter.flat_usd = math.nan
        if not 0 <= adapter.flat_usd < math.inf:
            raise UserError(
                f"'{FLAT}' of agent '{name}' is not an amount of dollars: {options[FLAT]!r}",
                hint=f"like {FLAT} = 0 under [agents.{name}], for a model of your own",
            )
    return adapter
