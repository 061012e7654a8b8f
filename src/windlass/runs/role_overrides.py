"""Who plays which role: `--role NAME=AGENT[:MODEL[:EFFORT]]` of the command line, put over the config."""

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
            f"--role {role}={text}: it names no agent", hint=f"--role {role}=claude, or {role}=claude:opus:high"
        )
    model, colon, last = rest.rpartition(":")
    if colon and last in EFFORTS:
        return RoleOverride(agent, model, last)
    meant = difflib.get_close_matches(last, EFFORTS, n=1, cutoff=0.7) if colon else []
    if meant:
        raise UserError(f"--role {role}={text}: there is no effort '{last}'", hint=f"did you mean '{meant[0]}'?")
    # a model's own name may hold a colon
    return RoleOverride(agent, rest)


def overrides(told: Mapping[str, str], config: Config, roles: Mapping[str, Role]) -> dict[str, Any]:
    """In the shape of the config file."""
    return {role: _override(role, parse_part(role, text), config, roles) for role, text in told.items()}


def _override(role: str, part: RoleOverride, config: Config, roles: Mapping[str, Role]) -> dict[str, str]:
    said = {"agent": part.agent, "model": part.model, "effort": part.effort}
    if part.agent == assign(config, roles, role).agent:
        return {name: value for name, value in said.items() if value}
    # a model is one agent's: what was chosen for another is not passed on
    return said


def check_told(told: Mapping[str, str], flow: Flow, roles: Mapping[str, Role]) -> None:
    played = {role for phase in flow.all_phases() for role in phase.roles()}
    for role in told:
        if role not in roles:
            raise UserError(f"--role {role}: there is no such role", hint=near(role, played))
        if role not in played:
            raise UserError(f"--role {role}: flow '{flow.flow}' has no such role", hint=near(role, played))


def check_role(project: Project, row: RunRow, role: str) -> None:
    """A message for a role that the run's flow does not call would wait for ever."""
    roles = project.roles()
    flow = project.parse(FlowSource(row.flow, project.host.place.root / row.flow, row.flow_text, "run"), roles)
    played = {name for phase in flow.all_phases() for name, _ in phase.parts()}
    if role not in played:
        raise UserError(f"--role {role}: flow '{flow.flow}' has no such role", hint=near(role, played))


def check_capable(adapter: Adapter, role: str, effort: str) -> None:
    """What a role needs and its agent cannot do is said before the run, not in the middle of it."""
    if effort and not adapter.capabilities.effort:
        raise UserError(
            f"role '{role}' wants effort '{effort}', which agent '{adapter.name}' cannot be told",
            hint=f"drop effort under [roles.{role}], or choose another agent for it; windlass agents",
        )


class RoleOverrides(Struct, frozen=True):
    agent: str = ""
    """Of every role that is not named."""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role -> AGENT[:MODEL[:EFFORT]]."""

    @classmethod
    def remembered(cls, options: Mapping[str, Json]) -> RoleOverrides:
        """As the run's options hold it."""
        told = options.get("roles")
        roles = {role: str(text) for role, text in told.items()} if isinstance(told, dict) else {}
        return cls(str(options.get("agent") or ""), roles)

    def changed_to(self, new: RoleOverrides) -> RoleOverrides:
        """An agent for every role takes the place of all that was said before."""
        return new if new.agent else RoleOverrides(self.agent, {**self.roles, **new.roles})

    def to_json(self) -> dict[str, Json]:
        return {"agent": self.agent, "roles": dict(self.roles)}


AS_CONFIGURED = RoleOverrides()
