"""Fenced blocks: finding the one that counts, and wrapping text so that it cannot break out of its own."""

from __future__ import annotations

import re
from collections.abc import Collection

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\x9b[0-?]*[ -/]*[@-~]")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def plain(text: str) -> str:
    """Without what can fool a terminal or a file: escapes, control and bidi characters, lone surrogates."""
    return _HIDDEN.sub("", _ESCAPES.sub("", text))


def closed_blocks(text: str, tags: Collection[str]) -> list[str]:
    """The content of every closed block with one of the tags, in order. A block inside another one is the outer one's
    text, and so is what is quoted with `>`."""
    found: list[str] = []
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            opened = line if _opens(line) else None
        elif _closes(line, opened):
            if _tag(opened) in tags:
                found.append(_content(text, opened, line.start()))
            opened = None
    return found


def last_block(text: str, tags: Collection[str]) -> str | None:
    """Of a file, such as a plan: what stands last counts."""
    found = closed_blocks(text, tags)
    return found[-1] if found else None


def _opens(line: re.Match[str]) -> bool:
    # As in markdown: a line such as ```x``` is inline code, not a fence.
    return line["mark"][0] == "~" or "`" not in line["info"]


def _closes(line: re.Match[str], opened: re.Match[str]) -> bool:
    return line["mark"].startswith(opened["mark"]) and not line["info"].strip()


def _tag(opened: re.Match[str]) -> str:
    words = opened["info"].split(maxsplit=1)
    return words[0] if words else ""


def _content(text: str, opened: re.Match[str], end: int) -> str:
    body = text[opened.end() + 1 : end].replace("\r\n", "\n")
    depth = len(opened["indent"])
    return re.sub(rf"^ {{1,{depth}}}", "", body, flags=re.MULTILINE) if depth else body


def fence(text: str, tag: str = "") -> str:
    """Text as one block, its fence longer than any run of backticks inside."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{tag}\n{text.rstrip()}\n{mark}"
