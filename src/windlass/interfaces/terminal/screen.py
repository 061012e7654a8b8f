"""One prompt_toolkit application at the bottom of the terminal, for the view and the dialogs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TextIO, cast

from msgspec.structs import replace
from prompt_toolkit.application import in_terminal
from prompt_toolkit.input.base import Input
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output

from windlass.interfaces.terminal import dialog as d
from windlass.interfaces.terminal.editor import NOT_SET, edit, editor_of
from windlass.interfaces.terminal.history import History
from windlass.interfaces.terminal.inline_app import Inline
from windlass.interfaces.terminal.layout import Board, build_layout
from windlass.interfaces.terminal.live_state import Live
from windlass.interfaces.terminal.markdown import markdown
from windlass.interfaces.terminal.output_thread import OutputThread
from windlass.interfaces.terminal.spans import Look
from windlass.interfaces.terminal.style import STYLE
from windlass.model import Answer, Question

#: draw at most ten times a second, and use at most this share of one core
SHORTEST_S = 0.1
SHARE = 0.03
#: the clocks on the screen move even without events
TICK_S = 1.0


class Screen:
    def __init__(
        self,
        wire: OutputThread,
        output: Output,
        input: Input,
        *,
        color: bool,
        unicode: bool,
        environ: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self.color = color
        self._wire = wire
        self._output = output
        self._input = input
        self._environ = environ
        self._board = Board(self._size, unicode, clock)
        self._app: Inline | None = None
        self._shown: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._editing: asyncio.Task[None] | None = None
        self._dirty = asyncio.Event()
        self._answer: asyncio.Future[Answer | None] | None = None
        self._history: History | None = None
        self._began = self._cost = 0.0

    @property
    def look(self) -> Look:
        return self._board.look

    def _size(self) -> tuple[int, int]:
        size = self._output.get_size()
        return size.columns, size.rows

    # -- open and close

    async def open(self, live: Live, history: History, on_key: Callable[[str], None]) -> None:
        self._history, self._board.live = history, live
        self.say(history.drain())
        layout, keys = build_layout(self._board, on_key, self._on_enter, self._close_dialog, self._open_editor)
        self._app = Inline(
            layout, key_bindings=keys, style=STYLE, output=self._output, input=self._input,
            before_render=self._before, after_render=self._after,
        )  # fmt: skip
        self._app.ttimeoutlen = 0.05
        self._board.app = self._app
        self._shown = asyncio.get_running_loop().create_task(self._run(self._app))
        self.spawn(self._draw())
        await asyncio.sleep(0)

    async def _run(self, app: Inline) -> None:
        """If the terminal closes, the application ends. A signal tells the driver; this closes the dialog."""
        try:
            with suppress(EOFError, OSError):
                await app.run_async(handle_sigint=False, set_exception_handler=False)
        except Exception as error:
            # A bug in the view must not stop the run: lines are still printed, questions stay open.
            assert self._history is not None
            self._history.say(f"! the live view failed ({error!r}); windlass log --follow shows the run")
        finally:
            self._app = self._board.app = None
            self._close_dialog()

    async def finish(self) -> None:
        """Leave the last drawing on the screen."""
        if self._editing:
            await asyncio.gather(self._editing, return_exceptions=True)
        self._flush()
        self._board.hide()
        app = self._app
        if app is not None and app.is_running and not app.is_done:
            app.exit()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *([self._shown] if self._shown else []), return_exceptions=True)

    def close(self) -> None:
        if self._history:
            self.say(self._history.drain())
        self._wire.close()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- draw

    def changed(self) -> None:
        self._dirty.set()

    async def _draw(self) -> None:
        """Draw after a change, and at least once a tick. Skip a drawing while the terminal is busy."""
        while True:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that arrives together with the result.
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._dirty.wait()
            if not self._wire.busy:
                self._dirty.clear()
                self._flush()
                if self._app:
                    self._app.invalidate()
            await asyncio.sleep(max(SHORTEST_S, self._cost / SHARE))

    def _flush(self) -> None:
        assert self._history is not None
        self._history.fit(self.look.width)
        if self._editing:
            return
        text = self._history.drain()
        if text and self._app and self._app.is_running:
            self._app.above(lambda: self.say(text))
        else:
            self.say(text)

    def say(self, text: str) -> None:
        if text:
            self._wire.write(text.replace("\n", "\r\n"))
            self._wire.flush()

    def _before(self, _: object) -> None:
        self._began = asyncio.get_running_loop().time()

    def _after(self, _: object) -> None:
        self._cost = asyncio.get_running_loop().time() - self._began

    # -- dialogs

    async def ask(self, question: Question, problem: str) -> Answer | None:
        if self._app is None:
            return None
        if question.detail:
            # Render it in a thread first, so that a long text does not block the run.
            await asyncio.to_thread(markdown, question.detail, self.look)
        answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._board.show(d.open_dialog(question, problem))
        self._edit_if_wanted()
        self.changed()
        try:
            return await answer
        finally:
            self._board.hide()
            self._answer = None
            self.changed()

    def _close_dialog(self) -> None:
        if self._answer and not self._answer.done():
            self._answer.set_result(None)

    def _on_enter(self) -> None:
        assert self._board.dialog is not None
        found = d.submit(self._board.dialog, self._board.typed)
        if isinstance(found, Answer):
            if self._answer and not self._answer.done():
                self._answer.set_result(found)
            return
        if found.chosen != self._board.dialog.chosen:
            self._board.clear()
        self._board.dialog = found
        self._edit_if_wanted()

    # -- the editor

    def _edit_if_wanted(self) -> None:
        dialog = self._board.dialog
        if dialog and dialog.wants_editor and not dialog.note and not dialog.problem:
            self._open_editor()

    def _open_editor(self) -> None:
        dialog = self._board.dialog
        if dialog is None or dialog.lists or self._editing:
            return
        editor = editor_of(self._environ)
        if not editor:
            self._board.dialog = replace(dialog, note=NOT_SET)
        else:
            self._editing = self.spawn(self._edit(editor, dialog))

    async def _edit(self, editor: str, dialog: d.Dialog) -> None:
        """Give the terminal to the editor until it closes. The run continues, and another process may answer."""
        asked, draft = dialog.question, self._board.typed or ("" if dialog.chosen else dialog.question.default)
        try:
            async with in_terminal():
                self._wire.drain()
                found = await asyncio.to_thread(edit, editor, draft, dialog.asks, asked.detail)
        finally:
            self._editing = None
        now = self._board.dialog
        if now is None or now.question is not asked:
            self._print_late_answer(found.text)
        elif found.problem:
            self._board.dialog = replace(now, note=found.problem)
        else:
            self._board.write(found.text)
            self._on_enter()
        self.changed()

    def _print_late_answer(self, text: str) -> None:
        if self._history and text:
            self._history.say("! the question has been answered in the meantime; you wrote:")
            self._history.quote(text)


def terminal_screen(
    fd_out: int, input: Input, *, encoding: str, color: bool, unicode: bool, environ: Mapping[str, str],
    size: Callable[[], tuple[int, int]], clock: Callable[[], float],
) -> Screen:  # fmt: skip
    from prompt_toolkit.data_structures import Size

    def shape() -> Size:
        columns, rows = size()
        return Size(rows=max(rows, 1), columns=max(columns, 1))

    wire = OutputThread(fd_out, encoding)
    depth = ColorDepth.DEPTH_4_BIT if color else ColorDepth.DEPTH_1_BIT
    # Without a cursor position request: on slow connections the reply comes late or never.
    stream = cast("TextIO", wire)
    output = Vt100_Output(stream, shape, environ.get("TERM"), depth, enable_bell=False, enable_cpr=False)
    return Screen(wire, output, input, color=color, unicode=unicode, environ=environ, clock=clock)
