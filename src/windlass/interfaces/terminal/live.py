"""The live face: a view at the foot of the terminal, history above it, questions in between.

It lives in the driver's own loop and is told of every event. It draws when there is time, never for each event.
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
TELL = Question("tell", "What shall the agent that writes code know? Its next dispatch is given it.", type="input")


class LiveControls(Struct, frozen=True):
    """What the face may do to the run besides watching it."""

    tell: Callable[[str], object]


class LiveFace:
    """Contract: `on_event` never raises for what an event holds, never waits. As an asker: None when it was closed."""

    def __init__(self, screen: Screen, hands: LiveControls, clock: Callable[[], float], place: str = "") -> None:
        self._screen = screen
        self._hands = hands
        self._history = History(screen.look, color=screen.color, clock=clock, place=place)
        self.live = Live(self._history.view)
        self.background = False
        """The person left: a driver in the background shall go on."""
        self._reins: DriverControls | None = None
        self._last: Recorded | None = None
        self._turn = asyncio.Lock()
        """One dialog at a time: a question waits while a person is telling something."""

    # -- events

    def catch_up(self, records: Iterable[Recorded]) -> None:
        self._history.catch_up(records)

    def gone(self) -> None:
        """Whatever became of the run: what was said is shown."""
        self._screen.close()

    def greet(self) -> None:
        """The first words, before the driver is ready."""
        self._screen.say(self._history.drain())

    def on_event(self, recorded: Recorded) -> None:
        match recorded.event:
            case e.Activity() as event:
                self._history.on_event(recorded)
                self.live.note(event)
            case e.RunEnded():
                # Its words come below the view's last picture.
                self._last = recorded
            case e.DispatchStarted() as event:
                self._history.on_event(recorded)
                self.live.begun(event.key)
            case _:
                self._history.on_event(recorded)
                self.live.forget()
        self._screen.changed()

    # -- in the driver's loop

    @asynccontextmanager
    async def beside(self, reins: DriverControls) -> AsyncIterator[None]:
        self._reins = reins
        await self._screen.open(self.live, self._history, self._pressed)
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        self.live.ended = True
        if self._last:
            self._history.fold(self._last)
        await self._screen.finish()
        if self._last and not self.background:
            self._history.on_event(self._last)
        self._screen.close()

    async def __call__(self, key: str, question: Question, problem: str) -> Answer | None:
        async with self._turn:
            said = await self._screen.ask(question, problem)
        if said is None:
            self._history.left_open(key)
        return said

    # -- keys

    def _pressed(self, key: str) -> None:
        """p, t, d, b while the run goes on; c-c always."""
        match key:
            case "p":
                self._pause_or_go_on()
            case "t":
                self._screen.spawn(self._tell())
            case "d":
                self.live.details = not self.live.details
            case "b":
                self._leave()
            case _:
                self._interrupt()
        self._screen.changed()

    def _pause_or_go_on(self) -> None:
        if self.live.mood is Mood.RUNNING:
            self._want(Mood.PAUSING, PAUSED)
        elif self.live.mood is not Mood.STOPPING:
            self.live.mood, self.background = Mood.RUNNING, False
            self._held.go_on()

    def _leave(self) -> None:
        """Once: when the agents at work are done. Twice: now, and what they were at begins again."""
        if self.live.mood is Mood.LEAVING:
            self._stop()
        elif self.live.mood is not Mood.STOPPING:
            self.background = True
            self._want(Mood.LEAVING, HANDED_OVER)

    def _interrupt(self) -> None:
        self.background = False
        if self.live.mood is Mood.RUNNING:
            self._want(Mood.PAUSING, PAUSED)
        else:
            self._stop()

    def _want(self, mood: Mood, why: str) -> None:
        self.live.mood = mood
        self._held.pause(why)

    def _stop(self) -> None:
        self.live.mood = Mood.STOPPING
        self._held.stop(HANDED_OVER if self.background else INTERRUPTED)

    @property
    def _held(self) -> DriverControls:
        assert self._reins is not None
        return self._reins

    async def _tell(self) -> None:
        if self._turn.locked():
            return
        async with self._turn:
            said = await self._screen.ask(TELL, "")
        if said is not None:
            with suppress(WindlassError, OSError):
                self._hands.tell(said.value)
