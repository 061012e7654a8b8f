"""Text that is safe to show: removes terminal escapes, formats money and times, wraps lines."""

from __future__ import annotations

import math
import re
import textwrap
import time
from collections.abc import Iterable

from windlass.cost import dollars

ESCAPE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]?"
)
BREAK = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
#: control, invisible, bidirectional, lone surrogate and tag characters: they make text look different from what it is
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
ASCII = str.maketrans(
    {"✓": "+", "✗": "x", "…": "...", "—": "-", "–": "-", "→": "->", "▸": ">", "○": "o", "·": "-", "‖": "=", "↻": "~",
     "█": "#", "░": ".", "■": "#", "□": ".", "›": ">", "★": "*", "↑": "^", "↓": "v", "─": "-",
     "✅": "[x]", "⏭": "[-]", "⚠": "[!]", "•": "*", "’": "'", "“": '"', "”": '"', "│": "|"}
)  # fmt: skip


def plain(text: str) -> str:
    """Remove terminal escapes, and characters that hide, reorder or overwrite text.

    Line breaks and tabs stay. All text of agents, git, plan files and repositories passes through here before Windlass
    shows it, compares it or stores it in a commit.
    """
    return HIDDEN.sub("", ESCAPE.sub("", text.replace("\r\n", "\n")))


def clean_block(text: str, limit: int = 20_000) -> str:
    """Several lines, without characters that move a cursor, or hide or reorder text."""
    cut = BREAK.sub("\n", text[: limit * 4])
    return shorten(plain(cut).expandtabs(4), limit)


def clean(text: str, limit: int = 300) -> str:
    """One line, without characters that move a cursor, or hide or reorder text."""
    return shorten(" ".join(clean_block(text, limit * 4).split()), limit)


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit - 1, 0)] + "…"


def to_ascii(text: str) -> str:
    return text.translate(ASCII).encode("ascii", "replace").decode()


def wrapped(text: str, width: int, indent: str = "", hang: str | None = None) -> list[str]:
    """Lines of at most `width` characters. A word longer than a line is broken, even if it is a command or a path."""
    return textwrap.wrap(
        text,
        max(width, len(indent) + 10, len(hang or "") + 10),
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
        break_on_hyphens=False,
    )


class Page:
    """Lines for a person. All text is cleaned, wrapped to the width and, if wanted, converted to ASCII."""

    def __init__(self, width: int = 80, *, unicode: bool = True) -> None:
        self.width = max(width, 30)
        self.unicode = unicode
        self._lines: list[str] = []

    def line(self, text: str = "", *, indent: int = 0, hang: int = 2, limit: int = 2000) -> None:
        safe = self._fit(clean(text, limit))
        self._lines += wrapped(safe, self.width, " " * indent, " " * (indent + hang)) or [""]

    def field(self, label: str, text: str, *, column: int = 11) -> None:
        head = self._fit(f"{clean(label, 40)}: ").ljust(column)
        safe = self._fit(clean(text, 2000))
        self._lines += wrapped(safe, self.width, head, " " * column) or [head.rstrip()]

    def command(self, text: str, *, indent: int = 2) -> None:
        """Add a command to copy. It is never wrapped."""
        self._lines.append(" " * indent + self._fit(clean(text, 2000)))

    def block(self, text: str, *, indent: int = 0, limit: int = 20_000) -> None:
        for line in clean_block(text, limit).splitlines():
            self._lines += wrapped(self._fit(line.rstrip()), self.width, " " * indent) or [""]

    def table(self, rows: Iterable[tuple[str, ...]]) -> None:
        """Add rows with aligned columns. A row longer than the width is cut."""
        cells = [[self._fit(clean(cell, 200)) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            self._lines.append(text if len(text) <= self.width else self._fit(shorten(text, self.width - 2)))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _fit(self, text: str) -> str:
        return text if self.unicode else to_ascii(text)


def money(amount: float) -> str:
    return dollars(amount)


def reckoned(prices: str) -> str:
    """A note for a cost that the agent did not report itself."""
    return f" (in part from tokens, at list prices of {prices})" if prices else ""


def elapsed(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "?"
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d {hours % 24:02}h"
    if hours:
        return f"{hours}h {minutes % 60:02}m"
    return f"{minutes}m {whole % 60:02}s" if minutes else f"{whole}s"


def utc(at: float, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    try:
        return time.strftime(form, time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "?"


def stamp(at: float) -> str:
    return utc(at, "%Y-%m-%dT%H:%M:%SZ")


def hhmm(at: float) -> str:
    return utc(at, "%H:%M")


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def short_sha(sha: str) -> str:
    return sha[:12] if re.fullmatch(r"[0-9a-f]{40,64}", sha) else sha


def spoken(id: str) -> str:
    """`plan-review` -> `Plan review`, `brainstorm.design` -> `Brainstorm: design`."""
    words = re.sub(r"(?<!\d)\.(?!\d)", ": ", id.replace("-", " ").replace("_", " ")).strip()
    return words[:1].upper() + words[1:]
