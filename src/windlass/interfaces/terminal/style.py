"""The colour of each tone: only the terminal's sixteen colours, so that its theme applies."""

from __future__ import annotations

from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.styles import Style

from windlass.interfaces.terminal.spans import Line, Tone

STYLE = Style.from_dict(
    {
        Tone.STRONG.value: "bold",
        Tone.DIM.value: "dim",
        Tone.GOOD.value: "ansigreen",
        Tone.BAD.value: "ansired",
        Tone.WARN.value: "ansiyellow",
        Tone.NOW.value: "ansicyan bold",
        Tone.CODE.value: "ansicyan",
    }
)


def fragments(lines: list[Line]) -> StyleAndTextTuples:
    made: StyleAndTextTuples = []
    for n, line in enumerate(lines):
        if n:
            made.append(("", "\n"))
        made += [(f"class:{span.tone}" if span.tone else "", span.text) for span in line]
    return made
