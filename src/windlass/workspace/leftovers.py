"""What programs left in a slot and git ignores: most of it saves work, some of it could speak for the code."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from fnmatch import fnmatch

from windlass.workspace.slot import Slot

# Made by set-up or by an agent's own installation; no test writes its answers there.
INSTALLED = frozenset({"node_modules", ".venv", "venv", ".tox", ".nox", "vendor", "target"})


def ignored(slot: Slot) -> frozenset[str]:
    """Files, and folders of which git ignores all, without the slash at their end."""
    return frozenset(path.rstrip("/") for path in _listed(slot))


def remove(slot: Slot, unwanted: Callable[[str], bool], copied: Sequence[str]) -> list[str]:
    """Take away ignored files and folders that are `unwanted`; what was copied from the user's checkout stays."""
    found = [path for path in _listed(slot) if _may_go(path, unwanted, copied)]
    for path in found:
        place = slot.path / path
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)
    return found


def _listed(slot: Slot) -> tuple[str, ...]:
    return slot.git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory").fields


def _may_go(path: str, unwanted: Callable[[str], bool], copied: Sequence[str]) -> bool:
    name = path.rstrip("/")
    kept = INSTALLED.intersection(name.split("/")) or any(fnmatch(name, glob) for glob in copied)
    # A whole folder is listed by its name alone: what is in it has the folder's meaning.
    return not kept and (unwanted(name) or (path.endswith("/") and unwanted(f"{name}/")))
