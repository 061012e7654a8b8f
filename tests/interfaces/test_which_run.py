"""Commands that change a run: which one they mean, and that a run at its end takes no answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from front import LEAN, Done, Front, basics
from windlass.events import QuestionAnswered, RunEnded


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, LEAN)


def two_runs(front: Front) -> tuple[Front, set[str]]:
    """Two runs that wait for the approval of their plans."""
    for name in ("First", "Second"):
        assert front.start(basics("One"), "--new", request=name).code == 10
    return front, {row.id for row in front.service.runs()}


@pytest.fixture
def two(front: Front) -> tuple[Front, set[str]]:
    return two_runs(front)


@pytest.fixture(scope="module")
def two_untouched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Front, set[str]]:
    """For commands that change nothing."""
    return two_runs(Front(tmp_path_factory.mktemp("two"), LEAN))


def assert_refused(done: Done, runs: set[str]) -> None:
    assert done.code == 1, done.out + done.err
    assert "name the one you mean" in done.err
    assert all(run in done.err for run in runs)


@pytest.mark.parametrize(
    "command",
    [
        ("answer", "approve"),
        ("answer", "approve", "approve"),
        ("abort",),
        ("pause",),
        ("tell", "use the existing clock"),
        ("land", "--unfinished"),
        ("resume",),
        ("retry",),
        ("take", "t1"),
        (),
    ],
)
def test_with_two_runs_a_command_without_a_run_is_refused_and_lists_them(
    two_untouched: tuple[Front, set[str]], command: tuple[str, ...]
) -> None:
    front, runs = two_untouched
    before = {run: len(front.service.events(run)) for run in runs}
    assert_refused(front(*command), runs)
    assert {run: len(front.service.events(run)) for run in runs} == before


def test_an_answer_without_a_run_is_for_the_only_run_that_asks(two: tuple[Front, set[str]]) -> None:
    front, runs = two
    first, other = sorted(runs)
    assert front("answer", "--no-resume", first, "approve").code == 0
    assert front("answer", "--no-resume", "approve").code == 0
    answered = [recorded.event for recorded in front.service.events(other)]
    assert any(isinstance(event, QuestionAnswered) for event in answered)


def test_with_one_active_run_the_text_alone_is_told_to_it(front: Front) -> None:
    front.start(basics("One"))
    told = front("tell", "use the existing clock")
    assert told.code == 0, told.err
    assert "told by windlass tell" in front("log").out or "use the existing clock" in front("log").out


@pytest.mark.req("S0-04")
def test_an_aborted_run_takes_no_answer_and_shows_no_question(front: Front) -> None:
    front.start(basics("One"))
    run = front.run
    assert front("abort").code == 0
    late = front("answer", run, "approve")
    assert late.code == 1
    assert "is aborted" in late.err
    assert not front.events(QuestionAnswered)
    assert front.events(RunEnded)[-1].state == "aborted"
    status = front("status")
    assert status.out.startswith("No run is active here.")
    assert "Approve this plan?" not in status.out
    assert (front.status["questions"], front.status["active"]) == ([], False)
    assert "Approve this plan?" not in front("show").out


def test_status_names_the_other_active_runs(two_untouched: tuple[Front, set[str]]) -> None:
    front, runs = two_untouched
    assert "Also active: " in front("status").out
    assert all(run in front("status").out for run in runs)


def test_a_refusal_in_json_lists_the_runs_too(two_untouched: tuple[Front, set[str]]) -> None:
    front, runs = two_untouched
    said = json.loads(front("abort", "--json").out)
    assert said["exit"] == 1
    assert all(run in said["error"] for run in runs)
