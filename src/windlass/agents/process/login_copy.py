"""The user's login for a CLI with a separate home: copied in, written back if renewed, removed at the end."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from windlass.private_files import make_private, replace_file

MAX_BYTES = 4 << 20


class LoginCopy(Struct, frozen=True):
    copy: Path
    source: Path
    content: bytes


def copy_logins(folder: Path, sources: Mapping[str, str]) -> list[LoginCopy]:
    """Copy login files into the folder. A missing file is skipped: the CLI then reports that it is not logged in."""
    found = []
    for name, source in sources.items():
        place, origin = folder / name, Path(source)
        make_private(place.parent)
        if origin.is_dir():
            with suppress(FileExistsError):
                place.symlink_to(origin, target_is_directory=True)
        elif (content := _read(origin)) is not None:
            # Claude opens its credentials with O_NOFOLLOW, so a link does not work.
            replace_file(place.resolve(), content)
            found.append(LoginCopy(place, origin, content))
    return found


def remove_logins(copies: list[LoginCopy]) -> None:
    for one in copies:
        now = _read(one.copy)
        with suppress(OSError):
            # A renewed token invalidates the old one. A source that changed meanwhile has the newer one.
            if now and now != one.content and _read(one.source) == one.content:
                replace_file(one.source.resolve(), now)
        one.copy.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None
