"""The services of one driver, put together in `runs/drive.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from windlass.agents.assignment import Assignment, assign
from windlass.agents.base import Adapter
from windlass.agents.contracts.block_tags import run_secret
from windlass.agents.roles import Role
from windlass.config.schema import Config
from windlass.engine.budget import Budget
from windlass.engine.journal import Journal
from windlass.engine.questions import PausedError, Questions
from windlass.engine.quota import QuotaWaits
from windlass.engine.recovery import InterruptedAttempt
from windlass.engine.tip import Tip
from windlass.engine.values import RunValues
from windlass.errors import AbortedError, InterruptedDriverError
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots
from windlass.redaction import Redactor, redactor, secrets_below, secrets_in
from windlass.store.port import Store


def known_secrets(config: Config, environ: Mapping[str, str], root: Path) -> list[str]:
    """Secrets of the environment, of the agents' configuration, and of the checkout's settings files."""
    return [*secrets_in(environ), *config.agents.keys(environ), *secrets_below(root, config.workspace.copied)]


class StopRequests(Struct):
    """Requests to the running driver: pause when the running dispatches are done, or stop now."""

    pause: str = ""
    abort: bool = False
    interrupt: str = ""
    """The reason: a signal, or a person who sent the run to the background."""
    winding_down: bool = False
    """One task cannot continue: nothing new starts, running dispatches are recorded."""
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set: running agents are ended at once."""
    require_claim: Callable[[], None] = lambda: None
    """Raises TakenOverError when another driver took over."""
    taken_over: bool = False
    """Another driver has the run: nothing starts again, and the agents stay stopped."""

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


class CheckServices(Struct, frozen=True, dict=True):
    """What checks need, in a run and in `windlass check`, which has none."""

    store: Store
    journal: Journal
    config: Config
    slots: Slots
    folder: Path
    """The run's own: attempts, projections."""
    machine: DriverHost
    wanted: StopRequests

    @cached_property
    def redactor(self) -> Redactor:
        """Knows the secrets of this driver's environment and configuration, and of the checkout's `.env` files."""
        return redactor(known_secrets(self.config, self.machine.environ, self.slots.engine.user.root))


class RunServices(CheckServices, frozen=True, dict=True):
    world: RunValues
    broker: Questions
    budget: Budget
    governor: QuotaWaits
    roles: Mapping[str, Role]
    adapters: Callable[[str], Adapter]
    """By the agent's name; raises UserError when there is none."""
    agent: str
    """--agent: used for every role; '' leaves each its own."""
    named: frozenset[str]
    """Roles that the command line gave an agent of their own; the config holds which."""
    engine: EngineRepo
    slots_wanted: int | None
    """--slots: tasks at work at the same time, whatever flow and config say."""
    report: Callable[[str], str]
    """Renders the run's record by a template."""
    left: dict[str, InterruptedAttempt] = field(default_factory=dict)
    """Interrupted attempts that the agent's own session can go on with, by key."""
    agents: dict[int, int] = field(default_factory=dict)
    """Slot -> the number of the agent that works in it, in the order they began."""

    @cached_property
    def tag_secret(self) -> str:
        return run_secret(self.folder)

    @cached_property
    def tip(self) -> Tip:
        return Tip(self.journal, self.engine)

    def assignment(self, role: str, profile: str = "") -> Assignment:
        return assign(self.config, self.roles, role, profile, everyone=self.agent, named=self.named)
