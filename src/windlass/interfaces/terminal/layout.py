"""The layout of the screen and its key bindings. `panel` and `dialog_view` provide the text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.layout.processors import BeforeInput

from windlass.interfaces.terminal import dialog as d
from windlass.interfaces.terminal.dialog_view import dialog_lines, text_room
from windlass.interfaces.terminal.hints import hints
from windlass.interfaces.terminal.inline_app import Inline
from windlass.interfaces.terminal.live_state import Live
from windlass.interfaces.terminal.markdown import markdown
from windlass.interfaces.terminal.panel import panel, panel_above_dialog
from windlass.interfaces.terminal.spans import Line, Look
from windlass.interfaces.terminal.style import fragments

WIDEST = 120
MOST_INPUT = 6


class Board:
    """The current content of the screen."""

    def __init__(self, size: Callable[[], tuple[int, int]], unicode: bool, clock: Callable[[], float]) -> None:
        self._size = size
        self._unicode = unicode
        self._clock = clock
        self.live: Live | None = None
        self.app: Inline | None = None
        self.dialog: d.Dialog | None = None
        self.buffer = Buffer(multiline=True, on_text_changed=lambda _: self._on_typing())
        self.panel_window: Window | None = None
        self.input_window: Window | None = None

    @property
    def look(self) -> Look:
        columns, rows = self._size()
        return Look(min(columns, WIDEST), max(rows - 1, 1), self._unicode)

    @property
    def typed(self) -> str:
        return self.buffer.text

    # -- change the content

    def show(self, dialog: d.Dialog) -> None:
        self.dialog = dialog
        self.buffer.reset()
        self._focus(self.input_window)

    def hide(self) -> None:
        self.dialog = None
        self._focus(self.panel_window)

    def write(self, text: str) -> None:
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    def scroll(self, pages: int) -> None:
        dialog = self.dialog
        if dialog is None:
            return
        text, room = self._text(), self._dialog_room()
        page = text_room(dialog, text, self.look, room)
        first = min(max(dialog.scroll + pages * page, 0), max(len(text) - page, 0))
        self.dialog = replace(dialog, scroll=first)

    def _on_typing(self) -> None:
        if self.dialog:
            self.dialog = d.match_text(self.dialog, self.typed)

    def _focus(self, window: Window | None) -> None:
        if self.app and window:
            self.app.layout.focus(window)

    # -- render it

    def panel(self) -> StyleAndTextTuples:
        return fragments(self._panel())

    def _panel(self) -> list[Line]:
        if self.live is None:
            return []
        if self.dialog is None:
            return panel(self.live, self.look, self._clock())
        return panel_above_dialog(self.live, self.look, self._clock(), max(self.look.height // 4, 3))

    def question(self) -> StyleAndTextTuples:
        if self.dialog is None:
            return []
        return fragments(dialog_lines(self.dialog, self._text(), self.look, self._dialog_room()))

    def hints(self) -> StyleAndTextTuples:
        assert self.live is not None
        view = self.live.view
        return fragments(hints(self.dialog, view.run, self.look, view.place)) if self.dialog else []

    def _text(self) -> list[Line]:
        return markdown(self.dialog.question.detail, self.look) if self.dialog and self.dialog.question.detail else []

    def _dialog_room(self) -> int:
        written = min(1 + self.typed.count("\n") + len(self.typed) // max(self.look.width - 2, 1), MOST_INPUT)
        return max(self.look.height - len(self._panel()) - written - 2, 3)


def build_layout(
    board: Board,
    pressed: Callable[[str], None],
    entered: Callable[[], None],
    left: Callable[[], None],
    editor: Callable[[], None],
) -> tuple[Layout, KeyBindings]:
    asking = Condition(lambda: board.dialog is not None)
    board.panel_window = _text_window(board.panel, focusable=True)
    prompt = BeforeInput("› " if board.look.unicode else "> ", style="class:now")
    board.input_window = Window(
        BufferControl(board.buffer, input_processors=[prompt]),
        wrap_lines=True,
        height=Dimension(min=1, max=MOST_INPUT),
        dont_extend_height=True,
    )
    dialog = HSplit([_text_window(board.question), board.input_window, _text_window(board.hints)])
    body = HSplit([board.panel_window, ConditionalContainer(dialog, asking), Window()])
    keys = _keys(board, pressed, entered, left, editor, asking)
    return Layout(body, focused_element=board.panel_window), keys


def _text_window(text: Callable[[], StyleAndTextTuples], *, focusable: bool = False) -> Window:
    control = FormattedTextControl(text, focusable=focusable, show_cursor=False)
    return Window(control, dont_extend_height=True, always_hide_cursor=True)


def _keys(
    board: Board,
    pressed: Callable[[str], None],
    entered: Callable[[], None],
    left: Callable[[], None],
    editor: Callable[[], None],
    asking: Condition,
) -> KeyBindings:
    keys = KeyBindings()
    listing = asking & Condition(lambda: bool(board.dialog and board.dialog.lists))
    writing = asking & Condition(lambda: bool(board.dialog and not board.dialog.lists))
    marking = listing & Condition(lambda: bool(board.dialog and board.dialog.several and not board.typed))

    def on(*names: str, do: Callable[[], object], filter: Any = True) -> None:
        def press(event: KeyPressEvent) -> None:
            do()

        for name in names:
            keys.add(name, filter=filter, eager=True)(press)

    for key in "ptdb":
        on(key, do=lambda key=key: pressed(key), filter=~asking)  # type: ignore[misc]
    on("c-c", do=lambda: pressed("c-c"))
    on("escape", "c-d", do=left, filter=asking)
    on("enter", do=entered, filter=asking)
    on("up", do=lambda: _change(board, lambda now: d.move(now, -1)), filter=listing)
    on("down", do=lambda: _change(board, lambda now: d.move(now, 1)), filter=listing)
    on("space", do=lambda: _change(board, d.toggle), filter=marking)
    on("pageup", do=lambda: board.scroll(-1), filter=asking)
    on("pagedown", do=lambda: board.scroll(1), filter=asking)
    on("c-j", do=lambda: board.buffer.insert_text("\n"), filter=writing)
    on("c-o", do=editor, filter=writing)
    return keys


def _change(board: Board, update: Callable[[d.Dialog], d.Dialog]) -> None:
    if board.dialog:
        board.dialog = update(board.dialog)
