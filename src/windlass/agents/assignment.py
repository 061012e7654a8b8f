"""Decides which agent plays a role in a call, with which model and limits.

`windlass agents`, the checks before a run and the run itself use this module, so all three agree.

The first source with a value wins: the role's table in the config (the command line writes there), the role's file,
then the table and the file of the profile that the call names, then the model that the role's file recommends if the
CLI serves it. `--agent` replaces the agent of every role that the command line does not name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from windlass.agents.roles import Role
from windlass.config.schema import Config

NONE = "none"
"""The agent of a role that is switched off."""


SERVES = {"claude": "claude-", "codex": "gpt-"}
"""The prefix of the model names that a CLI serves with its own login. Role files recommend such models."""


class Assignment(Struct, frozen=True):
    agent: str
    """'' when no agent plays the role; `none` when the role is switched off."""
    model: str = ""
    effort: str = ""
    wall_s: float | None = None
    turns: int | None = None
    usd: float | None = None

    @property
    def has_agent(self) -> bool:
        return self.agent not in ("", NONE)


def assign(
    config: Config,
    roles: Mapping[str, Role],
    role: str,
    profile: str = "",
    *,
    everyone: str = "",
    named: Collection[str] = (),
) -> Assignment:
    """`everyone`: --agent. `named`: the roles for which the command line names an agent."""
    lenders = [name for name in (role, profile) if name in roles]
    if not lenders:
        return Assignment("")
    agent = _agent(config, roles, lenders, everyone, named)
    # A model name belongs to one agent: a profile of another agent does not lend its model.
    lending = [name for name in lenders if name == role or _agent(config, roles, [name], everyone, named) == agent]
    # The wall time and the money limit belong to the profile's kind of work.
    last = roles[lenders[-1]]
    return Assignment(
        agent,
        _first(config, roles, lending, agent, "model") or _recommended_model(config, roles, lending, agent),
        _first(config, roles, lending, agent, "effort"),
        next((own for name in lenders if (own := config.role(name).wall)), last.wall_s),
        next((own for name in lenders if (own := config.role(name).turns)), roles[lenders[0]].turns),
        next((own for name in lenders if (own := config.role(name).usd)), last.usd),
    )


def _agent(config: Config, roles: Mapping[str, Role], lenders: list[str], everyone: str, named: Collection[str]) -> str:
    chosen = next((own for name in lenders if (own := config.role(name).agent or roles[name].agent)), "")
    # A role that is switched off stays off, whatever --agent says.
    if chosen == NONE or any(name in named for name in lenders):
        return chosen
    return everyone or chosen or config.agents.default


def _first(config: Config, roles: Mapping[str, Role], lending: list[str], agent: str, field: str) -> str:
    for name in lending:
        configured = getattr(config.role(name), field)
        in_file = getattr(roles[name], field) if (roles[name].agent or roles[name].prefers) in ("", agent) else ""
        if configured or in_file:
            return str(configured or in_file)
    return ""


def _recommended_model(config: Config, roles: Mapping[str, Role], lending: list[str], agent: str) -> str:
    """The model of the role's own profile, unless the config sets a model or a server for this CLI."""
    options = config.agents.options(agent)
    if agent not in SERVES or options.get("model") or options.get("base_url"):
        return ""
    return next((roles[name].recommended for name in lending if roles[name].recommended.startswith(SERVES[agent])), "")
