"""Runs one dispatch from the job to its result: follows the agent's process and limits its time, turns and cost."""

from __future__ import annotations

import asyncio
import io
import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TextIO, assert_never

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from windlass.agents.base import (
    Adapter,
    AgentEvent,
    AgentResult,
    Done,
    EndsWithExit,
    HasReader,
    Job,
    Reader,
    ReadsErrors,
    Retrying,
    Said,
    SessionSeen,
    Spent,
    ToolFinished,
    ToolStarted,
    ToolUpdated,
    Unsure,
    WritesUsageFiles,
)
from windlass.agents.cli.failures import WAITS, reset_time, was_cut
from windlass.agents.process.supervise import (
    CHUNK,
    Lines,
    ProcessExit,
)
from windlass.agents.process.usage_files import UsageFiles
from windlass.model import ErrorClass, Usage
from windlass.private_files import replace_file
from windlass.text import plain

IDLE_REPORTS = 100
"""After this many usage reports in a row without a new tool call or text, the agent is in a useless loop."""
PATIENCE_S = 20.0
"""How long a CLI may retry a failing server. Windlass does longer waits itself, so that a person sees them."""
LAST_CHANCE_S = 5.0
"""How long a dispatch over the run's limit may take to end, if it sends no more requests."""
MOST_TEXT = 4 << 20
"""How many characters of an agent's text are kept; the last ones count."""
CONTINUED = "continued.json"
"""In the folder of an attempt that continues a session: the sizes of the session's files at the start."""
TOKENLESS = frozenset(
    {
        ErrorClass.RATE_LIMITED,
        ErrorClass.OVERLOADED,
        ErrorClass.AUTH,
        ErrorClass.BILLING,
        ErrorClass.CONTEXT_OVERFLOW,
        ErrorClass.MISSING_BINARY,
        ErrorClass.DISK_FULL,
        ErrorClass.CRASHED,
    }
)
"""An attempt that failed with one of these before the model answered used no token."""


_to_json = json.JSONEncoder(default=asdict).encode
"""`json.dumps` with a `default` would make an encoder for each of thousands of events."""


class AgentEventLog(Struct):
    """The agent's events as JSON lines. The log has a size limit, like the agent's output."""

    file: TextIO
    most_bytes: int
    size: int = 0

    def write(self, fields: dict[str, object]) -> None:
        if self.size >= self.most_bytes:
            return
        line = _to_json(fields)
        self.size += len(line) + 1
        if self.size >= self.most_bytes:
            # The line that would pass the limit is left out, and the log notes it.
            line = _to_json({"type": "Cut", "limit_bytes": self.most_bytes})
        self.file.write(line + "\n")
        self.file.flush()


class LastTexts(Struct):
    """The last MOST_TEXT characters of the agent's text."""

    parts: deque[str] = field(default_factory=deque)
    size: int = 0

    def add(self, text: str) -> None:
        self.parts.append(text[-MOST_TEXT:])
        self.size += len(self.parts[-1]) + 1
        while self.size > MOST_TEXT and len(self.parts) > 1:
            self.size -= len(self.parts.popleft()) + 1

    def __str__(self) -> str:
        return "\n".join(self.parts)


