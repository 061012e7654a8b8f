"""Decides what follows a failed attempt, from its error class alone."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from windlass.config.schema import RetrySettings
from windlass.model import ErrorClass

FORMAT_RETRIES = 2

#: nothing is stored: the run stops, a person fixes the cause, a resume tries again
STOPS = {
    ErrorClass.OVER_BUDGET: "raise the limit: windlass resume --budget USD",
    ErrorClass.AUTH: "log in to the agent, then: windlass resume",
    ErrorClass.BILLING: "the account behind the agent needs credit; then: windlass resume",
    ErrorClass.MISSING_BINARY: "install the agent, or choose another with --agent; windlass agents shows what is there",
    ErrorClass.DISK_FULL: "free some disk space, then: windlass resume",
}


class TryAgain(Struct, frozen=True):
    """The same key, next attempt, after a pause."""

    pause_s: float = 0.0
    shared: bool = False
    """`QuotaWaits` decides the pause: one timer per login, for every dispatch."""


class Fail(Struct, frozen=True):
    """The failure is the step's result; the flow routes it."""


class Stop(Struct, frozen=True):
    """Nothing is stored; the run stops and a resume tries again."""

    hint: str


Next: TypeAlias = TryAgain | Fail | Stop


def after(error: ErrorClass, failed_before: int, retries: RetrySettings) -> Next:
    """`failed_before`: earlier attempts of this key that ended with this class."""
    if error in STOPS:
        return Stop(STOPS[error])
    pause = retries.pauses[min(failed_before, len(retries.pauses) - 1)]
    match error:
        case ErrorClass.RATE_LIMITED | ErrorClass.OVERLOADED:
            return TryAgain(shared=True)
        case ErrorClass.KILLED | ErrorClass.DRIVER_LOST:
            # A single such failure may be an accident; repeated ones are not.
            return TryAgain(pause if failed_before else 0.0)
        case ErrorClass.BAD_OUTPUT:
            return TryAgain() if failed_before < FORMAT_RETRIES else Fail()
        case ErrorClass.CRASHED:
            return TryAgain(pause) if failed_before < retries.crashed else Fail()
        case ErrorClass.TIMED_OUT:
            return TryAgain(pause if failed_before else 0.0) if failed_before < retries.timed_out else Fail()
        case ErrorClass.REFUSED:
            return TryAgain() if failed_before < retries.refused else Fail()
        case ErrorClass.CONTEXT_OVERFLOW:
            return TryAgain() if failed_before < retries.context_overflow else Fail()
        case _:
            return Fail()
