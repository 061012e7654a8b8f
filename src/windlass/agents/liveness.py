"""Is an agent at work? Judged from evidence: events, processor time, children. It warns; it does not kill."""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.agents.base import AgentEvent, ToolFinished

QUIET_S = 90.0
ERRORS_IN_A_ROW = 3
CRITICAL_TOOLS = frozenset({"bash", "write", "edit"})


@dataclass(frozen=True)
class Sample:
    """What the process tree shows at one moment."""

    cpu_s: float
    children: int
    """Processes below the agent itself: a test run that takes its time is work."""


@dataclass
class Liveness:
    now: float
    quiet_s: float = QUIET_S
    _heard: float = field(init=False)
    _warned: set[str] = field(default_factory=set)
    _errors: int = 0
    _last: Sample | None = None

    def __post_init__(self) -> None:
        self._heard = self.now

    def event(self, event: AgentEvent, now: float) -> str:
        """A warning, or ''. Every event is a sign of life; errors of critical tools in a row are said early."""
        self._heard = now
        self._warned.discard("quiet")
        self._warned.discard("stuck")
        if isinstance(event, ToolFinished) and event.tool in CRITICAL_TOOLS:
            self._errors = 0 if event.ok else self._errors + 1
        if self._errors >= ERRORS_IN_A_ROW and "errors" not in self._warned:
            self._warned.add("errors")
            return f"{self._errors} tool errors in a row"
        return ""

    def tick(self, now: float, sample: Sample | None) -> str:
        """A warning when nothing was heard for long: quiet, or stuck when nothing moves either."""
        quiet = now - self._heard
        moved = self._moved(sample)
        self._last = sample
        if quiet < self.quiet_s:
            return ""
        if moved:
            return self._once("quiet", f"no event for {quiet:.0f} s; the agent may be stuck")
        return self._once("stuck", f"no event for {quiet:.0f} s, no processor time, no child at work: it seems stuck")

    def _moved(self, sample: Sample | None) -> bool:
        if sample is None or self._last is None:
            return True
        return sample.cpu_s - self._last.cpu_s > 0.01 or sample.children > 0

    def _once(self, kind: str, text: str) -> str:
        if kind in self._warned:
            return ""
        self._warned.add(kind)
        return text


def sample(supervisor: int) -> Sample | None:
    """The tree below a supervisor; None when it is gone."""
    import psutil

    try:
        tree = psutil.Process(supervisor).children(recursive=True)
        cpu = sum(sum(process.cpu_times()[:2]) for process in tree)
    except psutil.Error:
        return None
    return Sample(cpu, max(0, len(tree) - 1))
