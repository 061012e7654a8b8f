"""Opens the person's editor for longer texts. If that fails, the person can type the text in the dialog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click

from windlass.text import clean

VARIABLES = ("VISUAL", "EDITOR")
CUT = "--- text below this line is not part of your answer ---"
NOT_SET = "no editor is set (VISUAL, EDITOR): type here; Ctrl-J starts a new line"


class Edited(NamedTuple):
    text: str
    problem: str = ""


def editor_of(environ: Mapping[str, str]) -> str:
    """The editor that the person configured. Empty if there is none: a default could be an editor they cannot leave."""
    return next((environ[name].strip() for name in VARIABLES if environ.get(name, "").strip()), "")


def edit(editor: str, text: str, asked: str, detail: str) -> Edited:
    """Block until the editor closes. Call it in a thread, while the application does not use the terminal."""
    below = "\n\n".join(part for part in (asked, detail) if part)
    try:
        found = click.edit(f"{text}\n\n{CUT}\n\n{below}\n", editor=editor, extension=".md", require_save=False)
    except (click.ClickException, OSError, ValueError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        return Edited(text, f"the editor '{clean(editor, 60)}' failed: {clean(message, 200)}")
    written = (found or "").partition(CUT)[0].strip()
    if not written:
        return Edited(text, "the editor returned no text: type here, or open it again with Ctrl-O")
    return Edited(written)
