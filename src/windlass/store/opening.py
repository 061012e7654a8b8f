"""Opening a database: create it whole, find damage, migrate, and put sqlite's errors into our words."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from windlass.errors import ExhaustedError, StoppedError, StoreError, exhausted
from windlass.locks import DriverId, is_stopped, lock_holder
from windlass.private_files import close_to_others

MIGRATIONS = sorted(Path(__file__).with_name("migrations").glob("[0-9][0-9][0-9]-*.sql"))
VERSION = len(MIGRATIONS)
CHECK_S = 1.0
"""So long a driver looks for damage when it opens the database after a crash."""
CHECK_STEPS = 10_000
"""Instructions of sqlite between two looks at the clock."""
LEAST_BYTES = 64 * 1024
"""A disk with less than this left is full."""
KEPT = "it is kept as it is; move it aside to begin anew, or restore a copy of it"
SMALLEST_PAGE = 512
PERMISSIONS = "check its permissions and those of its folder"


BUSY_S = 2.0
"""So long is waited for a lock before somebody asks who has it."""
PATIENCE_S = 30.0
"""So long in all, for a holder that is at work."""
WRITE_LOCK = 120
"""The byte of the log's index that a writer locks: sqlite's file format."""


def connect(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_S, check_same_thread=not any_thread)


def begin(db: sqlite3.Connection, path: Path) -> None:
    """A write transaction. A holder that is at work is waited for; one that is stopped is named at once."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            if not _is_busy(error):
                raise in_our_words(error, path) from error
            holder = lock_holder(Path(f"{path}-shm"), "POSIX", WRITE_LOCK)
            if holder and is_stopped(holder):
                raise _stopped_holder(db, path, holder) from error
            if time.monotonic() >= until:
                raise in_our_words(error, path) from error
        else:
            return


def _is_busy(error: sqlite3.DatabaseError) -> bool:
    return isinstance(error, sqlite3.OperationalError) and ("locked" in str(error) or "busy" in str(error))


def _stopped_holder(db: sqlite3.Connection, path: Path, pid: int) -> StoppedError:
    whose = ""
    with suppress(sqlite3.DatabaseError):
        # Reading needs no lock.
        for run, driver in db.execute("SELECT id, driver FROM run WHERE state = 'running'"):
            known = DriverId.parse(driver)
            whose = f", the driver of run {run}" if known and known.here and known.pid == pid else whose
    return StoppedError(
        f"'{path}' is locked by process {pid}{whose}, which is stopped",
        hint=f"kill -CONT {pid} lets it go on; kill -KILL {pid} ends it, and what it was writing is taken back",
    )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        raise in_our_words(error, path) from error


def in_our_words(error: sqlite3.DatabaseError | OSError, path: Path) -> Exception:
    """What is wrong, where, and that nothing was replaced."""
    if isinstance(error, sqlite3.OperationalError):
        return _operational(error, path)
    if isinstance(error, sqlite3.DatabaseError):
        return StoreError(f"the database '{path}' cannot be read: {error}", hint=KEPT)
    if isinstance(error, PermissionError):
        return StoreError(f"cannot write to '{path}': {error.strerror}", hint=PERMISSIONS)
    return exhausted(error, path) or StoreError(f"'{path}': {os.strerror(error.errno or 0)}")


def _operational(error: sqlite3.OperationalError, path: Path) -> Exception:
    text = str(error)
    if "full" in text:
        return StoppedError(f"no space left for '{path}'", hint="free some disk space, then: windlass resume")
    if "locked" in text or "busy" in text:
        return StoppedError(f"'{path}' is locked by another process", hint="try again: windlass resume")
    lacking = _lacking(path)
    if lacking:
        return lacking
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"cannot write to '{path}': {text}", hint=PERMISSIONS)
    return StoreError(f"the database '{path}' cannot be used: {text}", hint="it is kept as it is")


def _lacking(path: Path) -> ExhaustedError | None:
    """sqlite does not say why it could not open or write a file. We try the same on the folder: opening the database
    itself would drop sqlite's locks on it."""
    try:
        os.close(os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC))
        space = os.statvfs(path.parent)
    except OSError as error:
        return exhausted(error, path)
    if space.f_flag & os.ST_RDONLY:
        return exhausted(OSError(errno.EROFS, "", str(path)))
    if space.f_bavail * space.f_frsize < LEAST_BYTES:
        return exhausted(OSError(errno.ENOSPC, "", str(path)))
    return None


def require_database(path: Path) -> None:
    """Contract: a database appears whole under its name (see `create_database`), so an empty file is damage."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise StoreError(
            f"no runs yet: '{path}' does not exist", hint='start one: windlass run "what to build"'
        ) from None
    if size < SMALLEST_PAGE:
        # sqlite would take it for a new one
        raise StoreError(f"the database '{path}' is damaged: it has {size} bytes", hint=KEPT)


def create_database(path: Path) -> None:
    """Under another name first: whoever sees the file sees a database, and a kill leaves none half made."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if os.path.lexists(path):
        return
    draft = path.with_name(f"{path.name}.new-{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            migrate(db, path)
        with suppress(FileExistsError):  # another process was first: its database counts
            os.link(draft, path)
    finally:
        for left in (draft, *_beside(draft)):
            left.unlink(missing_ok=True)


def close_database(path: Path) -> None:
    """Prompts and answers stand in it: what an older version or another umask left open to others is closed."""
    for file in (path.parent, path, *_beside(path)):
        with suppress(FileNotFoundError, PermissionError):
            close_to_others(file)


def check_after_crash(db: sqlite3.Connection, path: Path, *, crashed: bool, limit_s: float = CHECK_S) -> None:
    """Looks for damage when the last process did not close the database. Gives up after `limit_s`: a large database is
    then read as it is, and what is damaged in it is found when it is read."""
    if not crashed:
        return
    end = time.monotonic() + limit_s
    db.set_progress_handler(lambda: time.monotonic() > end, CHECK_STEPS)
    try:
        found = [str(row[0]) for row in db.execute("PRAGMA quick_check(1)")]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return
    finally:
        db.set_progress_handler(None, 0)
    if found != ["ok"]:
        raise StoreError(f"the database '{path}' is damaged: {found[0]}", hint=KEPT)


def was_left_open(path: Path) -> bool:
    """Whoever closes a database as the last one removes its log."""
    with suppress(OSError):
        return path.with_name(f"{path.name}-wal").stat().st_size > 0
    return False


def _beside(path: Path) -> tuple[Path, Path]:
    return path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")


def migrate(db: sqlite3.Connection, path: Path) -> None:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > VERSION:
        raise StoreError(
            f"'{path}' was written by a newer Windlass (schema {version}, this one knows {VERSION})",
            hint="upgrade windlass; nothing was changed",
        )
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        _apply(db, path, number, script.read_text())


def _apply(db: sqlite3.Connection, path: Path, number: int, script: str) -> None:
    begin(db, path)
    try:
        # Another process may have migrated while we waited for the lock.
        if int(db.execute("PRAGMA user_version").fetchone()[0]) < number:
            for statement in _statements(script):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _statements(script: str) -> Iterator[str]:
    """executescript commits on its own; we want one transaction."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""
