"""The interface of an adapter: two pure functions and a list of what its CLI can do."""

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
    """The most that the role allows it to cost."""
    output_bytes: int = 64 << 20
    """Of stdout and of stderr each: an agent that writes more is ended."""
    left_usd: float | None = None
    """What was left of the run's budget at the start, for a CLI that can enforce it by itself."""


class Job(Struct, frozen=True):
    """One dispatch, complete, as plain data: nothing else reaches the agent. It goes into a site, which adds where its
    files are."""

    run: str
    key: str
    attempt: int
    role: str
    purpose: str
    system: str
    prompt: str
    agent: str
    cwd: Path = Path()
    """Where the agent works. The site fills it in."""
    folder: Path = Path()
    """The attempt's own folder: prompt.md, stdout, stderr, proc.json, exit.json, events.jsonl. The site fills it in."""
    base: str = ""
    """The commit that the agent works on."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Artifacts in force, written into the working directory before the agent starts: path -> content."""
    earlier: str = ""
    """The name of the attempt whose session goes on; '' when a new one begins."""
    model: str = ""
    effort: str = ""
    tools: tuple[str, ...] = ()
    """read grep find ls bash write edit: what the role may use."""
    writes: str = "none"
    """none | outs | code"""
    contract: str = ""
    tag: str = ""
    """The tag of the block that counts, this dispatch's own; '' without a contract."""
    schema: Mapping[str, Json] | None = None
    outs: Mapping[str, str] = field(default_factory=dict)
    """Declared artifacts: name -> path below cwd."""
    limits: Limits = Limits()
    session: str = ""
    """The agent's own session to continue, where the adapter can."""
    task_id: str = ""
    task_title: str = ""
    phase: str = ""
    cycle: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """Adapter's own settings from the config: script, argv template ..."""


class ToolStarted(Struct, frozen=True):
    tool: str
    text: str
    """In words: reading src/x.py, running pytest -q."""
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
    """Usage so far. `total`: replaces what was reported before; else it adds."""

    usage: Usage
    total: bool = False


class SessionSeen(Struct, frozen=True):
    id: str


class Done(Struct, frozen=True):
    """The terminal event: without one the dispatch failed, whatever the exit code."""

    text: str
    structured: Json = None
    error: ErrorClass | None = None
    reason: str = ""
    retry_at: float | None = None


class Retrying(Struct, frozen=True):
    """The model's server failed and the CLI retries by itself; over with its next tool call or text."""

    error: ErrorClass
    """The error if the server keeps failing."""
    reason: str
    wait_s: float | None = None
    """The pause before the retry, where the CLI reports it."""
    told: bool = True
    """The server named the time; False: it is a pause of the CLI's own."""


AgentEvent: TypeAlias = ToolStarted | ToolUpdated | ToolFinished | Said | Spent | SessionSeen | Retrying | Done


class Invocation(Struct, frozen=True):
    """How to start the CLI for one job. No shell, ever."""

    argv: tuple[str, ...]
    stdin: str = ""
    entry: str = ""
    """The function that `argv` calls, when it is a program of Windlass's own (`launch.program`). The supervisor then
    forks and calls it, which takes a tenth of what starting an interpreter does."""
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Written below the attempt's folder before the start."""
    carried: Mapping[str, str] = field(default_factory=dict)
    """Name below the attempt's folder -> source. A file (the user's login) is copied, put back if the CLI renewed it,
    and removed at the end; a folder (earlier sessions) is linked. A source that does not exist is left out."""


class Capabilities(Struct, frozen=True):
    resume: bool = False
    cost: str = "none"
    """stream | end | tokens | none"""
    structured: bool = False
    """The CLI checks the answer against a JSON schema."""
    read_only: bool = False
    effort: bool = False
    sandbox: bool = False
    """The CLI confines its commands; else only its tools are restricted."""
    best_effort: bool = False
    """The agent behind it is unknown, and so are its capabilities."""


class Reader(Protocol):
    """Reads the lines of one dispatch. Contract: as `Adapter.parse`, but it may remember the lines before."""

    def parse(self, line: str) -> list[AgentEvent]: ...


@runtime_checkable
class HasReader(Protocol):
    """An adapter whose lines depend on each other: each dispatch has a reader of its own."""

    def reader(self, job: Job) -> Reader: ...


@runtime_checkable
class ReadsErrors(Protocol):
    """A reader of a CLI that reports on standard error what its stream leaves out."""

    def parse_error(self, line: str) -> list[AgentEvent]: ...

    def without_log(self, stderr: str) -> str:
        """The standard error without the log: a log quotes commands, which can contain any word."""
        ...


class UsageFileNames(Struct, frozen=True):
    """The files in which a CLI records what it spends."""

    folder: str
    """Below the attempt's folder."""
    files: str
    """Below that: a path whose parts may contain `*`."""


@runtime_checkable
class WritesUsageFiles(Protocol):
    """A reader of a CLI that reports its usage in the stream at the end only, and in files at once."""

    def ledger(self) -> UsageFileNames: ...

    def parse_ledger(self, line: str) -> list[AgentEvent]: ...


@runtime_checkable
class EndsWithExit(Protocol):
    """An adapter whose CLI has no terminal event: what it said and its exit code are all there is."""

    def at_exit(self, said: str, code: int | None) -> Done | None: ...


@runtime_checkable
class StartsAnother(Protocol):
    """An adapter whose invocation is a client of the agent; this program has to be installed."""

    program: str


class Adapter(Protocol):
    """Contract: `invocation` and `parse` are pure. `parse` never raises: what it does not know gives []."""

    name: str
    capabilities: Capabilities
    credential: str
    """Dispatches that share it share quota waits."""
    flat_usd: float | None
    """A fixed cost of a dispatch: 0 for a model on the user's machine. None: its tokens are priced."""

    def invocation(self, job: Job) -> Invocation: ...

    def parse(self, line: str) -> list[AgentEvent]: ...

    def classify(self, stderr: str, code: int | None) -> tuple[ErrorClass, str]:
        """Why a process that gave no terminal event failed."""
        ...


class Unsure(StrEnum):
    """The part of a dispatch's cost that is not known."""

    NOTHING = ""
    RESPONSE = "response"
    """The model may have been answering when the dispatch ended."""
    ALL = "all"
    """It used the model, and there is no figure."""


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
    dearest_usd: float = 0.0
    """The dearest single response of the model."""
