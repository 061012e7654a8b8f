"""Helpers around real processes: who is alive, who carries a marker, wait until something holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
for fd in range(3):
    os.close(fd)
open(sys.argv[1], "w").write(str(os.getpid()))
while True:
    time.sleep(60)
"""
"""A daemon by the book: two forks, a session of its own, deaf to TERM."""


def stubborn(folder: Path) -> tuple[Path, Path]:
    """The daemon's program, and the file it writes its pid to once it is cut loose."""
    program = folder / "stubborn.py"
    program.write_text(STUBBORN)
    return program, folder / "daemon.pid"


def until(holds: Callable[[], bool], seconds: float = 300.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_pid(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip().isdigit())
    return int(path.read_text())
