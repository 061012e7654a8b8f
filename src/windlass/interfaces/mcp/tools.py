"""The actions of the tools. A separate process drives each run; a call waits for it at most `wait_s` seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct, field

from windlass.answers import comment_wanted, validate
from windlass.errors import UserError
from windlass.interfaces.mcp import texts
from windlass.model import Question, RunState, question_of
from windlass.runs.app import App
from windlass.runs.service import Service
from windlass.runs.start import Start

LONGEST_INPUT = 100_000
POLL_S = 0.1
NOTHING = "No run is active here. Start one: call `workflow` with what to build.\n"


class ToolPatience(Struct, frozen=True):
    """How long a call may wait for a run to stop or to ask."""

    seconds: float
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    since: float = field(default_factory=time.monotonic)

    def pause(self) -> bool:
        """Sleep for a moment. False: the time is over."""
        left = self.seconds - (self.now() - self.since)
        if left > 0:
            self.sleep(min(left, POLL_S))
        return left > 0


class DriverProcess(Struct, frozen=True):
    pid: int
    before: int
    """The run's epoch before this driver. A driver that took over the run has increased it."""


class McpTools(Struct, frozen=True):
    """One call of a tool, in one repository."""

    app: App
    by: str
    patience: ToolPatience
    drivers: dict[str, DriverProcess] = field(default_factory=dict)
    """The last driver that this server started for each run. It may not have taken over the run yet."""

    @property
    def service(self) -> Service:
        return self.app.service

    # -- the one tool with one text

    def workflow(self, input: str) -> str:
        """S0-05, S0-06, C-42: an option of the open question, a word of control, another answer, else a request."""
        text = bounded(input)
        if text == "status":
            return self._active_status()
        if self.service.active() is None:
            return NOTHING if text in ("", "abort") else self.start(Start(text, detached=True))
        active = self.service.run_to_change()
        if text == "abort" and not self._offers(active.id, text):
            return self.abort(active.id)
        if not text:
            return self.resume(active.id)
        if self.service.questions.pending(active.id):
            return self.answer(active.id, "", text)
        raise _active_run(active.id, active.state, active.request)

    def _offers(self, run: str, text: str) -> bool:
        """Whether an open question has such an option. Then the word is an answer."""
        asked = (question_of(row.data) for row in self.service.questions.pending(run))
        return any(question.options and not isinstance(validate(question, text, "-"), str) for question in asked)

    def _active_status(self) -> str:
        if self.service.active():
            return self.status("")
        newest = f"The newest run:\n\n{self.status('')}" if self.service.has_runs else ""
        return NOTHING + newest

    # -- one tool for each action

    def start(self, start: Start, *, beside: bool = False) -> str:
        request = bounded(start.request)
        if not request:
            raise UserError("the request is empty", hint="describe what to build")
        active = self.service.active()
        if active and not beside:
            raise _active_run(active.id, active.state, active.request)
        run = self.app.start(start)
        return self._drive(run)

    def resume(self, run: str) -> str:
        row = self.service.run_to_change(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="the tool show lists what it did")
        if self.service.questions.pending(row.id) or self.service.is_driven(row.id):
            return self._follow(row.id)
        return self._drive(row.id)

    def answer(self, run: str, question: str, value: str, comment: str = "") -> str:
        row = self.service.run(run) if run else self.service.run_to_answer()
        value, comment = self._with_comment(row.id, question, bounded(value), bounded(comment))
        asked, given = self.service.questions.answer(row.id, question, value, comment, self.by)
        text = f"{asked.id}: {given.value}\n"
        return text + (self._follow(row.id) if self.service.is_driven(row.id) else self._drive(row.id))

    def pause(self, run: str) -> str:
        row = self.service.run_to_change(run)
        self._wait(lambda: not self._is_starting(row.id))
        text = self.service.controls.pause(row.id)
        return f"{text}\n\n{self._follow(row.id)}"

    def abort(self, run: str) -> str:
        row = self.service.run_to_change(run)
        self._wait(lambda: not self._is_starting(row.id))
        text = self.service.controls.abort(row.id)
        self._wait(lambda: not self.service.is_driven(row.id))
        if not self.service.is_driven(row.id) and not self.service.run(row.id).state.final:
            # The driver died before it read the request.
            text = self.service.controls.abort(row.id)
        elif self.service.run(row.id).state is RunState.ABORTED:
            text = f"run {row.id} is aborted"
        return f"{text}\n\n{self._status_text(row.id)}"

    def status(self, run: str) -> str:
        return self._follow(self.service.run(run).id) if self.service.has_runs else NOTHING

    def show(self, run: str) -> str:
        row = self.service.run(run)
        view = self.service.view(row.id)
        text = texts.full_text(view, self.app.host.clock(), driven=self.service.is_driven(row.id))
        return text + texts.report_text(view, self.service.events(row.id))

    # -- inside

    def _with_comment(self, run: str, key: str, value: str, comment: str) -> tuple[str, str]:
        """'revise: split task 2' is the option 'revise' with a comment, where that option takes one."""
        found = [row for row in self.service.questions.pending(run) if not key or key in (row.key, row.id)]
        if comment or len(found) != 1:
            return value, comment
        return split(question_of(found[0].data), value)

    def _drive(self, run: str) -> str:
        before = self.service.run(run).epoch
        self.drivers[run] = DriverProcess(self.app.detach(run), before)
        return self._follow(run)

    def _follow(self, run: str) -> str:
        self._wait(lambda: self._is_idle(run))
        if not self._has_started(run):
            return self._start_failure(run)
        if self._missed_answer(run):
            return self._drive(run)
        return self._status_text(run)

    def _wait(self, holds: Callable[[], bool]) -> None:
        while not holds() and self.patience.pause():
            pass

    def _is_idle(self, run: str) -> bool:
        if self.service.questions.pending(run) or self.service.run(run).state.final:
            return True
        return not self._is_starting(run) and not self.service.is_driven(run)

    def _is_starting(self, run: str) -> bool:
        return not self._has_started(run) and _alive(self.drivers[run].pid)

    def _has_started(self, run: str) -> bool:
        return run not in self.drivers or self.service.run(run).epoch > self.drivers[run].before

    def _missed_answer(self, run: str) -> bool:
        """Whether an answer arrived while the driver was ending, so that no driver has read it."""
        waits = self.service.run(run).state is RunState.WAITING
        return waits and not self.service.questions.pending(run) and not self.service.is_driven(run)

    def _start_failure(self, run: str) -> str:
        if self._is_starting(run):
            return texts.background_text(run, self.drivers[run].pid)
        log = self.app.host.place.run_folder(run) / "driver.log"
        return self._status_text(run) + texts.start_failure_text(run, log.read_text(encoding="utf-8", errors="replace"))

    def _status_text(self, run: str) -> str:
        view = self.service.view(run)
        text = texts.status_text(view, self.app.host.clock(), driven=self.service.is_driven(run))
        open_ones = [] if view.state.final else self.service.questions.pending(run)
        asked = (texts.question_text(row.key, question_of(row.data)) for row in open_ones)
        return text + "".join(asked) + texts.report_text(view, self.service.events(run))


def bounded(text: str) -> str:
    """Trim the text, and replace lone surrogates: JSON can carry them, the database cannot."""
    if len(text) > LONGEST_INPUT:
        raise UserError(
            f"the input has {len(text)} characters; the limit is {LONGEST_INPUT}",
            hint="put the text into a file of the repository and name that file",
        )
    return text.strip().encode("utf-8", "replace").decode()


def split(question: Question, text: str) -> tuple[str, str]:
    if not isinstance(validate(question, text, "a comment"), str):
        return text, ""
    for mark in (":", "\n"):
        head, found, tail = text.partition(mark)
        checked = validate(question, head, tail)
        if found and tail.strip() and not isinstance(checked, str) and comment_wanted(question, checked.value):
            return head, tail.strip()
    return text, ""


def _active_run(run: str, state: RunState, request: str) -> UserError:
    return UserError(
        f"run {run} is {state}: {request[:60]}",
        hint="`workflow` with an empty input continues it, with 'abort' ends it; "
        "the tool start with beside=true starts a second run",
    )


def _alive(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
