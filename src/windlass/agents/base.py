"""The interface of an adapter: two pure functions and the capabilities of its CLI."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, field

from windlass.model import ErrorClass, Json, Usage


class Limits(Struct, frozen=True):
    wall_s: float = 1800.0
    turns: int | None = None
    usd: float | None = None
    """The most that one dispatch of the role may cost."""
    output_bytes: int = 64 << 20
    """The limit of stdout and of stderr each. An agent that writes more is ended."""
    left_usd: float | None = None
    """The rest of the run's budget at the start, for a CLI that can enforce it."""


class Job(Struct, frozen=True):
    """One complete dispatch as plain data; the agent gets nothing else. The site adds the paths of its files."""

    run: str
    key: str
    attempt: int
    role: str
    purpose: str
    system: str
    prompt: str
    agent: str
    cwd: Path = Path()
    """The agent's working directory. The site sets it."""
    folder: Path = Path()
    """The attempt's folder: prompt.md, stdout, stderr, proc.json, exit.json, events.jsonl. The site sets it."""
    base: str = ""
    """The commit that the agent works on."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Artifacts in force, written into the working directory before the agent starts: path -> content."""
    absent: tuple[str, ...] = ()
    """Artifacts that are not for this dispatch: their files are removed from the working directory before it starts."""
    earlier: str = ""
    """The name of the attempt to continue the session of; '' for a new session."""
    model: str = ""
    effort: str = ""
    tools: tuple[str, ...] = ()
    """The tools of the role: read grep find ls bash write edit."""
    writes: str = "none"
    """none | outs | code"""
    contract: str = ""
    tag: str = ""
    """The tag of the block that counts, unique for the dispatch; '' without a contract."""
    schema: Mapping[str, Json] | None = None
    outs: Mapping[str, str] = field(default_factory=dict)
    """Declared artifacts: name -> path below cwd."""
    limits: Limits = Limits()
    session: str = ""
    """The id of the agent's session to continue, if the adapter can."""
    task_id: str = ""
    task_title: str = ""
    phase: str = ""
    cycle: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """The adapter's settings from the config: script, argv template ..."""


class ToolStarted(Struct, frozen=True):
    tool: str
    text: str
    """For people: reading src/x.py, running pytest -q."""
    id: str = ""


class ToolFinished(Struct, frozen=True):
    tool: str
    ok: bool
    text: str = ""
    id: str = ""


class ToolUpdated(Struct, frozen=True):
    """The output of a tool so far."""

    tool: str
    text: str
    id: str = ""


class Said(Struct, frozen=True):
    text: str


class Spent(Struct, frozen=True):
    """Usage so far. `total`: it replaces the reports before; otherwise it adds to them."""

    usage: Usage
    total: bool = False


class SessionSeen(Struct, frozen=True):
    id: str


class Done(Struct, frozen=True):
    """The terminal event. A dispatch without one failed, whatever its exit code is."""

    text: str
    structured: Json = None
    error: ErrorClass | None = None
    reason: str = ""
    retry_at: float | None = None


class Retrying(Struct, frozen=True):
    """The model's server failed and the CLI retries. The CLI's next tool call or text ends this state."""

    error: ErrorClass
    """The error if the server keeps failing."""
    reason: str
    wait_s: float | None = None
    """The pause before the retry, where the CLI reports it."""
    told: bool = True
    """True: the server named the wait. False: the CLI chose it."""


AgentEvent: TypeAlias = ToolStarted | ToolUpdated | ToolFinished | Said | Spent | SessionSeen | Retrying | Done


class Invocation(Struct, frozen=True):
    """How to start the CLI for one job. Never through a shell."""

    argv: tuple[str, ...]
    stdin: str = ""
    entry: str = ""
    """The function that `argv` calls, when it is one of Windlass's programs (`launch.program`). The supervisor forks
    and calls it, in a tenth of the time that a new interpreter needs."""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Files to write below the attempt's folder before the start."""
    carried: Mapping[str, str] = field(default_factory=dict)
    """Name below the attempt's folder -> source. A file (the user's login) is copied, written back if the CLI renewed
    it, and removed at the end. A folder (earlier sessions) is linked. A missing source is skipped."""


