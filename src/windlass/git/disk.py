"""Room on the disk, and folders that resist being removed."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

MIN_FREE_BYTES = 200 * 1024 * 1024


def lacking(folder: Path, needed: int) -> str:
    """What is wrong, '' when there is room. `folder` need not exist yet; asking writes nothing."""
    there = next(place for place in (folder, *folder.parents) if place.is_dir())
    left = shutil.disk_usage(there).free
    if left >= needed:
        return ""
    return f"only {left // 2**20} MiB left on the disk of '{folder}', {needed // 2**20} MiB are needed"


def remove_tree(folder: Path) -> None:
    """Also what somebody made read-only, as tools do with their caches. Links are removed, never followed."""
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        make_writable(folder)
        shutil.rmtree(folder)


def make_writable(folder: Path) -> None:
    """To remove or replace a file one must be able to write to its folder; the file itself does not matter."""
    for here, folders, _ in os.walk(folder):
        for place in (Path(here), *(Path(here, name) for name in folders)):
            mode = place.lstat().st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
                place.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
