"""A source file as a list of parts that can change on their own: functions, values, heads of classes.

A language module splits a file into parts and says for each what empties it. What is common to all languages is here:
which parts of a file changed, and the file with those parts emptied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from msgspec import Struct

SENTINEL = "hollowed out by windlass"
NUMBER = 113
"""Takes the place of other numbers. Small and positive: it fits every integer type, and it is a possible size."""


class Hollowed(Struct, frozen=True):
    text: str
    whole: bool
    """Nothing of the change is left that a test could ask about."""
    left: tuple[str, ...] = ()
    """What could not be emptied, and where it stands."""


class SourceEdit(Struct, frozen=True):
    """Bytes `start` to `end` become `text`."""

    start: int
    end: int
    text: str


class SourcePart(Struct, frozen=True):
    name: str
    """Where it stands and what it is called; the same before and after a change of its contents."""
    content: str
    """Equal for two parts that mean the same; comments and layout do not count."""
    line: int
    edits: tuple[SourceEdit, ...] = ()
    """They empty the part."""
    left: str = ""
    """What of the part stays although it changed."""
    left_if_old: str = ""
    """The same, for a part whose name the old file has."""


class SourceFile(Struct, frozen=True):
    """A file that parses."""

    data: bytes
    parts: tuple[SourcePart, ...]
    ending: str
    """Added to a hollow file: it says that the file has been loaded."""


def changed_parts(old: SourceFile | None, new: SourceFile) -> list[SourcePart]:
    known = {(part.name, part.content) for part in old.parts} if old else set()
    return [part for part in new.parts if (part.name, part.content) not in known]


def empty(old: SourceFile | None, new: SourceFile) -> Hollowed | None:
    """`new` with its changed parts emptied; None when nothing can be."""
    changed = changed_parts(old, new)
    edits = {edit for part in changed for edit in part.edits}
    if not edits:
        return None
    names = {part.name for part in old.parts} if old else set()
    reasons = [(part.line, part.left or (part.left_if_old if part.name in names else "")) for part in changed]
    left = tuple(dict.fromkeys(f"line {line}: {reason}" for line, reason in sorted(reasons) if reason))
    text = _edited(new.data, edits)
    return Hollowed(text if text.endswith(new.ending) else text + new.ending, not left, left)


def _edited(source: bytes, edits: Iterable[SourceEdit]) -> str:
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end, edit.text)):
        pieces += [source[at : edit.start], edit.text.encode()]
        at = edit.end
    return b"".join([*pieces, source[at:]]).decode("utf-8", "surrogateescape")


def flag_name(path: str) -> str:
    """A variable that is true once the file at `path` has been loaded."""
    return f"windlassLoaded{hashlib.sha256(path.encode('utf-8', 'surrogateescape')).hexdigest()[:8]}"
