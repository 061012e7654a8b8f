"""kill -9 in the middle of every restart of the staged flow: the resumed run ends as an uninterrupted one does."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import zygote
from bench import KILLER
from front import Rule
from staged import FILES, SETTINGS, Staged, basics, issue, negative, review, unchanged, worker
from windlass.events import (
    ArtifactsRemoved,
    DispatchFinished,
    PhaseEntered,
    PhaseFinished,
    PhaseSkipped,
    QuestionAnswered,
    StageRestarted,
)
from windlass.views.state_file import render_state

REQUEST = "Add sub"
ONE = [{"title": "Add sub", "description": "Do sub."}]
CHECKS = '[commands.test]\ncommands = [["sh", "-c", "test -e src/right || { echo src/t1.py:1: wrong; exit 1; }"]]\n'
RIGHT = worker(files={"src/t1.py": "y = 2\n", "src/right": "\n", "tests/test_t1.py": "def test_it(): pass\n"})
#: The worker is right the second time, after a restart of IMPLEMENT.
WRONG_FIRST = [worker(times=1), RIGHT, *basics(ONE)]
GOOD = [{**RIGHT, "times": 1}, unchanged(), *basics(ONE)]
LEAN = {"explorers": "1", "planners": "1", "phase": "0"}


@dataclass(frozen=True)
class Story:
    """The commands of a run with a restart. One of them is killed."""

    rules: Sequence[Rule]
    then: Sequence[tuple[str, ...]] = ()
    """The commands after `run`. The last one makes the restart, and is killed."""
    points: Sequence[str] = ()
    """Where the driver is killed: a crash point, or `module:function when N`."""
    settings: dict[str, str] = field(default_factory=dict)
    restarts: Sequence[tuple[str, str]] = ()
    """Which stages begin again, each with the stage where that was decided."""


REMOVAL = "windlass.views.files:Projector.remove"
RESTART = ("before restart#1", "after restart#1")
MIDWAY = (
    f"{REMOVAL} before 1",
    f"{REMOVAL} after 1",
    f"{REMOVAL} before 3",
    "windlass.views.files:replace_file after 30",
)
STORIES = {
    "source error in 3.1": Story(
        WRONG_FIRST,
        points=(*RESTART, *MIDWAY, "before 2.1+2/gate#1", "after 2.1+2/tasks"),
        restarts=[("IMPLEMENT", "TEST")],
    ),
    "2.3 exhausted": Story(
        [negative("2.3", times=1), *GOOD], points=(*RESTART, *MIDWAY[:2]), restarts=[("IMPLEMENT", "IMPLEMENT")]
    ),
    "4.2 exhausted": Story(
        [review("4.2", "approved", issue("4.2 is not good enough"), times=1), *GOOD],
        points=(*RESTART, *MIDWAY[:2]),
        restarts=[("TEST", "FINAL")],
    ),
    "4.2 exhausted, twice": Story(
        [review("4.2", "approved", issue("4.2 is not good enough"), times=2), *GOOD],
        points=("before restart#2", "after restart#2", "windlass.driver.stages:restart before 2"),
        restarts=[("TEST", "FINAL"), ("TEST", "FINAL")],
    ),
    "the person's answer": Story(
        [negative("3.3", times=1), *GOOD],
        then=[("answer", "restart-previous", "--comment", "not like this")],
        points=(*RESTART, "windlass.driver.stages:restart before 1", *MIDWAY[:1]),
        restarts=[("IMPLEMENT", "TEST")],
    ),
    "restart of a waiting run": Story(
        [negative("3.3", times=1), *GOOD],
        then=[("restart", "--stage", "PLAN", "--why", "smaller")],
        points=(
            "windlass.runs.controls:RunControls.detour after 1",
            "before left/3.3/asked#1/failure",
            "after left/3.3/asked#1/failure",
            "before 3.3/asked#1!failure.left",
            "after 3.3/asked#1!failure.left",
            *RESTART,
            *MIDWAY[:2],
        ),
        restarts=[("PLAN", "TEST")],
    ),
    "restart of a stopped run": Story(
        [negative("3.3", times=1), *GOOD],
        then=[("answer", "abort"), ("restart", "--stage", "TEST")],
        points=("before retry#1", "after retry#1", *RESTART),
        restarts=[("TEST", "TEST")],
    ),
    "the code is reset": Story(
        WRONG_FIRST,
        settings={"code": "reset"},
        points=(
            *RESTART,
            *MIDWAY[:2],
            "windlass.driver.stages:_keep before 1",
            "windlass.driver.stages:_keep after 1",
            "windlass.git.run_refs:RunRefs.show_tip before 3",
        ),
        restarts=[("IMPLEMENT", "TEST")],
    ),
}
EVERY = [(name, point) for name, story in STORIES.items() for point in story.points]
KILLS = EVERY if os.environ.get("WINDLASS_KILLS") == "all" else EVERY[::3]
"""`make kills` takes them all."""


def commands(front: Staged, story: Story) -> list[tuple[str, ...]]:
    settings = [
        word for name, value in (LEAN | story.settings).items() for word in ("--set", f"{SETTINGS[name]}={value}")
    ]
    start = ("run", "--flow", "staged", "--script", str(front.script), *settings, "--", REQUEST)
    return [start, *story.then]


def call(front: Staged, argv: Sequence[str], point: str = "") -> int:
    place, _, rest = point.rpartition(" ") if point.startswith("windlass.") else ("", "", "")
    if place:
        program, crash = ["-c", KILLER, *place.split(), rest], ""
    else:
        program, crash = ["-m", "windlass"], point
    env = {**front.env, **({"WINDLASS_CRASH": crash} if crash else {})}
    done = zygote.run([*program, *argv], cwd=front.root, env=env)
    print(f"$ windlass {' '.join(argv)}  [{point}]\n{done.stdout}{done.stderr}exit {done.returncode}")
    return int(done.returncode)


def outline(front: Staged) -> dict[str, Any]:
    """What a run came to, without times, commits and ids."""
    state = json.loads(front.state_path.read_text())
    for phase in (phase for stage in state["stages"].values() for phase in stage["phases"].values()):
        phase.pop("startedAt", None), phase.pop("endedAt", None)
    for one in (*state["failures"], *state["waivers"]):
        del one["at"]
    del state["run"], state["updatedAt"]
    marks = front.events(PhaseEntered), front.events(PhaseFinished), front.events(PhaseSkipped)
    with closing(front.service.store) as store:
        steps = store.steps.all(front.run)
    return {
        "state": state,
        "phases": [Counter((one.key, getattr(one, "outcome", "")) for one in kind) for kind in marks],
        "restarts": [(one.stage, one.source, one.by, one.count, one.phases) for one in front.events(StageRestarted)],
        "removed": [one.names for one in front.events(ArtifactsRemoved)],
        "answers": [(one.key, one.answer, one.by) for one in front.events(QuestionAnswered)],
        "done": Counter(one.key for one in front.events(DispatchFinished) if not one.error),
        "files": {path.relative_to(front.files).as_posix() for path in front.files.rglob("*") if path.is_file()},
        "tree": front.git("ls-tree", "-r", front.branch),
        "steps": {row.key for row in steps},
    }


def tell(folder: Path, story: Story) -> Staged:
    front = Staged(folder, CHECKS)
    front.say(story.rules)
    return front


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found: dict[str, dict[str, Any]] = {}

    def reference(name: str) -> dict[str, Any]:
        if name not in found:
            front = tell(tmp_path_factory.mktemp("whole"), STORIES[name])
            codes = [call(front, argv) for argv in commands(front, STORIES[name])]
            assert codes[-1] == 0
            found[name] = outline(front)
        return found[name]

    return reference


@pytest.mark.req("S3-67", "S3-84")
@pytest.mark.sweep(14)
@pytest.mark.parametrize(("name", "point"), KILLS, ids=[f"{name}, {point}" for name, point in KILLS])
def test_killed_in_a_restart_a_resumed_run_ends_as_an_uninterrupted_one_does(
    name: str, point: str, uninterrupted: Any, tmp_path: Path
) -> None:
    story = STORIES[name]
    front = tell(tmp_path, story)
    *before, last = commands(front, story)
    for argv in before:
        assert call(front, argv) in (10, 12)
    assert call(front, last, point) == -signal.SIGKILL, f"the driver did not come to {point}"
    assert call(front, ["resume"]) == 0
    assert outline(front) == uninterrupted(name)
    assert front.state_path.read_text() == render_state(front.view)
    with closing(front.service.store) as store:
        assert store.runs.get(front.run).wanted == ""
        assert store.questions.all(front.run, pending=True) == []


@pytest.mark.sweep(7)
@pytest.mark.parametrize("name", STORIES)
def test_the_uninterrupted_run_restarts_what_its_story_says(name: str, uninterrupted: Any) -> None:
    found = uninterrupted(name)
    assert [(stage, source) for stage, source, *_ in found["restarts"]] == list(STORIES[name].restarts)
    assert set(found["done"].values()) == {1}
    assert {phase["status"] for stage in found["state"]["stages"].values() for phase in stage["phases"].values()} == {
        "completed"
    }
    counts = {stage: one["restartCount"] for stage, one in found["state"]["stages"].items() if one["restartCount"]}
    assert counts == Counter(stage for stage, _ in STORIES[name].restarts)


@pytest.mark.req("S3-72", "S3-73", "S3-81")
@pytest.mark.sweep(2)
@pytest.mark.parametrize("point", [f"{REMOVAL} before 1", f"{REMOVAL} before 3"])
def test_files_that_a_killed_restart_left_are_removed_before_the_stage_begins_again(point: str, tmp_path: Path) -> None:
    story = STORIES["source error in 3.1"]
    front = tell(tmp_path, story)
    assert call(front, commands(front, story)[0], point) == -signal.SIGKILL
    assert front.made & (FILES["IMPLEMENT"] | FILES["TEST"]), "nothing was left"
    assert call(front, ["resume"], "before 2.1+2/tasks") == -signal.SIGKILL
    assert front.made == FILES["EXPLORE"] | FILES["PLAN"]
    assert {path.name for path in (front.files / ".agents/tmp/summaries").iterdir()} == {"EXPLORE.md", "PLAN.md"}
    assert front.stages["IMPLEMENT"]["restartCount"] == 1
    assert front.state_path.read_text() == render_state(front.view)


@pytest.mark.long
def test_killed_again_and_again_in_one_restart_it_happens_once(uninterrupted: Any, tmp_path: Path) -> None:
    name = "the code is reset"
    front = tell(tmp_path, STORIES[name])
    lives = [
        "before restart#1",
        "windlass.driver.stages:_keep after 1",
        "after restart#1",
        f"{REMOVAL} before 2",
        "windlass.driver.stages:restart before 1",
        "before 2.1+2/tasks",
        "before 2.1+2/result",
        "before 3.1+2/result",
    ]
    [argv] = commands(front, STORIES[name])
    for point in lives:
        assert call(front, argv, point) == -signal.SIGKILL, f"the driver did not come to {point}"
        argv = ("resume",)
    assert call(front, argv) == 0
    assert outline(front) == uninterrupted(name)
