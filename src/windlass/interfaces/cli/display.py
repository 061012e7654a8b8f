"""How a driver shows its run: JSON for programs, lines for pipes and simple terminals, or the live view."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import click
from msgspec import Struct

from windlass.answers import Asker
from windlass.errors import Exit
from windlass.events import HANDED_OVER, Recorded, RunStarted, StepEntered
from windlass.interfaces.cli.common import colour_fits, event_json, is_interactive, session, unicode_fits, width
from windlass.runs.app import App
from windlass.runs.drive import DriveResult, InterfaceSession

if TYPE_CHECKING:
    from windlass.interfaces.terminal.live import LiveDisplay

LEAST_COLUMNS, LEAST_ROWS = 40, 10


class RunDisplay(Protocol):
    def catch_up(self, records: list[Recorded]) -> None: ...

    def on_event(self, recorded: Recorded) -> None: ...


class Display(Struct, frozen=True):
    on_event: Callable[[Recorded], None]
    asker: Asker | None = None
    alongside: InterfaceSession | None = None
    """Runs the live view in the driver's event loop."""
    left: Callable[[DriveResult], bool] = lambda ended: False
    """Whether the person moved the run to the background."""
    close: Callable[[], None] = lambda: None
    """Called when the driver is done, or could not start."""


def make_display(here: App, run: str, *, as_json: bool, alone: bool) -> Display:
    if as_json:
        return Display(lambda recorded: click.echo(event_json(recorded)))
    if alone or not is_interactive():
        return Display(_plain(here, run))
    columns, rows = _size()
    simple = session().apps.environ.get("TERM", "dumb") in ("dumb", "unknown")
    if simple or columns < LEAST_COLUMNS or rows < LEAST_ROWS:
        from windlass.interfaces.terminal.prompt import TerminalAsker

        return Display(_plain(here, run), TerminalAsker())
    display = _live(here, run)
    _show_start(here, run, display)
    display.greet()

    def left(ended: DriveResult) -> bool:
        return display.background and (ended.exit is Exit.INTERRUPTED or ended.reason == HANDED_OVER)

    return Display(display.on_event, display, display.alongside, left, display.close)


def _size() -> tuple[int, int]:
    """The current size. COLUMNS and LINES hold the size at the start of the shell."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return size.columns, size.lines


def _live(here: App, run: str) -> LiveDisplay:
    from prompt_toolkit.input import create_input

    from windlass.interfaces.terminal.live import LiveControls, LiveDisplay
    from windlass.interfaces.terminal.screen import terminal_screen

    screen = terminal_screen(
        sys.stdout.fileno(),
        create_input(),
        encoding=sys.stdout.encoding or "utf-8",
        color=colour_fits(),
        unicode=unicode_fits(),
        environ=session().apps.environ,
        size=_size,
        clock=here.host.clock,
    )
    controls = LiveControls(lambda text: here.service.controls.tell(run, text, "terminal"))
    return LiveDisplay(screen, controls, here.host.clock, here.host.named)


def _plain(here: App, run: str) -> Callable[[Recorded], None]:
    from windlass.interfaces.terminal.plain import PlainDisplay

    display = PlainDisplay(
        sys.stdout,
        width=width(),
        color=colour_fits(),
        unicode=unicode_fits(),
        clock=here.host.clock,
        place=here.host.named,
    )
    _show_start(here, run, display)
    return display.on_event


def _show_start(here: App, run: str, display: RunDisplay) -> None:
    """Print the events of a new run's start. Take in the events of an earlier driver without printing them."""
    records = here.service.events(run) if here.service.has_runs else []
    new = all(isinstance(recorded.event, RunStarted | StepEntered) for recorded in records)
    display.catch_up([] if new else records)
    for recorded in records if new else ():
        display.on_event(recorded)
