"""A question as lines: the visible part of the long text, the question, and the options around the selected one."""

from __future__ import annotations

from windlass.interfaces.terminal.dialog import Dialog
from windlass.interfaces.terminal.spans import BLANK, Line, Look, Span, Tone, cut
from windlass.model import Choice
from windlass.text import wrapped

#: the longest part of a label to show
LABEL = 300
MOST_LABEL_ROWS = 3
LEAST_TEXT = 4
#: with less room than this, leave out the title to show more options
LEAST_WITH_TITLE = 10
#: a longer key is not an abbreviation of its label
SHORT_KEY = 30


def dialog_lines(dialog: Dialog, text: list[Line], look: Look, room: int) -> list[Line]:
    """At most `room` lines; `text` is the question's long text, already rendered for this width."""
    asked = _question_lines(dialog, look, room)
    found = [(dialog.note, Tone.WARN), (f"✗ {dialog.problem}" if dialog.problem else "", Tone.BAD)]
    tail: list[Line] = [
        (Span(line, tone),) for words, tone in found if words for line in wrapped(look.text(words, 500), look.width)[:3]
    ]
    if tail:
        tail.insert(0, BLANK)
    room -= len(asked) + len(tail)
    rows = [_option(n, option, dialog, look) for n, option in enumerate(dialog.options)] if dialog.lists else []
    share = max(room - LEAST_TEXT - 2, room // 2) if text else room
    options = _window(rows, dialog.cursor, share, look)
    shown = _text(dialog, text, look, room - len(options) - 1)
    lines = [*shown, *([BLANK] if shown else []), *asked, *options, *tail]
    # Wrapping counts letters, but a screen counts cells, so lines with wide letters are cut here.
    return [cut(line, look.width, look.ellipsis) for line in lines]


def _question_lines(dialog: Dialog, look: Look, room: int) -> list[Line]:
    title = look.text(dialog.question.title, 200)
    above = [(look.span(f"─── {title} ───", Tone.DIM),)] if title and room >= LEAST_WITH_TITLE else []
    lines = wrapped(look.text(dialog.asks, 1000), look.width - 2)[:6] or [""]
    chosen = [(Span("  "), look.span(dialog.chosen, Tone.DIM, 60))] if dialog.chosen else []
    head = (look.span("?", Tone.NOW), Span(" "), Span(lines[0], Tone.STRONG))
    return [*above, head, *((Span("  "), Span(line, Tone.STRONG)) for line in lines[1:]), *chosen]


# -- options


def _option(n: int, option: Choice, dialog: Dialog, look: Look) -> list[Line]:
    here, number = n == dialog.cursor, f"{n + 1}".rjust(len(str(len(dialog.options))))
    box = ("[x] " if n in dialog.marked else "[ ] ") if dialog.several else ""
    lead = f"{'▸' if here else ' '} {number} {box}"
    pad = " " * (len(lead) + 2)
    room = max(look.width - len(pad), 10)
    # The key, which can be typed, and the label, unless both say the same.
    key, label = option.key, option.label or option.key
    same = _letters(key) == _letters(label) or (len(key) > SHORT_KEY and _letters(label).startswith(_letters(key)))
    usual = " (default)" if dialog.question.default == key and key and not dialog.several else ""
    words = (label if same else f"{key} — {label}") + (f": {option.about}" if option.about else "") + usual
    rows = wrapped(look.text(words, LABEL), room)[:MOST_LABEL_ROWS] or [""]
    tone = Tone.NOW if here else Tone.PLAIN
    first: Line = (Span("  "), Span(look.text(lead[0], 2) or " ", Tone.NOW), Span(lead[1:], tone), Span(rows[0], tone))
    rest = [cut((Span(pad), Span(row, tone)), look.width, look.ellipsis) for row in rows[1:]]
    return [cut(first, look.width, look.ellipsis), *rest]


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def _window(options: list[list[Line]], cursor: int, room: int, look: Look) -> list[Line]:
    """As many options as fit, including the selected one, with a count of the others."""
    if sum(map(len, options)) <= room:
        return [line for rows in options for line in rows]
    begin = end = max(cursor, 0)
    left = max(room - 2, 1)
    while end < len(options) and left >= len(options[end]):
        left, end = left - len(options[end]), end + 1
    while begin > 0 and left >= len(options[begin - 1]):
        begin, left = begin - 1, left - len(options[begin - 1])
    end = max(end, begin + 1)
    above = [_more(look, "↑", begin)] if begin else []
    below = [_more(look, "↓", len(options) - end)] if end < len(options) else []
    shown = [line for rows in options[begin:end] for line in rows]
    return [*above, *shown[: max(room - len(above) - len(below), 1)], *below]


def _more(look: Look, sign: str, count: int) -> Line:
    return Span("    "), look.span(f"{sign} {count} more", Tone.DIM)


# -- the long text


def text_room(dialog: Dialog, text: list[Line], look: Look, room: int) -> int:
    """The number of visible lines of the long text: the step of the page keys."""
    lines = dialog_lines(dialog, text, look, room)
    rest = dialog_lines(dialog, [], look, room)
    return max(len(lines) - len(rest) - 2, 1)


def _text(dialog: Dialog, text: list[Line], look: Look, room: int) -> list[Line]:
    if not text or room < 2:
        return []
    if len(text) <= room:
        return text
    page = room - 1
    first = min(dialog.scroll, len(text) - page)
    where = f"lines {first + 1}-{first + page} of {len(text)}, PgUp PgDn"
    return [*text[first : first + page], (Span(where, Tone.DIM),)]
