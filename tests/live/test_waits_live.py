"""Waits and retries of the real CLIs: what they announce is read, and what they had done is not paid for again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from clis import PATIENT
from runs_live import CODE, FIRST, REQUEST, Tiny, build

from processes_for_tests import until
from windlass.model import ErrorClass
from windlass.testing.scripted_model import ScriptedModel

pytestmark = pytest.mark.deep

Model = Callable[..., ScriptedModel]
Note = Callable[[str, object], None]
RESET_S = 25.0
#: it does not tell how long it waits: its dispatch is ended after 20 s, and then our own pause counts
SILENT = ("opencode",)
#: gemini forgets a call that had no answer yet
FORGETFUL = ("gemini",)
STEPS = ["echo one >> steps.txt", "echo two >> steps.txt"]
PAUSES = '[retries]\npauses = ["1s", "2s"]\n'


def test_a_wait_that_the_cli_announces_becomes_ours_with_the_servers_time(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    refused = {**build(), "when": FIRST, "error": {"status": 429, "retry_after": RESET_S}}
    run = Tiny(tmp_path, name, model(refused, build()), PAUSES)
    with run.driver() as driver:
        until(lambda: run.look()["waits"] != [] or driver.poll() is not None, PATIENT)
        assert driver.wait(PATIENT) == 0, run.said
    run.ended_right(run.front("status"))
    assert run.errors == [ErrorClass.RATE_LIMITED, ""]
    [wait] = run.waits
    asked = run.asked(1)
    if name not in SILENT:
        assert len(asked) == 1
        assert abs(wait.until - (asked[0].at + RESET_S)) < 10
        assert run.asked(2)[0].at >= asked[0].at + RESET_S - 0.1
    told = "ended after 20 s, our own pause" if name in SILENT else "ended at once, the wait is the server's"
    record_property("429 with a reset in 25 s", told)


@pytest.mark.parametrize(("status", "error"), [(429, ErrorClass.RATE_LIMITED), (503, ErrorClass.OVERLOADED)])
def test_a_dispatch_that_was_turned_away_in_the_middle_goes_on_in_its_session(
    name: str, tmp_path: Path, model: Model, record_property: Note, status: int, error: ErrorClass
) -> None:
    # files and commands are turns of the model: the third request is refused as long as the attempt lasts
    failing = {**build(*STEPS), "when": FIRST, "error": {"status": status, "retry_after": 1, "turn": 3}}
    run = Tiny(tmp_path, name, model(failing, build(*STEPS)), PAUSES)
    run.ended_right(run.start())
    assert set(run.errors) == {error, ""}
    first, second = run.asked(1), run.asked(2)
    assert {request.status for request in first} == {200, status}
    # the second attempt knows what the first one did
    assert any(path in second[0].text for path in CODE)
    assert f"Title: {REQUEST}" in second[0].text
    record_property(f"{status} in the middle", "goes on with its session")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_driver_that_is_stopped_in_the_middle_of_a_tool_is_followed_by_one_that_goes_on(
    name: str, tmp_path: Path, model: Model, record_property: Note, number: signal.Signals
) -> None:
    stuck = {"when": FIRST, "run": ["echo one > first-done", "echo here > tool-runs && sleep 300"]}
    run = Tiny(tmp_path, name, model(stuck, build()))
    with run.driver() as driver:
        until(lambda: run.in_slots("tool-runs") or driver.poll() is not None, PATIENT)
        driver.send_signal(number)
        driver.wait(PATIENT)
    run.ended_right(run.front("resume"))
    again = run.asked(2)[0].text
    assert f"Title: {REQUEST}" in again
    assert "first-done" in again
    assert "sleep 300" in again or name in FORGETFUL
    record_property(f"the driver stopped by {number.name}", "goes on with its session")
