"""What `agents` and `doctor` know of an agent without spending: installed, version, login, abilities, roles."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec import Struct

from windlass.agents import installed, registry
from windlass.agents.assignment import assign
from windlass.agents.base import Capabilities, Job, StartsAnother
from windlass.agents.cli import claude
from windlass.agents.registry import CLIS
from windlass.agents.roles import Role
from windlass.config.schema import Config
from windlass.errors import UserError
from windlass.flow.load import list_flows
from windlass.runs.project import Project

NOT_FOUND = "no login found"


class AgentInfo(Struct, frozen=True):
    name: str
    path: str
    """The program as found on this machine, '' when it is not."""
    problem: str
    """Why it cannot be used, '' when it can."""
    capabilities: Capabilities
    roles: tuple[str, ...] = ()
    """Those that use it, as configured here."""
    version: str = ""
    """'' when it is not known."""
    warning: str = ""
    """Of a version that nobody tried."""
    login: str = ""
    """As far as it can be known without spending; '' when nothing is known."""

    @property
    def usable(self) -> bool:
        return not self.problem


def agents(project: Project) -> list[AgentInfo]:
    config, roles = project.config(), project.roles()
    users: dict[str, list[str]] = {}
    for name in sorted(roles):
        users.setdefault(assign(config, roles, name).agent, []).append(name)
    for flow, role, profile in _lent(project, roles):
        agent = assign(config, roles, role, profile).agent
        if agent != assign(config, roles, role).agent:
            users.setdefault(agent, []).append(f"{role} (in flow '{flow}', as {profile})")
    # What a person configured comes before what only happens to be installed.
    names = dict.fromkeys([*config.agents.configured(), *registry.CLIS, *registry.ADAPTERS])
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda name: look_at(project, config, name, tuple(users.get(name, ()))), names))


def _lent(project: Project, roles: Mapping[str, Role]) -> list[tuple[str, str, str]]:
    """Calls with the settings of another role: flow, role, profile. `flow check` tells of a flow that is not valid."""
    found: set[tuple[str, str, str]] = set()
    for source in list_flows([folder / "flows" for folder in project.folders()]):
        try:
            flow = project.parse(source, roles)
        except UserError:
            continue
        parts = {part for phase in flow.all_phases() for part in phase.parts()}
        found |= {(flow.flow, role, profile) for role, profile in parts if profile}
    return sorted(found)


def look_at(project: Project, config: Config, name: str, roles: tuple[str, ...] = ()) -> AgentInfo:
    folder, environ = project.host.cwd, project.host.environ
    job = Job("", "", 1, "", "", "", "", folder, folder, name)
    try:
        adapter = project.adapters(config, "")(name)
        program = adapter.program if isinstance(adapter, StartsAnother) else adapter.invocation(job).argv[0]
    except UserError as error:
        return AgentInfo(name, "", f"{error.message}; {error.hint}", Capabilities(), roles)
    path = shutil.which(program, path=environ.get("PATH", os.defpath)) or ""
    if not path:
        return AgentInfo(name, "", f"'{program}' is not installed", adapter.capabilities, roles)
    options = config.agents.options(name)
    version = _version(name, path, options, environ)
    warning, login = installed.untested(name, version), _login(name, options, environ)
    return AgentInfo(name, path, "", adapter.capabilities, roles, version, warning, login)


Options = Mapping[str, str | tuple[str, ...]]


def _version(name: str, path: str, options: Options, environ: Mapping[str, str]) -> str:
    if name not in registry.CLIS:
        return ""
    node, binary = str(options.get("node", "")), str(options.get("bin", ""))
    return installed.version(binary if node else path, environ, node)


def _login(name: str, options: Options, environ: Mapping[str, str]) -> str:
    if name not in registry.CLIS:
        return ""
    for option in ("api_key", "api_key_env", "base_url"):
        if options.get(option):
            return f"{option} in the config"
    found = installed.login_state(name, environ, Path(environ.get("HOME") or "/"))
    if found.found:
        return f"found: {found.how}"
    if name == "claude" and claude.KEYCHAIN:
        return "in the Keychain, which is not looked into; else: claude setup-token, and CLAUDE_CODE_OAUTH_TOKEN"
    return f"{NOT_FOUND} ({found.how})"


def candidates(project: Project) -> tuple[str, ...]:
    """Agents that could do the work here: first those configured, then those logged in, then those installed.

    The scripted agent and agents by a command template are left out: they need more than a name.
    """
    usable = [one for one in agents(project) if one.usable]
    mine = [one.name for one in usable if one.name in project.config().agents.configured()]
    ready = [one.name for one in usable if one.name in CLIS and not one.login.startswith(NOT_FOUND)]
    there = [one.name for one in usable if one.name in CLIS]
    return tuple(dict.fromkeys([*mine, *ready, *there]))
