"""The outage storm's own plan and judgement. The storm itself is `make outage`."""

from __future__ import annotations

from typing import Any

import pytest

from outages import FAULTS, Call, _repeated, _together, _wrong_money, plan
from windlass.agents.base import Job
from windlass.events import DispatchFinished, DispatchStarted, Event, Recorded, WaitStarted

KEY = "execute/t1/implement"


def asked(attempt: int, results: int, fate: str = "served", run: str = "r1", at: float = 0.0) -> Call:
    job = Job(run, KEY, attempt, "implementer", "implement", "", "", "codex")
    return Call(job, at, results, fate, tokens=100, usd=0.25)


def ended(attempt: int = 1, **more: Any) -> DispatchFinished:
    return DispatchFinished(KEY, attempt, "implementer", "codex", **more)


def recorded(event: Event, run: str = "r1", at: float = 0.0) -> Recorded:
    return Recorded(1, run, at, event)


def repeated(*calls: Call) -> list[str]:
    return list(_repeated(calls))


def test_a_storm_has_every_fault_however_short_it_is_and_can_be_repeated() -> None:
    for seconds in (30.0, 600.0):
        spells = plan(7, seconds)
        assert spells == plan(7, seconds)
        assert {spell.fault for spell in spells} == {"", *FAULTS}
        assert sum(spell.seconds for spell in spells) >= seconds / 3
    assert plan(7, 60.0) != plan(8, 60.0)


def test_a_dispatch_that_begins_anew_though_its_session_had_come_further_is_found() -> None:
    assert repeated(asked(1, 0), asked(1, 1), asked(2, 0)) != []
    assert repeated(asked(1, 0), asked(1, 1), asked(2, 1), asked(2, 2)) == []
    assert repeated(asked(1, 0), asked(2, 0), asked(2, 1)) == []


@pytest.mark.parametrize(
    ("told", "right"),
    [
        ({"input": 190, "output": 10, "cost_usd": 0.5}, True),
        ({"input": 100, "cost_usd": 0.25}, False),
        ({"input": 200, "cost_usd": 0.25}, False),
        ({"input": 300, "cost_usd": 0.75}, False),
        ({"input": 200, "cost_usd": 0.5, "assumed_usd": 0.5}, False),
        ({"input": 100, "cost_usd": None, "assumed_usd": 0.5}, False),
    ],
)
def test_an_attempt_that_is_recorded_with_another_cost_than_was_served_is_found(
    told: dict[str, Any], right: bool
) -> None:
    calls = [asked(1, 0), asked(1, 1), asked(2, 2)]
    other = recorded(ended(2, input=100, cost_usd=0.25))
    assert (list(_wrong_money([recorded(ended(**told)), other], calls)) == []) is right


@pytest.mark.parametrize(
    ("told", "right"),
    [
        ({"input": 100, "cost_usd": 0.25}, False),
        ({"input": 100, "cost_usd": 0.25, "assumed_usd": 0.25}, True),
        ({"input": 200, "cost_usd": 0.5}, True),
        ({"input": 300, "cost_usd": 0.75}, False),
        ({"cost_usd": None, "assumed_usd": 0.5}, True),
        ({"cost_usd": None}, False),
    ],
)
def test_an_attempt_whose_stream_was_cut_has_an_assumed_cost_or_the_whole_one(
    told: dict[str, Any], right: bool
) -> None:
    calls = [asked(1, 0), asked(1, 1, "cut")]
    assert (list(_wrong_money([recorded(ended(**told))], calls)) == []) is right


def test_a_cli_that_does_not_show_its_cuts_need_not_have_an_assumed_cost() -> None:
    calls, told = [asked(1, 0), asked(1, 1, "cut")], [recorded(ended(input=100, cost_usd=0.25))]
    assert list(_wrong_money(told, calls, shows_cuts=False)) == []


def test_two_dispatches_that_try_a_login_at_the_same_time_are_found() -> None:
    events: list[Recorded] = []
    for run, began in (("r1", 10.0), ("r2", 12.0)):
        started = DispatchStarted(KEY, 2, "implementer", "codex", "", "implement")
        events.append(recorded(WaitStarted(KEY, "codex", 10.0, "429"), run, 1.0))
        events.append(recorded(started, run, began))
        events.append(recorded(ended(2), run, 20.0))
    assert len(list(_together(events, [asked(2, 0, "refused", at=11.0)]))) == 1
    assert list(_together(events, [asked(2, 0, "served", at=11.0)])) == []
