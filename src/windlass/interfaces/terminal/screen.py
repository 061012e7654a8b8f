"""One prompt_toolkit application at the bottom of the terminal, for the view and the dialogs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TextIO, cast

from prompt_toolkit.input.base import Input
from prompt_toolkit.output import ColorDepth, Output
from prompt_toolkit.output.vt100 import Vt100_Output

from windlass.interfaces.terminal.dialogs import Dialogs
from windlass.interfaces.terminal.history import History
from windlass.interfaces.terminal.inline_app import Inline
from windlass.interfaces.terminal.layout import Board, build_layout
from windlass.interfaces.terminal.live_state import Live
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
        def size() -> tuple[int, int]:
            found = output.get_size()
            return found.columns, found.rows

        self.color = color
        self._wire = wire
        self._output = output
        self._input = input
        self._board = Board(size, unicode, clock)
        self._dialogs = Dialogs(self._board, wire, environ, changed=self.changed, spawn=self.spawn)
        self._app: Inline | None = None
        self._shown: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dirty = asyncio.Event()
        self._history: History | None = None
        self._began = self._cost = 0.0
        """When the last drawing began, and the seconds that it took."""

    @property
    def look(self) -> Look:
        return self._board.look

    # -- open and close

    async def open(self, live: Live, history: History, on_key: Callable[[str], None]) -> None:
        self._history, self._dialogs.history, self._board.live = history, history, live
        self.say(history.drain())
        loop, dialogs = asyncio.get_running_loop(), self._dialogs

        def before(_: object) -> None:
            self._began = loop.time()

        def after(_: object) -> None:
            self._cost = loop.time() - self._began

        layout, keys = build_layout(self._board, on_key, dialogs.submit, dialogs.close, dialogs.open_editor)
        self._app = Inline(
            layout, key_bindings=keys, style=STYLE, output=self._output, input=self._input,
            before_render=before, after_render=after,
        )  # fmt: skip
        self._app.ttimeoutlen = 0.05
        self._board.app = self._app
        self._shown = loop.create_task(self._run(self._app))
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
            self._dialogs.close()

    async def finish(self) -> None:
        """Leave the last drawing on the screen."""
        if self._dialogs.editing:
            await asyncio.gather(self._dialogs.editing, return_exceptions=True)
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

    async def ask(self, question: Question, problem: str) -> Answer | None:
        return await self._dialogs.ask(question, problem) if self._app else None

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
        if self._dialogs.editing:
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