class AgentRun(Struct, eq=False, dict=True):
    """Adds up the events of one agent, and stops it at a limit."""

    adapter: Adapter
    job: Job
    on_event: Callable[[AgentEvent], None]
    clock: Callable[[], float]
    log: AgentEventLog
    halt: asyncio.Event
    patience_s: float = PATIENCE_S
    afford: Callable[[Usage], str] = lambda usage: ""
    live: bool = True
    """False: the lines are read again after the dispatch ended, to compute its cost."""
    usage: Usage = Usage()
    dearest_usd: float = 0.0
    """The cost of the most expensive usage report."""
    heard: bool = False
    """The model answered: with text, a tool call or tokens."""
    open_tools: int = 0
    done: Done | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    texts: LastTexts = field(default_factory=LastTexts)
    session: str = ""
    tools: int = 0
    idle: int = 0
    """Usage reports since its last new tool call or text."""
    last: AgentEvent | None = None
    broken: tuple[ErrorClass, str] | None = None
    """The limit that stopped it. Later lines count only for their usage."""
    trouble: Retrying | None = None
    """The last failure of the model's server, until another event comes."""
    patience: asyncio.TimerHandle | None = None
    checked_usage: Usage = Usage()
    """The usage that `afford` was last called with."""
    over: str = ""
    """Why it may not use more."""
    last_chance: asyncio.TimerHandle | None = None
    pausing: bool = False
    """It was stopped in a pause between two requests, which it had announced."""
    retry_at: float | None = None
    """When the server can be asked again, as the CLI reported it last."""

    @cached_property
    def reader(self) -> Reader:
        return self.adapter.reader(self.job) if isinstance(self.adapter, HasReader) else self.adapter

    def line(self, text: str) -> None:
        self._take_all(lambda: self.reader.parse(text))

    def error_line(self, text: str) -> None:
        assert isinstance(self.reader, ReadsErrors)
        reader = self.reader
        self._take_all(lambda: reader.parse_error(text))

    def ledger(self) -> Callable[[], bool] | None:
        """Reads the usage files that the CLI writes from now on; None when it writes none."""
        if not isinstance(self.reader, WritesUsageFiles):
            return None
        reader = self.reader
        before = _session_sizes(self.job.folder) if not self.live else None
        files = UsageFiles(
            self.job.folder, reader.ledger(), lambda text: self._take_all(lambda: reader.parse_ledger(text)), before
        )
        if self.live and self.job.session:
            # A recount after a crash must know what earlier attempts wrote.
            replace_file(self.job.folder / CONTINUED, json.dumps(files.sizes))
        return files.pull

    def _take_all(self, read: Callable[[], list[AgentEvent]]) -> None:
        for event in read():
            if not self.broken:
                self._take(event)
            elif isinstance(event, Spent):
                # A CLI may report a response after it was stopped. It costs money too.
                self._spend(event)
        if not self.broken:
            self._check_limits()

    def _take(self, event: AgentEvent) -> None:
        # Thousands of events may come in a second: nothing that is only read is copied.
        self.log.write({"at": self.clock(), "type": type(event).__name__, **asdict(event)})
        match event:
            case ToolStarted():
                self.tools += 1
                self.open_tools += 1
                self.heard = True
                self._note_progress(replace(event, id=""))
            case Spent():
                event = self._spend(event)
                self.idle += 1
            case SessionSeen():
                self.session = event.id
            case Retrying():
                self._wait_for_server(event)
            case Done():
                self.end_wait()
                self.done = event
                self.finished.set()
            case Said():
                self.heard = True
                self.texts.add(event.text)
                self._note_progress(event)
            case ToolFinished():
                self.open_tools = max(self.open_tools - 1, 0)
                self.end_wait()
            case ToolUpdated():
                self.end_wait()
            case _:
                assert_never(event)
        self.on_event(event)

    def _spend(self, event: Spent) -> Spent:
        before, new = self.usage, event.usage
        known = [cost for cost in (before.cost_usd, new.cost_usd) if cost is not None]
        if event.total:
            now = replace(new, cost_usd=known[-1] if known else None)
        else:
            tokens = (before.input + new.input, before.output + new.output, before.cached + new.cached)
            now = Usage(*tokens, sum(known) if known else None)
        if self.adapter.flat_usd is not None:
            now = replace(now, cost_usd=self.adapter.flat_usd, priced=False)
        self.heard = self.heard or bool(now.input or now.output)
        self.usage = now
        self.dearest_usd = max(self.dearest_usd, (now.cost_usd or 0.0) - (before.cost_usd or 0.0))
        return Spent(now, total=True)

    def _note_progress(self, event: AgentEvent) -> None:
        self.end_wait()
        self.idle = self.idle if event == self.last else 0
        self.last = event

    def _wait_for_server(self, trouble: Retrying) -> None:
        """Let the CLI retry for a while. A longer announced wait ends the dispatch: the login waits instead, where a
        person sees it."""
        self.trouble = trouble
        if self.done or not self.live:
            return
        if trouble.wait_s is not None and trouble.told:
            self.retry_at = self.clock() + trouble.wait_s
        if trouble.wait_s is not None and trouble.wait_s > self.patience_s:
            self.pausing = not self.broken
            self.stop(trouble.error, trouble.reason)
        elif self.patience is None:
            self.patience = asyncio.get_running_loop().call_later(self.patience_s, self._give_up)

    def _give_up(self) -> None:
        assert self.trouble is not None
        self.stop(self.trouble.error, self.trouble.reason)

    def end_wait(self) -> None:
        if self.patience:
            self.patience.cancel()
        self.patience = None

    def stop(self, error: ErrorClass, reason: str) -> None:
        """Stop the agent with this error, unless it has ended or was stopped before."""
        if not self.done and not self.broken:
            self.broken = (error, reason)
            self.halt.set()

    def _check_limits(self) -> None:
        # A result that comes together with the limit is complete and paid: it counts.
        limits, cost = self.job.limits, self.usage.cost_usd
        if self.done or not self.live:
            return
        if limits.usd is not None and cost is not None and cost > limits.usd:
            reason = f"it spent ${cost:.2f}, more than the limit of ${limits.usd:.2f} for one dispatch of its role"
            self.stop(ErrorClass.OVER_BUDGET, reason)
        elif reason := self._over_budget():
            self.stop(ErrorClass.OVER_BUDGET, reason)
        elif limits.turns is not None and self.tools > limits.turns:
            self.stop(ErrorClass.TIMED_OUT, f"more than {limits.turns} turns")
        elif self.idle > IDLE_REPORTS:
            self.stop(ErrorClass.TIMED_OUT, f"{self.idle} requests in a row without a new tool call or text")

    def _over_budget(self) -> str:
        """Why it has to stop now. Its last response is paid: an agent without a running tool may finish."""
        reason = self.afford(self.usage) if self.usage != self.checked_usage else ""
        again, self.checked_usage = bool(self.over), self.usage
        self.over = self.over or reason
        if not self.over or self.open_tools or (again and reason):
            return self.over
        if self.last_chance is None:
            loop = asyncio.get_running_loop()
            self.last_chance = loop.call_later(LAST_CHANCE_S, self.stop, ErrorClass.OVER_BUDGET, self.over)
        return ""

    def result(self, ended: ProcessExit, errors: str) -> AgentResult:
        stderr = self.reader.without_log(errors) if isinstance(self.reader, ReadsErrors) else errors
        if self.done is None and ended.reason == "exited" and isinstance(self.reader, EndsWithExit):
            self.done = self.reader.at_exit(str(self.texts), ended.code)
        error, reason = _error(self, ended, stderr)
        done = self.done or Done("")
        usage, unsure, unknown_responses = _final_usage(self, error, reason)
        return AgentResult(
            # A failed agent has no answer: a person gets its last text.
            text=done.text or (str(self.texts) if error else ""),
            structured=done.structured,
            usage=usage,
            session=self.session,
            error=error,
            reason=reason,
            retry_at=_retry_at(self, error, reason, stderr),
            code=ended.code,
            seconds=ended.seconds,
            tools=self.tools,
            unsure=unsure,
            unknown_responses=unknown_responses,
            dearest_usd=self.dearest_usd,
        )


