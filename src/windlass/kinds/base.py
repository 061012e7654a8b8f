"""What a kind is, and the few recorded verbs it may use.

A kind is a module with `KIND`: its fields in the flow language, what it can end with, and
`async run(spec, ctx) -> Outcome`. It decides nothing about what comes next, and it touches the world only through
the verbs of `Context`, so that a replay from the top gives the same calls in the same order.
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


class Call(Struct, frozen=True):
    """What a kind asks of an agent. `inputs` are compared on replay, `context` is only stored."""

    role: str
    purpose: str
    """Which prompt of the role's file: draft, revise, review, rereview, implement, fix ..."""
    inputs: Mapping[str, Json] = field(default_factory=dict)
    context: Mapping[str, Json] = field(default_factory=dict)
    outs: tuple[str, ...] = ()
    profile: str = ""
    guard: bool = True
    flags: tuple[str, ...] = ()
    cycles: int = 0
    """The cap of the loop this call belongs to, so that it can be shown as attempt k of max."""
    since: str = ""
    """A commit: the prompt shows what changed since then."""
    label: str = ""
    """The checkpoint name to show while it runs, as `fixing`."""
    instructions: tuple[str, ...] = ()
    """Files of the repository that the agent is told to follow, besides the flow's."""
    contract: str = ""
    """What the answer must look like, whatever the role's file says."""
    accept: Callable[[Mapping[str, str]], str] = lambda outs: ""
    """Looks at the declared outputs; a problem in words is told to the agent and it tries again."""
    fits: Callable[[Json], str] = lambda data: ""
    """Looks at the contract's block in the same way."""


class Reply(Struct, frozen=True):
    """What a dispatch gave. A failed one says why; its text is what the agent said last."""

    ok: bool
    text: str = ""
    data: Json = None
    """The contract's block, parsed and checked; None when the role has no contract. A failed reply may have one too:
    it met the contract and was refused for another reason."""
    error: str = ""
    reason: str = ""
    head: str = ""
    tree: str = ""
    files: tuple[str, ...] = ()
    """Changed since the scope's base, uncommitted and untracked included."""
    outs: Mapping[str, str] = field(default_factory=dict)
    """Declared artifacts that were produced: name -> content id."""
    outcome: str = ""
    """An outcome of its own that the contract's data demand, as `too_complex`."""
    notes: tuple[Finding, ...] = ()
    """What the engine saw: a role beyond its bounds, a guard that was not met."""


class PlanView(Struct, frozen=True):
    """A plan artifact, parsed: tasks with their ids, or what is wrong with it."""

    tasks: tuple[Task, ...] = ()
    problem: str = ""


class CommandRun(Struct, frozen=True):
    """What a command gave."""

    ok: bool
    output: str = ""
    failing: tuple[str, ...] = ()


class PublishResult(Struct, frozen=True):
    """What became of a push, a pull request or a tag: done | already | left (no means for it here) | failed."""

    state: str
    detail: str = ""


class Place(Protocol):
    """Where in the run a kind is performed, and with which code."""

    @property
    def key(self) -> Key: ...

    @property
    def task(self) -> Task | None: ...

    @property
    def to_fix(self) -> tuple[Finding, ...]:
        """Entered by `fix`: what was found before, and its fixer goes first."""
        ...

    @property
    def since(self) -> str:
        """A commit: only what changed since then is to be judged; '' for everything."""
        ...

    @property
    def why(self) -> str:
        """Why this place was entered again: what went wrong, what a person said to it."""
        ...

    @property
    def tree(self) -> str:
        """The code of this scope, as git's tree id: an input of whoever judges it."""
        ...

    @property
    def head(self) -> str: ...

    @property
    def changed(self) -> tuple[str, ...]:
        """Files changed since the scope's base."""
        ...

    def id(self, name: str = "") -> str:
        """A step's own name below `key`: inside a task it is led by the step's id."""
        ...


