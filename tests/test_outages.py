"""The outage storm's own plan and judgement. The storm itself is `make outage`."""

from __future__ import annotations

from pathlib import Path

from outages import FAULTS, Call, StormyModel, _repeated, plan, rules
from windlass.agents.base import Job


def asked(attempt: int, results: int) -> Call:
    job = Job("r1", "execute/t1/implement", attempt, "implementer", "implement", "", "", Path(), Path(), "codex")
    return Call(job, 0.0, results, "served")


def repeated(*calls: Call) -> list[str]:
    server = StormyModel(rules(), ())
    server.calls.extend(calls)
    return list(_repeated(server))


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
