"""Projections on disk: written whole or not at all, and never over what somebody else wrote."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path, PurePosixPath

from msgspec import Struct

from windlass.errors import UserError
from windlass.private_files import make_private, replace_file

MEMORY = ".projections.json"
#: in a run's folder: what was written into the user's checkout
IN_PLACE_MEMORY = "in-place.json"


class Written(Struct, frozen=True):
    path: Path
    changed: bool
    """False: the file already said this."""
    kept: Path | None = None
    """Where the text of somebody who edited the file is now."""


class Projector:
    """One folder of projections. Contract: a crash at any moment leaves the old or the new text of each file."""

    def __init__(self, folder: Path, memory: Path | None = None, *, private: bool = False) -> None:
        """`memory`: where the hashes of what was written are kept, when not in the folder itself. `private`: files and
        folders are for their owner alone; a checkout's are as its owner's umask has them."""
        self._folder = folder
        self._private = private
        self._memory = memory or folder / MEMORY

    def write(self, name: str, text: str) -> Written:
        path = self._path(name)
        new = _digest(text.encode("utf-8", "surrogatepass"))
        old = _hash(path)
        if old == new:
            return Written(path, changed=False)
        ours = self._ours()
        kept = _set_aside(path) if old is not None and old not in ours.get(name, []) else None
        # Remembered before it is written: after a crash in between, both the old and the new text are ours.
        self._remember({**ours, name: [*ours.get(name, [])[-1:], new]})
        write_view(path, text, private=self._private)
        return Written(path, changed=True, kept=kept)

    def remove(self, name: str) -> Written:
        path = self._path(name)
        old = _hash(path)
        ours = self._ours()
        kept = _set_aside(path) if old is not None and old not in ours.get(name, []) else None
        path.unlink(missing_ok=True)
        self._remember({other: hashes for other, hashes in ours.items() if other != name})
        return Written(path, changed=old is not None, kept=kept)

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        path = self._folder / name
        inside = path.parent.resolve().is_relative_to(self._folder.resolve())
        if not parts or name.startswith("/") or ".." in parts or parts == (MEMORY,) or not inside:
            raise UserError(f"'{name}' is not a projection's name", hint="a relative path inside the folder")
        return path

    def _ours(self) -> dict[str, list[str]]:
        """What was written by us; empty when the memory is unreadable, so that everything counts as somebody's."""
        try:
            data = json.loads(self._memory.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(data, dict):
            return {}
        return {str(name): [str(one) for one in hashes] for name, hashes in data.items() if isinstance(hashes, list)}

    def _remember(self, hashes: dict[str, list[str]]) -> None:
        write_view(self._memory, json.dumps(hashes, indent=1, sort_keys=True) + "\n", private=True)


def _set_aside(path: Path) -> Path:
    number = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.edited-{number}")):
        number += 1
    if _is_file(path):
        _link(path, aside)
    else:
        os.rename(path, aside)
    return aside


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _link(path: Path, aside: Path) -> None:
    """The file stays where it is until it is replaced, so that no crash finds it missing."""
    try:
        os.link(path, aside)
    except OSError:
        shutil.copy2(path, aside)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hash(path: Path) -> str | None:
    """None when nothing is there. A link or a folder is nobody's text, so its hash is like no other."""
    try:
        if not _is_file(path):
            return "not a file"
        return _digest(path.read_bytes())
    except FileNotFoundError:
        return None


def write_view(path: Path, text: str, *, private: bool) -> None:
    """Replace the file whole, also across a power cut."""
    if private:
        make_private(path.parent)
    scratch = path.with_name(f"{path.name}.tmp")
    # An agent can leave a folder of this name.
    if scratch.is_dir() and not scratch.is_symlink():
        _set_aside(scratch)
    replace_file(path, text, sync_to="content", private=private, errors="surrogatepass", scratch=scratch)
