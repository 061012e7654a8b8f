"""The line below a question: the keys, and the command to answer from another shell."""

from __future__ import annotations

from windlass.interfaces.terminal.dialog import Dialog
from windlass.interfaces.terminal.spans import Line, Look, Span, Tone, cut, row
from windlass.views.outlook import program


def hints(dialog: Dialog, run: str, look: Look, place: str = "") -> list[Line]:
    keys = (Span(_fit(_keys(dialog, look), look), Tone.DIM),)
    elsewhere = (
        (Span(f"or: {program(place)} answer {look.text(run, 20)} VALUE", Tone.DIM),) if _is_recorded(dialog) else ()
    )
    both = row(keys, elsewhere, look, least=1000)
    return [both] if len(both) > len(keys) or not elsewhere else [cut(keys, look.width, look.ellipsis)]


def _is_recorded(dialog: Dialog) -> bool:
    """Whether the question is recorded. The prompt for a message to the run is not."""
    return dialog.question.id != "tell"


def _fit(text: str, look: Look) -> str:
    return text if len(text) <= look.width else text.replace("Ctrl-", "^")


def _keys(dialog: Dialog, look: Look) -> str:
    leave = "Esc leaves it open" if _is_recorded(dialog) else "Esc: cancel"
    if dialog.several:
        return look.joined(("Space marks", "Enter", leave))
    if dialog.lists:
        arrows = "↑↓" if look.unicode else "arrows"
        return look.joined((f"{arrows}, key, number or label", "Enter", leave))
    default = dialog.question.default
    usual = f"Enter: {look.text(default, 30)}" if default and not dialog.chosen else "Enter sends"
    return look.joined((usual, leave, "Ctrl-J new line", "Ctrl-O editor"))
