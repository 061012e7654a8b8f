"""Errors that a person can act on: the class is the fact, the hint is the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """What the command line tells the shell."""

    OK = 0
    USER = 1
    USAGE = 2
    BUG = 3
    WAITING = 10
    PAUSED = 11
    STOPPED = 12
    ABORTED = 13
    INTERRUPTED = 130


class WindlassError(Exception):
    """Base of everything we raise on purpose."""

    exit = Exit.USER

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(WindlassError):
    """The user's to fix: bad config, flow, repository, missing agent."""


class UsageError(WindlassError):
    """The command line cannot be understood."""

    exit = Exit.USAGE


class StoppedError(WindlassError):
    """The run cannot go on by itself; it stays resumable."""

    exit = Exit.STOPPED


class JournalMismatchError(StoppedError):
    """A recorded step was asked for with other inputs than it was recorded with."""


class OverBudgetError(StoppedError):
    """The next dispatch does not fit the run's spending limit."""


class LockHeldError(UserError):
    """Another driver is at work on this run."""


class StoreError(UserError):
    """The database cannot be used as it is; it is kept untouched."""


class GitError(StoppedError):
    """A git command that had to work failed."""


class GitLockError(GitError):
    """A lock file is in the way, and Windlass cannot know whose it is."""


class LostAttemptError(WindlassError):
    """A newer driver took over; what this one did no longer counts."""

    exit = Exit.STOPPED


class AbortedError(WindlassError):
    """A person ended the run."""

    exit = Exit.ABORTED


class InterruptedDriverError(WindlassError):
    """Ctrl-C or a signal: state is saved."""

    exit = Exit.INTERRUPTED


def near(name: str, known: Iterable[str]) -> str:
    """' Did you mean x?' for the nearest known name, else the list of what exists."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if match:
        return f"did you mean '{match[0]}'?"
    return f"known: {', '.join(names)}" if names else "there are none"
