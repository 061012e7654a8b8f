"""Prints lines to a stream: with colours only if wanted, with characters that its encoding has."""

from __future__ import annotations

from enum import StrEnum
from typing import TextIO

from msgspec import Struct

from windlass.text import clean, clean_block, to_ascii, wrapped


class Paint(StrEnum):
    NONE = ""
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


class Printer(Struct):
    """Writes whole lines, cleaned and fitted to the width. Contract: never raises because of the text."""

    out: TextIO
    width: int = 80
    color: bool = False
    unicode: bool = True
    gone: bool = False
    """The reader closed the pipe. The run continues without output."""

    def line(self, text: str = "", *, indent: int = 0, paint: Paint = Paint.NONE, limit: int = 1000) -> None:
        """Print one paragraph, wrapped with a hanging indent."""
        fitted = self._fit(clean(text, limit))
        pad = " " * indent
        self._write([self._paint(line, paint) for line in wrapped(fitted, self.width, pad, pad + "  ") or [""]])

    def cut(self, text: str, *, indent: int = 0, paint: Paint = Paint.NONE) -> None:
        """Print one line, and cut it if it is too long."""
        room = max(self.width - indent, 10)
        self._write([self._paint(" " * indent + self._fit(clean(text, room))[:room], paint)])

    def verbatim(self, text: str, *, indent: int = 0) -> None:
        """Print a command or a path to copy: cleaned, but never wrapped."""
        self._write([" " * indent + self._fit(clean(text, 2000))])

    def block(self, text: str, *, indent: int = 0, limit: int = 20_000) -> None:
        pad = " " * indent
        for line in clean_block(text, limit).splitlines():
            self._write([(pad + self._fit(line)).rstrip()])

    def _fit(self, text: str) -> str:
        return text if self.unicode else to_ascii(text)

    def _paint(self, line: str, paint: Paint) -> str:
        return f"\x1b[{paint}m{line}\x1b[0m" if self.color and paint and line else line

    def _write(self, lines: list[str]) -> None:
        if self.gone:
            return
        encoding = getattr(self.out, "encoding", None) or "utf-8"
        text = "".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding)
        try:
            self.out.write(text)
            self.out.flush()
        except (BrokenPipeError, ValueError):
            self.gone = True
