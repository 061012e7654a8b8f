"""What the tools do, over the waist. Runs are driven by processes of their own: a call waits as long as it was told."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec import Struct, field

from windlass.answers import comment_wanted, validate
from windlass.errors import UserError
from windlass.interfaces.mcp import texts as words
from windlass.model import Question, RunState, question_of
from windlass.runs.app import App
from windlass.runs.service import Service
from windlass.runs.start import Start

LONGEST_INPUT = 100_000
POLL_S = 0.1
NOTHING = "No run is active here. Start one: call `workflow` with what to build.\n"


class ToolPatience(Struct, frozen=True):
    """How long a call may wait for a run to rest."""

    seconds: float
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    since: float = field(default_factory=time.monotonic)

    def pause(self) -> bool:
        """Whether there was time left to wait."""
        left = self.seconds - (self.now() - self.since)
        if left > 0:
            self.sleep(min(left, POLL_S))
        return left > 0


class DriverProcess(Struct, frozen=True):
    pid: int
    before: int
    """The run's epoch before it: a driver that took the run up has counted it on."""


class McpTools(Struct, frozen=True):
    """One call's hold on the repository."""

    app: App
    by: str
    patience: ToolPatience
    drivers: dict[str, DriverProcess] = field(default_factory=dict)
    """The last driver that this server started for a run: it may not have taken the run up yet."""

    @property
    def service(self) -> Service:
        return self.app.service

    # -- the one tool with one text

    def workflow(self, input: str) -> str:
        """S0-05, S0-06, C-42: an option of the open question, a word of control, another answer, else a request."""
        text = bounded(input)
        if text == "status":
            return self._standing_of_the_active()
        if self.service.active() is None:
            return NOTHING if text in ("", "abort") else self.start(Start(text, detached=True))
        active = self.service.meant()
        if text == "abort" and not self._offers(active.id, text):
            return self.abort(active.id)
        if not text:
            return self.resume(active.id)
        if self.service.pending(active.id):
            return self.answer(active.id, "", text)
        raise _second(active.id, active.state, active.request)

    def _offers(self, run: str, text: str) -> bool:
        """An open question has such an option: the word is its answer, and what follows is the flow's to say."""
        asked = (question_of(row.data) for row in self.service.pending(run))
        return any(question.options and not isinstance(validate(question, text, "-"), str) for question in asked)

    def _standing_of_the_active(self) -> str:
        if self.service.active():
            return self.status("")
        newest = f"The newest run:\n\n{self.status('')}" if self.service.has_runs else ""
        return NOTHING + newest

    # -- the finer ones

    def start(self, start: Start, *, beside: bool = False) -> str:
        request = bounded(start.request)
        if not request:
            raise UserError("the request is empty", hint="say what to build")
        active = self.service.active()
        if active and not beside:
            raise _second(active.id, active.state, active.request)
        run = self.app.start(start)
        return self._driven_on(run)

    def resume(self, run: str) -> str:
        row = self.service.meant(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="the tool show tells what it did")
        if self.service.pending(row.id) or self.service.driven(row.id):
            return self._followed(row.id)
        return self._driven_on(row.id)

    def answer(self, run: str, question: str, value: str, comment: str = "") -> str:
        row = self.service.run(run) if run else self.service.asking()
        value, comment = self._with_comment(row.id, question, bounded(value), bounded(comment))
        asked, given = self.service.answer(row.id, question, value, comment, self.by)
        said = f"{asked.id}: {given.value}\n"
        return said + (self._followed(row.id) if self.service.driven(row.id) else self._driven_on(row.id))

    def pause(self, run: str) -> str:
        row = self.service.meant(run)
        self._wait(lambda: not self._starting(row.id))
        said = self.service.pause(row.id)
        return f"{said}\n\n{self._followed(row.id)}"

    def abort(self, run: str) -> str:
        row = self.service.meant(run)
        self._wait(lambda: not self._starting(row.id))
        said = self.service.abort(row.id)
        self._wait(lambda: not self.service.driven(row.id))
        if not self.service.driven(row.id) and not self.service.run(row.id).state.final:
            # The driver died before it heard it.
            said = self.service.abort(row.id)
        elif self.service.run(row.id).state is RunState.ABORTED:
            said = f"run {row.id} is aborted"
        return f"{said}\n\n{self._told(row.id)}"

    def status(self, run: str) -> str:
        return self._followed(self.service.run(run).id) if self.service.has_runs else NOTHING

    def show(self, run: str) -> str:
        row = self.service.run(run)
        view = self.service.view(row.id)
        text = words.whole(view, self.app.world.clock(), driven=self.service.driven(row.id))
        return text + words.report(view, self.service.events(row.id))

    # -- inside

    def _with_comment(self, run: str, key: str, value: str, comment: str) -> tuple[str, str]:
        """'revise: split task 2' is the option 'revise' with a comment, where that option takes one."""
        found = [row for row in self.service.pending(run) if not key or key in (row.key, row.id)]
        if comment or len(found) != 1:
            return value, comment
        return split(question_of(found[0].data), value)

    def _driven_on(self, run: str) -> str:
        before = self.service.run(run).epoch
        self.drivers[run] = DriverProcess(self.app.detach(run), before)
        return self._followed(run)

    def _followed(self, run: str) -> str:
        self._wait(lambda: self._rests(run))
        if not self._began(run):
            return self._not_begun(run)
        if self._left_too_early(run):
            return self._driven_on(run)
        return self._told(run)

    def _wait(self, holds: Callable[[], bool]) -> None:
        while not holds() and self.patience.pause():
            pass

    def _rests(self, run: str) -> bool:
        if self.service.pending(run) or self.service.run(run).state.final:
            return True
        return not self._starting(run) and not self.service.driven(run)

    def _starting(self, run: str) -> bool:
        return not self._began(run) and _alive(self.drivers[run].pid)

    def _began(self, run: str) -> bool:
        return run not in self.drivers or self.service.run(run).epoch > self.drivers[run].before

    def _left_too_early(self, run: str) -> bool:
        """The answer came while the driver was on its way out, so nobody has seen it."""
        waits = self.service.run(run).state is RunState.WAITING
        return waits and not self.service.pending(run) and not self.service.driven(run)

    def _not_begun(self, run: str) -> str:
        if self._starting(run):
            return words.background(run, self.drivers[run].pid)
        log = self.app.world.place.run_folder(run) / "driver.log"
        return self._told(run) + words.not_begun(run, log.read_text(encoding="utf-8", errors="replace"))

    def _told(self, run: str) -> str:
        view = self.service.view(run)
        text = words.standing(view, self.app.world.clock(), driven=self.service.driven(run))
        open_ones = [] if view.state.final else self.service.pending(run)
        asked = (words.asked(row.key, question_of(row.data)) for row in open_ones)
        return text + "".join(asked) + words.report(view, self.service.events(run))


def bounded(text: str) -> str:
    """Trimmed; lone surrogates, which JSON can carry and a database cannot, are replaced."""
    if len(text) > LONGEST_INPUT:
        raise UserError(
            f"the input has {len(text)} characters, {LONGEST_INPUT} are the most",
            hint="put long texts into a file of the repository and name it",
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


def _second(run: str, state: RunState, request: str) -> UserError:
    return UserError(
        f"run {run} is {state}: {request[:60]}",
        hint="`workflow` with an empty input goes on with it, with 'abort' ends it; "
        "the tool start with beside=true starts another beside it",
    )


def _alive(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
