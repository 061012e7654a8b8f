"""Renders markdown to lines, with rich."""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING

from windlass.interfaces.terminal.spans import Line, Look, Span, Tone
from windlass.text import clean_block, to_ascii

if TYPE_CHECKING:
    from rich.segment import Segment

MOST = 60_000
#: longer lines are hard to read
WIDEST = 100


def markdown(text: str, look: Look) -> list[Line]:
    """Contract: never raises because of the text. The result contains no escape sequences."""
    return list(_render(text, min(look.width, WIDEST), look.unicode))


@lru_cache(maxsize=16)
def _render(text: str, width: int, unicode: bool) -> tuple[Line, ...]:
    from rich.console import Console
    from rich.markdown import Markdown

    # A file in memory, so that rich does not query the terminal.
    console = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    made = Markdown(clean_block(text, MOST), hyperlinks=False, code_theme="ansi_light")
    lines = [_line(segments, unicode) for segments in console.render_lines(made, pad=False)]
    # Without empty lines at both ends, and never two in a row.
    kept = [line for n, line in enumerate(lines) if line or (n and lines[n - 1])]
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)


def _line(segments: list[Segment], unicode: bool) -> Line:
    spans: list[Span] = []
    for segment in segments:
        if segment.control:
            continue
        text, style, tone = segment.text.replace("\n", ""), segment.style, Tone.PLAIN
        if style and (style.bold or style.underline):
            tone = Tone.STRONG
        elif style and style.color is not None:
            tone = Tone.CODE
        spans.append(Span(text if unicode else to_ascii(text), tone))
    while spans and not spans[-1].text.strip():
        spans.pop()
    return tuple(spans)
