"""Why a CLI that gave no terminal event failed, from the end of what it wrote."""

from __future__ import annotations

import re

from windlass.model import ErrorClass

#: the first that is found counts: a 429 that speaks of a quota is a wait, not a bill
_SIGNS: tuple[tuple[ErrorClass, str], ...] = (
    (ErrorClass.RATE_LIMITED, r"\b429\b|rate.?limit|too many requests"),
    (ErrorClass.OVERLOADED, r"\b(500|502|503|504|529)\b|overloaded|temporarily unavailable|bad gateway"),
    (ErrorClass.AUTH, r"\b(401|403)\b|unauthori[sz]ed|invalid api key|not logged in|authentication"),
    (ErrorClass.BILLING, r"\b402\b|billing|insufficient (credit|quota|funds|balance)|payment required"),
    (ErrorClass.CONTEXT_OVERFLOW, r"context (length|window)|prompt is too long|maximum context|too many tokens"),
    (ErrorClass.REFUSED, r"\brefus(ed|al)\b(?! to connect)|content policy|usage policy"),
    (ErrorClass.DISK_FULL, r"no space left|\benospc\b"),
)


def classify_text(text: str, code: int | None) -> tuple[ErrorClass, str]:
    """Contract: never raises. The reason is the line that told, else the last one."""
    lines = [line.strip() for line in text[-20_000:].splitlines() if line.strip()]
    for error, sign in _SIGNS:
        for line in reversed(lines):
            if re.search(sign, line, re.IGNORECASE):
                return error, line[:300]
    ended = "was killed" if code is None else f"ended with code {code}"
    return ErrorClass.CRASHED, f"{ended}: {lines[-1][:300]}" if lines else f"{ended} and said nothing"
