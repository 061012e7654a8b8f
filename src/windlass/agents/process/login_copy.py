"""The user's login in a clean room: copied in, put back if the CLI renewed it, never left behind."""

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


def bring(folder: Path, wanted: Mapping[str, str]) -> list[LoginCopy]:
    """What does not exist is not carried: the CLI says itself that it is not logged in."""
    found = []
    for name, source in wanted.items():
        place, origin = folder / name, Path(source)
        make_private(place.parent)
        if origin.is_dir():
            _link(place, origin)
        elif (content := _read(origin)) is not None:
            # claude opens its credentials with O_NOFOLLOW: a link would not do
            replace_file(place.resolve(), content)
            found.append(LoginCopy(place, origin, content))
    return found


def take_away(carried: list[LoginCopy]) -> None:
    for one in carried:
        now = _read(one.copy)
        with suppress(OSError):
            # a renewed token makes the old one void; but who renewed it elsewhere meanwhile has the newer one
            if now and now != one.content and _read(one.source) == one.content:
                replace_file(one.source.resolve(), now)
        one.copy.unlink(missing_ok=True)


def _link(place: Path, origin: Path) -> None:
    with suppress(FileExistsError):
        place.symlink_to(origin, target_is_directory=True)


def _read(path: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None
