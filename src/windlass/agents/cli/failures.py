"""Classifies the failures of CLIs by their output: the class of the error, and when to try again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from windlass.model import ErrorClass

WAITS = (ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED)
REASON = 300
LONGEST_WAIT_S = 32 * 86_400.0
"""A quota window is a month at most; a later time is a misread number."""


def _http(codes: str) -> str:
    """One of these status codes, and not the number of a line: `app.py:500`, `line 500`."""
    return rf"(?<!\.\w:)(?<!\.\w\w:)(?<!\.\w\w\w:)(?<!line )\b(?:{codes})\b"


# undici reports a broken stream as "terminated". The "Terminated" of a shell and git's "... are terminated then try
# again" are not about the server.
_TERMINATED = r"(?-i:\bterminated)\W*$"

#: the first match counts: a 429 with a quota is a wait, not a bill
_SIGNS: tuple[tuple[ErrorClass, str], ...] = (
    # How the model's answer ended says more than the CLI's name for the broken turn.
    (ErrorClass.REFUSED, r"reason: content_filter|safeguards flagged"),
    (ErrorClass.BAD_OUTPUT, r"reason: max_output_tokens|output token maximum"),
    (ErrorClass.BILLING, _http("402") + r"|credit balance|insufficient[ _](credit|quota|funds|balance)"),
    (ErrorClass.BILLING, r"payment required|billing_(error|not_active|hard_limit)"),
    (ErrorClass.CONTEXT_OVERFLOW, r"context.?(length|window)|prompt is too long|maximum context|too many tokens"),
    (
        ErrorClass.CONTEXT_OVERFLOW,
        r"exceeds the maximum (number|length|input)|input (is|too) (too )?l(ong|arge)|contextoverflow",
    ),
    (ErrorClass.RATE_LIMITED, _http("429") + r"|rate.?limit|too many requests|resource.?exhausted|(?<!disk )quota"),
    (ErrorClass.RATE_LIMITED, r"(usage|session|weekly|hour|daily|spend|opus|sonnet) limit|limit (reached|will reset)"),
    (ErrorClass.AUTH, _http("401|403") + r"|unauthori[sz]ed|invalid.{0,12}api.?key|incorrect api key|not logged in"),
    (ErrorClass.AUTH, r"authenticat|please (run )?/?log.?in|token (has )?expired|no api key|permission.?denied_error"),
    (ErrorClass.AUTH, r"set an auth method|no models available|autherror"),
    (ErrorClass.OVERLOADED, _http("500|502|503|504|520|522|524|529") + r"|overloaded|temporarily unavailable"),
    (ErrorClass.OVERLOADED, r"bad gateway|" + _TERMINATED),
    (ErrorClass.OVERLOADED, r"internal server error|server_error|service unavailable|server is busy|high demand"),
    (ErrorClass.OVERLOADED, r"stream (disconnected|closed|ended|error)|connection (error|reset|refused|closed)"),
    (ErrorClass.OVERLOADED, r"econn(reset|refused|aborted)|socket hang up|fetch failed|etimedout"),
    (ErrorClass.OVERLOADED, r"(unable|failed) to connect|unexpected end of (json|stream)|request timed out"),
    (ErrorClass.BILLING, r"billing"),
    (ErrorClass.REFUSED, r"\brefus(ed|al)\b(?! to connect)|content.?(policy|filter)|usage policy|flagged for possible"),
    (ErrorClass.MISSING_BINARY, r"cannot find module|\benv: .*no such file"),
    (ErrorClass.DISK_FULL, r"no space left|\benospc\b|disk quota exceeded|\bedquot\b"),
)
_COMPILED = tuple((error, re.compile(sign, re.IGNORECASE)) for error, sign in _SIGNS)

#: from a CLI that does not know a flag, and then lists all that it knows
_TELLING = re.compile(r"^(fatal )?error\b|unknown (option|argument|flag)|unexpected argument", re.IGNORECASE)

_BY_STATUS = {
    400: ErrorClass.CRASHED,
    401: ErrorClass.AUTH,
    402: ErrorClass.BILLING,
    403: ErrorClass.AUTH,
    413: ErrorClass.CONTEXT_OVERFLOW,
    429: ErrorClass.RATE_LIMITED,
}


def classify_text(text: str, code: int | None) -> tuple[ErrorClass, str]:
    """Contract: never raises. The reason is the line that decided, else the last one."""
    lines = [line.strip() for line in text[-20_000:].splitlines() if line.strip()]
    for error, sign in _COMPILED:
        for line in reversed(lines):
            if sign.search(line):
                return error, line[:REASON]
    ended = "was killed" if code is None or code < 0 else f"ended with code {code}"
    telling = next((line for line in lines if _TELLING.search(line)), lines[-1] if lines else "")
    return ErrorClass.CRASHED, f"{ended}: {telling[:REASON]}" if lines else f"{ended} and said nothing"


#: an answer that began and broke off: what came of it is paid for
_CUT = re.compile(
    r"stream (disconnected|closed|ended|error)|stream was cut|unexpected end|premature|incomplete"
    r"|socket hang up|econn(reset|aborted)|connection reset|aborted|" + _TERMINATED,
    re.IGNORECASE,
)
#: an address may hold any word and number
_ADDRESS = re.compile(r"\bhttps?://\S+", re.IGNORECASE)
_UNSENT = re.compile(r"error sending request|refused|(unable|failed) to connect|enotfound|eai_again", re.IGNORECASE)


def was_cut(reason: str) -> bool:
    """The model's answer may have begun before the failure."""
    words = _ADDRESS.sub("", reason)
    return bool(_CUT.search(words)) and not _UNSENT.search(words)


