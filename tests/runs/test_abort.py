"""An abort that was acknowledged ends the run, whatever its driver is about to do, and leaves no agent at work."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import zygote
from bench import STOPPER, Bench, default_script, is_stopped, kill, kill_supervisors, make_bench
from processes_for_tests import until
from zygote import Process

ABORTED, WAITING = 13, 10
HANG = {"when": {"role": "scout"}, "hang": True, "ignore_term": True}


def _stopped_at(bench: Bench, place: str, when: str, *argv: str) -> Process:
    """A driver that stands still there."""
    with open(os.devnull, "wb") as nothing:
        driver = zygote.popen(
            ["-c", STOPPER, place, when, "1", *argv],
            cwd=bench.root,
            env=bench.environ(),
            stdout=nothing,
            stderr=nothing,
            own_session=True,
        )
    until(lambda: driver.poll() is not None or is_stopped(driver.pid))
    assert driver.poll() is None, f"{place} was not reached"
    return driver


def _go_on(driver: Process) -> int:
    driver.send_signal(signal.SIGCONT)
    return driver.wait(300)


def _run(bench: Bench) -> tuple[str, ...]:
    return ("run", "Add sub and mul", "--script", str(bench.script))


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("place", "when", "code"),
    [
        ("windlass.runs.drive:_Driver._end", "before", ABORTED),
        ("windlass.runs.drive:_Driver._record", "before", ABORTED),
        ("windlass.runs.drive:_Driver._record", "after", WAITING),
        ("windlass.runs.drive:_Driver._end", "after", WAITING),
    ],
)
def test_an_abort_that_meets_a_driver_going_to_rest_at_a_question_ends_the_run(
    place: str, when: str, code: int, tmp_path: Path
) -> None:
    bench = make_bench(tmp_path)
    driver = _stopped_at(bench, place, when, *_run(bench))
    try:
        said = bench.windlass("abort")
        assert said.code == 0, str(said)
        assert _go_on(driver) == code
    finally:
        kill(driver)
    assert bench.run_state == "aborted"
    assert not (bench.run_folder / ".superteam-workflow.json").exists()
    ends = bench.rows("SELECT data FROM event WHERE type = 'run.ended' ORDER BY seq")
    assert "aborted" in ends[-1]["data"]


@pytest.mark.long
@pytest.mark.parametrize("place", ["windlass.runs.drive:_Driver._take", "windlass.store.sqlite.store:SqliteStore.open"])
def test_an_abort_that_meets_a_driver_which_has_not_begun_yet_ends_the_run(place: str, tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    assert bench.windlass(*_run(bench)).code == WAITING
    driver = _stopped_at(bench, place, "before", "resume")
    try:
        assert bench.windlass("abort").code == 0
        assert _go_on(driver) != 0
    finally:
        kill(driver)
    assert bench.run_state == "aborted"


def test_an_abort_that_a_killed_driver_did_not_heed_is_heeded_by_the_next_one(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    driver = _stopped_at(bench, "windlass.dispatch.local_site:run_agent", "before", *_run(bench))
    assert "is being aborted" in bench.windlass("abort").out
    kill(driver)
    assert bench.run_state == "running"
    said = bench.windlass("resume")
    assert said.code == ABORTED, str(said)
    assert bench.run_state == "aborted"
    assert not bench.leftovers()


def test_without_a_driver_an_abort_ends_the_agents_that_are_left(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    make_bench(tmp_path, script=[HANG, *default_script(bench)])
    with bench.first_driver("--yes") as driver:
        until(lambda: any(bench.home.glob("runs/*/scripted/dispatches.jsonl")))
        # Stopped, so that it does not see its supervisors die.
        driver.send_signal(signal.SIGSTOP)
        kill_supervisors(bench)
    assert bench.leftovers()
    said = bench.windlass("abort")
    assert "is aborted" in said.out, str(said)
    assert not bench.leftovers()
    assert bench.run_state == "aborted"
    assert bench.rows("SELECT state FROM attempt") == [{"state": "interrupted"}]


@pytest.mark.long
def test_collecting_leaves_a_slot_in_which_a_process_is_alive(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    assert bench.run("--yes").code == 0
    slot = next(path for path in bench.state.glob("windlass/*/slots/*") if path.name.isdigit())
    with subprocess.Popen(["sleep", "600"], cwd=slot) as process:
        try:
            said = bench.windlass("gc")
            assert f"process {process.pid} is running in it" in said.out + said.err, str(said)
            assert slot.is_dir()
        finally:
            process.kill()
    bench.windlass("gc")
    assert not slot.exists()
