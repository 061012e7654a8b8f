"""The drivers that this server starts in the background, and the text about a run after waiting for its driver."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct, field

from windlass.interfaces.mcp import texts
from windlass.model import RunState, question_of
from windlass.runs.app import App
from windlass.runs.service import Service

POLL_S = 0.1


class ToolPatience(Struct, frozen=True):
    """How long a call may wait for a run to stop or to ask."""

    seconds: float
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    since: float = field(default_factory=time.monotonic)

    def wait(self, holds: Callable[[], bool]) -> None:
        """Return when the condition holds, or when the time is over."""
        while not holds() and (left := self.seconds - (self.now() - self.since)) > 0:
            self.sleep(min(left, POLL_S))


class DriverProcess(Struct, frozen=True):
    pid: int
    before: int
    """The run's epoch before this driver. A driver that took over the run has increased it."""


class BackgroundDrivers(Struct, frozen=True):
    app: App
    patience: ToolPatience
    started: dict[str, DriverProcess] = field(default_factory=dict)
    """The last driver that this server started for each run. It may not have taken over the run yet."""

    @property
    def service(self) -> Service:
        return self.app.service

    def drive(self, run: str) -> str:
        before = self.service.run(run).epoch
        self.started[run] = DriverProcess(self.app.detach(run), before)
        return self.follow(run)

    def follow(self, run: str) -> str:
        """Wait until the run stops or asks. The text shows its status, or why its driver did not start."""
        service = self.service

        def idle() -> bool:
            if service.questions.pending(run) or service.run(run).state.final:
                return True
            return not self._is_starting(run) and not service.is_driven(run)

        self.patience.wait(idle)
        if not self._has_started(run):
            if self._is_starting(run):
                return texts.background_text(run, self.started[run].pid)
            log = self.app.host.place.run_folder(run) / "driver.log"
            ended = texts.start_failure_text(run, log.read_text(encoding="utf-8", errors="replace"))
            return self.status_text(run) + ended
        waits = service.run(run).state is RunState.WAITING
        if waits and not service.questions.pending(run) and not service.is_driven(run):
            # The answer arrived while the driver was ending, so that no driver has read it.
            return self.drive(run)
        return self.status_text(run)

    def wait_for_start(self, run: str) -> None:
        self.patience.wait(lambda: not self._is_starting(run))

    def wait_for_end(self, run: str) -> None:
        self.patience.wait(lambda: not self.service.is_driven(run))

    def status_text(self, run: str) -> str:
        view = self.service.view(run)
        text = texts.status_text(view, self.app.host.clock(), driven=self.service.is_driven(run))
        open_ones = [] if view.state.final else self.service.questions.pending(run)
        asked = (texts.question_text(row.key, question_of(row.data)) for row in open_ones)
        return text + "".join(asked) + texts.report_text(view, self.service.events(run))

    def _is_starting(self, run: str) -> bool:
        if self._has_started(run):
            return False
        import psutil

        try:
            return psutil.Process(self.started[run].pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def _has_started(self, run: str) -> bool:
        return run not in self.started or self.service.run(run).epoch > self.started[run].before
