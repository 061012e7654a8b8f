"""The actions of the tools. A separate process drives each run; a call waits for it at most `wait_s` seconds."""

from __future__ import annotations

from msgspec import Struct

from windlass.answers import comment_wanted, validate
from windlass.errors import UserError
from windlass.interfaces.mcp import texts
from windlass.interfaces.mcp.drivers import BackgroundDrivers
from windlass.model import Question, RunState, question_of
from windlass.runs.app import App
from windlass.runs.service import Service
from windlass.runs.start import Start

LONGEST_INPUT = 100_000
NOTHING = "No run is active here. Start one: call `workflow` with what to build.\n"


class McpTools(Struct, frozen=True):
    """One call of a tool, in one repository."""

    app: App
    by: str
    drivers: BackgroundDrivers

    @property
    def service(self) -> Service:
        return self.app.service

    # -- the one tool with one text

    def workflow(self, input: str) -> str:
        """S0-05, S0-06, C-42: an option of the open question, a word of control, another answer, else a request."""
        text = bounded(input)
        if text == "status":
            if self.service.active():
                return self.status("")
            return NOTHING + (f"The newest run:\n\n{self.status('')}" if self.service.has_runs else "")
        if self.service.active() is None:
            return NOTHING if text in ("", "abort") else self.start(Start(text, detached=True))
        active = self.service.run_to_change()
        if not text:
            return self.resume(active.id)
        pending = self.service.questions.pending(active.id)
        if text == "abort":
            # The word is an answer if an open question has such an option.
            asked = [question_of(row.data) for row in pending]
            if not any(one.options and not isinstance(validate(one, text, "-"), str) for one in asked):
                return self.abort(active.id)
        if pending:
            return self.answer(active.id, "", text)
        raise _active_run(active.id, active.state, active.request)

    # -- one tool for each action

    def start(self, start: Start, *, beside: bool = False) -> str:
        request = bounded(start.request)
        if not request:
            raise UserError("the request is empty", hint="describe what to build")
        active = self.service.active()
        if active and not beside:
            raise _active_run(active.id, active.state, active.request)
        run = self.app.start(start)
        return self.drivers.drive(run)

    def resume(self, run: str) -> str:
        row = self.service.run_to_change(run)
        if row.state.final:
            raise UserError(f"run {row.id} is {row.state}", hint="the tool show lists what it did")
        if self.service.questions.pending(row.id) or self.service.is_driven(row.id):
            return self.drivers.follow(row.id)
        return self.drivers.drive(row.id)

    def answer(self, run: str, question: str, value: str, comment: str = "") -> str:
        row = self.service.run(run) if run else self.service.run_to_answer()
        value, comment = bounded(value), bounded(comment)
        pending = self.service.questions.pending(row.id)
        found = [one for one in pending if not question or question in (one.key, one.id)]
        if not comment and len(found) == 1:
            value, comment = split(question_of(found[0].data), value)
        asked, given = self.service.questions.answer(row.id, question, value, comment, self.by)
        driven = self.service.is_driven(row.id)
        return f"{asked.id}: {given.value}\n" + (self.drivers.follow(row.id) if driven else self.drivers.drive(row.id))

    def pause(self, run: str) -> str:
        row = self.service.run_to_change(run)
        self.drivers.wait_for_start(row.id)
        text = self.service.controls.pause(row.id)
        return f"{text}\n\n{self.drivers.follow(row.id)}"

    def abort(self, run: str) -> str:
        row = self.service.run_to_change(run)
        self.drivers.wait_for_start(row.id)
        text = self.service.controls.abort(row.id)
        self.drivers.wait_for_end(row.id)
        if not self.service.is_driven(row.id) and not self.service.run(row.id).state.final:
            # The driver died before it read the request.
            text = self.service.controls.abort(row.id)
        elif self.service.run(row.id).state is RunState.ABORTED:
            text = f"run {row.id} is aborted"
        return f"{text}\n\n{self.drivers.status_text(row.id)}"

    def status(self, run: str) -> str:
        return self.drivers.follow(self.service.run(run).id) if self.service.has_runs else NOTHING

    def show(self, run: str) -> str:
        row = self.service.run(run)
        view = self.service.view(row.id)
        text = texts.full_text(view, self.app.host.clock(), driven=self.service.is_driven(row.id))
        return text + texts.report_text(view, self.service.events(row.id))


def bounded(text: str) -> str:
    """Trim the text, and replace lone surrogates: JSON can carry them, the database cannot."""
    if len(text) > LONGEST_INPUT:
        raise UserError(
            f"the input has {len(text)} characters; the limit is {LONGEST_INPUT}",
            hint="put the text into a file of the repository and name that file",
        )
    return text.strip().encode("utf-8", "replace").decode()


def split(question: Question, text: str) -> tuple[str, str]:
    """'revise: split task 2' is the option 'revise' with a comment, where that option takes one."""
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
