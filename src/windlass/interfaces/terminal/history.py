"""What scrolls away above the live view: the plain face, without what the view itself shows."""

from __future__ import annotations

import io
from collections.abc import Callable

from windlass import events as e
from windlass.events import Recorded
from windlass.interfaces.terminal.markdown import markdown
from windlass.interfaces.terminal.plain import PlainFace
from windlass.interfaces.terminal.spans import Look, plain
from windlass.views.build import OutputEvent
from windlass.views.outlook import addressed_report
from windlass.views.state import QuestionView


class History(PlainFace):
    """Contract: writes to memory only; `drain` gives what is new."""

    def __init__(self, look: Look, *, color: bool, clock: Callable[[], float], place: str = "") -> None:
        self._roll = io.StringIO()
        self._asked: dict[str, QuestionView] = {}
        super().__init__(self._roll, width=look.width, color=color, unicode=look.unicode, clock=clock, place=place)

    def drain(self) -> str:
        text = self._roll.getvalue()
        self._roll.seek(0)
        self._roll.truncate()
        return text

    def fit(self, width: int) -> None:
        self._out.width = max(width, 40)

    def fold(self, recorded: Recorded) -> None:
        """Taken in without a word."""
        self._feed(recorded)

    def say(self, text: str) -> None:
        self._out.line(text, indent=2)

    def quote(self, text: str) -> None:
        self._out.block(text, indent=4)

    def left_open(self, key: str) -> None:
        """The dialog is gone; what was asked and how to answer it stays."""
        asked = self._asked.get(key)
        if asked:
            self._out.line()
            self._out.block(self._asking(asked._replace(detail="")))

    def _activity(self, event: e.Activity) -> None:
        """The view shows it."""

    def _question(self, event: e.QuestionAsked | e.QuestionAnswered) -> None:
        if isinstance(event, e.QuestionAsked):
            self._asked[event.key] = self.view.questions[event.key]
            self._list_tasks()
        elif event.key in self._asked:
            self._recall(self._asked.pop(event.key))
            super()._question(event)
        else:
            super()._question(event)

    def _recall(self, asked: QuestionView) -> None:
        """Its title says which of several it was: each section of a design is asked about in the same words."""
        self._out.line()
        if asked.title:
            self._out.line(f"─── {asked.title} ───", limit=200)
        self._out.line(f"? {asked.text}", limit=400)

    def _output(self, event: OutputEvent) -> None:
        if isinstance(event, e.ReportWritten) and event.text:
            look = Look(self._out.width, unicode=self._out.unicode)
            self._out.line()
            self._out.block(plain(markdown(addressed_report(event.text, self.view.place), look)))
        else:
            super()._output(event)
