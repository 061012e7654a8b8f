"""Errors that a person can act on: the class is the fact, the hint is the way out."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of the command line."""

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
    """Base of every error that Windlass raises on purpose."""

    exit = Exit.USER

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(WindlassError):
    """The user has to fix it: config, flow, repository, missing agent."""


class StoppedError(WindlassError):
    """The run cannot continue without a person; it can be resumed."""

    exit = Exit.STOPPED


class JournalMismatchError(StoppedError):
    """A recorded step got other inputs than those on record."""


class OverBudgetError(StoppedError):
    """The next dispatch does not fit the run's spending limit."""


class LockHeldError(UserError):
    """Another driver is at work on this run."""


class StoreError(UserError):
    """The database cannot be used; it is not changed."""


class ExhaustedError(StoppedError):
    """The machine lacks something: disk space, open files, a writable disk."""


class GitError(StoppedError):
    """Git ran and reported a failure: an object is missing, a repository is damaged, a command is refused."""


class GitUnansweredError(StoppedError):
    """Git gave no answer: it was ended, took too long, met a lock or ran out of space.

    This says nothing about the repository. It is not a GitError, so code that treats a GitError as damage lets it
    through.
    """


class GitLockError(GitUnansweredError):
    """A lock file is in the way, and its owner is unknown."""


class LostAttemptError(WindlassError):
    """A newer driver took over; the results of this one no longer count."""

    exit = Exit.STOPPED


class TakenOverError(WindlassError):
    """Another driver has the run: this one ends its own agents and writes nothing more."""

    exit = Exit.STOPPED


class AbortedError(WindlassError):
    """A person ended the run."""

    exit = Exit.ABORTED


class InterruptedDriverError(WindlassError):
    """Ctrl-C or a signal: state is saved."""

    exit = Exit.INTERRUPTED


class DetourError(InterruptedDriverError):
    """A person wants the run to go another way: restart a stage, or go on without a phase."""


RESUME = "then: windlass resume"
#: errno -> what the machine lacks, and the hint
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
    """The stopped error for an OSError about the machine; None for all others.

    `path` is used when the error names no file.
    """
    if not isinstance(error, OSError) or error.errno not in _LACKS:
        return None
    where = error.filename if error.filename is not None else path
    return _exhausted_error(error.errno, where.decode("utf-8", "replace") if isinstance(where, bytes) else str(where))


def exhausted_in(text: str, path: object = "") -> ExhaustedError | None:
    """The same for the error text of another program, such as git."""
    low = text.lower()
    number = next((number for words, number in _LACK_BY_WORDS.items() if words in low), None)
    return _exhausted_error(number, str(path)) if number is not None else None


def _exhausted_error(number: int, where: str) -> ExhaustedError:
    what, hint = _LACKS[number]
    return ExhaustedError(f"{what}: '{where}'" if where else what, hint=hint)


def require_text(text: str, what: str) -> str:
    """The text itself. Bytes that are not UTF-8 become lone surrogates, which nothing can store or print."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise UserError(f"{what} is not valid UTF-8: '{shown[:200]}'", hint="use a name or a text in UTF-8") from None
    return text


def near(name: str, known: Iterable[str]) -> str:
    """' Did you mean x?' for the nearest known name, otherwise the list of known names."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if match:
        return f"did you mean '{match[0]}'?"
    return f"known: {', '.join(names)}" if names else "there are none"
