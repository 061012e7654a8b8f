"""Shared by the adapters of the real CLIs: settings, the parsing of lines, a tool's activity in words."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windlass.agents import prices as pricing
from windlass.agents.base import Job
from windlass.agents.job_token import job_token
from windlass.errors import UserError, near
from windlass.model import Usage

KEY_VARIABLE = "WINDLASS_API_KEY"
ALL_TOOLS = ("read", "grep", "find", "ls", "bash", "write", "edit")
READ_TOOLS = ("read", "grep", "find", "ls")
SNIPPET = 100


class CliSettings(Struct, frozen=True):
    """`[agents.NAME]` of the config."""

    bin: str = ""
    """The path of the CLI; empty: found by its name."""
    node: str = ""
    """The node that runs it, when the one on the PATH is too old."""
    base_url: str = ""
    """Another model server. `{job}` becomes the job's token. The user's own login is never sent there."""
    api_key: str = ""
    api_key_env: str = ""
    """The variable with the key."""
    model: str = ""
    """The model of roles that name none."""
    provider: str = ""
    """pi, opencode: the provider of the models."""
    api: str = ""
    """pi: the API of the server at base_url."""
    sandbox: str = ""
    """codex: 'off' when the machine cannot confine commands, or is itself a sandbox. In codex's sandbox the agent
    cannot commit, because git's folder is closed to it; Windlass commits its changes."""
    structured: str = ""
    """claude: 'off' reads the block from the text of the answer only."""
    sessions: str = ""
    """The folder of the attempt to continue the session of."""

    def for_job(self, job: Job) -> CliSettings:
        names = set(self.__struct_fields__)
        own = replace(self, **{name: value for name, value in job.options.items() if name in names and value})
        return replace(own, base_url=own.base_url.replace("{job}", job_token(job)).rstrip("/"))

    def command(self, name: str) -> tuple[str, ...]:
        return (self.node, self.bin or name) if self.node else (self.bin or name,)


DEFAULTS = CliSettings()


def settings_of(agent: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> CliSettings:
    names = list(CliSettings.__struct_fields__)
    for name, value in options.items():
        if name not in names:
            raise UserError(f"agent '{agent}' has no setting '{name}'", hint=near(name, names))
        if not isinstance(value, str):
            raise UserError(f"'{name}' of agent '{agent}' is not a text", hint=f'like {name} = "…"')
    settings = CliSettings(**options)
    if not settings.api_key_env or settings.api_key:
        return settings
    key = environ.get(settings.api_key_env, "")
    if not key:
        raise UserError(
            f"agent '{agent}' takes its key from '{settings.api_key_env}', which is not set",
            hint=f"export {settings.api_key_env}=…, or change api_key_env under [agents.{agent}]",
        )
    return replace(settings, api_key=key)


def key_variable(provider: str) -> str:
    """The variable in which the CLIs of many providers look for a provider's key."""
    return "GEMINI_API_KEY" if provider in ("", "google") else f"{provider.upper().replace('-', '_')}_API_KEY"


def tools_of(job: Job) -> tuple[str, ...]:
    """The tools that the role may use. A role that writes nothing gets no tool to write with, whatever it lists."""
    tools = job.tools or (ALL_TOOLS if job.writes == "code" else READ_TOOLS)
    return tuple(tool for tool in tools if job.writes != "none" or tool not in ("write", "edit"))


def may_write(job: Job) -> bool:
    return bool({"write", "edit"} & set(tools_of(job))) or ("bash" in tools_of(job) and job.writes != "none")


# -- lines


def load(line: str) -> dict[str, Any]:
    """The object of a line; {} for any other text, such as half a line or a warning between the events."""
    if not line.startswith("{"):
        return {}
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def table(data: object, *names: str) -> dict[str, Any]:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def rows(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = data.get(name)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def text(data: Mapping[str, Any], *names: str) -> str:
    """The first of these values that is a text."""
    return next((value for name in names if isinstance(value := data.get(name), str)), "")


def count(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return int(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0


def money(data: Mapping[str, Any], name: str) -> float | None:
    value = data.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else None


def status(data: Mapping[str, Any], name: str) -> int | None:
    return count(data, name) or None


def usage_with_cost(usage: Usage, reported: float | None, model: str, written: int = 0) -> Usage:
    """Price the usage. A CLI reports 0 for a model with an unknown price: 0 counts only without tokens."""
    if reported or not (usage.input or usage.output):
        return replace(usage, cost_usd=reported, priced=False)
    cost = pricing.cost(model, usage, written=written)
    return replace(usage, cost_usd=cost, priced=cost is not None)


def usage_sum(*usages: Usage | None) -> Usage:
    """One unknown part makes the sum unknown. None counts as nothing."""
    parts = [one for one in usages if one is not None]
    costs = [part.cost_usd for part in parts if part.cost_usd is not None]
    return Usage(
        sum(part.input for part in parts),
        sum(part.output for part in parts),
        sum(part.cached for part in parts),
        sum(costs) if len(costs) == len(parts) else None,
        any(part.priced for part in parts),
    )


# -- words

_WORDS = {
    "read": "reading",
    "bash": "running",
    "write": "writing",
    "edit": "editing",
    "grep": "searching for",
    "ls": "listing",
}
_TARGETS = ("path", "file_path", "filePath", "absolute_path", "dir_path", "notebook_path")


def activity(tool: str, arguments: Mapping[str, Any], job: Job) -> str:
    """What a tool call does, for a person: `running pytest -q`."""
    match tool:
        case "bash":
            return f"running {snippet(inner_command(text(arguments, 'command', 'cmd')))}".strip()
        case "grep":
            return f"searching for {snippet(text(arguments, 'pattern', 'query'))}".strip()
        case "find":
            return "finding files"
        case _:
            target = here(text(arguments, *_TARGETS), job)
            return f"{_WORDS.get(tool, f'using {tool}')} {target}".strip()


def here(path: str, job: Job) -> str:
    return path.removeprefix(f"{job.cwd}/")[:200]


def snippet(command: str) -> str:
    line = " ".join(command[:2000].split())
    return line if len(line) <= SNIPPET else f"{line[: SNIPPET - 1]}…"


def inner_command(command: str) -> str:
    """The command inside a shell: codex reports `/bin/bash -lc 'pytest -q'`."""
    try:
        parts = shlex.split(command[:2000]) if " -lc " in command[:40] else []
    except ValueError:
        return command
    return parts[2] if len(parts) == 3 else command
