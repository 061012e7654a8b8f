"""The lines above the live view: the plain display's lines, without those of the view itself."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable

from windlass import events as e
from windlass.events import Recorded
from windlass.interfaces.terminal.markdown import markdown
from windlass.interfaces.terminal.plain import PlainDisplay
from windlass.interfaces.terminal.spans import Look, plain
from windlass.views.outlook import add_repository_to_report
from windlass.views.state import QuestionView, View


class History:
    """Contract: writes to memory only; `drain` returns the new text."""

    def __init__(self, look: Look, *, color: bool, clock: Callable[[], float], place: str = "") -> None:
        self._text = io.StringIO()
        self._plain = PlainDisplay(
            self._text, width=look.width, color=color, unicode=look.unicode, clock=clock, place=place
        )
        self._out = self._plain.out
        self._open: dict[str, QuestionView] = {}
        """Questions that a dialog shows, by key."""

    @property
    def view(self) -> View:
        return self._plain.view

    def drain(self) -> str:
        text = self._text.getvalue()
        self._text.seek(0)
        self._text.truncate()
        return text

    def fit(self, width: int) -> None:
        self._out.width = max(width, 40)

    def catch_up(self, records: Iterable[Recorded]) -> None:
        self._plain.catch_up(records)

    def fold(self, recorded: Recorded) -> None:
        """Update the view without printing."""
        self._plain.state.feed(recorded)

    def on_event(self, recorded: Recorded) -> None:
        match recorded.event:
            case e.Activity():
                # The live view shows it.
                self.fold(recorded)
            case e.QuestionAsked() as event:
                # The dialog shows it.
                self.fold(recorded)
                self._open[event.key] = self.view.questions[event.key]
                self._plain.tasks.list_new_tasks()
            case e.QuestionAnswered() as event:
                question = self._open.pop(event.key, None)
                if question:
                    self._out.line()
                    if question.title:
                        # The title distinguishes the sections of a design: the question about each has the same text.
                        self._out.line(f"─── {question.title} ───", limit=200)
                    self._out.line(f"? {question.text}", limit=400)
                self._plain.on_event(recorded)
            case e.ReportWritten() as event if event.text:
                self.fold(recorded)
                look = Look(self._out.width, unicode=self._out.unicode)
                self._out.line()
                self._out.block(plain(markdown(add_repository_to_report(event.text, self.view.place), look)))
            case _:
                self._plain.on_event(recorded)

    def say(self, text: str) -> None:
        self._out.line(text, indent=2)

    def quote(self, text: str) -> None:
        self._out.block(text, indent=4)

    def print_open_question(self, key: str) -> None:
        """Print a question and how to answer it, after its dialog closed without an answer."""
        asked = self._open.get(key)
        if asked:
            self._plain.output.question(asked._replace(detail=""))
