"""The host of a driver, its agents, and the requests of a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from windlass.agents.assignment import Assignment, assign
from windlass.agents.base import Adapter
from windlass.agents.criteria import read_criteria
from windlass.agents.roles import Role
from windlass.config.schema import Config
from windlass.engine.questions import PausedError
from windlass.errors import AbortedError, DetourError, InterruptedDriverError
from windlass.redaction import secrets_below, secrets_in


def known_secrets(config: Config, environ: Mapping[str, str], root: Path) -> list[str]:
    """Secrets of the environment, of the agents' tables in the configuration, and of the settings files in the
    checkout."""
    return [*secrets_in(environ), *config.agents.keys(environ), *secrets_below(root, config.workspace.copied)]


class Detour(Struct, frozen=True):
    """A person's request to leave the usual way."""

    id: str
    """A request is obeyed once, also when its driver dies in between."""
    target: str
    """`restart STAGE`, or `waive`: go on without the phase."""
    by: str
    comment: str = ""


class StopRequests(Struct):
    """Requests of a person to the running driver: pause after the running dispatches, stop now, or go another way."""

    pause: str = ""
    detour: Detour | None = None
    in_phase: bool = False
    """The run loop is at work in a place that it can leave."""
    abort: bool = False
    interrupt: str = ""
    """The reason: a signal, or a person who sent the run to the background."""
    winding_down: bool = False
    """One task cannot continue: nothing new starts, running dispatches are recorded."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: running agents are ended at once."""
    require_claim: Callable[[], None] = lambda: None
    """Raises when another driver has taken over the run."""
    read: Callable[[], None] = lambda: None
    """Reads a request that another process recorded. What it asked for is obeyed before anything new starts."""
    taken_over: bool = False
    """Another driver took over: nothing starts again, and no agent continues."""

    def wind_down(self, *, now: bool) -> None:
        self.winding_down = True
        if now:
            self.stop.set()

    def go_on(self) -> None:
        self.winding_down = False
        if not (self.abort or self.interrupt or self.taken_over or (self.detour and self.in_phase)):
            self.stop.clear()

    def want(self, detour: Detour) -> None:
        self.detour = detour
        if self.in_phase:
            self.stop.set()

    @contextmanager
    def leaving_allowed(self) -> Iterator[None]:
        """A detour ends what runs in this block: `check` raises DetourError."""
        self.in_phase = True
        try:
            yield
        finally:
            self.in_phase = False
            self.go_on()

    def check(self) -> None:
        self.require_claim()
        self.read()
        if self.abort:
            raise AbortedError("aborted by the user")
        if self.detour and self.in_phase:
            raise DetourError(f"'{self.detour.target}' was requested", hint="windlass resume continues it")
        if self.interrupt:
            raise InterruptedDriverError(self.interrupt, hint="windlass resume continues it")
        if self.pause or self.winding_down:
            raise PausedError(self.pause or "another task cannot continue", hint="windlass resume continues it")


class DriverHost(Struct, frozen=True):
    """Where this driver runs."""

    host: str
    boot: str
    environ: Mapping[str, str]
    clock: Callable[[], float]


class Assignments(Struct, frozen=True):
    """Decides which agent plays a role in this run."""

    config: Config
    roles: Mapping[str, Role]
    adapters: Callable[[str], Adapter]
    """By the agent's name; raises UserError when there is none."""
    everyone: str = ""
    """--agent: used for every role; '' keeps each role's own."""
    named: frozenset[str] = frozenset()
    """Roles for which the command line names an agent; the config has the names."""
    prompts: tuple[Path, ...] = ()
    """Folders with criteria, the first that has a file wins."""

    def criteria(self, name: str) -> str:
        return read_criteria(name, self.prompts) if name else ""

    def assignment(self, role: str, profile: str = "") -> Assignment:
        return assign(self.config, self.roles, role, profile, everyone=self.everyone, named=self.named)
