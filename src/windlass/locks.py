"""One driver per run: an OS lock on a file, freed by the kernel whatever ends the process."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from windlass.errors import LockHeldError
from windlass.private import make_private


@contextmanager
def driver_lock(path: Path, run: str) -> Iterator[None]:
    make_private(path.parent)
    # Not inherited by children: a left-over agent must not keep the run locked.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeldError(
                f"run {run} is driven by process {holder(path) or 'unknown'}",
                hint="windlass log --follow watches it; windlass pause stops it",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid()}).encode(), 0)
        yield
    finally:
        os.close(handle)


def is_driven(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def holder(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