class Values(Protocol):
    """What a kind may read. Contract: the same answer on every replay; nothing is changed."""

    @property
    def facts(self) -> RunFacts: ...

    def has_role(self, role: str) -> bool: ...

    def setting(self, value: int | str) -> str:
        """`$name` becomes the setting's value, anything else itself."""
        ...

    def artifact(self, name: str) -> str | None:
        """The content now in force, None while nobody produced it."""
        ...

    def problem(self, name: str) -> str:
        """What the artifact's contract or `ensure` finds wrong with it; empty when nothing."""
        ...

    def unmet(self, name: str, content: str) -> str:
        """What the artifact's `ensure` rules miss in this content; '' when nothing."""
        ...

    def plan(self, name: str) -> PlanView: ...

    def parse_plan(self, name: str, content: str) -> PlanView: ...

    def question(self, id: str, reason: str = "", findings: Sequence[Finding] = ()) -> Question:
        """A question of the flow, rendered for this place."""
        ...

    def setting_question(self, name: str) -> Question | None:
        """None: it is given, or its `when` does not hold."""
        ...

    def option(self, question: str, key: str) -> Target: ...

    def feedback(self, question: str) -> str | None:
        """The comment of the answer that led here; None when no answer to that question did."""
        ...

    def fact(self, name: str) -> Json: ...


class Context(Protocol):
    """The recorded verbs. Contract: a verb that has a result returns it without touching the world."""

    @property
    def place(self) -> Place: ...

    @property
    def values(self) -> Values: ...

    def dispatch(self, id: str, call: Call, *, cycle: int | None = None) -> Awaitable[Reply]:
        """Run an agent once, or return what it returned. Raises when the run has to stop."""
        ...

    def earlier(self, id: str, call: Call, *, cycle: int | None = None) -> Reply | None:
        """The same step's reply in a visit that a person's retry repeats; None when this is no such visit."""
        ...

    async def ask(self, question: Question, *, id: str = "", cycle: int | None = None) -> Answer:
        """Store the question, wait for the first valid answer. Raises when the driver shall not wait.
        `id` and `cycle` tell the rounds of a loop apart. What was answered in a visit that a person's retry repeats is
        not asked again."""
        ...

    async def make(self, name: str, content: str, *, cycle: int | None = None) -> None:
        """Put an artifact in force that the kind itself made."""
        ...

    def refine(self, request: str) -> None:
        """From here on this is what was asked for."""
        ...

    def set_setting(self, name: str, value: str) -> None: ...

    async def observe(self, id: str, fn: Callable[[], Awaitable[Json]]) -> Json:
        """A fact of the world, read once and remembered."""
        ...

    async def command(self, id: str, name: str, *, cycle: int | None = None) -> CommandRun:
        """Run the configured commands of that name on this scope's code."""
        ...

    def emit(self, *events: Event, at: str = "") -> None:
        """Say what happened, once per place; a replay does not say it again."""
        ...

    def flush(self) -> None:
        """What was said so far is committed now."""
        ...

    async def publish(self, what: str, *, remote: str, base: str, tag: str) -> PublishResult:
        """push | pr | tag of the run's branch, once."""
        ...

    async def report(self, template: str, to: Sequence[str]) -> None: ...

    def whole_run(self) -> AbstractAsyncContextManager[Context]:
        """The same place, looking at everything the run has changed."""
        ...

    async def land_fix(self, id: str) -> str:
        """Join what was fixed for the whole run with its tip, checks first; why not, or '' when it is done."""
        ...


class Kind(Struct, frozen=True):
    """What the rest of Windlass knows of a kind of phase."""

    spec: type[PhaseSpec]
    """Its fields in the flow language, and what checks, drawings and simulations must know of it."""
    run: Callable[[Any, Any], Awaitable[Outcome]]
    """Takes the phase as it is written, and a `Context`."""

    @property
    def name(self) -> str:
        return str(self.spec.__struct_config__.tag)
