"""What the live view knows: the fold of the run's events, and what each agent at work did last."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from windlass import events as e
from windlass.views.state import Running, View

#: a ring per agent; older actions are in the attempt's folder
LAST = 8
MAX_TEXT = 1200


class FinishedAction(StrEnum):
    """How an action stands."""

    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    SAID = "said"


class Action(NamedTuple):
    text: str
    done: FinishedAction
    call: str = ""
    """The agent's own name for the call, where it gives one: results may come in another order than calls."""
    why: str = ""


class Mood(StrEnum):
    """What the person at the keys asked for."""

    RUNNING = "running"
    PAUSING = "pausing"
    LEAVING = "leaving"
    """To the background."""
    STOPPING = "stopping"


class Live(Struct):
    view: View
    actions: dict[str, deque[Action]] = field(default_factory=dict)
    """By the dispatch's key; a key that is no longer at work is forgotten."""
    mood: Mood = Mood.RUNNING
    details: bool = False
    ended: bool = False

    def note(self, event: e.Activity) -> None:
        ring = self.actions.get(event.key)
        if ring is None:
            if event.key not in self.view.running:
                return
            ring = self.actions[event.key] = deque(maxlen=LAST)
        if event.kind == "tool.started":
            ring.append(Action(event.text[:MAX_TEXT], FinishedAction.RUNNING, event.call))
        elif event.kind == "tool.updated":
            _update(ring, event)
        elif event.kind == "tool.finished":
            _finish(ring, event)
        elif event.kind == "text" and event.text:
            ring.append(Action(event.text[:MAX_TEXT], FinishedAction.SAID))

    def forget(self) -> None:
        """What ended is told by the lines above the view."""
        for key in [key for key in self.actions if key not in self.view.running]:
            del self.actions[key]

    def begun(self, key: str) -> None:
        """Another attempt under the same key starts with an empty ring."""
        self.actions.pop(key, None)

    def last(self, running: Running) -> Action | None:
        """What it does right now, else what it did last."""
        ring = self.actions.get(running.key)
        if not ring:
            return None
        return next((action for action in reversed(ring) if action.done is FinishedAction.RUNNING), ring[-1])


def _update(ring: deque[Action], event: e.Activity) -> None:
    for n, action in enumerate(ring):
        if action.done is FinishedAction.RUNNING and action.call == event.call:
            ring[n] = action._replace(why=event.text[:MAX_TEXT])
            return


def _finish(ring: deque[Action], event: e.Activity) -> None:
    done = FinishedAction.OK if event.ok else FinishedAction.FAILED
    for n, action in enumerate(ring):
        if action.done is FinishedAction.RUNNING and action.call == event.call:
            why = "" if event.ok else event.text[:MAX_TEXT]
            ring[n] = action._replace(done=done, why=why)
            return
    # Its beginning was never shown, or fell out of the ring: only a failure is worth a line of its own.
    if not event.ok:
        ring.append(Action(event.text[:MAX_TEXT], done))
