"""What a run says it cost, compared with what the model's server served: to the cent, or shown as assumed.

The runs are interrupted in every way that the adapters know, while a tool runs and while the model answers.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
from clis import PATIENT, left_behind, pace
from runs_live import FIRST, MODELS, Tiny, build

from processes_for_tests import until
from windlass.agents import prices as pricing
from windlass.model import Usage
from windlass.testing.scripted_model import ScriptedModel

pytestmark = pytest.mark.deep

Model = Callable[..., ScriptedModel]
CENT = 0.005
#: three responses before the tool that never ends, so that most of the cost is known before it
STUCK = {
    "when": FIRST,
    "run": ["true", "echo here > tool-runs && sleep 300"],
    "say": "Never said.",
    "usage": {"input": 91_003, "output": 1_203},
}
REST = build(usage={"input": 31_007, "output": 907})
#: How many dispatches are told as assumed. opencode's stream tells of a response when the tools that it asked for have
#: ended. codex leaves a tool that takes 10 s to itself and asks the model on: on a busy machine one is on its way
UNKNOWN = {"opencode": (1,), "codex": (0, 1)}


def served_usd(run: Tiny) -> float:
    tokens = [request.served for request in run.server.asked]
    costs = [pricing.cost(MODELS[run.name], Usage(one.input, one.output, one.cached)) for one in tokens]
    return sum(cost for cost in costs if cost is not None)


def figures(run: Tiny) -> tuple[float, float, int]:
    told = run.front.status
    return told["known_usd"], told["assumed_usd"], told["assumed_dispatches"]


def assert_told(run: Tiny, *, unknown: Collection[int] = (0,)) -> None:
    """Every interface says the same, and it is what was served, or more where it says that it assumes."""
    known, assumed, dispatches = figures(run)
    served = served_usd(run)
    assert dispatches in unknown, figures(run)
    if dispatches:
        assert assumed > 0
        assert known <= served + CENT
    else:
        assert assumed == 0
        assert known == pytest.approx(served, abs=CENT)
    line = run.front.view.cost.line
    for command in ("status", "show"):
        assert line in " ".join(run.front(command).out.split())


def stop_in_tool(run: Tiny, number: int, *argv: str) -> None:
    with run.driver(*argv) as driver:
        until(lambda: run.in_slots("tool-runs") or driver.poll() is not None, PATIENT)
        driver.send_signal(number)
        driver.wait(PATIENT)
    until(lambda: left_behind(run.front.run) == [], PATIENT)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_what_a_dispatch_spent_before_its_driver_was_ended_is_counted(
    name: str, number: int, tmp_path: Path, model: Model
) -> None:
    run = Tiny(tmp_path, name, model(STUCK, REST))
    stop_in_tool(run, number)
    run.ended_right(run.front("resume"))
    assert_told(run, unknown=UNKNOWN.get(name, (0,)))


def test_what_a_dispatch_spent_before_its_time_was_over_is_counted(name: str, tmp_path: Path, model: Model) -> None:
    # codex leaves a tool alone after ten seconds, and asks on
    stuck = {**STUCK, "run": ["true", *["sleep 300"] * 9]}
    # long enough for the second attempt to come to its end, however busy the machine is
    wall = max(25.0, 20 * pace(name))
    run = Tiny(tmp_path, name, model(stuck, REST), config=f'[roles.implementer]\nwall = "{wall:.0f}s"\n')
    run.ended_right(run.start())
    assert run.errors[0] == "timed_out"
    assert_told(run, unknown=UNKNOWN.get(name, (0,)))


def test_an_outage_without_a_token_costs_nothing(name: str, tmp_path: Path, model: Model) -> None:
    out: list[dict[str, Any]] = [
        {"when": {"role": "implementer", "attempt": str(n)}, "say": "…", "error": {"status": status}}
        for n, status in ((1, 503), (2, 429), (3, 500))
    ]
    run = Tiny(tmp_path, name, model(*out, REST), config='[retries]\npauses = ["10ms"]\n')
    run.ended_right(run.start())
    assert len(run.errors) > 1, "the outage was seen"
    assert_told(run)


def test_a_response_that_was_on_its_way_when_the_driver_was_killed_is_shown_as_assumed(
    name: str, tmp_path: Path, model: Model
) -> None:
    hanging = {"when": FIRST, "hang": True, "say": "Never said."}
    run = Tiny(tmp_path, name, model(hanging, REST))
    with run.driver() as driver:
        until(lambda: bool(run.server.asked) or driver.poll() is not None, PATIENT)
        driver.kill()
        driver.wait()
    until(lambda: left_behind(run.front.run) == [], PATIENT)
    run.ended_right(run.front("resume"))
    assert_told(run, unknown=(1,))


def test_a_response_that_broke_off_is_shown_as_assumed_also_when_the_cli_asked_again_by_itself(
    name: str, tmp_path: Path, model: Model
) -> None:
    run = Tiny(
        tmp_path, name, model({**REST, "cut_after": 500, "cut_times": 1}), config='[retries]\npauses = ["10ms"]\n'
    )
    run.ended_right(run.start())
    known, assumed, dispatches = figures(run)
    assert known >= served_usd(run) - CENT
    # opencode's log says the same of a response that broke off and of a connection without one
    assert (dispatches, assumed > 0) == ((0, False) if name == "opencode" else (1, True))


def test_a_dispatch_much_dearer_than_the_ones_before_is_not_stopped(name: str, tmp_path: Path, model: Model) -> None:
    """The second attempt costs a hundred times what the first did before it crashed."""
    stump = {
        "when": FIRST,
        "run": ["true"],
        "say": "…",
        "error": {"status": 400, "turn": 2},
        "usage": {"input": 60, "output": 2},
    }
    run = Tiny(tmp_path, name, model(stump, build(usage={"input": 60_000, "output": 60_000})))
    run.ended_right(run.start("--budget", "20"))
    assert "over_budget" not in run.errors
    assert_told(run)