class Capabilities(Struct, frozen=True):
    resume: bool = False
    cost: str = "none"
    """stream | end | tokens | none"""
    structured: bool = False
    """The CLI checks the answer against a JSON schema."""
    read_only: bool = False
    effort: bool = False
    sandbox: bool = False
    """The CLI confines its commands; otherwise only its tools are restricted."""
    best_effort: bool = False
    """The agent is unknown, and so are its capabilities."""


class Reader(Protocol):
    """Reads the lines of one dispatch. Contract: as `Adapter.parse`, but it may keep state between lines."""

    def parse(self, line: str) -> list[AgentEvent]: ...


@runtime_checkable
class HasReader(Protocol):
    """An adapter with lines that depend on each other: each dispatch has its own reader."""

    def reader(self, job: Job) -> Reader: ...


@runtime_checkable
class ReadsErrors(Protocol):
    """A reader of a CLI that reports some facts only on standard error."""

    def parse_error(self, line: str) -> list[AgentEvent]: ...

    def without_log(self, stderr: str) -> str:
        """The standard error without log lines: a log quotes commands, which can contain any word."""
        ...


class UsageFileNames(Struct, frozen=True):
    """The files in which a CLI records its usage."""

    folder: str
    """Below the attempt's folder."""
    files: str
    """A path below that; its parts may contain `*`."""


@runtime_checkable
class WritesUsageFiles(Protocol):
    """A reader of a CLI that reports its usage in the stream only at the end, and in files at once."""

    def ledger(self) -> UsageFileNames: ...

    def parse_ledger(self, line: str) -> list[AgentEvent]: ...


@runtime_checkable
class EndsWithExit(Protocol):
    """An adapter of a CLI without a terminal event: only its text and its exit code are known."""

    def at_exit(self, text: str, code: int | None) -> Done | None: ...


@runtime_checkable
class StartsAnother(Protocol):
    """An adapter that starts a client of the agent; the agent's own program must be installed."""

    program: str


class Adapter(Protocol):
    """Contract: `invocation` and `parse` are pure. `parse` never raises: it returns [] for an unknown line."""

    name: str
    capabilities: Capabilities
    credential: str
    """Dispatches with the same credential share quota waits."""
    flat_usd: float | None
    """The fixed cost of a dispatch: 0 for a model on the user's machine. None: its tokens are priced."""

    def invocation(self, job: Job) -> Invocation: ...

    def parse(self, line: str) -> list[AgentEvent]: ...

    def classify(self, stderr: str, code: int | None) -> tuple[ErrorClass, str]:
        """Why a process without a terminal event failed."""
        ...


class Unsure(StrEnum):
    """The unknown part of a dispatch's cost."""

    NOTHING = ""
    RESPONSE = "response"
    """A response of the model: it may have been arriving when the dispatch ended, or it broke off and the CLI asked
    again."""
    ALL = "all"
    """It used the model, and no cost is known."""


class AgentResult(Struct, frozen=True):
    """The result of one dispatch, from the supervisor's report and the agent's events."""

    text: str = ""
    structured: Json = None
    usage: Usage = Usage()
    session: str = ""
    error: ErrorClass | None = None
    reason: str = ""
    retry_at: float | None = None
    code: int | None = None
    seconds: float = 0.0
    tools: int = 0
    unsure: Unsure = Unsure.NOTHING
    """The part of its cost that is not in `usage`."""
    unknown_responses: int = 0
    """How many responses are unknown, if `unsure` is RESPONSE."""
    dearest_usd: float = 0.0
    """The cost of the most expensive response of the model."""
