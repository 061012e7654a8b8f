"""Errors that a person can act on. The class is the kind of error; the hint says what to do."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line."""

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
    """Base class of all expected errors."""

    exit = Exit.USER

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UserError(WindlassError):
    """The user must fix something: config, flow, repository, a missing agent."""


class StoppedError(WindlassError):
    """The run cannot continue by itself. It can be resumed."""

    exit = Exit.STOPPED


class JournalMismatchError(StoppedError):
    """A recorded step was requested with inputs that differ from the recorded ones."""


class OverBudgetError(StoppedError):
    """The next dispatch would exceed the run's spending limit."""


class LockHeldError(UserError):
    """Another driver is at work on this run."""


class StoreError(UserError):
    """The database cannot be used. Nothing in it was changed."""


class ExhaustedError(StoppedError):
    """The machine lacks a resource, such as disk space, open files or a writable disk."""


class GitError(StoppedError):
    """A required git command failed."""


class GitUnansweredError(GitError):
    """git was killed, timed out, met a lock or ran out of space. This says nothing about the repository, so code that
    reads a failed git command as damage or as a missing object must not catch this error."""


class GitLockError(GitUnansweredError):
    """A git lock file exists, and Windlass cannot know which process owns it."""


class LostAttemptError(WindlassError):
    """A newer driver took over. The work of this driver no longer counts."""

    exit = Exit.STOPPED


class TakenOverError(WindlassError):
    """Another driver owns the run now. This one ends its own agents and writes nothing more."""

    exit = Exit.STOPPED


class AbortedError(WindlassError):
    """A person aborted the run."""

    exit = Exit.ABORTED


class InterruptedDriverError(WindlassError):
    """Ctrl-C or a signal interrupted the driver. The state is saved."""

    exit = Exit.INTERRUPTED


RESUME = "then: windlass resume"
#: errno -> what the machine lacks, and the hint
_LACKS = {
    errno.ENOSPC: ("no space is left on the disk", f"free some disk space (windlass gc helps), {RESUME}"),
    errno.EDQUOT: ("the disk quota is used up", f"free some disk space or raise the quota, {RESUME}"),
    errno.EROFS: ("the file system is read-only", f"mount it for writing, {RESUME}"),
    errno.EMFILE: ("too many files are open in this process", f"raise the limit (ulimit -n 4096), {RESUME}"),
    errno.ENFILE: ("too many files are open on this machine", f"close programs that hold them (fs.file-max), {RESUME}"),
    errno.ENOMEM: ("no memory is left", f"close other programs or use fewer --slots, {RESUME}"),
    errno.EAGAIN: ("no more processes can be started", f"raise the limit (ulimit -u) or use fewer --slots, {RESUME}"),
    errno.EIO: ("the disk reports an error", f"check the disk and the system log, {RESUME}"),
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
    """The error for an OSError that the machine caused, not Windlass. None for any other error.

    `path` is used if the error names no file.
    """
    if not isinstance(error, OSError) or error.errno not in _LACKS:
        return None
    where = error.filename if error.filename is not None else path
    return _lacking(error.errno, where.decode("utf-8", "replace") if isinstance(where, bytes) else str(where))


def exhausted_in(text: str, path: object = "") -> ExhaustedError | None:
    """The same for an error message of another program, such as git's standard error."""
    low = text.lower()
    number = next((number for words, number in _LACK_BY_WORDS.items() if words in low), None)
    return _lacking(number, str(path)) if number is not None else None


def _lacking(number: int, where: str) -> ExhaustedError:
    what, hint = _LACKS[number]
    return ExhaustedError(f"{what}: '{where}'" if where else what, hint=hint)


def require_text(text: str, what: str) -> str:
    """Return the text. Raise if it has lone surrogates: they come from bytes that are not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        shown = text.encode("utf-8", "backslashreplace").decode()
        raise UserError(f"{what} is not valid UTF-8: '{shown[:200]}'", hint="use UTF-8") from None
    return text


def near(name: str, known: Iterable[str]) -> str:
    """A hint: the nearest known name, or else the list of known names."""
    names = sorted(known)
    match = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if match:
        return f"did you mean '{match[0]}'?"
    return f"known: {', '.join(names)}" if names else "there are none"
