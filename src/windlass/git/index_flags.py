"""Marks in a slot's index that make git look away from a file: with them, work in it would be neither seen nor kept."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from windlass.git.slot import Slot

HEADER = struct.Struct(">4sLL")
FLAGS = struct.Struct(">H")
SIZE_AT = 36
ENTRY = struct.Struct(">L20xH")
"""The file's size, the SHA-1, the flags. With longer names of objects nothing fits, and git is asked."""
ASSUME_UNCHANGED, EXTENDED, NAME_LENGTH = 0x8000, 0x4000, 0x0FFF
SKIP_WORKTREE = 0x4000


def unhide(slot: Slot, *, absent: bool) -> None:
    """Take the marks away, so that the next look sees every file. `absent`: also from files of a partial checkout,
    which would then look deleted."""
    if not may_hide(slot.git_dir / "index"):
        return
    entries = slot.git("ls-files", "-v", "-z").fields
    assumed = [entry[2:] for entry in entries if entry[0].islower()]
    skipped = [entry[2:] for entry in entries if entry[0] in "Ss"]
    there = [name for name in skipped if absent or os.path.lexists(slot.path / name)]
    for option, names in (("--no-assume-unchanged", assumed), ("--no-skip-worktree", there)):
        if names:
            slot.git("update-index", option, "-z", "--stdin", input="".join(f"{name}\0" for name in names))


def may_hide(index: Path) -> bool:
    """Read here and not by a git of its own: it is asked at every look. True also for what only git can read."""
    data = index.read_bytes() if index.is_file() else b""
    if len(data) < HEADER.size:
        return False
    try:
        end, _, marked = _summary(data)
    except (struct.error, ValueError):
        return True
    # Some entries may be in a shared file.
    return marked or data[end : end + 4] == b"link"


def checkout_bytes(index: Path) -> int:
    """About what a checkout takes, by the sizes its index remembers; 0 for what only git can read."""
    try:
        return _summary(index.read_bytes())[1]
    except (OSError, struct.error, ValueError):
        return 0


def _summary(data: bytes) -> tuple[int, int, bool]:
    """Where the entries end, the sizes of their files together, whether one of them has a mark."""
    magic, version, count = HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3):
        raise ValueError("of another kind")
    at, size, marked = HEADER.size, 0, False
    for _ in range(count):
        bytes_of_file, flags = ENTRY.unpack_from(data, at + SIZE_AT)
        name = at + SIZE_AT + ENTRY.size
        if flags & EXTENDED:
            marked = marked or bool(FLAGS.unpack_from(data, name)[0] & SKIP_WORKTREE)
            name += FLAGS.size
        length = flags & NAME_LENGTH
        end = name + length if length < NAME_LENGTH else data.index(b"\0", name)
        size, marked = size + bytes_of_file, marked or bool(flags & ASSUME_UNCHANGED)
        # Padded with one to eight NULs.
        at += (end - at + 8) // 8 * 8
    return at, size, marked
