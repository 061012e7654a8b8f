"""All refs of a repository without starting a git: they are read before and after every dispatch."""

from __future__ import annotations

import os
import re
from pathlib import Path

from windlass import git

OBJECT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\n?")
PACKED = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64}) (refs/[^\n]+)", re.MULTILINE)


def all_refs(git_dir: Path) -> dict[str, str]:
    """Name -> object. Whatever is not plainly a ref in a file is git's to read."""
    try:
        # In this order: a ref that is packed meanwhile is seen in one place or in both.
        loose = _loose(git_dir)
        return {**_packed(git_dir), **loose}
    except (OSError, ValueError):
        return git.read_refs(git_dir)


def _loose(git_dir: Path) -> dict[str, str]:
    if not (git_dir / "refs" / "heads").is_dir():
        raise ValueError("its refs are not in files")
    found: dict[str, str] = {}
    for folder, _, names in os.walk(git_dir / "refs", onerror=_refuse):
        place = os.path.relpath(folder, git_dir)
        for name in names:
            if not name.endswith(".lock"):
                found[f"{place}/{name}"] = _object(os.path.join(folder, name))
    return found


def _object(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        text = file.read(66)
    if not OBJECT.fullmatch(text):
        raise ValueError(f"'{path}' names another ref, or nothing")
    return text.strip()


def _packed(git_dir: Path) -> dict[str, str]:
    try:
        text = (git_dir / "packed-refs").read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return {name: sha for sha, name in PACKED.findall(text)}


def _refuse(error: OSError) -> None:
    raise error
