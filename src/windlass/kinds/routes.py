"""Where an outcome leads: the target words of the flow language, parsed once."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct


class To(StrEnum):
    #: the phase or step after this one
    NEXT = "next"
    #: a phase or, inside tasks, a step by its id
    GOTO = "goto"
    #: end resumable, with the reason
    STOP = "stop"
    #: end for good, with an error
    ABORT = "abort"
    FINISH = "finish"
    #: end resumable because a gate or decision is missing
    BLOCK = "block"
    ASK = "ask"
    #: a stage from its first phase; 'here' and 'previous' are resolved by the machine
    RESTART = "restart"
    #: switch the flow's mode and begin its list
    MODE = "mode"
    #: the same phase once more, as a new visit
    AGAIN = "again"
    #: continue, with a recorded waiver
    WAIVE = "waive"
    #: one more round of the review's fixer, as a new visit
    FIX = "fix"
    #: inside tasks: the whole task once more, as a new visit
    REDO = "redo"
    SKIP = "skip"
    #: inside tasks: apply the failure policy
    FAIL = "fail"
    #: inside tasks: leave the task list with outcome `escape`
    ESCAPE = "escape"


BARE = {to.value: to for to in To if to not in (To.GOTO, To.ASK, To.RESTART, To.MODE)}
TASK_ONLY = frozenset({To.REDO, To.SKIP, To.FAIL, To.ESCAPE})
PHASE_ONLY = frozenset({To.RESTART, To.MODE})
#: targets that enter a phase or a step again
BACK = frozenset({To.AGAIN, To.REDO, To.RESTART, To.FIX})


class Target(Struct, frozen=True):
    to: To
    arg: str = ""
    otherwise: str = ""
    """`restart TEST else IMPLEMENT`: taken when the first stage is disabled. When both are, the current stage begins
    again."""

    @classmethod
    def parse(cls, text: str) -> Target:
        words = text.split()
        match words:
            case ["ask", question]:
                return cls(To.ASK, question)
            case ["mode", name]:
                return cls(To.MODE, name)
            case ["restart", stage]:
                return cls(To.RESTART, stage)
            case ["restart", stage, "else", other]:
                return cls(To.RESTART, stage, other)
            case ["block", *reason]:
                return cls(To.BLOCK, " ".join(reason))
            case [word] if word in BARE:
                return cls(BARE[word])
            case [word]:
                return cls(To.GOTO, word)
            case _:
                raise ValueError(f"'{text}' is not a target")

    def __str__(self) -> str:
        if self.to is To.GOTO:
            return self.arg
        other = f" else {self.otherwise}" if self.otherwise else ""
        return f"{self.to.value} {self.arg}".strip() + other


class Route(Struct, frozen=True):
    """A target, or a counted one: at most `max` times, after that `then`."""

    target: Target
    max: int | str | None = None
    then: Target | None = None

    @classmethod
    def of(cls, value: Any) -> Any:
        """From a flow file: a target, or the keys to, max and then."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls(Target.parse(value))
        keys = set(value) if isinstance(value, dict) else set()
        if keys != {"to", "max", "then"}:
            exactly = "a counted route has exactly the keys to, max and then"
            raise ValueError(exactly if keys else "a route is a target, or {to, max, then}")
        limit = str(value["max"])
        if not limit.startswith("$") and not limit.isdigit():
            raise ValueError(f"max is a number or a $setting, not '{limit}'")
        count = limit if limit.startswith("$") else int(limit)
        return cls(Target.parse(str(value["to"])), count, Target.parse(str(value["then"])))

    def __str__(self) -> str:
        return f"{self.target} (at most {self.max}, then {self.then})" if self.then else str(self.target)
