"""The port to where agents and checks run. A job goes in; the agent's result, the declared outputs and what was left
behind come out.

Nothing above this port knows a folder, a process or a host. Names that a site gives to its checkouts and its attempts
are recorded and handed back, and only the site reads them.
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
    """An attempt that ended before its agent was done, and that the agent's own session can continue."""

    session: str
    checkout: str
    """The site's name of the checkout, which is as the agent left it."""
    attempt: str
    """The site's name of the attempt."""
    agent: str = ""
    """Whose session it is. No other agent can continue it."""
    why: str = ""
    """Why the attempt ended, in words; '' when its driver died."""


class Leftovers(Struct, frozen=True):
    """What a dispatch left in its checkout, and what it changed elsewhere."""

    head: str
    dirty: tuple[str, ...] = ()
    """Paths that were changed and not committed."""
    refused: str = ""
    """Why commits of the agent cannot be taken."""
    trespasses: tuple[str, ...] = ()
    """Changes of the engine's own repository. They were undone."""
    noticed: tuple[str, ...] = ()
    """Changes of the user's checkout or refs. They are reported, never undone."""


class SiteResult(Struct, frozen=True):
    """What a site gives back for a job, without secrets."""

    result: AgentResult
    leftovers: Leftovers
    outputs: Mapping[str, str] = field(default_factory=dict)
    """The declared outputs that the agent wrote: name -> content."""


class DispatchListener(Protocol):
    """What a site tells the driver while an agent works."""

    stop: asyncio.Event
    """Set: the agent is to end now."""

    def on_event(self, event: AgentEvent) -> None: ...

    def on_warning(self, text: str) -> None:
        """The agent seems not to work."""
        ...

    def afford(self, usage: Usage) -> str:
        """Why the agent may not go on, '' when it may."""
        ...


class Checkout(Protocol):
    """The files of one commit at a site, in which programs run. A site may take its time until the first use.

    `key` and `n` name the attempt or the step that uses it: work that is found in a checkout is kept under that name.
    """

    @property
    def name(self) -> str:
        """The site's own name; '' while nothing is taken."""
        ...

    @property
    def directory(self) -> str:
        """The working directory as agents see it, for their prompts."""
        ...

    async def ready(self, head: str, key: str, n: int, *, moved: bool) -> None:
        """Take it when it is not taken. When the head has `moved`, keep what is there and check out `head`."""
        ...

    def resume(self, name: str, head: str) -> None:
        """Use the checkout of an interrupted attempt as it was left. `head`: of the checkout that is given up."""
        ...

    async def half_done(self, head: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is there beyond `head`: changed files, and subjects of commits, oldest first."""
        ...

    async def harvest(self, message: str) -> str:
        """Commit what is uncommitted. The new head."""
        ...

    async def undo(self, head: str, key: str, n: int) -> tuple[str, ...]:
        """Keep what is there, then check out `head`. The refs under which it is kept."""
        ...

    async def check_out(self, commit: str) -> None:
        """Check out `commit`. What is dropped is nobody's work."""
        ...

    async def keep(self, key: str, n: int) -> None:
        """Keep what the attempt made so far. The checkout stays as it is."""
        ...

    async def reserve(self, key: str, n: int) -> None:
        """The session of this attempt can go on here, also under another driver."""
        ...

    async def leave(self, head: str, key: str) -> None:
        """Give it back. What is in it is kept."""
        ...

    def setup_hash(self) -> str:
        """Equal where the same set-up ran for the same lock files; '' without a set-up."""
        ...

    async def check(self, check: Check, name: str) -> CheckResult:
        """Run a command on what is checked out. `name`: its record."""
        ...


class ProofRoom(Protocol):
    """A checkout of its own for the proof of a task, in which no agent works."""

    async def setup_hash(self) -> str:
        """Of the set-up that ran for the trees of the proof; '' without one."""
        ...

    async def run_tests(self, tree: str, files: Sequence[str], limit: float | None) -> TestRun: ...

    async def release(self) -> None: ...


class Site(Protocol):
    """Where the dispatches and checks of a run are performed."""

    address: SiteAddress

    def checkout(self) -> Checkout: ...

    def interrupted(self, key: str) -> InterruptedAttempt | None:
        """The attempt at this step that an earlier driver left, once."""
        ...

    def attempt_name(self, key: str, n: int) -> str:
        """Under which name the site keeps the transcript of an attempt."""
        ...

    async def run(self, job: Job, checkout: Checkout, listener: DispatchListener) -> SiteResult:
        """One dispatch. Never raises for what an agent does."""
        ...

    async def agent_warning(self, agent: str) -> str:
        """What is wrong with the agent's program here, in words, once; else ''."""
        ...

    def proof_room(self, key: str, trees: Trees) -> ProofRoom: ...

    async def close(self) -> None:
        """Give back what the run has taken."""
        ...
