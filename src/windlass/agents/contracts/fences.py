"""Fenced blocks: finds the one that counts, and wraps text so that it cannot end its own fence."""

from __future__ import annotations

import re
from collections.abc import Collection

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)$", re.MULTILINE)


def closed_blocks(text: str, tags: Collection[str]) -> list[str]:
    """The content of every closed block with one of the tags, in order. A block inside another block, or quoted with
    `>`, is text of the outer one."""
    found: list[str] = []
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            # As in markdown: a line such as ```x``` is inline code, not a fence.
            opened = line if line["mark"][0] == "~" or "`" not in line["info"] else None
        elif line["mark"].startswith(opened["mark"]) and not line["info"].strip():
            words = opened["info"].split(maxsplit=1)
            if (words[0] if words else "") in tags:
                body = text[opened.end() + 1 : line.start()].replace("\r\n", "\n")
                depth = len(opened["indent"])
                found.append(re.sub(rf"^ {{1,{depth}}}", "", body, flags=re.MULTILINE) if depth else body)
            opened = None
    return found


def last_block(text: str, tags: Collection[str]) -> str | None:
    """For a file, such as a plan: the last block counts."""
    found = closed_blocks(text, tags)
    return found[-1] if found else None


def fence(text: str, tag: str = "") -> str:
    """Text as one block, with a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{tag}\n{text.rstrip()}\n{mark}"
