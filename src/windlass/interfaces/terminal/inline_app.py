"""An application below the shell's lines, in a terminal that rewraps them when it gets narrower."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.application import Application
from prompt_toolkit.layout.screen import Screen


class Inline(Application[None]):
    def above(self, write: Callable[[], None]) -> None:
        """Print permanent lines above the view. The terminal's mode does not change: a change would lose keys."""
        self.renderer.erase()
        write()
        self.renderer.reset()
        self._redraw()

    def _on_resize(self) -> None:
        """The drawing above the cursor takes more rows now: begin above them, otherwise they stay on the screen.

        Terminals that cut instead of wrapping lose some lines of history on the screen; few do.
        """
        drawn, cursor = self.renderer.last_rendered_screen, self.renderer._cursor_pos
        if drawn is not None:
            columns = max(self.output.get_size().columns, 1)
            self.output.cursor_up(sum((_width(drawn, y) - 1) // columns for y in range(cursor.y) if _width(drawn, y)))
        super()._on_resize()


def _width(screen: Screen, y: int) -> int:
    row = screen.data_buffer[y]
    return max((x + char.width for x, char in row.items() if char.char.strip()), default=0)
