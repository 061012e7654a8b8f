"""Lines for a screen: pieces of text with a tone, measured in cells. All text is cleaned here."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from prompt_toolkit.utils import get_cwidth

from windlass.text import clean, to_ascii


class Tone(StrEnum):
    """The meaning of a piece of text. The screen chooses the colour."""

    PLAIN = ""
    STRONG = "strong"
    DIM = "dim"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    NOW = "now"
    """Something in progress."""
    CODE = "code"


class Span(NamedTuple):
    text: str
    tone: Tone = Tone.PLAIN


Line = tuple[Span, ...]
BLANK: Line = ()


class Look(NamedTuple):
    """What the screen can show."""

    width: int = 80
    height: int = 24
    unicode: bool = True

    def text(self, raw: str, limit: int = 400) -> str:
        """Text that is safe to show, in characters that this screen has."""
        return _safe(raw[: limit * 4], limit, self.unicode)

    def span(self, raw: str, tone: Tone = Tone.PLAIN, limit: int = 400) -> Span:
        return Span(self.text(raw, limit), tone)

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "..."

    def joined(self, parts: Iterable[str]) -> str:
        return (" · " if self.unicode else " - ").join(part for part in parts if part)


@lru_cache(maxsize=4096)
def _safe(raw: str, limit: int, unicode: bool) -> str:
    """Cached, because most of a drawing is the same as in the last one."""
    safe = clean(raw, limit)
    return safe if unicode else to_ascii(safe)


def cells(line: Line) -> int:
    return sum(get_cwidth(span.text) for span in line)


def cut(line: Line, width: int, ellipsis: str = "…") -> Line:
    """Cut the line to `width` cells, with an ellipsis."""
    if cells(line) <= width:
        return line
    room, kept = width - len(ellipsis), list[Span]()
    for span in line:
        text = _head(span.text, room)
        kept.append(Span(text, span.tone))
        room -= get_cwidth(text)
        if len(text) < len(span.text):
            break
    return (*kept, Span(ellipsis[: max(width, 0)], kept[-1].tone if kept else Tone.PLAIN))


def _head(text: str, room: int) -> str:
    if get_cwidth(text) <= room:
        return text
    taken = 0
    for n, char in enumerate(text):
        taken += get_cwidth(char)
        if taken > room:
            return text[:n]
    return text


def row(left: Line, right: Line, look: Look, *, least: int = 20) -> Line:
    """One line with a left and a right part. If both do not fit, drop the right part, then cut the left one."""
    free = look.width - cells(right) - 2
    if not right or free < min(least, cells(left)):
        return cut(left, look.width, look.ellipsis)
    left = cut(left, free, look.ellipsis)
    return (*left, Span(" " * (look.width - cells(left) - cells(right))), *right)


def plain(lines: Iterable[Line]) -> str:
    """The text without tones."""
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in lines)
