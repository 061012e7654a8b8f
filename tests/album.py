"""Pictures of a real screen, letter by letter: `WINDLASS_SCREENS=write pytest` takes them anew."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import pytest

from ttys import RUN, Tty, steady

FOLDER = Path(__file__).parent / "screens"
#: read before a test's clean room takes it away
WRITE = os.environ.get("WINDLASS_SCREENS") == "write"


class Album:
    """The pictures of one width. A picture is waited for: when it is drawn does not matter, only that it comes."""

    def __init__(self, name: str) -> None:
        self._file = FOLDER / f"{name}.txt"
        text = "" if WRITE or not self._file.exists() else self._file.read_text(encoding="utf-8")
        parts = re.split(r"^=+ (.+)\n", text, flags=re.MULTILINE)[1:]
        self._wanted = dict(zip(parts[::2], (part.rstrip() + "\n" for part in parts[1::2]), strict=True))
        self._taken: dict[str, str] = {}

    def shows(self, tty: Tty, name: str, words: str) -> None:
        self._taken[name] = steady(tty.settled(words)) if WRITE else self._awaited(tty, name)

    def ends(self, tty: Tty, name: str) -> None:
        self._taken[name] = steady(without_report(tty.scrollback))
        if WRITE:
            FOLDER.mkdir(exist_ok=True)
            text = "\n".join(f"{'=' * 8} {name}\n{screen}" for name, screen in self._taken.items())
            self._file.write_text(text, encoding="utf-8")
        elif self._taken[name] != self._wanted[name]:
            self._differs(name, self._taken[name])

    def _awaited(self, tty: Tty, name: str) -> str:
        try:
            tty.wait_for(lambda text: steady(text) == self._wanted[name], name)
        except AssertionError:
            self._differs(name, steady(tty.text))
        return self._wanted[name]

    def _differs(self, name: str, screen: str) -> None:
        lines = (self._wanted[name].splitlines(), screen.splitlines())
        pytest.fail(f"{name}:\n" + "\n".join(difflib.unified_diff(*lines, "golden", "screen", n=20)), pytrace=False)


def without_report(text: str) -> str:
    """Its heading stays; what it says is shown in its own tests."""
    return re.sub(r"(Workflow Complete\n).*?(?=\n\n[^\n]+ · " + RUN + ")", r"\1\n...", text, flags=re.DOTALL)
