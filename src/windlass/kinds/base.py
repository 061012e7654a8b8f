"""The protocol between a kind and the engine.

A kind is a module with `KIND`: the fields of its spec, its outcomes, and `async run(spec, ctx) -> Outcome`. A kind does
not decide what comes next. It acts only through the verbs of `Context`, so a replay from the top makes the same calls
in the same order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct, field

from windlass.events import Event
from windlass.kinds.routes import Target
from windlass.kinds.spec import PhaseSpec
from windlass.model import Answer, Finding, Json, Key, Question, RunFacts, Task

NOBODY_REVIEWED = "no reviewer is available"
"""The detail of a review that passed because no agent plays its reviewers."""


class Outcome(Struct, frozen=True):
    name: str
    detail: str = ""
    """The reason, for people and for the text of a question."""
    findings: tuple[Finding, ...] = ()
    evidence: str = ""
    """For the agents that have to do better: more of the reason than a person reads in a line."""


class Call(Struct, frozen=True):
    """An agent call that a kind requests. A replay compares `inputs`; `context` is only stored."""

    role: str
    purpose: str
    """The prompt of the role's file to use: draft, revise, review, rereview, implement, fix ..."""
    inputs: Mapping[str, Json] = field(default_factory=dict)
    context: Mapping[str, Json] = field(default_factory=dict)
    outs: tuple[str, ...] = ()
    profile: str = ""
    guard: bool = True
    flags: tuple[str, ...] = ()
    cycles: int = 0
    """The cap of the loop that makes this call. It lets a view show "attempt k of max"."""
    since: str = ""
    """A commit. The prompt shows the changes since it."""
    label: str = ""
    """The checkpoint name to show during the call, as `fixing`."""
    instructions: tuple[str, ...] = ()
    """Files of the repository that the agent must follow, in addition to those of the flow."""
    contract: str = ""
    """The contract of the answer. It replaces the contract in the role's file."""
    accept: Callable[[Mapping[str, str]], str] = lambda outs: ""
    """Checks the declared outputs. A problem that it returns goes to the agent, which tries again."""
    fits: Callable[[Json], str] = lambda data: ""
    """Checks the contract's block in the same way."""


class Reply(Struct, frozen=True):
    """The result of a dispatch. A failed one has a reason; its text is the agent's last message."""

    ok: bool
    text: str = ""
    data: Json = None
    """The parsed and checked block of the contract; None when the role has no contract. A failed reply can have one
    too: it met the contract and was refused for another reason."""
    error: str = ""
    reason: str = ""
    head: str = ""
    tree: str = ""
    files: tuple[str, ...] = ()
    """Files changed since the scope's base, uncommitted and untracked ones included."""
    outs: Mapping[str, str] = field(default_factory=dict)
    """The declared artifacts that were produced: name -> content id."""
    outcome: str = ""
    """An outcome that the contract's data demand, as `too_complex`."""
    notes: tuple[Finding, ...] = ()
    """Findings of the engine: a role exceeded its permissions, or a guard was not met."""


class PlanView(Struct, frozen=True):
    """A parsed plan artifact: its tasks, or the problem that prevents parsing."""

    tasks: tuple[Task, ...] = ()
    problem: str = ""


class CommandRun(Struct, frozen=True):
    """The result of commands, up to the first that failed."""

    ok: bool
    output: str = ""
    failing: tuple[str, ...] = ()
    file: str = ""
    """The first file of the project that the failing command named; '' for none, and after a timeout."""
    commands: tuple[Mapping[str, Json], ...] = ()
    """Each command with its result."""


class PublishResult(Struct, frozen=True):
    """The result of a push, a pull request or a tag: done | already | left (this machine cannot do it) | failed."""

    state: str
    detail: str = ""


class Place(Protocol):
    """The position in the run at which a kind is performed, and the code there."""

    @property
    def key(self) -> Key: ...

    @property
    def task(self) -> Task | None: ...

    @property
    def to_fix(self) -> tuple[Finding, ...]:
        """The findings to fix, when a `fix` route led here. The fixer goes first then."""
        ...

    @property
    def since(self) -> str:
        """A commit. Only changes since it are judged; '' judges everything."""
        ...

    @property
    def why(self) -> str:
        """Why this place was entered again: the problem, or the comment of a person."""
        ...

    @property
    def tree(self) -> str:
        """The git tree id of this scope's code: an input of every call that judges it."""
        ...

    @property
    def head(self) -> str: ...

    @property
    def changed(self) -> tuple[str, ...]:
        """Files that changed since the scope's base."""
        ...

    def id(self, name: str = "") -> str:
        """The name of a step below `key`. Inside a task the step's id comes first."""
        ...


