"""What `agents` and `doctor` find out about an agent without a model call: program, version, login, roles."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from windlass.agents import installed, registry
from windlass.agents.assignment import assign
from windlass.agents.base import Capabilities, Job, StartsAnother
from windlass.agents.cli import claude
from windlass.agents.registry import CLIS
from windlass.config.schema import Config
from windlass.errors import UserError
from windlass.flow.load import list_flows
from windlass.runs.project import Project

NOT_FOUND = "no login found"


class AgentInfo(Struct, frozen=True):
    name: str
    path: str
    """The path of the program; '' if it is not installed."""
    problem: str
    """Why it cannot be used; '' if it can."""
    capabilities: Capabilities
    roles: tuple[str, ...] = ()
    """The roles that use it in this configuration."""
    version: str = ""
    """'' if it is not known."""
    warning: str = ""
    """A warning about an untested version."""
    login: str = ""
    """What is known about its login without a model call; '' if nothing is."""

    @property
    def usable(self) -> bool:
        return not self.problem


def agents(project: Project) -> list[AgentInfo]:
    config, roles = project.config(), project.roles()
    users: dict[str, list[str]] = {}
    for name in sorted(roles):
        users.setdefault(assign(config, roles, name).agent, []).append(name)
    # Some calls use another role's settings.
    borrowed: set[tuple[str, str, str]] = set()
    for source in list_flows([folder / "flows" for folder in project.folders()]):
        # An invalid flow calls nobody.
        with suppress(UserError):
            flow = project.parse(source, roles)
            pairs = flow.parts(config.settings)
            borrowed |= {(flow.flow, role, profile) for role, profile in pairs if profile}
    for flow_name, role, profile in sorted(borrowed):
        agent = assign(config, roles, role, profile).agent
        if agent != assign(config, roles, role).agent:
            users.setdefault(agent, []).append(f"{role} (in flow '{flow_name}', as {profile})")
    # Configured agents come before those that are merely installed.
    names = dict.fromkeys([*config.agents.configured_names(), *registry.CLIS, *registry.ADAPTERS])
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda name: inspect_agent(project, config, name, tuple(users.get(name, ()))), names))


def inspect_agent(project: Project, config: Config, name: str, roles: tuple[str, ...] = ()) -> AgentInfo:
    folder, environ = project.host.cwd, project.host.environ
    job = Job("", "", 1, "", "", "", "", name, folder, folder)
    try:
        adapter = project.adapters(config, "")(name)
        program = adapter.program if isinstance(adapter, StartsAnother) else adapter.invocation(job).argv[0]
    except UserError as error:
        return AgentInfo(name, "", f"{error.message}; {error.hint}", Capabilities(), roles)
    path = shutil.which(program, path=environ.get("PATH", os.defpath)) or ""
    if not path:
        return AgentInfo(name, "", f"'{program}' is not installed", adapter.capabilities, roles)
    options = config.agents.options(name)
    version = ""
    if name in registry.CLIS:
        node, binary = str(options.get("node", "")), str(options.get("bin", ""))
        version = installed.version(binary if node else path, environ, node)
    warning, login = installed.version_warning(name, version), _login(name, options, environ)
    return AgentInfo(name, path, "", adapter.capabilities, roles, version, warning, login)


Options = Mapping[str, str | tuple[str, ...]]


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
        return "in the Keychain, which Windlass does not read; or use claude setup-token and CLAUDE_CODE_OAUTH_TOKEN"
    return f"{NOT_FOUND} ({found.how})"


def candidates(project: Project) -> tuple[str, ...]:
    """Agents that can work here: first the configured_names ones, then those with a login, then the installed ones.

    The scripted agent and command agents are left out: they need more than a name.
    """
    usable = [one for one in agents(project) if one.usable]
    mine = [one.name for one in usable if one.name in project.config().agents.configured_names()]
    ready = [one.name for one in usable if one.name in CLIS and not one.login.startswith(NOT_FOUND)]
    there = [one.name for one in usable if one.name in CLIS]
    return tuple(dict.fromkeys([*mine, *ready, *there]))
