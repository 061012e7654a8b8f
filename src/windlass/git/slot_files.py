"""Files below a folder that an agent filled: nothing outside it is ever read or written."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from windlass.errors import UserError

MAX_READ = 8 * 1024 * 1024


def check_path(path: str) -> PurePosixPath:
    """A relative path that stays below its root and out of `.git`, by its words alone."""
    pure = PurePosixPath(path)
    bad = pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in path
    if bad or any(part.lower() == ".git" for part in pure.parts):
        raise UserError(f"path {path!r} leaves the workspace", hint="use a relative path without '..' and '.git'")
    return pure


def safe_path(root: Path, path: str) -> Path:
    """Also refuses a symbolic link that leads out of `root`."""
    place = root / check_path(path)
    real, top = place.resolve(), root.resolve()
    if not real.is_relative_to(top) or ".git" in real.relative_to(top).parts:
        raise UserError(f"path {path!r} leads out of the workspace", hint="a symbolic link on the way points elsewhere")
    return place


def write_artifacts(root: Path, contents: Mapping[str, str]) -> None:
    places = {safe_path(root, path): text for path, text in contents.items()}
    for place, text in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")


def read_file(root: Path, path: str) -> str | None:
    """None when there is no such file."""
    place = safe_path(root, path)
    if not place.is_file():
        return None
    size = place.stat().st_size
    if size > MAX_READ:
        raise UserError(f"file {path!r} has {size} bytes", hint=f"at most {MAX_READ} bytes are read")
    return place.read_bytes().decode("utf-8", "replace")


def read_or_empty(path: Path) -> str:
    """For files of our own and of git, which may not be there."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def copy_into(root: Path, source: Path, globs: Sequence[str]) -> list[str]:
    """Copy plain files of `source` that match; the paths copied. Links are not followed out of it."""
    copied = []
    for path in sorted({path for glob in globs for path in source.glob(str(check_path(glob)))}):
        name = path.relative_to(source).as_posix()
        if path.is_symlink() or not path.is_file() or ".git" in path.relative_to(source).parts:
            continue
        place = safe_path(root, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(safe_path(source, name), place)
        copied.append(name)
    return copied


def lock_hash(root: Path, names: Sequence[str]) -> str:
    """Changes when a lock file appears, goes or changes: then the set-up runs again."""
    parts = [(name, read_file(root, name)) for name in sorted(names)]
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
