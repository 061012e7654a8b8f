"""A person's own editor for longer texts. What it cannot do is said in words; the text can always be typed instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click

from windlass.text import clean

VARIABLES = ("VISUAL", "EDITOR")
CUT = "--- what is below this line is not part of your answer ---"
NOT_SET = "no editor is set (VISUAL, EDITOR): write it here, Ctrl-J begins a new line"


class Edited(NamedTuple):
    text: str
    problem: str = ""


def editor_of(environ: Mapping[str, str]) -> str:
    """Empty when the person named none; nobody is thrown into an editor they cannot leave."""
    return next((environ[name].strip() for name in VARIABLES if environ.get(name, "").strip()), "")


def edit(editor: str, text: str, asked: str, detail: str) -> Edited:
    """Blocks until the editor is closed: call it in a thread, with the terminal given away."""
    below = "\n\n".join(part for part in (asked, detail) if part)
    try:
        found = click.edit(f"{text}\n\n{CUT}\n\n{below}\n", editor=editor, extension=".md", require_save=False)
    except (click.ClickException, OSError, ValueError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        return Edited(text, f"the editor '{clean(editor, 60)}' failed: {clean(message, 200)}")
    written = (found or "").partition(CUT)[0].strip()
    if not written:
        return Edited(text, "the editor returned nothing: write it here, or Ctrl-O opens it again")
    return Edited(written)
