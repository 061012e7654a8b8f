"""Locks that the kernel frees when the process ends: one driver for a run, and short locks."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Literal

from msgspec import Struct, to_builtins

from windlass.errors import LockHeldError, StoppedError, TakenOverError
from windlass.private_files import make_private

LOCK_LOOK_S = 2.0
"""Wait this long for a lock before checking whether its holder is stopped, or for a lock that no driver holds."""
LOCK_PATIENCE_S = 120.0
"""The longest time of a git that runs under the lock."""


class DriverLock(Struct, frozen=True):
    """The lock that this process holds on a run."""

    path: Path
    run: str
    handle: int

    def require(self) -> None:
        """Raises when the file at the path is not the locked one: another driver may lock the run at any time."""
        held = os.fstat(self.handle)
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise self._lost("is gone") from None
        except OSError:
            return  # a file system that does not answer proves nothing
        if (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino):
            raise self._lost("is another file now")

    def _lost(self, what: str) -> TakenOverError:
        return TakenOverError(
            f"this driver lost its lock on run {self.run}: '{self.path}' {what}",
            hint=f"nothing was changed since; windlass resume {self.run} continues it",
        )


@contextmanager
def driver_lock(path: Path, run: str) -> Iterator[DriverLock]:
    make_private(path.parent)
    lock = _acquire(path, run)
    try:
        os.ftruncate(lock.handle, 0)
        os.pwrite(lock.handle, json.dumps({"pid": os.getpid()}).encode(), 0)
        yield lock
    finally:
        # A lock without a name in it is not a driver's. A disk that fails here must not hide why the driver ends.
        with suppress(OSError):
            os.ftruncate(lock.handle, 0)
        os.close(lock.handle)


def _acquire(path: Path, run: str) -> DriverLock:
    while True:
        # Not inherited by children: a left-over agent must not keep the run locked.
        lock = DriverLock(path, run, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        if not _lock_unless_driven(path, lock.handle, fcntl.LOCK_EX):
            os.close(lock.handle)
            raise LockHeldError(
                f"run {run} is driven by process {holder(path) or 'unknown'}",
                hint="windlass log --follow watches it; windlass pause stops it",
            )
        try:
            lock.require()
        except TakenOverError:
            # The file was removed between opening and locking: others see another file.
            os.close(lock.handle)
        else:
            return lock


def is_driven(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock_unless_driven(path, handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _lock_unless_driven(path: Path, handle: int, kind: int) -> bool:
    """Lock the open file. False: a driver holds it.

    Others hold it for a moment: `is_driven` in another process, and a child of a killed driver until it is the program
    that the driver started. The driver that the file names does not run then, and the lock is soon free.
    """
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if _runs(holder(path)) or time.monotonic() - begun > LOCK_LOOK_S:
                return False
            time.sleep(0.005)
        else:
            return True


def holder(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


# -- a short lock


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an OS lock for a moment; the kernel frees it after `kill -9`. Raises if the holder is stopped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        begun = time.monotonic()
        while not try_lock(handle):
            time.sleep(0.005)
            if (waited := time.monotonic() - begun) > LOCK_LOOK_S:
                # The holder writes its number, but may be stopped before that; not every system has /proc/locks.
                handle.seek(0)
                owner = str(lock_holder(path, "FLOCK") or handle.read().strip())
                stopped = owner.isdigit() and is_stopped(int(owner))
                if stopped or waited > LOCK_PATIENCE_S:
                    raise StoppedError(
                        f"'{path}' is locked by process {owner or 'unknown'}{', which is stopped' if stopped else ''}",
                        hint=f"kill -CONT {owner} lets it go on, kill -KILL {owner} ends it",
                    )
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def try_lock(file: IO[str] | IO[bytes] | int) -> bool:
    """False: another process holds the lock on this open file."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# -- the identity of a driver


class DriverId(Struct, frozen=True):
    """A process, distinct from every other one with the same number."""

    host: str
    boot: str
    pid: int
    start: int

    @classmethod
    def own(cls) -> DriverId:
        return cls(socket.gethostname(), boot_id(), os.getpid(), process_start(os.getpid()))

    @classmethod
    def parse(cls, text: str) -> DriverId | None:
        try:
            data = json.loads(text)
            return cls(str(data["host"]), str(data["boot"]), int(data["pid"]), int(data["start"]))
        except (ValueError, KeyError, TypeError):
            return None

    def to_json(self) -> str:
        return json.dumps(to_builtins(self))

    @property
    def here(self) -> bool:
        """Whether it runs, or ran, under this kernel."""
        return (self.host, self.boot) == (socket.gethostname(), boot_id())

    @property
    def may_live(self) -> bool:
        """False only when it is proved to be gone."""
        if self.host != socket.gethostname():
            return True
        if self.boot != boot_id():
            return False
        return process_start(self.pid) == self.start if self.start else _exists(self.pid)


def is_stopped(pid: int) -> bool:
    """Stopped by a signal or a debugger: it keeps its locks until it continues."""
    return (_stat(pid) or [""])[0] in ("T", "t")


def lock_holder(file: Path, kind: Literal["FLOCK", "POSIX"], byte: int = 0) -> int:
    """The process that has the lock for writing on that byte of a file; 0 when the system does not say."""
    try:
        number = str(os.stat(file).st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return 0
    for words in map(str.split, lines):
        # As in: 7: POSIX ADVISORY WRITE 4711 08:01:2345 120 120
        if words[1:4:2] == [kind, "WRITE"] and words[5].rpartition(":")[2] == number:
            first, last = words[6:8]
            if int(first) <= byte and (last == "EOF" or int(last) >= byte):
                return int(words[4])
    return 0


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_start(pid: int) -> int:
    """Clock ticks since boot at which the process started; 0 when it does not exist or is unknown."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 and fields[0] not in ("Z", "X") else 0


def _runs(pid: int | None) -> bool:
    return pid is not None and _exists(pid) and (_stat(pid) or [""])[0] not in ("Z", "X")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; the name before may contain spaces and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    except OSError:
        return []
