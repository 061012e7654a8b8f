"""Files and folders for their owner alone, whatever the umask: a run's record holds what agents read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TextIO

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(folder: Path) -> None:
    """The folder and those of its parents that are missing; it is closed to others also when it was there already."""
    if not folder.parent.is_dir():
        make_private(folder.parent)
    folder.mkdir(exist_ok=True, mode=stat.S_IRWXU)
    close_to_others(folder)


def close_to_others(path: Path) -> None:
    """What an older version or another umask left open. Raises FileNotFoundError or PermissionError as chmod does."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & OTHERS:
        path.chmod(mode & ~OTHERS)


def open_private(path: Path, *, errors: str = "replace", newline: str | None = None) -> TextIO:
    """To append."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.fchmod(opened, 0o600)
    return open(opened, "a", encoding="utf-8", errors=errors, newline=newline)


def write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open_private(path) as file:
        file.write(text)
