"""The live display: a view at the bottom of the terminal, history above it, questions between them.

It runs in the driver's event loop and receives every event. It draws at intervals, not for each event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from msgspec import Struct

from windlass import events as e
from windlass.errors import WindlassError
from windlass.events import HANDED_OVER, Recorded
from windlass.interfaces.terminal.history import History
from windlass.interfaces.terminal.live_state import Live, Mood
from windlass.interfaces.terminal.screen import Screen
from windlass.model import Answer, Question
from windlass.runs.drive import INTERRUPTED, DriverControls

PAUSED = "paused by the user"
TELL = Question("tell", "What should the agent that writes code know? Its next dispatch receives it.", type="input")


class LiveControls(Struct, frozen=True):
    """What the display may do to the run."""

    tell: Callable[[str], object]


class LiveDisplay:
    """Contract: `on_event` never waits, and never raises because of an event's content. As an asker: None if closed."""

    def __init__(self, screen: Screen, controls: LiveControls, clock: Callable[[], float], place: str = "") -> None:
        self._screen = screen
        self._controls = controls
        self._history = History(screen.look, color=screen.color, clock=clock, place=place)
        self.live = Live(self._history.view)
        self.background = False
        """The person moved the run to the background."""
        self._driver_controls: DriverControls | None = None
        self._last: Recorded | None = None
        self._turn = asyncio.Lock()
        """One dialog at a time: a question waits while a person types a message."""

    # -- events

    def catch_up(self, records: Iterable[Recorded]) -> None:
        self._history.catch_up(records)

    def close(self) -> None:
        """Show the remaining output."""
        self._screen.close()

    def greet(self) -> None:
        """Print the first lines, before the driver is ready."""
        self._screen.say(self._history.drain())

    def on_event(self, recorded: Recorded) -> None:
        match recorded.event:
            case e.Activity() as event:
                self._history.on_event(recorded)
                self.live.add(event)
            case e.RunEnded():
                # Printed below the last drawing of the view.
                self._last = recorded
            case e.DispatchStarted() as event:
                self._history.on_event(recorded)
                self.live.start(event.key)
            case _:
                self._history.on_event(recorded)
                self.live.forget()
        self._screen.changed()

    # -- in the driver's loop

    @asynccontextmanager
    async def alongside(self, controls: DriverControls) -> AsyncIterator[None]:
        self._driver_controls = controls
        await self._screen.open(self.live, self._history, self._on_key)
        try:
            yield
        finally:
            self.live.ended = True
            if self._last:
                self._history.fold(self._last)
            await self._screen.finish()
            if self._last and not self.background:
                self._history.on_event(self._last)
            self._screen.close()

    async def __call__(self, key: str, question: Question, problem: str) -> Answer | None:
        async with self._turn:
            answer = await self._screen.ask(question, problem)
        if answer is None:
            self._history.print_open_question(key)
        return answer

    # -- keys

    def _on_key(self, key: str) -> None:
        """p, t, d and b work while no question is open; c-c always."""
        mood = self.live.mood
        match key:
            case "p" if mood is Mood.RUNNING:
                self._pause(Mood.PAUSING, PAUSED)
            case "p" if mood is not Mood.STOPPING:
                self.live.mood, self.background = Mood.RUNNING, False
                self._driver.go_on()
            case "t":
                self._screen.spawn(self._tell())
            case "d":
                self.live.details = not self.live.details
            case "b" if mood is Mood.LEAVING:
                # The second press leaves now; the dispatches of the running agents start again.
                self._stop()
            case "b" if mood is not Mood.STOPPING:
                # The first press leaves when the running agents finish.
                self.background = True
                self._pause(Mood.LEAVING, HANDED_OVER)
            case "c-c":
                self.background = False
                self._pause(Mood.PAUSING, PAUSED) if mood is Mood.RUNNING else self._stop()
            case _:
                # p and b do nothing while the run stops.
                pass
        self._screen.changed()

    def _pause(self, mood: Mood, why: str) -> None:
        self.live.mood = mood
        self._driver.pause(why)

    def _stop(self) -> None:
        self.live.mood = Mood.STOPPING
        self._driver.stop(HANDED_OVER if self.background else INTERRUPTED)

    @property
    def _driver(self) -> DriverControls:
        assert self._driver_controls is not None
        return self._driver_controls

    async def _tell(self) -> None:
        if self._turn.locked():
            return
        async with self._turn:
            answer = await self._screen.ask(TELL, "")
        if answer is not None:
            with suppress(WindlassError, OSError):
                self._controls.tell(answer.value)
