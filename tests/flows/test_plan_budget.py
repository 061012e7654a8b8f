"""What a run may spend, as `.superteam.json` says it, through the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from front import LEAN, Front, basics, planner, scout, spent
from windlass.events import DispatchFinished, Warned

RULES = [{**rule, **spent(0.3)} for rule in basics("One")]


def limits(front: Front, hard: float, warn: float = 5.0) -> None:
    costs = {"costs": {"warnAtUsd": warn, "hardLimitUsd": hard}}
    (front.root / ".superteam.json").write_text(json.dumps(costs))


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, LEAN)


@pytest.mark.req("S0-42", "S0-88", "S0-91")
def test_with_nothing_left_of_the_limit_no_dispatch_starts(front: Front) -> None:
    limits(front, 0.6)
    done = front.start(RULES, "--yes")
    assert done.code == 12
    assert front.keys == ["plan-draft/scout", "plan-draft/planner#1"]
    assert "$0.60 of $0.60 are spent" in done.err
    assert "--budget" in done.err
    assert "$0.60" in front.state["error"]


@pytest.mark.long
@pytest.mark.req("S0-87")
def test_a_limit_raised_in_the_file_lets_the_run_go_on_where_it_stopped(front: Front) -> None:
    limits(front, 0.6)
    front.start(RULES, "--yes")
    limits(front, 20.0)
    assert front().code == 0
    assert len(front.keys) == len(set(front.keys)) == 7
    assert front.view.spent.usd == pytest.approx(0.3 * 7)


@pytest.mark.req("S0-92")
def test_passing_the_warning_mark_is_said_once_and_work_goes_on(front: Front) -> None:
    limits(front, 20.0, warn=0.5)
    done = front.start(RULES, "--yes")
    assert done.code == 0
    assert [event.code for event in front.events(Warned)] == ["budget"]
    assert done.out.count("! more than $0.50 are spent") == 1


@pytest.mark.long
@pytest.mark.req("S0-89")
def test_an_agent_that_spends_past_the_limit_is_ended_also_when_it_does_not_listen(front: Front) -> None:
    limits(front, 1.0)
    greedy = planner("One", usage_steps=[0.1, 3.0], hang=True, ignore_term=True)
    began = time.monotonic()
    done = front.start([scout(**spent(0.1)), greedy], "--yes")
    took = time.monotonic() - began
    assert done.code == 12
    assert took > 5.0
    last = front.events(DispatchFinished)[-1]
    assert (last.role, last.error, last.cost_usd) == ("planner", "over_budget", 3.0)
    assert "resume" in done.err
