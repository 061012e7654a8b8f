"""Writes views to files. A write replaces the whole file, and never loses the edits of a person."""

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
#: in a run's folder: the hashes of the files that Windlass wrote into the user's checkout
IN_PLACE_MEMORY = "in-place.json"
#: in a run's folder: the files of its artifacts
FILES = "files"


class WriteResult(Struct, frozen=True):
    path: Path
    changed: bool
    """False: the file already has this text."""
    backup: Path | None = None
    """The backup of the file, if a person edited it."""


class Projector:
    """Writes the view files of one folder. Contract: a crash leaves each file with its old or its new text."""

    def __init__(self, folder: Path, memory: Path | None = None, *, private: bool = False) -> None:
        """`memory`: the file with the hashes of the written texts; by default it is in the folder. `private`: only
        the owner can read the files and folders. In a checkout the umask decides."""
        self._folder = folder
        self._private = private
        self._memory = memory or folder / MEMORY

    def write(self, name: str, text: str) -> WriteResult:
        path = self._path(name)
        new = _digest(text.encode("utf-8", "surrogatepass"))
        old = _hash(path)
        if old == new:
            return WriteResult(path, changed=False)
        ours = self._load_hashes()
        backup = _back_up(path) if old is not None and old not in ours.get(name, []) else None
        # Save the hash before the file: after a crash in between, both the old and the new text are known.
        self._save_hashes({**ours, name: [*ours.get(name, [])[-1:], new]})
        write_view(path, text, private=self._private)
        return WriteResult(path, changed=True, backup=backup)

    def remove(self, name: str) -> WriteResult:
        path = self._path(name)
        old = _hash(path)
        ours = self._load_hashes()
        backup = _back_up(path) if old is not None and old not in ours.get(name, []) else None
        path.unlink(missing_ok=True)
        self._save_hashes({other: hashes for other, hashes in ours.items() if other != name})
        return WriteResult(path, changed=old is not None, backup=backup)

    def _path(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        path = self._folder / name
        inside = path.parent.resolve().is_relative_to(self._folder.resolve())
        if not parts or name.startswith("/") or ".." in parts or parts == (MEMORY,) or not inside:
            raise UserError(f"'{name}' is not a name for a view file", hint="use a relative path inside the folder")
        return path

    def _load_hashes(self) -> dict[str, list[str]]:
        """The hashes of the texts that Windlass wrote. Without them, every file counts as edited by a person."""
        try:
            data = json.loads(self._memory.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(data, dict):
            return {}
        return {str(name): [str(one) for one in hashes] for name, hashes in data.items() if isinstance(hashes, list)}

    def _save_hashes(self, hashes: dict[str, list[str]]) -> None:
        write_view(self._memory, json.dumps(hashes, indent=1, sort_keys=True) + "\n", private=True)


def _back_up(path: Path) -> Path:
    number = 1
    while os.path.lexists(backup := path.with_name(f"{path.name}.edited-{number}")):
        number += 1
    if not _is_file(path):
        os.rename(path, backup)
        return backup
    # Link, not move: the file stays in place until it is replaced, also after a crash.
    try:
        os.link(path, backup)
    except OSError:
        shutil.copy2(path, backup)
    return backup


def _is_file(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hash(path: Path) -> str | None:
    """None if the path does not exist. A link or a folder gets a value that no text can have."""
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
    # An agent may have made a folder with this name.
    if scratch.is_dir() and not scratch.is_symlink():
        _back_up(scratch)
    replace_file(path, text, sync_to="content", private=private, errors="surrogatepass", scratch=scratch)
