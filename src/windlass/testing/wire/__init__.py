"""The languages the model server speaks, written by hand: one module each, found by the end of the path."""

from __future__ import annotations

import re

from windlass.testing.wire import anthropic, chat, gemini, responses
from windlass.testing.wire.base import Wire

ENDPOINTS: tuple[tuple[str, Wire], ...] = (
    (r"/v1/messages", anthropic.Anthropic()),
    (r"(/v1)?/responses", responses.Responses()),
    (r"(/v1)?/chat/completions", chat.Chat()),
    (r"(/v1beta|/v1)?/models/[^/:]+:(generateContent|streamGenerateContent)", gemini.Gemini()),
)


def find_wire(path: str) -> tuple[str, str, Wire] | None:
    """Returns (the path before the endpoint, the endpoint, the wire format)."""
    for pattern, wire in ENDPOINTS:
        found = re.search(f"{pattern}$", path)
        if found:
            return path[: found.start()].strip("/"), found[0], wire
    return None
