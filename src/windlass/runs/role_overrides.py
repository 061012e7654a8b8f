"""`--role NAME=AGENT[:MODEL[:EFFORT]]` of the command line, which overrides the config."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from windlass.agents.assignment import assign
from windlass.agents.base import Adapter
from windlass.agents.roles import Role
from windlass.config.schema import Config
from windlass.errors import UserError, near
from windlass.flow.load import FlowSource
from windlass.flow.schema import Flow
from windlass.model import Json

if TYPE_CHECKING:
    from windlass.runs.project import Project
    from windlass.store.rows import RunRow

EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


class RoleOverride(Struct, frozen=True):
    agent: str
    model: str = ""
    effort: str = ""


def parse_part(role: str, text: str) -> RoleOverride:
    agent, _, rest = text.partition(":")
    if not agent:
        raise UserError(
            f"--role {role}={text} names no agent", hint=f"--role {role}=claude, or {role}=claude:opus:high"
        )
    model, colon, last = rest.rpartition(":")
    if colon and last in EFFORTS:
        return RoleOverride(agent, model, last)
    meant = difflib.get_close_matches(last, EFFORTS, n=1, cutoff=0.7) if colon else []
    if meant:
        raise UserError(f"--role {role}={text}: there is no effort '{last}'", hint=f"did you mean '{meant[0]}'?")
    # the name of a model may contain a colon
    return RoleOverride(agent, rest)


def overrides(given: Mapping[str, str], config: Config, roles: Mapping[str, Role]) -> dict[str, Any]:
    """Returns the overrides in the form of the config file."""
    found = {}
    for role, text in given.items():
        part = parse_part(role, text)
        values = {"agent": part.agent, "model": part.model, "effort": part.effort}
        # A model belongs to one agent: another agent does not get the configured model.
        keeps_config = part.agent == assign(config, roles, role).agent
        found[role] = {name: value for name, value in values.items() if value or not keeps_config}
    return found


def check_roles(named: Mapping[str, str], flow: Flow, roles: Mapping[str, Role]) -> None:
    played = {role for phase in flow.all_phases() for role in phase.roles()}
    for role in named:
        if role not in roles:
            raise UserError(f"--role {role}: there is no such role", hint=near(role, played))
        if role not in played:
            raise UserError(f"--role {role}: flow '{flow.flow}' has no such role", hint=near(role, played))


def check_role(project: Project, row: RunRow, role: str) -> None:
    """Refuse a message for a role that the run's flow does not call: nothing would ever deliver it."""
    roles = project.roles()
    flow = project.parse(FlowSource(row.flow, project.host.place.root / row.flow, row.flow_text, "run"), roles)
    played = {name for name, _ in flow.parts()}
    if role not in played:
        raise UserError(f"--role {role}: flow '{flow.flow}' has no such role", hint=near(role, played))


def check_capable(adapter: Adapter, role: str, effort: str) -> None:
    """Refuse an effort that the agent does not support, before the run starts."""
    if effort and not adapter.capabilities.effort:
        raise UserError(
            f"role '{role}' has effort '{effort}', but agent '{adapter.name}' has no such setting",
            hint=f"remove effort under [roles.{role}], or choose another agent for it; see windlass agents",
        )


class RoleOverrides(Struct, frozen=True):
    agent: str = ""
    """The agent of every role that is not named."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role -> AGENT[:MODEL[:EFFORT]]."""

    @classmethod
    def remembered(cls, options: Mapping[str, Json]) -> RoleOverrides:
        """Read the overrides from the run's options."""
        stored = options.get("roles")
        roles = {role: str(text) for role, text in stored.items()} if isinstance(stored, dict) else {}
        return cls(str(options.get("agent") or ""), roles)

    def changed_to(self, new: RoleOverrides) -> RoleOverrides:
        """Merge with new overrides. A new agent for every role replaces all earlier ones."""
        return new if new.agent else RoleOverrides(self.agent, {**self.roles, **new.roles})

    def to_json(self) -> dict[str, Json]:
        return {"agent": self.agent, "roles": dict(self.roles)}


AS_CONFIGURED = RoleOverrides()
