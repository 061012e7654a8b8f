"""What follows a failed attempt, as a table of cases."""

from __future__ import annotations

import pytest

from windlass.config.schema import RetrySettings
from windlass.engine.retry import FORMAT_RETRIES, Fail, Stop, TryAgain, after
from windlass.model import ErrorClass

RETRIES = RetrySettings(crashed=1, timed_out=2)
PAUSES = RETRIES.pauses


@pytest.mark.parametrize("error", [ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED])
@pytest.mark.parametrize("before", [0, 1, 100])
def test_a_quota_is_waited_for_by_the_login_and_never_becomes_a_result(error: ErrorClass, before: int) -> None:
    assert after(error, before, RETRIES) == TryAgain(shared=True)


@pytest.mark.parametrize("error", [ErrorClass.KILLED, ErrorClass.DRIVER_LOST])
def test_what_was_interrupted_is_tried_again_at_once_and_then_in_growing_pauses(error: ErrorClass) -> None:
    pauses = [after(error, n, RETRIES) for n in (0, 1, 2, 100)]
    assert pauses == [TryAgain(), TryAgain(PAUSES[1]), TryAgain(PAUSES[2]), TryAgain(PAUSES[-1])]


def test_pauses_between_crashes_grow() -> None:
    found = [after(ErrorClass.CRASHED, n, RetrySettings(crashed=3)) for n in range(4)]
    assert found == [TryAgain(PAUSES[0]), TryAgain(PAUSES[1]), TryAgain(PAUSES[2]), Fail()]


@pytest.mark.parametrize(
    ("error", "tries"),
    [(ErrorClass.BAD_OUTPUT, FORMAT_RETRIES), (ErrorClass.CRASHED, 1), (ErrorClass.TIMED_OUT, 2)],
)
def test_a_failure_of_the_agent_is_a_result_after_its_count(error: ErrorClass, tries: int) -> None:
    kinds = [type(after(error, n, RETRIES)) for n in range(tries + 2)]
    assert kinds == [TryAgain] * tries + [Fail] * 2


@pytest.mark.parametrize("error", [ErrorClass.REFUSED, ErrorClass.CONTEXT_OVERFLOW])
def test_what_would_fail_again_is_not_tried_again(error: ErrorClass) -> None:
    assert after(error, 0, RETRIES) == Fail()


@pytest.mark.parametrize(
    "error",
    [
        *(ErrorClass.AUTH, ErrorClass.BILLING, ErrorClass.MISSING_BINARY),
        *(ErrorClass.DISK_FULL, ErrorClass.OVER_BUDGET),
    ],
)
@pytest.mark.parametrize("before", [0, 5])
def test_what_a_person_must_mend_stops_the_run_and_says_how(error: ErrorClass, before: int) -> None:
    stop = after(error, before, RETRIES)
    assert isinstance(stop, Stop)
    assert stop.hint


def test_every_class_has_an_answer() -> None:
    for error in ErrorClass:
        assert isinstance(after(error, 0, RETRIES), TryAgain | Fail | Stop)
