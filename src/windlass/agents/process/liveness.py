"""Decides whether an agent is at work, from its events, processor time, changed files and running tools.

It warns after some time without an event. After a longer time without any evidence, the dispatch is frozen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from windlass.agents.base import AgentEvent, ToolFinished, ToolStarted

QUIET_S = 90.0
FROZEN_S = 300.0
ERRORS_IN_A_ROW = 3
CRITICAL_TOOLS = frozenset({"bash", "write", "edit"})
BUSY_SHARE = 0.1
"""Share of a processor. CLIs use up to 0.06 while they wait for a model."""
MOST_ENTRIES = 20_000
"""How many files a search for changes visits: a slot may contain a whole package tree."""


class Sample(Struct, frozen=True):
    """The state of the process tree and the files at one moment."""

    cpu_s: float
    children: int
    """Processes below the agent that are not stopped: a long test run is work."""
    touched: int = 0
    """The newest change of a file, in nanoseconds. Only compared with the sample before."""


class Liveness(Struct):
    """`now` always comes from the monotonic clock, which cannot be set back."""

    now: float
    quiet_s: float = QUIET_S
    frozen_s: float = FROZEN_S
    _heard: float = 0.0
    _alive: float = 0.0
    _sampled: float = 0.0
    _warned: set[str] = field(default_factory=set)
    _errors: int = 0
    _tools: int = 0
    """Tools that run now, according to the events."""
    _last: Sample | None = None

    def __post_init__(self) -> None:
        self._heard = self._alive = self._sampled = self.now

    def event(self, event: AgentEvent, now: float) -> str:
        """A warning, or ''. Every event is a sign of life; several errors of critical tools in a row give an early
        warning."""
        self._heard = self._alive = now
        self._warned.discard("quiet")
        self._warned.discard("stuck")
        if isinstance(event, ToolStarted):
            self._tools += 1
        if isinstance(event, ToolFinished):
            self._tools = max(0, self._tools - 1)
        if isinstance(event, ToolFinished) and event.tool in CRITICAL_TOOLS:
            self._errors = 0 if event.ok else self._errors + 1
        if self._errors >= ERRORS_IN_A_ROW and "errors" not in self._warned:
            self._warned.add("errors")
            return f"{self._errors} tool errors in a row"
        return ""

    def is_quiet(self, now: float) -> bool:
        """Whether there was no event for so long that a search of the files is worthwhile."""
        return now - self._heard >= min(self.quiet_s, self.frozen_s) / 2

    def tick(self, now: float, sample: Sample | None) -> str:
        """A warning after a long time without an event: quiet, or stuck when nothing else changes either."""
        last, moved = self._last, True
        if sample is not None and last is not None:
            busy = sample.cpu_s - last.cpu_s > BUSY_SHARE * (now - self._sampled)
            touched = sample.touched > last.touched > 0
            moved = busy or touched or (self._tools > 0 and sample.children > 0)
        self._alive = now if moved else self._alive
        self._last, self._sampled = sample, now
        quiet = now - self._heard
        if quiet < self.quiet_s:
            return ""
        if moved:
            return self._once("quiet", f"no event for {quiet:.0f} s; the agent may be stuck")
        return self._once("stuck", f"no event for {quiet:.0f} s, no processor time, no child at work: it seems stuck")

    def frozen(self, now: float) -> str:
        """Why it counts as frozen; '' while there is a sign of life."""
        still = now - self._alive
        if still < self.frozen_s:
            return ""
        return f"frozen: no event, no processor time and no file touched for {still:.0f} s (limits.frozen)"

    def _once(self, kind: str, text: str) -> str:
        if kind in self._warned:
            return ""
        self._warned.add(kind)
        return text


def sample(supervisor: int, folders: Sequence[Path] = ()) -> Sample | None:
    """The tree below a supervisor, and the newest file below these folders; None when the supervisor is gone."""
    import psutil

    try:
        tree = psutil.Process(supervisor).children(recursive=True)
        cpu = sum(sum(process.cpu_times()[:2]) for process in tree)
        going = sum(process.status() != psutil.STATUS_STOPPED for process in tree)
    except psutil.Error:
        return None
    return Sample(cpu, max(0, going - 1), max((newest(folder) for folder in folders), default=0))


def newest(folder: Path) -> int:
    """The last change of a file below, in nanoseconds; visits only a part of a large tree."""
    found, left = 0, MOST_ENTRIES
    for entry in _files(str(folder)):
        left -= 1
        if left < 0:
            break
        with suppress(OSError):
            found = max(found, entry.stat(follow_symlinks=False).st_mtime_ns)
    return found


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    yield from entries
    for entry in entries:
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
