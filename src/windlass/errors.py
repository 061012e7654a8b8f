"""Errors that a person can act on: the class is the fact, the hint is the way out."""

from __future__ import annotations

import difflib
import errno
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
    IN_PART = 14
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


class ExhaustedError(StoppedError):
    """The machine has run out of something: disk space, open files, a disk that may be written."""


class GitError(StoppedError):
    """Git ran and reported a failure: an object is missing, a repository is damaged, a command is refused."""


class GitUnansweredError(StoppedError):
    """Git gave no answer: it was ended, took too long, met a lock or ran out of space.

    This says nothing about the repository. It is no GitError, so code that treats a GitError as damage lets it through.
    """


class GitLockError(GitUnansweredError):
    """A lock file is in the way, and Windlass cannot know whose it is."""


class LostAttemptError(WindlassError):
    """A newer driver took over; what this one did no longer counts."""

    exit = Exit.STOPPED


class TakenOverError(WindlassError):
    """The run is no longer this driver's: it ends its own agents and writes nothing more."""

    exit = Exit.STOPPED


class AbortedError(WindlassError):
    """A person ended the run."""

    exit = Exit.ABORTED


class InterruptedDriverError(WindlassError):
    """Ctrl-C or a signal: state is saved."""

    exit = Exit.INTERRUPTED


RESUME = "then: windlass resume"
#: errno -> what the machine lacks, and the way out
_LACKS = {
    errno.ENOSPC: ("no space is left on the disk", f"free some disk space (windlass gc helps), {RESUME}"),
    errno.EDQUOT: ("the disk quota is used up", f"free some disk space or have the quota raised, {RESUME}"),
    errno.EROFS: ("the file system is read-only", f"mount it for writing, {RESUME}"),
    errno.EMFILE: ("too many files are open in this process", f"raise the limit (ulimit -n 4096), {RESUME}"),
    errno.ENFILE: ("too many files are open on this machine", f"end what holds them (fs.file-max), {RESUME}"),
    errno.ENOMEM: ("no memory is left", f"end other programs or use fewer --slots, {RESUME}"),
    errno.EAGAIN: ("no more processes may be started", f"raise the limit (ulimit -u) or use fewer --slots, {RESUME}"),
    errno.EIO: ("the disk reports an error", f"look at the disk and at the system's log, {RESUME}"),
}
_LACK_BY_WORDS = {
    "no space left on device": errno.ENOSPC,
    "disk quota exceeded": errno.EDQUOT,
    "read-only file system": errno.EROFS,
    "too many open files in system": errno.ENFILE,
    "too many open files": errno.EMFILE,
    "cannot allocate memory": errno.ENOMEM,
    "input/output error": errno.EIO,
}


def exhausted(error: BaseException, path: object = "") -> ExhaustedError | None:
    """The stopped error for an OSError that tells of the machine and not of Windlass; None for all others.

    `path` is used where the error names no file.
    """
    if not isinstance(error, OSError) or error.errno not in _LACKS:
        return None
    where = error.filename if error.filename is not None else path
    return _lacking(error.errno, where.decode("utf-8", "replace") if isinstance(where, bytes) else str(where))


def exhausted_in(text: str, path: object = "") -> ExhaustedError | None:
    """The same for what another program said about itself, as git does on its standard error."""
    low = text.lower()
    number = next((number for words, number in _LACK_BY_WORDS.items() if words in low), None)
    return _lacking(number, str(path)) if number is not None else None


def _lacking(number: int, where: str) -> ExhaustedError:
    what, hint = _LACKS[number]
    return ExhaustedError(f"{what}: '{where}'" if where else what, hint=hint)


def require_text(text: str, what: str) -> str:
    """The text itself. Bytes that are no UTF-8 come in as lone surrogates, which nothing can store or print."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise UserError(f"{what} is not valid UTF-8: '{shown[:200]}'", hint="use a name or a text in UTF-8") from None
    return text


def near(name: str, known: Iterable[str]) -> str:
    """' Did you mean x?' for the nearest known name, else the list of what exists."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if match:
        return f"did you mean '{match[0]}'?"
    return f"known: {', '.join(names)}" if names else "there are none"
