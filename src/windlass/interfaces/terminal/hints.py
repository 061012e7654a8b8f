"""The line below a question: the keys, and the command to answer from another shell."""

from __future__ import annotations

from windlass.interfaces.terminal.dialog import Dialog
from windlass.interfaces.terminal.spans import Line, Look, Span, Tone, cut, row
from windlass.views.outlook import program


def hints(dialog: Dialog, run: str, look: Look, place: str = "") -> list[Line]:
    # The prompt for a message to the run is not recorded, so that no other shell can answer it.
    recorded = dialog.question.id != "tell"
    leave = "Esc leaves it open" if recorded else "Esc: cancel"
    if dialog.several:
        text = look.joined(("Space marks", "Enter", leave))
    elif dialog.lists:
        arrows = "↑↓" if look.unicode else "arrows"
        text = look.joined((f"{arrows}, key, number or label", "Enter", leave))
    else:
        default = dialog.question.default
        usual = f"Enter: {look.text(default, 30)}" if default and not dialog.chosen else "Enter sends"
        text = look.joined((usual, leave, "Ctrl-J new line", "Ctrl-O editor"))
    keys = (Span(text if len(text) <= look.width else text.replace("Ctrl-", "^"), Tone.DIM),)
    elsewhere = (Span(f"or: {program(place)} answer {look.text(run, 20)} VALUE", Tone.DIM),) if recorded else ()
    both = row(keys, elsewhere, look, least=1000)
    return [both] if len(both) > len(keys) or not elsewhere else [cut(keys, look.width, look.ellipsis)]
