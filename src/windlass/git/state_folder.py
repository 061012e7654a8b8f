"""Finds the state folder of a repository, also after the repository was moved or copied, or the folder was lost.

The repository's path leads to its state folder. An id in each confirms the other: the repository's is in `<git
folder>/windlass/place.json`, the state folder's in `owner.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from windlass.errors import StoppedError
from windlass.locks import holder, is_driven
from windlass.private_files import replace_file

PLACE, OWNER = "place.json", "owner.json"


class StateFolder(Struct, frozen=True):
    """The places of a repository and its state folder, and what happened to them."""

    id: str
    path: str
    """Its git folder."""
    home: str
    """Its state folder."""
    note: str = ""
    """What happened to it last, for a person; '' for nothing."""
    noted_at: float = 0.0
    copied_at: float = 0.0
    """Earlier runs belong to the repository that this one was copied from; 0 when it is not a copy."""


def repo_id(common_dir: Path) -> str:
    """The same for every worktree of a repository, until it is moved."""
    place = common_dir.resolve()
    name = place.parent.name if place.name == ".git" else place.name
    readable = "".join(c if c.isalnum() and c.isascii() else "-" for c in name)[:32].strip("-") or "repo"
    return f"{readable}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:12]}"


def look_up(common_dir: Path, state_dir: Path) -> StateFolder:
    """The result of `settle_home`, without changes."""
    return _look_up(common_dir, state_dir.resolve() / "windlass" / repo_id(common_dir))[0]


def settle_home(common_dir: Path, state_dir: Path) -> StateFolder:
    """The repository's state folder, which moves with the repository. It need not exist yet."""
    home = state_dir.resolve() / "windlass" / repo_id(common_dir)
    found, old = _look_up(common_dir, home)
    known = _read(common_dir / "windlass" / PLACE)
    if home.exists() and (owner := _owner(home)) not in ("", found.id):
        # Another repository was at this path before: its state is kept under its id.
        home.rename(home.with_name(f"{home.name}-{owner}"))
    if old is not None and not home.exists():
        for lock in sorted((common_dir / "windlass" / "locks").glob("*.lock")):
            # A driver that began before the move still works in the old folder.
            if is_driven(lock) and holder(lock) != os.getpid():
                raise StoppedError(
                    f"the repository was moved while process {holder(lock) or 'unknown'} drives run {lock.stem}",
                    hint=f"end that process, then: windlass resume {lock.stem}",
                )
        old.rename(home)
    if found != known:
        replace_file(common_dir / "windlass" / PLACE, json.dumps(to_builtins(found)), sync_to="name")
    if _owner(home) != found.id:
        replace_file(home / OWNER, json.dumps({"id": found.id, "path": found.path}), sync_to="name")
    return found


def _look_up(common_dir: Path, home: Path) -> tuple[StateFolder, Path | None]:
    """The repository's current state folder, and the old one to move, if there is one."""
    path, now = str(common_dir.resolve()), time.time_ns() / 1e9
    known = _read(common_dir / "windlass" / PLACE)
    if known is None:
        return StateFolder(_new_id(path, now), path, str(home)), None
    if known.path == path:
        if (home / "repo.git").exists():
            return replace(known, home=str(home)), None
        note = f"the state folder '{known.home}' was lost, or XDG_STATE_HOME is another one now"
        return replace(known, home=str(home), note=note, noted_at=now), None
    if (there := _read(Path(known.path) / "windlass" / PLACE)) is not None and there.id == known.id:
        note = f"this repository is a copy of '{Path(known.path).parent}', which keeps the work that it has begun"
        return StateFolder(_new_id(path, now), path, str(home), note, now, copied_at=now), None
    last = Path(known.home)
    places = (last, last.with_name(f"{last.name}-{known.id}"))
    old = next((folder for folder in places if _owner(folder) == known.id), None)
    moved = f"the repository was moved from '{Path(known.path).parent}'"
    note = moved if old else f"{moved}, and its state folder is lost"
    return replace(known, path=path, home=str(home), note=note, noted_at=now), old


def _new_id(path: str, now: float) -> str:
    return hashlib.sha256(os.fsencode(f"{path} {now!r} {os.getpid()}")).hexdigest()[:12]


def _read(file: Path) -> StateFolder | None:
    """None: there is no file, or it cannot be read; it is made again then."""
    try:
        return StateFolder(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _owner(home: Path) -> str:
    try:
        return str(json.loads((home / OWNER).read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def owner_of(home: Path) -> Path | None:
    """The git folder of the repository that a state folder belongs to. None: it is not a state folder, or names
    none."""
    try:
        return Path(str(json.loads((home / OWNER).read_text())["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        # Made before that file existed.
        objects = (home / "repo.git" / "objects" / "info" / "alternates").read_text(errors="surrogateescape")
    except OSError:
        return None
    return Path(objects.rstrip("\n")).parent
