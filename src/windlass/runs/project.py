"""The config, roles, flows and agents of a repository, for starting and driving runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from windlass.agents import installed, registry
from windlass.agents.base import Adapter
from windlass.agents.contracts import registry as contracts
from windlass.agents.roles import Role, load_roles
from windlass.config.load import load_config
from windlass.config.schema import Config
from windlass.flow.load import FlowSource, find_flow, parse_flow
from windlass.flow.schema import Flow
from windlass.paths import config_dir
from windlass.runs import role_overrides
from windlass.runs.service import Host


class Project(Struct, frozen=True):
    host: Host

    def config(self, budget: float | None = None, cli_roles: Mapping[str, str] | None = None) -> Config:
        """`cli_roles`: the roles of the command line."""
        given: dict[str, Any] = {} if budget is None else {"budget": {"stop_usd": budget}}
        config = self._with_default(self._load(given))
        if not cli_roles:
            return config
        return self._with_default(
            self._load({**given, "roles": role_overrides.overrides(cli_roles, config, self.roles())})
        )

    def _load(self, given: dict[str, Any]) -> Config:
        return load_config(self.host.place.root, config_dir(self.host.environ), given)

    def _with_default(self, config: Config) -> Config:
        if config.agents.default:
            return config
        found = installed.first(self.host.environ, lambda name: str(config.agents.options(name).get("bin", "")))
        return replace(config, agents=replace(config.agents, default=found))

    def folders(self) -> list[Path]:
        return [self.host.place.root / ".windlass", config_dir(self.host.environ)]

    def roles(self, flow_file: Path | None = None) -> dict[str, Role]:
        extra = [flow_file.parent.parent / "roles"] if flow_file else []
        roles = load_roles([*extra, *(folder / "roles" for folder in self.folders())])
        config = self._load({})
        if config.agents.default:
            return roles
        # Without a default, a role that prefers a CLI gets it if it is installed.
        preferred = {role.prefers for role in roles.values() if role.prefers and not role.agent}
        binaries = {name: str(config.agents.options(name).get("bin", "")) for name in preferred}
        found = {name for name, binary in binaries.items() if installed.find(name, self.host.environ, binary)}
        return {
            name: replace(role, agent=role.prefers) if role.prefers in found and not role.agent else role
            for name, role in roles.items()
        }

    def prompts(self) -> tuple[Path, ...]:
        """The folders with criteria of reviews."""
        return tuple(folder / "prompts" for folder in self.folders())

    def find_flow(self, name: str) -> FlowSource:
        return find_flow(name, [folder / "flows" for folder in self.folders()])

    def parse(self, source: FlowSource, roles: Mapping[str, Role]) -> Flow:
        return parse_flow(source.text, str(source.path), roles=set(roles), contracts=set(contracts.CONTRACTS))

    def adapters(self, config: Config, script: str) -> Callable[[str], Adapter]:
        made: dict[str, Adapter] = {}

        def make(name: str) -> Adapter:
            if name not in made:
                options: dict[str, Any] = dict(config.agents.options(name))
                if script:
                    options["script"] = script
                made[name] = registry.make(name, options, self.host.environ)
            return made[name]

        return make
