"""What a driver knows of itself, of its agents, and of what a person asks of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field

from windlass.agents.assignment import Assignment, assign
from windlass.agents.base import Adapter
from windlass.agents.roles import Role
from windlass.config.schema import Config
from windlass.engine.questions import PausedError
from windlass.errors import AbortedError, InterruptedDriverError
from windlass.redaction import secrets_below, secrets_in


def known_secrets(config: Config, environ: Mapping[str, str], root: Path) -> list[str]:
    """Of the environment, of the agents' tables in the configuration, and of the files of settings in the checkout."""
    return [*secrets_in(environ), *config.agents.keys(environ), *secrets_below(root, config.workspace.copied)]


class StopRequests(Struct):
    """What a person asked of the running driver: pause when the running dispatches are done, or stop now."""

    pause: str = ""
    abort: bool = False
    interrupt: str = ""
    """Why: a signal, or a person who left the run to the background."""
    winding_down: bool = False
    """One task cannot go on: nothing new starts, what runs is recorded."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: running agents are ended at once."""
    require_claim: Callable[[], None] = lambda: None
    """Raises when the run is another driver's now."""
    taken_over: bool = False
    """Noticed meanwhile: nothing starts again, and nobody lets the agents go on."""

    def wind_down(self, *, now: bool) -> None:
        self.winding_down = True
        if now:
            self.stop.set()

    def go_on(self) -> None:
        self.winding_down = False
        if not (self.abort or self.interrupt or self.taken_over):
            self.stop.clear()

    def check(self) -> None:
        self.require_claim()
        if self.abort:
            raise AbortedError("aborted by the user")
        if self.interrupt:
            raise InterruptedDriverError(self.interrupt, hint="windlass resume goes on")
        if self.pause or self.winding_down:
            raise PausedError(self.pause or "another task cannot go on", hint="windlass resume goes on")


class DriverHost(Struct, frozen=True):
    """Where this driver runs."""

    host: str
    boot: str
    environ: Mapping[str, str]
    clock: Callable[[], float]


class Assignments(Struct, frozen=True):
    """Which agent plays a role in this run."""

    config: Config
    roles: Mapping[str, Role]
    adapters: Callable[[str], Adapter]
    """By the agent's name; raises UserError when there is none."""
    everyone: str = ""
    """--agent: used for every role; '' leaves each its own."""
    named: frozenset[str] = frozenset()
    """Roles that the command line gave an agent of their own; the config holds which."""

    def assignment(self, role: str, profile: str = "") -> Assignment:
        return assign(self.config, self.roles, role, profile, everyone=self.everyone, named=self.named)
