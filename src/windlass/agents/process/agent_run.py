"""What the lines of an agent add up to: its events, its usage, its result, and when a limit ends it."""

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
from windlass.agents.process.supervise import CHUNK, Lines, ProcessExit
from windlass.agents.process.usage_files import UsageFiles
from windlass.model import ErrorClass, Usage
from windlass.private_files import write_private
from windlass.text import plain

IDLE_REPORTS = 100
"""So many usage reports in a row without a new tool or word, and it is a loop that only costs."""
PATIENCE_S = 20.0
"""So long a CLI may ask a failing server again and again: the waits are ours, so that they are seen."""
LAST_CHANCE_S = 5.0
"""So long a dispatch that passed the run's limit may take to end by itself, if it asks for nothing more."""
MOST_SAID = 4 << 20
"""Characters of an agent's words that are held; what it said last counts."""
CONTINUED = "continued.json"
"""In the attempt's folder, where an earlier session goes on: what its files held at the start."""
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
"""Who failed so, and had heard nothing of the model, got no token."""


class AgentRun(Struct, eq=False, dict=True):
    """What the agent's lines add up to."""

    adapter: Adapter
    job: Job
    on_event: Callable[[AgentEvent], None]
    clock: Callable[[], float]
    log: TextIO
    halt: asyncio.Event
    patience_s: float = PATIENCE_S
    afford: Callable[[Usage], str] = lambda usage: ""
    live: bool = True
    """False: the lines are read again after the dispatch ended, to see what it cost."""
    usage: Usage = Usage()
    dearest_usd: float = 0.0
    """Of single usage reports."""
    heard: bool = False
    """Anything of the model: words, a tool, tokens."""
    open_tools: int = 0
    done: Done | None = None
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    said: deque[str] = field(default_factory=deque)
    """Its last words, up to MOST_SAID characters."""
    said_size: int = 0
    logged: int = 0
    """Characters written to the log, which is bounded as the agent's own output is."""
    session: str = ""
    tools: int = 0
    idle: int = 0
    """Usage reports since it last did or said something that it had not just done or said."""
    last: AgentEvent | None = None
    broken: tuple[ErrorClass, str] | None = None
    """The limit that ended it; of later lines only what it spent counts."""
    trouble: Retrying | None = None
    """The last failure of the model's server, while nothing else was heard."""
    patience: asyncio.TimerHandle | None = None
    asked_about: Usage = Usage()
    """The usage that could be afforded, or not, when it was last asked."""
    over: str = ""
    """Why it may not use more."""
    last_chance: asyncio.TimerHandle | None = None
    retry_at: float | None = None
    """When the server said that it can be asked again, as the CLI announced it last."""

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
        """What the CLI writes down besides, from now on."""
        if not isinstance(self.reader, WritesUsageFiles):
            return None
        reader = self.reader
        before = _continued(self.job.folder) if not self.live else None
        told = UsageFiles(
            self.job.folder, reader.ledger(), lambda text: self._take_all(lambda: reader.parse_ledger(text)), before
        )
        if self.live and self.job.session:
            # whoever counts after a crash must know what is of the attempts before
            write_private(self.job.folder / CONTINUED, json.dumps(told.sizes))
        return told.pull

    def _take_all(self, read: Callable[[], list[AgentEvent]]) -> None:
        for event in read():
            if not self.broken:
                self._take(event)
            elif isinstance(event, Spent):
                # A CLI may tell of a response later than it was stopped: it is paid for.
                self._spend(event)
        if not self.broken:
            self._check_limits()

    def _take(self, event: AgentEvent) -> None:
        # thousands in a second may come: nothing is copied that is only read
        self._log({"at": self.clock(), "type": type(event).__name__, **asdict(event)})
        match event:
            case ToolStarted():
                self.tools += 1
                self.open_tools += 1
                self.heard = True
                self._moved(replace(event, id=""))
            case Spent():
                event = self._spend(event)
                self.idle += 1
            case SessionSeen():
                self.session = event.id
            case Retrying():
                self._bear(event)
            case Done():
                self.relieved()
                self.done = event
                self.finished.set()
            case Said():
                self.heard = True
                self._remember(event.text)
                self._moved(event)
            case ToolFinished():
                self.open_tools = max(self.open_tools - 1, 0)
                self.relieved()
            case ToolUpdated():
                self.relieved()
            case _:
                assert_never(event)
        self.on_event(event)

    def _spend(self, event: Spent) -> Spent:
        before, now = self.usage.cost_usd or 0.0, _joined(self.usage, event)
        if self.adapter.flat_usd is not None:
            now = replace(now, cost_usd=self.adapter.flat_usd, priced=False)
        self.heard = self.heard or bool(now.input or now.output)
        self.usage = now
        self.dearest_usd = max(self.dearest_usd, (now.cost_usd or 0.0) - before)
        return Spent(now, total=True)

    def _log(self, fields: dict[str, object]) -> None:
        most = self.job.limits.output_bytes
        if self.logged >= most:
            return
        line = json.dumps(fields, default=asdict)
        self.logged += len(line) + 1
        # The line that would pass the limit is left out, and the log says so.
        self.log.write((line if self.logged < most else json.dumps({"type": "Cut", "limit_bytes": most})) + "\n")
        self.log.flush()

    def _remember(self, text: str) -> None:
        self.said.append(text[-MOST_SAID:])
        self.said_size += len(self.said[-1]) + 1
        while self.said_size > MOST_SAID and len(self.said) > 1:
            self.said_size -= len(self.said.popleft()) + 1

    def _moved(self, event: AgentEvent) -> None:
        self.relieved()
        self.idle = self.idle if event == self.last else 0
        self.last = event

    def _bear(self, trouble: Retrying) -> None:
        """A wait that is announced to be too long is not begun: it becomes the login's, for all to see."""
        self.trouble = trouble
        if self.done or not self.live:
            return
        if trouble.wait_s is not None and trouble.told:
            self.retry_at = self.clock() + trouble.wait_s
        if trouble.wait_s is not None and trouble.wait_s > self.patience_s:
            self._give_up()
        elif self.patience is None:
            self.patience = asyncio.get_running_loop().call_later(self.patience_s, self._give_up)

    def relieved(self) -> None:
        if self.patience:
            self.patience.cancel()
        self.patience = None

    def freeze(self, reason: str) -> None:
        """Somebody who watches it found no sign of life."""
        if not self.done and not self.broken:
            self.broken = (ErrorClass.TIMED_OUT, reason)
            self.halt.set()

    def _give_up(self) -> None:
        assert self.trouble is not None
        self.broken = (self.trouble.error, self.trouble.reason)
        self.halt.set()

    def _check_limits(self) -> None:
        # What arrived together with its terminal event is paid for and complete: the result stands.
        limits, cost = self.job.limits, self.usage.cost_usd
        if self.done or not self.live:
            return
        if limits.usd is not None and cost is not None and cost > limits.usd:
            reason = f"it spent ${cost:.2f}, more than the ${limits.usd:.2f} that one dispatch of its role may"
            self.broken = (ErrorClass.OVER_BUDGET, reason)
        elif beyond := self._beyond():
            self.broken = (ErrorClass.OVER_BUDGET, beyond)
        elif limits.turns is not None and self.tools > limits.turns:
            self.broken = (ErrorClass.TIMED_OUT, f"more than {limits.turns} turns")
        elif self.idle > IDLE_REPORTS:
            self.broken = (ErrorClass.TIMED_OUT, f"{self.idle} requests in a row without anything new done or said")
        if self.broken:
            self.halt.set()

    def _beyond(self) -> str:
        """Why it has to stop now. Its last response is paid for: whoever has no tool at work may come to its end."""
        reason = self.afford(self.usage) if self.usage != self.asked_about else ""
        again, self.asked_about = bool(self.over), self.usage
        self.over = self.over or reason
        if not self.over or self.open_tools or (again and reason):
            return self.over
        if self.last_chance is None:
            self.last_chance = asyncio.get_running_loop().call_later(LAST_CHANCE_S, self._stop_over)
        return ""

    def _stop_over(self) -> None:
        if not self.done:
            self.broken = (ErrorClass.OVER_BUDGET, self.over)
            self.halt.set()

    def result(self, ended: ProcessExit, errors: str) -> AgentResult:
        stderr = self.reader.without_log(errors) if isinstance(self.reader, ReadsErrors) else errors
        if self.done is None and ended.reason == "exited" and isinstance(self.reader, EndsWithExit):
            self.done = self.reader.at_exit("\n".join(self.said), ended.code)
        error, reason = self._error(ended, stderr)
        done = self.done or Done("")
        usage, unsure = self._settled(error, reason)
        return AgentResult(
            # Who failed said no last word: what it said before is what a person can go by.
            text=done.text or ("\n".join(self.said) if error else ""),
            structured=done.structured,
            usage=usage,
            session=self.session,
            error=error,
            reason=reason,
            retry_at=self._retry_at(error, reason, stderr),
            code=ended.code,
            seconds=ended.seconds,
            tools=self.tools,
            unsure=unsure,
            dearest_usd=self.dearest_usd,
        )

    def _settled(self, error: ErrorClass | None, reason: str) -> tuple[Usage, Unsure]:
        """What it cost, and what of that is not known. Unknown is never 0, and what got no token is never unknown."""
        if self.adapter.flat_usd is not None:
            return replace(self.usage, cost_usd=self.adapter.flat_usd, priced=False), Unsure.NOTHING
        heard = self.heard or bool(getattr(self.reader, "heard", False)) or bool(self.done and self.done.text)
        cut = error is not None and was_cut(reason) and not getattr(self.reader, "unanswered", False)
        if not heard and error in TOKENLESS and not cut:
            return replace(self.usage, cost_usd=0.0), Unsure.NOTHING
        if self.usage.cost_usd is None or (not heard and not self.usage.cost_usd):
            return replace(self.usage, cost_usd=None), Unsure.ALL
        # Whoever came to its own end has told it all; whoever was ended while no tool was at work may have been asking.
        # what a reader knows of it: that a request was sent, or that a response is not told yet
        knows = getattr(self.reader, "asking", None)
        asking = self.done is None and error is not None and (not self.open_tools if knows is None else knows)
        return self.usage, Unsure.RESPONSE if cut or asking else Unsure.NOTHING

    def _retry_at(self, error: ErrorClass | None, reason: str, stderr: str) -> float | None:
        """Told by the CLI as a time, or in words that only a clock turns into one."""
        if self.done and self.done.retry_at is not None:
            return self.done.retry_at
        if error not in WAITS:
            return None
        if self.retry_at is not None and self.retry_at > self.clock():
            return self.retry_at
        return reset_time(reason if self.done else f"{reason}\n{stderr}", self.clock())

    def _error(self, ended: ProcessExit, stderr: str) -> tuple[ErrorClass | None, str]:
        if self.broken:
            return self.broken
        if self.done:
            return self.done.error, self.done.reason
        match ended.reason:
            case "wall":
                return ErrorClass.TIMED_OUT, f"no end within {self.job.limits.wall_s:g} s"
            case "stopped":
                return ErrorClass.KILLED, "stopped"
            case "output":
                return ErrorClass.TOO_MUCH_OUTPUT, too_much(self.job.limits.output_bytes)
            case "full":
                return ErrorClass.DISK_FULL, ended.error
            case "driver-died" | "lost":
                return ErrorClass.DRIVER_LOST, ended.error or "the driver let go of it"
            case "missing":
                return ErrorClass.MISSING_BINARY, plain(ended.error)
            case _:
                return self.adapter.classify(stderr, ended.code)


def too_much(most_bytes: int) -> str:
    return f"it wrote more than {most_bytes / 2**20:g} MB (limits.output_mb)"


def _joined(before: Usage, event: Spent) -> Usage:
    new = event.usage
    if event.total:
        return replace(new, cost_usd=before.cost_usd if new.cost_usd is None else new.cost_usd)
    known = [cost for cost in (before.cost_usd, new.cost_usd) if cost is not None]
    return Usage(
        before.input + new.input, before.output + new.output, before.cached + new.cached, sum(known) if known else None
    )


def recount(adapter: Adapter, job: Job, clock: Callable[[], float]) -> AgentResult:
    """What an attempt that nobody saw to its end left in its files, read again from their beginning."""
    stream = AgentRun(adapter, job, lambda event: None, clock, io.StringIO(), asyncio.Event(), live=False)
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


def _continued(folder: Path) -> dict[str, int]:
    try:
        sizes = json.loads((folder / CONTINUED).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): size for name, size in sizes.items() if isinstance(size, int)} if isinstance(sizes, dict) else {}
