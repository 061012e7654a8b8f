from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.agents.cli.failures import class_of, classify_text, reset_time
from windlass.model import ErrorClass

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC).timestamp()
HOUR = 3600.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 3s", 3),
        ("Please try again in 1.898s.", 1.898),
        ("try again in 250ms", 0.25),
        ("Please retry in 22.4s.", 22.4),
        ("Suggested retry after 3s.", 3),
        ("retryDelay: 17s", 17),
        ('"retryDelay": "17s"', 17),
        ("Your quota will reset after 3h4m5s.", 3 * HOUR + 245),
        ("try again in 3 days 4 hours 5 minutes", 3 * 86_400 + 4 * HOUR + 300),
        ("try again in 2 hours and 1 minute", 2 * HOUR + 60),
        ("wait 5 minutes", 300),
        ("retry-after: 30", 30),
        ("'retry-after': '30'", 30),
        ("Claude AI usage limit reached|1794747600", 1_794_747_600 - NOW),
        ('"resetsAt":1794747600', 1_794_747_600 - NOW),
        ('"resets_at": 1794747600000', 1_794_747_600 - NOW),
        ("resets at 2026-11-15T15:00:00Z", 3 * HOUR),
        ("resets at 2026-11-15 15:00 UTC", 3 * HOUR),
        ("resets at 2026-11-15T15:00:00+02:00", HOUR),
        ("You've hit your session limit · resets 3pm (UTC)", 3 * HOUR),
        ("Your limit will reset at 3:30pm (UTC)", 3.5 * HOUR),
        ("resets 11am (UTC)", 23 * HOUR),
        ("resets 12am (UTC)", 12 * HOUR),
        ("resets 8am (America/New_York)", HOUR),
        ("You've hit your weekly limit · resets Nov 20, 3pm (UTC)", 5 * 86_400 + 3 * HOUR),
        ("or try again at Nov 20th, 2026 3:00 PM (UTC).", 5 * 86_400 + 3 * HOUR),
    ],
)
def test_when_a_limit_ends(text: str, seconds: float) -> None:
    found = reset_time(text, NOW)
    assert found is not None
    assert found - NOW == pytest.approx(seconds, abs=0.01)


def test_a_time_without_a_zone_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert reset_time("try again at 8:00 AM.", NOW) == NOW + HOUR
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()


def test_a_day_of_the_next_year_is_after_this_one() -> None:
    december = datetime(2026, 12, 30, 12, 0, tzinfo=UTC).timestamp()
    assert reset_time("resets Jan 2, 12pm (UTC)", december) == december + 3 * 86_400


@pytest.mark.parametrize(
    "text",
    [
        "",
        "429 Too Many Requests",
        "try again later",
        "try again in a moment",
        "resets soon",
        "resets at 2026-11-15T11:00:00Z",
        "try again in 900 days",
        "resets Foo 20, 3pm",
        "resets Nov 31, 3pm (UTC)",
        "resets 99:99pm",
        "again 3",
        "usage limit reached|1",
    ],
)
def test_words_that_tell_no_time_to_come_tell_nothing(text: str) -> None:
    assert reset_time(text, NOW) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("HTTP 429: rate limited", ErrorClass.RATE_LIMITED),
        ("429 insufficient_quota", ErrorClass.BILLING),
        ("quota exceeded for this project", ErrorClass.RATE_LIMITED),
        ("You've hit your 5-hour limit", ErrorClass.RATE_LIMITED),
        ("503 Service Unavailable", ErrorClass.OVERLOADED),
        ("read ECONNRESET", ErrorClass.OVERLOADED),
        ("Invalid API key", ErrorClass.AUTH),
        ("Incorrect API key provided", ErrorClass.AUTH),
        ("402 Payment Required", ErrorClass.BILLING),
        ("Your credit balance is too low", ErrorClass.BILLING),
        ("maximum context length is 200000", ErrorClass.CONTEXT_OVERFLOW),
        ("context_length_exceeded", ErrorClass.CONTEXT_OVERFLOW),
        ("blocked by content policy", ErrorClass.REFUSED),
        ("ENOSPC: no space left on device", ErrorClass.DISK_FULL),
        ("Error: Cannot find module '/opt/pi.js'", ErrorClass.MISSING_BINARY),
        ("Segmentation fault", ErrorClass.CRASHED),
        ("processed 14290 rows in 5003 ms", ErrorClass.CRASHED),
        ("TypeError: terminated", ErrorClass.OVERLOADED),
        (
            "fatal: Unable to create '/s/1.git/index.lock': File exists.\nprocesses\nare terminated then try again.",
            ErrorClass.CRASHED,
        ),
        ("run.sh: line 3: 4711 Terminated", ErrorClass.CRASHED),
        ("Terminated", ErrorClass.CRASHED),
        ("  File 'app.py', line 500, in run", ErrorClass.CRASHED),
        ("src/app.ts:429:7 - error TS2304: Cannot find name 'x'", ErrorClass.CRASHED),
        ("main.go:503: undefined: x", ErrorClass.CRASHED),
        ("write failed: Disk quota exceeded", ErrorClass.DISK_FULL),
    ],
)
def test_classes_by_words(text: str, error: ErrorClass) -> None:
    assert classify_text(text, 1)[0] is error
    assert class_of(text) is error


def test_a_status_says_more_than_most_words() -> None:
    assert class_of("quota", 401) is ErrorClass.AUTH
    assert class_of("x", 503) is ErrorClass.OVERLOADED
    assert class_of("x", 404) is ErrorClass.CRASHED
    assert class_of("prompt is too long", 400) is ErrorClass.CONTEXT_OVERFLOW
    assert class_of("credit balance is too low", 429) is ErrorClass.BILLING
    assert class_of("", 429) is ErrorClass.RATE_LIMITED


def test_an_address_tells_nothing() -> None:
    assert class_of("failed at http://127.0.0.1:80/429~quota~billing") is ErrorClass.CRASHED


def test_the_line_that_told_is_the_reason() -> None:
    assert classify_text("starting\n401 Unauthorized\nbye", 1) == (ErrorClass.AUTH, "401 Unauthorized")
    assert (
        classify_text("error: unknown option '--x'\nUsage: …", 2)[1] == "ended with code 2: error: unknown option '--x'"
    )
    assert classify_text("", None)[1] == "was killed and said nothing"
    assert classify_text("", -9)[1] == "was killed and said nothing"


@given(st.text(), st.floats(0, 4e9))
def test_no_text_makes_it_raise(text: str, now: float) -> None:
    classify_text(text, 1)
    for prefix in ("resets ", "again at ", "retry-after: ", "try again in "):
        found = reset_time(prefix + text, now)
        assert found is None or found > now


@pytest.mark.parametrize("text", ["again " * 50_000, "resets 1 " * 40_000, "wait 1s, " * 40_000, "1" * 300_000])
def test_a_long_text_takes_no_long_time(text: str) -> None:
    begun = time.process_time()
    reset_time(text, NOW)
    class_of(text)
    assert time.process_time() - begun < 2
