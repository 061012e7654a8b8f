"""When the files of a run are written: at once, at the end of a burst, and when the driver leaves."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from front import LEAN, Front, basics, builder
from windlass.events import Event, Recorded, TaskChanged
from windlass.runs import view_files as projecting
from windlass.runs.project import Project
from windlass.runs.view_files import ViewFiles

APPROVED = ("--answer", "approve=approve", "--set", "review_mode=iterative")
BEHIND_S = 0.2
WAIT = """
import glob, json, sys, time
[path] = glob.glob(sys.argv[1])
end = time.monotonic() + 100
while time.monotonic() < end:
    tasks = json.load(open(path))["tasks"]
    if [task["status"] for task in tasks] == ["complete", "implementing"]:
        sys.exit(0)
    time.sleep(0.05)
sys.exit(9)
"""


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, LEAN)


@pytest.mark.req("S0-75")
def test_the_state_file_shows_a_task_s_state_while_its_agent_is_at_work(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent of the second task ends only when it reads in the file what it is doing."""
    # However slow the machine: all that happens in the phase is one burst.
    monkeypatch.setattr(projecting, "PAUSE_S", 1e9)
    state = front.root / ".git" / "windlass" / "runs" / "*" / ".superteam-workflow.json"
    second = builder(run=[shlex.join([sys.executable, "-c", WAIT, str(state)])])
    second["when"] = {"role": "implementer", "task": "t2"}
    done = front.start([second, *basics("One", "Two")], *APPROVED, "--set", "execution_mode=auto")
    assert done.code == 0, done.out + done.err


@dataclass
class Timers:
    """A clock that a test moves, and what is to be done later."""

    now: float = 1000.0
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float, do: Callable[[], None]) -> Timer:
        entry = (self.now + seconds, do)
        self.due.append(entry)
        return Timer(self, entry)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for entry in [entry for entry in self.due if entry[0] <= self.now]:
            self.due.remove(entry)
            entry[1]()


@dataclass
class Timer:
    timers: Timers
    entry: tuple[float, Callable[[], None]]

    def cancel(self) -> None:
        if self.entry in self.timers.due:
            self.timers.due.remove(self.entry)


@dataclass
class Files:
    front: Front
    projecting: ViewFiles
    seq: int = 10_000

    def feed(self, *events: Event) -> None:
        for event in events:
            self.seq += 1
            self.projecting.feed(Recorded(self.seq, self.front.run, 1000.0, event))

    @property
    def states(self) -> list[str]:
        return [task["status"] for task in self.front.state["tasks"]]


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def files(front: Front, timers: Timers) -> Any:
    """The files of a run that rests after its first task."""
    assert front.start(basics("One", "Two", "Three"), *APPROVED, "--set", "execution_mode=checkpoint").code == 11
    service = front.service
    row, kit = service.run(), Project(service.host)
    flow = kit.parse(kit.find_flow("plan"), kit.roles())
    with closing(service.store) as store:
        made = ViewFiles(store, row, flow, front.folder, timers, None, timers.later, "unchecked")
        made.flush()
        yield Files(front, made)


def changed(task: str, state: str) -> TaskChanged:
    return TaskChanged(task, state)


def test_the_last_event_of_a_burst_is_written_in_time(files: Files, timers: Timers) -> None:
    for state in ("implementing", "reviewing", "fixing", "reviewing", "complete"):
        files.feed(changed("t2", state))
    files.feed(changed("t3", "implementing"))
    assert files.states == ["complete", "pending", "pending"]
    timers.pass_time(BEHIND_S)
    assert files.states == ["complete", "complete", "implementing"]
    assert not timers.due


def test_a_burst_that_does_not_end_is_written_all_the_same(files: Files, timers: Timers) -> None:
    for _ in range(10):
        timers.pass_time(0.05)
        files.feed(changed("t2", "implementing"))
    assert files.states == ["complete", "implementing", "pending"]


def test_a_driver_that_leaves_has_written_everything(files: Files) -> None:
    files.feed(changed("t2", "implementing"))
    files.projecting.close()
    assert files.states == ["complete", "implementing", "pending"]
