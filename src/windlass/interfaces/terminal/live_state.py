"""The state of the live view: the view of the run, and the last actions of each running agent."""

from __future__ import annotations

from collections import deque
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from windlass import events as e
from windlass.views.state import Running, View

#: actions kept per agent; older ones are in the attempt's folder
LAST = 8
MAX_TEXT = 1200


class ActionState(StrEnum):
    RUNNING = "running"
    OK = "ok"
    FAILED = "failed"
    SAID = "said"


class Action(NamedTuple):
    text: str
    done: ActionState
    call: str = ""
    """The agent's id for the call, if it gives one: results may arrive in another order than calls."""
    why: str = ""


class Mood(StrEnum):
    """What the person's last key requested."""

    RUNNING = "running"
    PAUSING = "pausing"
    LEAVING = "leaving"
    """Moving to the background."""
    STOPPING = "stopping"


class Live(Struct):
    view: View
    actions: dict[str, deque[Action]] = field(default_factory=dict)
    """By the key of a running dispatch."""
    mood: Mood = Mood.RUNNING
    details: bool = False
    ended: bool = False

    def add(self, event: e.Activity) -> None:
        ring = self.actions.get(event.key)
        if ring is None:
            if event.key not in self.view.running:
                return
            ring = self.actions[event.key] = deque(maxlen=LAST)
        text = event.text[:MAX_TEXT]
        calls = ((n, one) for n, one in enumerate(ring) if one.done is ActionState.RUNNING and one.call == event.call)
        match event.kind:
            case "tool.started":
                ring.append(Action(text, ActionState.RUNNING, event.call))
            case "tool.updated":
                for n, action in calls:
                    ring[n] = action._replace(why=text)
                    break
            case "tool.finished":
                done = ActionState.OK if event.ok else ActionState.FAILED
                for n, action in calls:
                    ring[n] = action._replace(done=done, why="" if event.ok else text)
                    return
                # The start was never shown or is no longer kept. Then only a failure gets a line.
                if not event.ok:
                    ring.append(Action(text, done))
            case "text" if text:
                ring.append(Action(text, ActionState.SAID))

    def forget(self) -> None:
        """Drop the actions of dispatches that ended: lines above the view report those."""
        for key in [key for key in self.actions if key not in self.view.running]:
            del self.actions[key]

    def start(self, key: str) -> None:
        """A new attempt under the same key starts without actions."""
        self.actions.pop(key, None)

    def last(self, running: Running) -> Action | None:
        """The running action, or else the last one."""
        ring = self.actions.get(running.key)
        if not ring:
            return None
        return next((action for action in reversed(ring) if action.done is ActionState.RUNNING), ring[-1])
