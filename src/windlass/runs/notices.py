"""Messages to a person who is away: a run waits, failed or ended, with the command to continue.

Contract: nothing here may disturb a run. A failed delivery is a line in the run's `notify.log`, without the address,
because addresses contain secrets.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from importlib.util import find_spec
from types import TracebackType
from typing import Self

from msgspec import Struct

from windlass.engine.services import known_secrets
from windlass.events import QuestionAnswered, QuestionAsked, Recorded, RunEnded
from windlass.model import RunState
from windlass.private_files import open_private
from windlass.redaction import redactor
from windlass.runs.project import Project
from windlass.runs.service import Service
from windlass.text import clean, stamp
from windlass.views.outlook import add_repository, answer_command, program, shell_word
from windlass.views.state import UNCHANGED, question_from

LOG = "notify.log"
MISSING = "the package 'apprise' is not installed: pip install 'windlass[notify]'"
AT_A_TERMINAL_S = 30.0
"""A person at the terminal sees a question. If it is still open after this time, a message is sent."""
LONGEST_S = 10.0
"""How long an ending driver waits for messages that are being sent."""


class Notice(Struct, frozen=True):
    title: str
    body: str
    kind: str
    """apprise's type: info | success | warning | failure."""


class NoticeResult(Struct, frozen=True):
    """The result of a finished run."""

    has_code: bool = True
    shortfall: str = ""
    """Which tasks are missing, in words; '' if all were carried out."""


class Subject(Struct, frozen=True):
    """The run that every message is about."""

    run: str
    request: str
    repository: str
    place: str = ""
    """The repository as the command line named it."""

    def waits(self, asked: QuestionAsked) -> Notice:
        question = question_from(asked, 0.0)
        options = ", ".join(clean(option.key, 40) for option in question.options[:10])
        answer = answer_command(question, self.run, self.place)
        lines = (clean(question.text, 300), f"Options: {options}" if options else "", f"Answer: {answer}")
        return self._notice("waits for your answer", "warning", *lines)

    def ended(self, event: RunEnded, result: NoticeResult) -> Notice | None:
        match event.state:
            case RunState.FINISHED:
                take = f"Land it: {program(self.place)} land {shell_word(self.run)}" if result.has_code else UNCHANGED
                if result.shortfall:
                    return self._notice("finished in part", "warning", result.shortfall, take)
                return self._notice("finished", "success", take)
            case RunState.ABORTED:
                return self._notice("was aborted", "info", clean(event.reason, 300))
            case RunState.STOPPED | RunState.BLOCKED:
                resume = f"Continue: {program(self.place)} resume {shell_word(self.run)}"
                lines = (clean(event.reason, 300), clean(add_repository(event.hint, self.place), 300), resume)
                return self._notice(f"is {event.state}", "failure", *lines)
            case _:
                return None

    def _notice(self, what: str, kind: str, *lines: str) -> Notice:
        title = f"windlass: {clean(self.repository, 60)}: run {self.run} {what}"
        return Notice(title, "\n".join(line for line in (clean(self.request, 100), *lines) if line), kind)


class Notices:
    """Watches a driver's events. Enter it before the driver starts, and leave it when the driver is done."""

    def __init__(
        self,
        subject: Subject,
        send: Callable[[Notice], None],
        patience_s: float = AT_A_TERMINAL_S,
        result: Callable[[], NoticeResult] = NoticeResult,
    ) -> None:
        self._subject = subject
        self._send = send
        self._result = result
        self._patience_s = patience_s
        self._open: dict[str, tuple[QuestionAsked, threading.Timer]] = {}
        self._sending: list[threading.Thread] = []

    def on_event(self, recorded: Recorded) -> None:
        match recorded.event:
            case QuestionAsked() as event:
                # Wait before sending: many questions are answered at once by `--yes` or `--answer`.
                self._close(event.key)
                timer = threading.Timer(self._patience_s, self._overdue, [event.key])
                timer.daemon = True
                self._open[event.key] = (event, timer)
                timer.start()
            case QuestionAnswered(key=key):
                self._close(key)
            case RunEnded() as event:
                for asked in [self._close(key) for key in list(self._open)]:
                    if asked and event.state == RunState.WAITING:
                        self._send_soon(self._subject.waits(asked))
                self._send_soon(self._subject.ended(event, self._result()))
            case _:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for key in list(self._open):
            self._close(key)
        end = time.monotonic() + LONGEST_S
        for thread in self._sending:
            thread.join(max(0.0, end - time.monotonic()))

    def _overdue(self, key: str) -> None:
        """The timer or the end of the run removes the question. The one that removes it sends the message."""
        asked, _ = self._open.pop(key, (None, None))
        self._send_soon(self._subject.waits(asked) if asked else None)

    def _close(self, key: str) -> QuestionAsked | None:
        asked, timer = self._open.pop(key, (None, None))
        if timer:
            timer.cancel()
        return asked

    def _send_soon(self, notice: Notice | None) -> None:
        if notice is None:
            return
        thread = threading.Thread(target=self._send, args=[notice], daemon=True, name="windlass-notice")
        self._sending.append(thread)
        thread.start()


def notices(project: Project, run: str, request: str) -> Notices:
    config, environ = project.config(), project.host.environ
    secrets = redactor(known_secrets(config, environ, project.host.place.root))
    log = project.host.place.run_folder(run) / LOG

    def send(notice: Notice) -> None:
        safe = Notice(secrets.text(notice.title), secrets.text(notice.body), notice.kind)
        for problem in deliver(config.notify.urls, safe):
            with suppress(OSError), open_private(log) as file:
                file.write(f"{stamp(project.host.clock())} {notice.title}: {problem}\n")

    def result() -> NoticeResult:
        with closing(Service(project.host)) as service:
            view = service.view(run)
            return NoticeResult(view.has_code, view.shortfall)

    return Notices(Subject(run, request, project.host.place.root.name, project.host.named), send, result=result)


def deliver(urls: Sequence[str], notice: Notice) -> list[str]:
    """Returns the problems, one line each. A line names an address only by its scheme and its position in the list."""
    if find_spec("apprise") is None:
        return [MISSING]
    # apprise logs addresses, and a logger without a handler writes to the terminal.
    logging.getLogger("apprise").addHandler(logging.NullHandler())
    logging.getLogger("apprise").propagate = False
    tried = ((number, url, _send(url, notice)) for number, url in enumerate(urls, 1))
    return [f"notify.urls {number} ({scheme(url)}): {problem}" for number, url, problem in tried if problem]


def scheme(url: str) -> str:
    found = re.match(r"[a-z][a-z0-9+.-]{0,20}(?=://)", url, re.IGNORECASE)
    return found[0] if found else "no scheme"


def _send(url: str, notice: Notice) -> str:
    import apprise

    try:
        one = apprise.Apprise.instantiate(url)
        if one is None:
            return "is not a known address; see apprise's list"
        sent = one.notify(title=notice.title, body=notice.body, notify_type=apprise.NotifyType(notice.kind))
    except Exception as error:  # a plugin must not stop the run
        return f"failed ({type(error).__name__})"
    return "" if sent else "was not delivered"
