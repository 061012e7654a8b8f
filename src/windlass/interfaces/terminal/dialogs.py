"""Asks questions on the screen, one at a time: a dialog, or the person's editor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from msgspec.structs import replace
from prompt_toolkit.application import in_terminal

from windlass.interfaces.terminal import dialog as d
from windlass.interfaces.terminal.editor import NOT_SET, edit, editor_of
from windlass.interfaces.terminal.history import History
from windlass.interfaces.terminal.layout import Board
from windlass.interfaces.terminal.markdown import markdown
from windlass.interfaces.terminal.output_thread import OutputThread
from windlass.model import Answer, Question


class Dialogs:
    def __init__(
        self,
        board: Board,
        wire: OutputThread,
        environ: Mapping[str, str],
        *,
        changed: Callable[[], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self.history: History | None = None
        self.editing: asyncio.Task[None] | None = None
        """While it is set, the terminal belongs to the editor."""
        self._board = board
        self._wire = wire
        self._environ = environ
        self._changed = changed
        self._spawn = spawn
        self._answer: asyncio.Future[Answer | None] | None = None

    async def ask(self, question: Question, problem: str) -> Answer | None:
        if question.detail:
            # Render it in a thread first, so that a long text does not block the run.
            await asyncio.to_thread(markdown, question.detail, self._board.look)
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._board.show(d.open_dialog(question, problem))
        self._edit_if_wanted()
        self._changed()
        try:
            return await answer
        finally:
            self._board.hide()
            self._answer = None
            self._changed()

    def close(self) -> None:
        """Leave the question open."""
        if self._answer and not self._answer.done():
            self._answer.set_result(None)

    def submit(self) -> None:
        assert self._board.dialog is not None
        found = d.submit(self._board.dialog, self._board.typed)
        if isinstance(found, Answer):
            if self._answer and not self._answer.done():
                self._answer.set_result(found)
            return
        if found.chosen != self._board.dialog.chosen:
            self._board.buffer.reset()
        self._board.dialog = found
        self._edit_if_wanted()

    def _edit_if_wanted(self) -> None:
        dialog = self._board.dialog
        if dialog and dialog.wants_editor and not dialog.note and not dialog.problem:
            self.open_editor()

    def open_editor(self) -> None:
        dialog = self._board.dialog
        if dialog is None or dialog.lists or self.editing:
            return
        editor = editor_of(self._environ)
        if not editor:
            self._board.dialog = replace(dialog, note=NOT_SET)
        else:
            self.editing = self._spawn(self._edit(editor, dialog))

    async def _edit(self, editor: str, dialog: d.Dialog) -> None:
        """Give the terminal to the editor until it closes. The run continues, and another process may answer."""
        asked, draft = dialog.question, self._board.typed or ("" if dialog.chosen else dialog.question.default)
        try:
            async with in_terminal():
                self._wire.drain()
                found = await asyncio.to_thread(edit, editor, draft, dialog.asks, asked.detail)
        finally:
            self.editing = None
        now = self._board.dialog
        if now is None or now.question is not asked:
            if self.history and found.text:
                self.history.say("! the question has been answered in the meantime; you wrote:")
                self.history.quote(found.text)
        elif found.problem:
            self._board.dialog = replace(now, note=found.problem)
        else:
            self._board.write(found.text)
            self.submit()
        self._changed()