class Values(Protocol):
    """The values that a kind may read. Contract: every replay gets the same values; reading changes nothing."""

    @property
    def facts(self) -> RunFacts: ...

    def has_role(self, role: str) -> bool: ...

    def setting(self, value: int | str) -> str:
        """The value of the setting for `$name`; any other value unchanged."""
        ...

    def artifact(self, name: str) -> str | None:
        """The content in force; None before the artifact is produced."""
        ...

    def criteria(self, name: str) -> str:
        """The text of a file with criteria; '' for no name."""
        ...

    def problem(self, name: str) -> str:
        """A violation of the artifact's contract or `ensure` rules; '' when there is none."""
        ...

    def ensure_violation(self, name: str, content: str) -> str:
        """The `ensure` rules that this content violates; '' when there are none."""
        ...

    def plan(self, name: str) -> PlanView: ...

    def parse_plan(self, name: str, content: str) -> PlanView: ...

    def question(self, id: str, reason: str = "", findings: Sequence[Finding] = ()) -> Question:
        """A question of the flow, rendered for this place."""
        ...

    def setting_question(self, name: str) -> Question | None:
        """None when the setting has a value or its `when` does not hold."""
        ...

    def option(self, question: str, key: str) -> Target: ...

    def feedback(self, question: str) -> str | None:
        """The comment of the answer that led here; None when no answer to that question led here."""
        ...

    def fact(self, name: str) -> Json: ...


class Context(Protocol):
    """The recorded verbs that several kinds may use; a kind with a verb of its own adds it to this protocol.

    Contract: a verb with a recorded result returns it and does nothing else.
    """

    @property
    def place(self) -> Place: ...

    @property
    def values(self) -> Values: ...

    def dispatch(self, id: str, call: Call, *, cycle: int | None = None) -> Awaitable[Reply]:
        """Run an agent once, or return the recorded reply. Raises when the run has to stop."""
        ...

    def earlier(self, id: str, call: Call, *, cycle: int | None = None) -> Reply | None:
        """The reply of the same step in the visit that a person's retry repeats; None in any other visit."""
        ...

    async def ask(self, question: Question, *, id: str = "", cycle: int | None = None) -> Answer:
        """Store the question and wait for the first valid answer. Raises when the driver must not wait. `id` and
        `cycle` distinguish the rounds of a loop. In a visit that a person's retry repeats, an answered question is not
        asked again."""
        ...

    async def make(self, name: str, content: str, *, id: str = "", cycle: int | None = None) -> None:
        """Put an artifact in force that the kind itself made. `id`: the name of the step; by default the artifact's."""
        ...

    def withdraw(self, name: str, why: str) -> None:
        """The artifact is no longer in force, if it was."""
        ...

    def refine(self, request: str) -> None:
        """Replace the request of the run."""
        ...

    def set_setting(self, name: str, value: str) -> None: ...

    async def observe(self, id: str, fn: Callable[[], Awaitable[Json]]) -> Json:
        """Read a fact outside the run once, and record it."""
        ...

    async def command(
        self, id: str, names: Sequence[str], *, otherwise: str = "", cycle: int | None = None
    ) -> CommandRun:
        """Run the configured commands of these names on this scope's code, or those named `otherwise`."""
        ...

    def emit(self, *events: Event, at: str = "") -> None:
        """Record events once per place; a replay does not record them again."""
        ...

    def flush(self) -> None:
        """Commit the events emitted so far."""
        ...

    def whole_run(self) -> AbstractAsyncContextManager[Context]:
        """The same place with all changes of the run as its scope."""
        ...

    async def land_fix(self, id: str, *, cycle: int | None = None) -> str:
        """Merge a change of the whole run into its tip after the checks. Returns the refusal; '' when it landed."""
        ...


class Kind(Struct, frozen=True):
    """What the rest of Windlass knows about a kind of phase."""

    spec: type[PhaseSpec]
    """The fields of the phase in a flow file, and what checks, graphs and simulations must know."""
    run: Callable[[Any, Any], Awaitable[Outcome]]
    """Takes the spec of the phase and a `Context`."""

    @property
    def name(self) -> str:
        return str(self.spec.__struct_config__.tag)