def _final_usage(run: AgentRun, error: ErrorClass | None, reason: str) -> tuple[Usage, Unsure, int]:
    """The cost, its unknown part, and the number of unknown responses. An unknown cost is never 0; an attempt without
    a token never has an unknown cost."""
    if run.adapter.flat_usd is not None:
        return replace(run.usage, cost_usd=run.adapter.flat_usd, priced=False), Unsure.NOTHING, 0
    heard = run.heard or bool(getattr(run.reader, "heard", False)) or bool(run.done and run.done.text)
    cut = error is not None and was_cut(reason) and not getattr(run.reader, "unanswered", False)
    if not heard and error in TOKENLESS and not cut:
        return replace(run.usage, cost_usd=0.0), Unsure.NOTHING, 0
    if run.usage.cost_usd is None or (not heard and not run.usage.cost_usd):
        return replace(run.usage, cost_usd=None), Unsure.ALL, 0
    # An agent that ended on its own has reported all but the responses that broke off. One that was ended while no
    # tool ran may have waited for a response. Some readers know whether a request was sent, or a response not yet
    # reported.
    knows = getattr(run.reader, "asking", None)
    asking = run.done is None and error is not None and (not run.open_tools if knows is None else knows)
    responses = int(getattr(run.reader, "broken_responses", 0)) + bool(cut or (asking and not run.pausing))
    return run.usage, Unsure.RESPONSE if responses else Unsure.NOTHING, responses


