"""A source file as a list of parts that can change separately: functions, values, heads of classes.

A language module splits a file into parts, with the edits that empty each part. This module does the rest for all
languages: it finds the changed parts, and empties them.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

SENTINEL = "hollowed out by windlass"
NUMBER = 113
"""Replaces other numbers. It is small and positive, so it fits every integer type and is a valid size."""


class HollowSource(Struct, frozen=True):
    text: str
    whole: bool
    """The whole change was emptied."""
    left: tuple[str, ...] = ()
    """The parts that could not be emptied, with their lines."""


class SourceEdit(Struct, frozen=True):
    """Replaces the bytes `start` to `end` with `text`."""

    start: int
    end: int
    text: str


class SourcePart(Struct, frozen=True):
    name: str
    """The qualified name. It does not depend on the content."""
    content: str
    """Equal for two parts with the same meaning, without comments and layout."""
    line: int
    edits: tuple[SourceEdit, ...] = ()
    """The edits that empty the part."""
    left: str = ""
    """What stays of a changed part, in words."""
    left_if_old: str = ""
    """As `left`, but only if the old file has a part of this name."""


class SourceFile(Struct, frozen=True):
    """A file that parses."""

    data: bytes
    parts: tuple[SourcePart, ...]
    ending: str
    """Added to a hollow file. It sets the flag that the file has loaded."""


def changed_parts(old: SourceFile | None, new: SourceFile) -> list[SourcePart]:
    known = {(part.name, part.content) for part in old.parts} if old else set()
    return [part for part in new.parts if (part.name, part.content) not in known]


def empty(old: SourceFile | None, new: SourceFile) -> HollowSource | None:
    """`new` with its changed parts emptied; None if no part can be emptied."""
    changed = changed_parts(old, new)
    edits = {edit for part in changed for edit in part.edits}
    if not edits:
        return None
    names = {part.name for part in old.parts} if old else set()
    reasons = [(part.line, part.left or (part.left_if_old if part.name in names else "")) for part in changed]
    left = tuple(dict.fromkeys(f"line {line}: {reason}" for line, reason in sorted(reasons) if reason))
    pieces, at = list[bytes](), 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end, edit.text)):
        pieces += [new.data[at : edit.start], edit.text.encode()]
        at = edit.end
    text = b"".join([*pieces, new.data[at:]]).decode("utf-8", "surrogateescape")
    return HollowSource(text if text.endswith(new.ending) else text + new.ending, not left, left)


def flag_name(path: str) -> str:
    """The name of a variable that is true once the file at `path` has loaded."""
    return f"windlassLoaded{hashlib.sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
