"""What follows a failed attempt, as a table of cases."""

from __future__ import annotations

import pytest

from windlass.engine.policy import FORMAT_RETRIES, PAUSES, Again, Fail, Retries, Stop, after
from windlass.model import ErrorClass

RETRIES = Retries(crashed=1, timed_out=2)


@pytest.mark.parametrize("error", [ErrorClass.RATE_LIMITED, ErrorClass.OVERLOADED])
def test_a_quota_is_waited_for_with_growing_pauses_and_never_becomes_a_result(error: ErrorClass) -> None:
    assert [after(error, n, RETRIES) for n in range(8)] == [
        Again(PAUSES[min(n, len(PAUSES) - 1)], shared=True) for n in range(8)
    ]


@pytest.mark.parametrize("error", [ErrorClass.KILLED, ErrorClass.DRIVER_LOST])
@pytest.mark.parametrize("before", [0, 1, 100])
def test_what_we_interrupted_is_tried_again_however_often(error: ErrorClass, before: int) -> None:
    assert after(error, before, RETRIES) == Again()


@pytest.mark.parametrize(
    ("error", "tries"),
    [(ErrorClass.BAD_OUTPUT, FORMAT_RETRIES), (ErrorClass.CRASHED, 1), (ErrorClass.TIMED_OUT, 2)],
)
def test_a_failure_of_the_agent_is_a_result_after_its_count(error: ErrorClass, tries: int) -> None:
    kinds = [type(after(error, n, RETRIES)) for n in range(tries + 2)]
    assert kinds == [Again] * tries + [Fail] * 2


@pytest.mark.parametrize("error", [ErrorClass.REFUSED, ErrorClass.CONTEXT_OVERFLOW])
def test_what_would_fail_again_is_not_tried_again(error: ErrorClass) -> None:
    assert after(error, 0, RETRIES) == Fail()


@pytest.mark.parametrize(
    "error",
    [
        *(ErrorClass.AUTH, ErrorClass.BILLING, ErrorClass.MISSING_BINARY),
        *(ErrorClass.DISK_FULL, ErrorClass.GIT_FAILURE, ErrorClass.OVER_BUDGET),
    ],
)
@pytest.mark.parametrize("before", [0, 5])
def test_what_a_person_must_mend_stops_the_run_and_says_how(error: ErrorClass, before: int) -> None:
    stop = after(error, before, RETRIES)
    assert isinstance(stop, Stop)
    assert stop.hint


def test_every_class_has_an_answer() -> None:
    for error in ErrorClass:
        assert isinstance(after(error, 0, RETRIES), Again | Fail | Stop)
