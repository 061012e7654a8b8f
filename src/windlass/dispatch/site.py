"""The port to the place where agents and checks run.

A job goes in. The agent's result, the declared outputs and the leftovers come out. Nothing above this port knows a
folder, a process or a host. A site gives names to its checkouts and attempts. The driver records these names and
passes them back, and only the site reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from windlass.agents.base import AgentEvent, AgentResult, Job
from windlass.checks.run import Check, CheckResult
from windlass.model import Usage

if TYPE_CHECKING:
    from windlass.proof.facts import TestRun
    from windlass.proof.trees import Trees


class SiteAddress(Struct, frozen=True):
    """Recorded with each attempt, so that a later driver knows whether its processes can still run."""

    host: str
    boot: str


class InterruptedAttempt(Struct, frozen=True):
    """An attempt that ended before its agent finished. The agent's session can continue it."""

    session: str
    checkout: str
    """The site's name of the checkout. Its files are as the agent left them."""
    attempt: str
    """The site's name of the attempt."""
    agent: str = ""
    """The agent of the session. No other agent can continue it."""
    why: str = ""
    """Why the attempt ended; '' when its driver died."""


class Leftovers(Struct, frozen=True):
    """What a dispatch left in its checkout, and its changes elsewhere."""

    head: str
    dirty: tuple[str, ...] = ()
    """Paths with uncommitted changes."""
    refused: str = ""
    """Why the engine refuses commits of the agent."""
    trespasses: tuple[str, ...] = ()
    """Changes of the engine's repository. The site has undone them."""
    noticed: tuple[str, ...] = ()
    """Changes of the user's checkout or refs. The site reports them and never undoes them."""


class SiteResult(Struct, frozen=True):
    """The result of a job, without secrets."""

    result: AgentResult
    leftovers: Leftovers
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The declared outputs that the agent wrote: name -> content."""


class DispatchListener(Protocol):
    """Receives the reports of a site while an agent works."""

    stop: asyncio.Event
    """When it is set, the site ends the agent."""

    def on_event(self, event: AgentEvent) -> None: ...

    def on_warning(self, text: str) -> None:
        """Called when the agent does not seem to work."""
        ...

    def afford(self, usage: Usage) -> str:
        """Why the agent may not continue; '' when it may."""
        ...


class Checkout(Protocol):
    """The files of one commit at a site, in which programs run. A site need not create it before the first use.

    `key` and `n` name the attempt or the step that uses it. Work in the checkout is kept under this name.
    """

    @property
    def name(self) -> str:
        """The site's name of the checkout; '' before it is taken."""
        ...

    @property
    def directory(self) -> str:
        """The working directory as agents see it, for their prompts."""
        ...

    async def ready(self, head: str, key: str, n: int, *, moved: bool) -> None:
        """Take the checkout if it is not taken. If the head has `moved`, keep the work in it and check out `head`."""
        ...

    def resume(self, name: str, head: str) -> None:
        """Use the checkout of an interrupted attempt, unchanged. `head`: the head of the checkout that it replaces."""
        ...

    async def half_done(self, head: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The unfinished work since `head`: changed files, and subjects of commits, oldest first."""
        ...

    async def harvest(self, message: str) -> str:
        """Commit all uncommitted changes. Returns the new head."""
        ...

    async def undo(self, head: str, key: str, n: int) -> tuple[str, ...]:
        """Keep the work, then check out `head`. Returns the keep-refs."""
        ...

    async def check_out(self, commit: str) -> None:
        """Check out `commit`. The dropped files are not the work of an agent."""
        ...

    async def keep(self, key: str, n: int) -> None:
        """Put keep-refs on the work of the attempt so far. The checkout does not change."""
        ...

    async def reserve(self, key: str, n: int) -> None:
        """Reserve the checkout for the session of this attempt, also under another driver."""
        ...

    async def leave(self, head: str, key: str) -> None:
        """Give the checkout back, and keep its work."""
        ...

    def setup_hash(self) -> str:
        """Equal if the same set-up ran for the same lock files; '' without a set-up."""
        ...

    async def check(self, check: Check, name: str) -> CheckResult:
        """Run a command in the checkout. `name`: the name of its record."""
        ...


class ProofRoom(Protocol):
    """A separate checkout for the proof of a task, in which no agent works."""

    async def setup_hash(self) -> str:
        """The hash of the set-up for the trees of the proof; '' without a set-up."""
        ...

    async def run_tests(self, tree: str, files: Sequence[str], limit: float | None) -> TestRun: ...

    async def release(self) -> None: ...


class Site(Protocol):
    """Performs the dispatches and checks of a run."""

    address: SiteAddress

    def checkout(self) -> Checkout: ...

    def take_interrupted(self, key: str) -> InterruptedAttempt | None:
        """The attempt at this step that an earlier driver left. Returned only once."""
        ...

    def attempt_name(self, key: str, n: int) -> str:
        """The site's name of an attempt's transcript."""
        ...

    async def run(self, job: Job, checkout: Checkout, listener: DispatchListener) -> SiteResult:
        """Run one attempt. An agent cannot make it raise."""
        ...

    async def agent_warning(self, agent: str) -> str:
        """A problem with the agent's program at this site. Returned only once; else ''."""
        ...

    def proof_room(self, key: str, trees: Trees) -> ProofRoom: ...

    async def close(self) -> None:
        """Give back the checkouts of the run."""
        ...