def _retry_at(run: AgentRun, error: ErrorClass | None, reason: str, stderr: str) -> float | None:
    """The CLI reports a time, or a text from which a clock computes one."""
    if run.done and run.done.retry_at is not None:
        return run.done.retry_at
    if error not in WAITS:
        return None
    if run.retry_at is not None and run.retry_at > run.clock():
        return run.retry_at
    return reset_time(reason if run.done else f"{reason}\n{stderr}", run.clock())


def _error(run: AgentRun, ended: ProcessExit, stderr: str) -> tuple[ErrorClass | None, str]:
    if run.broken:
        return run.broken
    if run.done:
        return run.done.error, run.done.reason
    match ended.reason:
        case "wall":
            return ErrorClass.TIMED_OUT, f"no end within {run.job.limits.wall_s:g} s"
        case "stopped":
            return ErrorClass.KILLED, "stopped"
        case "output":
            return ErrorClass.TOO_MUCH_OUTPUT, output_limit_reason(run.job.limits.output_bytes)
        case "full":
            return ErrorClass.DISK_FULL, ended.error
        case "driver-died" | "lost":
            return ErrorClass.DRIVER_LOST, ended.error or "the driver stopped it"
        case "missing":
            return ErrorClass.MISSING_BINARY, plain(ended.error)
        case _:
            return run.adapter.classify(stderr, ended.code)


def output_limit_reason(most_bytes: int) -> str:
    return f"it wrote more than {most_bytes / 2**20:g} MB (limits.output_mb)"


def recount(adapter: Adapter, job: Job, clock: Callable[[], float]) -> AgentResult:
    """The result of an attempt with an end that no driver saw, from its files."""
    stream = AgentRun(
        adapter, job, lambda event: None, clock, AgentEventLog(io.StringIO(), 0), asyncio.Event(), live=False
    )
    _read_again(job.folder / "stdout", stream.line)
    if isinstance(stream.reader, ReadsErrors):
        _read_again(job.folder / "stderr", stream.error_line)
    pull = stream.ledger()
    while pull and pull():
        pass
    return stream.result(ProcessExit(None, None, "lost", 0.0), "")


def _read_again(path: Path, on_line: Callable[[str], None]) -> None:
    lines = Lines(on_line)
    with suppress(OSError), path.open("rb") as file:
        while lines.read(file.read(CHUNK)):
            pass


def _session_sizes(folder: Path) -> dict[str, int]:
    try:
        sizes = json.loads((folder / CONTINUED).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): size for name, size in sizes.items() if isinstance(size, int)} if isinstance(sizes, dict) else {}
