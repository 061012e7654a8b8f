"""The line below a question: which keys do what, and the way to answer from elsewhere."""

from __future__ import annotations

from windlass.interfaces.terminal.dialog import Dialog
from windlass.interfaces.terminal.spans import Line, Look, Span, Tone, cut, row
from windlass.views.outlook import called


def hints(dialog: Dialog, run: str, look: Look, place: str = "") -> list[Line]:
    ways = (Span(_fitted(_ways(dialog, look), look), Tone.DIM),)
    elsewhere = (Span(f"or: {called(place)} answer {look.text(run, 20)} VALUE", Tone.DIM),) if _open(dialog) else ()
    both = row(ways, elsewhere, look, least=1000)
    return [both] if len(both) > len(ways) or not elsewhere else [cut(ways, look.width, look.ellipsis)]


def _open(dialog: Dialog) -> bool:
    """Whether the question is on record; what a person tells the run is not."""
    return dialog.question.id != "tell"


def _fitted(text: str, look: Look) -> str:
    return text if len(text) <= look.width else text.replace("Ctrl-", "^")


def _ways(dialog: Dialog, look: Look) -> str:
    leave = "Esc leaves it open" if _open(dialog) else "Esc: never mind"
    if dialog.several:
        return look.joined(("Space marks", "Enter", leave))
    if dialog.lists:
        arrows = "↑↓" if look.unicode else "arrows"
        return look.joined((f"{arrows}, key, number or label", "Enter", leave))
    default = dialog.question.default
    usual = f"Enter: {look.text(default, 30)}" if default and not dialog.chosen else "Enter sends"
    return look.joined((usual, leave, "Ctrl-J new line", "Ctrl-O editor"))
