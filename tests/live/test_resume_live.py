"""The driver is killed while a real CLI runs a tool: no process is left, and the run goes on to its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from clis import PATIENT, left_behind
from runs_live import FIRST, REQUEST, Tiny, build

from processes_for_tests import until
from windlass.events import DispatchFinished
from windlass.model import ErrorClass
from windlass.testing.scripted_model import ScriptedModel

#: gemini forgets a call that had no answer yet; opencode tells of its session late, so it may begin afresh
FORGETFUL = ("gemini", "opencode")
USAGE = {"input": 30_000, "output": 30}


def test_a_driver_killed_in_the_middle_of_a_tool_leaves_nothing_and_the_run_goes_on(
    name: str, tmp_path: Path, model: Callable[..., ScriptedModel], record_property: Callable[[str, object], None]
) -> None:
    stuck = {"when": FIRST, "run": ["echo here > tool-runs && sleep 300"], "usage": {"input": 90_000, "output": 30}}
    server = model(stuck, build(usage=USAGE))
    run = Tiny(tmp_path, name, server)
    with run.driver() as driver:
        until(lambda: run.in_slots("tool-runs") or driver.poll() is not None, PATIENT)
        assert left_behind(run.front.run) != [], run.said
        driver.kill()
        driver.wait()
    until(lambda: left_behind(run.front.run) == [], PATIENT)
    run.ended_right(run.front("resume"))
    again = run.asked(2)[0].text
    assert f"Title: {REQUEST}" in again
    assert "sleep 300" in again or name in FORGETFUL
    # what the first attempt spent is not counted a second time
    lost, ended = run.front.events(DispatchFinished)
    assert lost.error == ErrorClass.DRIVER_LOST
    assert (ended.input, ended.output) == (USAGE["input"], USAGE["output"])
    assert ended.cost_usd is not None
    how = "begins afresh or goes on with its session" if name in FORGETFUL else "goes on with its session"
    record_property("the driver killed in the middle of a tool", how)