def class_of(text: str, status: int | None = None) -> ErrorClass:
    """The class of an error in the stream: by its words where they say more than the status, else by the status."""
    by_text = classify_text(_ADDRESS.sub("", text), 0)[0] if text.strip() else ErrorClass.CRASHED
    if status is None or status < 400:
        return by_text
    by_status = ErrorClass.OVERLOADED if status >= 500 else _BY_STATUS.get(status, ErrorClass.CRASHED)
    plainer = (ErrorClass.BILLING, ErrorClass.CONTEXT_OVERFLOW)
    return by_text if by_text in plainer or by_status is ErrorClass.CRASHED else by_status


# -- when to try again

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_NUMBER = r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)(?![A-Za-z])"
_SPAN = re.compile(
    rf"(?:again|retry|retrying|resets?|retrydelay\W+|wait)\s*(?:in|after)?\s*((?:{_NUMBER}[\s,]*(?:and\s+)?)+)",
    re.IGNORECASE,
)
_ONE = re.compile(_NUMBER, re.IGNORECASE)
_HEADER = re.compile(r"retry-after\W{1,4}(\d+(?:\.\d+)?)\b", re.IGNORECASE)
_REQUESTED = re.compile(r"requested (\d+(?:\.\d+)?)s retry delay", re.IGNORECASE)
_EPOCH = re.compile(r"(?:reset[s_]?(?:at|_at)?|limit reached)\W{1,4}(1\d{9})(\d{3})?\b", re.IGNORECASE)
_ISO = re.compile(r"\b(20\d\d-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:\.\d+)?\s*(Z|UTC|[+-]\d\d:?\d\d)?", re.IGNORECASE)
_CLOCK = re.compile(
    r"(?:resets?|again|until)(?:\s+(?:at|on))?\s+"
    r"(?:(?P<month>[A-Z][a-z]{2})[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?(?:,?\s+(?P<year>20\d\d))?(?:,|\s+at)?\s+)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?\s*(?P<half>[ap]\.?m\.?)?(?:\s*\((?P<zone>[A-Za-z_]+(?:/[A-Za-z_]+)*)\))?",
    re.IGNORECASE,
)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def reset_time(text: str, now: float) -> float | None:
    """When a limit ends, by the words; None when they do not say."""
    return next((time for time in _times(text, now) if now < time <= now + LONGEST_WAIT_S), None)


def _times(text: str, now: float) -> Iterator[float]:
    """The times in a text, the most reliable form first."""
    if found := _EPOCH.search(text):
        yield float(found[1])
    # _REQUESTED has the words of pi: `Server requested 40s retry delay (max: 1s)`
    for seconds in (_HEADER, _REQUESTED):
        if found := seconds.search(text):
            yield now + float(found[1])
    if found := _SPAN.search(text):
        parts = [(float(number), word.lower()) for number, word in _ONE.findall(found[1])]
        units = ("ms" if word.startswith(("ms", "milli")) else word[0] for _, word in parts)
        yield now + sum(number * _UNITS[unit] for (number, _), unit in zip(parts, units, strict=True))
    if found := _ISO.search(text):
        zone = (found[2] or "Z").upper().replace("UTC", "Z")
        with suppress(ValueError):
            yield datetime.fromisoformat(found[1].replace(" ", "T") + zone).timestamp()
    if (found := _CLOCK.search(text)) and (found["half"] or found["minute"]):
        with suppress(ValueError):
            yield _wall_clock(found, datetime.fromtimestamp(now, UTC).astimezone(_zone(found["zone"])))


def _wall_clock(found: re.Match[str], here: datetime) -> float:
    """The next time at which the clock shows this. Raises ValueError for a time that no clock shows."""
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + (12 if found["half"].lower().startswith("p") else 0)
    then = here.replace(hour=hour, minute=int(found["minute"] or 0), second=0, microsecond=0)
    if not found["month"]:
        return (then + timedelta(days=1) if then <= here else then).timestamp()
    month = _MONTHS.index(found["month"].lower()) + 1
    # "Jan 2", read in December
    year = int(found["year"]) if found["year"] else here.year + (month < here.month)
    return then.replace(year=year, month=month, day=int(found["day"])).timestamp()


def _zone(name: str | None) -> tzinfo | None:
    """None: that of this machine."""
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, KeyError):
        return None
