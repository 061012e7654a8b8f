"""Checkpoint and batch mode: the journal says whether a pause is due, whatever became of the driver in between."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zygote
from bench import KILLER
from front import LEAN, Front, basics
from windlass.engine.services import StopRequests
from windlass.events import HANDED_OVER, RunEnded, TaskLanded
from windlass.tasks.lander import Lander

MODES = {"checkpoint": ("execution_mode=checkpoint",), "batch": ("execution_mode=batch", "batch_size=2")}
TITLES = ("One", "Two", "Three", "Four")


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, LEAN)


def given(mode: str) -> list[str]:
    settings = [word for setting in MODES[mode] for word in ("--set", setting)]
    return ["--answer", "approve=approve", "--set", "review_mode=iterative", *settings]


def begin(front: Front, mode: str) -> int:
    return front.start(basics(*TITLES), *given(mode)).code


def before_landing(monkeypatch: pytest.MonkeyPatch, nth: int, act: Callable[[StopRequests], None]) -> None:
    """Something is asked of the driver after the last review of a task, before its nth landing begins."""
    real, calls = Lander.land, iter(range(1, 100))

    async def land(self: Lander, request: Any) -> Any:
        if next(calls) == nth:
            act(self._requests)
        return await real(self, request)

    monkeypatch.setattr(Lander, "land", land)


def pause(wanted: StopRequests) -> None:
    wanted.pause = "paused by the user"


def interrupt(wanted: StopRequests) -> None:
    wanted.interrupt = "interrupted"


def leave(wanted: StopRequests) -> None:
    wanted.pause = HANDED_OVER


def landed(front: Front) -> int:
    return len(front.events(TaskLanded))


def rest_of_the_run(front: Front) -> list[tuple[int, int]]:
    """Each resume's exit code, with how many tasks had landed then."""
    found: list[tuple[int, int]] = []
    while not found or found[-1][0] == 11:
        found.append((front("resume").code, landed(front)))
        assert len(found) < 10
    return found


@pytest.mark.sweep(2)
@pytest.mark.parametrize("act", [pause, interrupt])
def test_a_pause_between_review_and_landing_leaves_the_checkpoint_due(
    front: Front, monkeypatch: pytest.MonkeyPatch, act: Callable[[StopRequests], None]
) -> None:
    with monkeypatch.context() as patched:
        before_landing(patched, 1, act)
        assert begin(front, "checkpoint") == (11 if act is pause else 130)
    assert landed(front) == 0
    assert rest_of_the_run(front) == [(11, 1), (11, 2), (11, 3), (0, 4)]


@pytest.mark.req("S0-64")
def test_a_person_s_resume_begins_a_new_batch_and_the_landing_belongs_to_it(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        before_landing(patched, 2, pause)
        assert begin(front, "batch") == 11
    assert landed(front) == 1
    assert rest_of_the_run(front) == [(11, 3), (0, 4)]


@pytest.mark.long
@pytest.mark.parametrize(("mode", "nth", "pauses"), [("checkpoint", 1, [1, 2, 3]), ("batch", 2, [2])])
def test_a_run_sent_to_the_background_between_review_and_landing_pauses_where_it_would_have(
    front: Front, monkeypatch: pytest.MonkeyPatch, mode: str, nth: int, pauses: list[int]
) -> None:
    with monkeypatch.context() as patched:
        before_landing(patched, nth, leave)
        begin(front, mode)
    assert landed(front) == nth - 1
    assert front.events(RunEnded)[-1].reason == HANDED_OVER
    assert rest_of_the_run(front) == [*((11, n) for n in pauses), (0, 4)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "place", "when", "nth", "pauses"),
    [
        ("checkpoint", "windlass.tasks.lander:Lander.land", "before", 1, [1, 2, 3]),
        ("checkpoint", "windlass.engine.attempts:AttemptLog.finish_landings", "after", 1, [1, 2, 3]),
        ("batch", "windlass.tasks.lander:Lander.land", "before", 2, [2]),
        ("batch", "windlass.engine.attempts:AttemptLog.finish_landings", "after", 1, [2]),
        ("batch", "windlass.engine.attempts:AttemptLog.finish_landings", "after", 2, [2]),
    ],
)
def test_a_killed_driver_leaves_the_pause_due(
    front: Front, mode: str, place: str, when: str, nth: int, pauses: list[int]
) -> None:
    kill(front, mode, ["-c", KILLER, place, when, str(nth)])
    assert rest_of_the_run(front) == [*((11, n) for n in pauses), (0, 4)]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("mode", "at", "pauses"), [("checkpoint", "t1", [2, 3]), ("batch", "t2", [])])
def test_a_pause_on_record_is_not_made_again(front: Front, mode: str, at: str, pauses: list[int]) -> None:
    kill(front, mode, ["-m", "windlass"], crash=f"after execute/pause.{at}")
    assert rest_of_the_run(front) == [*((11, n) for n in pauses), (0, 4)]


def kill(front: Front, mode: str, program: list[str], crash: str = "") -> None:
    front.say(basics(*TITLES))
    argv = [*program, "run", "--script", str(front.script), *given(mode), "--", "Add them"]
    env = {**front.env, **({"WINDLASS_CRASH": crash} if crash else {})}
    done = zygote.run(argv, cwd=front.root, env=env)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
