"""`windlass restart` and `windlass skip` at any moment: agents end, their work is kept, nothing is done twice."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import zygote
from front import Done, Rule
from front import basics as plan_basics
from gitrepo import sh
from processes_for_tests import until
from staged import FILES, SETTINGS, Staged, basics, negative, unchanged, worker
from windlass.errors import WindlassError
from windlass.events import (
    DispatchFinished,
    PhaseEntered,
    PhaseSkipped,
    QuestionAnswered,
    StageRestarted,
)
from windlass.views.state_file import render_state
from zygote import Process

LEAN = {"explorers": "1", "planners": "1", "phase": "0"}
SET = [word for name, value in LEAN.items() for word in ("--set", f"{SETTINGS[name]}={value}")]
AGAIN = [worker(times=2), unchanged(), *basics()]
WAITING = [negative("3.3", times=1), *AGAIN]


@pytest.fixture
def front(tmp_path: Path) -> Staged:
    return Staged(tmp_path)


def hanging(front: Staged, task: str) -> Rule:
    """A worker that writes its file, says that it is there, and hangs."""
    files = {"src/{task_id}.py": "half = True\n"}
    begun = f"touch {shlex.quote(str(front.tmp / 'begun-'))}{{task_id}}"
    return {"when": {"role": "worker", "task": task}, "times": 1, "files": files, "run": [begun], "hang": True}


@contextmanager
def background(front: Staged, rules: Sequence[Rule], *more: str) -> Iterator[Process]:
    """A driver in another process, killed at the end of the block if it still runs."""
    front.say(rules)
    argv = ["run", "--flow", "staged", "--script", str(front.script), *SET, *more, "--", "Add sub and mul"]
    with (front.tmp / "driver.out").open("ab") as out:
        driver = zygote.popen(
            ["-m", "windlass", *argv], cwd=front.root, env=front.env, stdout=out, stderr=out, own_session=True
        )
    try:
        yield driver
    finally:
        driver.kill()
        driver.wait()
        print((front.tmp / "driver.out").read_text())


def wait_for_workers(front: Staged) -> None:
    until(lambda: all((front.tmp / f"begun-{task}").exists() for task in ("t1", "t2")))


def wait_for_question(front: Staged, id: str) -> None:
    def asked() -> bool:
        with suppress(WindlassError), closing(front.service.store) as store:
            return any(row.id == id for row in store.questions.all(front.run, pending=True))
        return False

    until(asked)


def restarts(front: Staged) -> list[tuple[str, str, str, int]]:
    return [(one.stage, one.source, one.by, one.count) for one in front.events(StageRestarted)]


def phases(front: Staged) -> Counter[str]:
    return Counter(event.phase for event in front.events(PhaseEntered))


def kept(front: Staged, task: str) -> set[str]:
    """The content of this task's file in every keep-ref."""
    refs = front.git("for-each-ref", "--format=%(refname)", f"refs/windlass/keep/{front.run}").split()
    return {sh(front.root, "show", f"{ref}:src/{task}.py", check=False).strip() for ref in refs}


def assert_consistent(front: Staged) -> None:
    """Nothing was done twice, no question and no request is left, and the file says what the journal says."""
    done = Counter(event.key for event in front.events(DispatchFinished) if not event.error)
    assert set(done.values()) == {1}
    with closing(front.service.store) as store:
        assert store.questions.all(front.run, pending=True) == []
        assert store.runs.get(front.run).wanted == ""
        assert store.attempts.running(front.run) == []
    assert front.state_path.read_text() == render_state(front.view)
    counts = {stage: one["restartCount"] for stage, one in front.stages.items() if one["restartCount"]}
    assert counts == Counter(stage for stage, *_ in restarts(front))


# -- while its agents are at work


@pytest.mark.req("S3-67", "S3-71", "S3-80", "S3-81")
def test_a_restart_ends_the_agents_at_work_keeps_their_work_and_begins_the_stage_again(front: Staged) -> None:
    rules = [hanging(front, "t1"), hanging(front, "t2"), *AGAIN]
    with background(front, rules) as driver:
        wait_for_workers(front)
        done = front("restart", "--stage", "PLAN", "--why", "split it by module", "--json")
        assert done.code == 0
        assert set(json.loads(done.out)) == {"run", "state", "message"}
        assert "will restart PLAN" in json.loads(done.out)["message"]
        assert driver.wait(300) == 0
    assert restarts(front) == [("PLAN", "IMPLEMENT", "windlass restart", 1)]
    assert phases(front) == Counter(
        {**dict.fromkeys(("0", "2.2", "2.3", "3.1", "3.2", "3.3", "4.1", "4.2", "4.3", "end"), 1)}
        | dict.fromkeys(("1.1", "1.2", "1.3", "2.1"), 2)
    )
    cut_off = [event for event in front.events(DispatchFinished) if event.error]
    assert sorted(event.task for event in cut_off) == ["t1", "t2"]
    assert all("half = True" in kept(front, task) for task in ("t1", "t2"))
    assert front.show("src/t1.py") == "y = 1"
    assert "split it by module" in front.prompt("1.1+2/brainstormer")
    assert "split it by module" in front.report
    assert_consistent(front)


@pytest.mark.long
def test_another_driver_comes_to_the_same_state_after_a_restart_in_the_middle_of_tasks(front: Staged) -> None:
    rules = [hanging(front, "t1"), hanging(front, "t2"), *WAITING]
    with background(front, rules) as driver:
        wait_for_workers(front)
        assert front("restart").code == 0
        assert driver.wait(300) == 10
    before, dispatches = front.state, front.keys
    assert restarts(front) == [("IMPLEMENT", "IMPLEMENT", "windlass restart", 1)]
    assert front("resume").code == 10
    assert {**front.state, "updatedAt": 0} == {**before, "updatedAt": 0}
    assert front.keys == dispatches
    assert front("answer", "retry").code == 0
    assert restarts(front) == [("IMPLEMENT", "IMPLEMENT", "windlass restart", 1)]
    assert_consistent(front)


@pytest.mark.long
@pytest.mark.req("S3-60", "S3-10")
def test_a_skip_ends_the_agents_at_work_and_goes_on_without_the_phase(front: Staged) -> None:
    rules = [hanging(front, "t1"), hanging(front, "t2"), *AGAIN]
    with background(front, rules) as driver:
        wait_for_workers(front)
        done = front("skip", "--why", "done by hand")
        assert (done.code, "will go on without this phase" in done.out) == (0, True)
        assert driver.wait(300) == 14, "finished in part: no task was carried out"
    [waived] = [event for event in front.events(PhaseSkipped) if event.waived]
    assert (waived.phase, waived.by) == ("2.1", "windlass skip")
    assert "done by hand" in front.report
    assert "2.1-tasks.json" not in front.made
    assert front.statuses()["2.1"] == "skipped"
    assert phases(front)["3.1"] == 1, "the gate of 3.1 needs what a person waived"
    assert all("half = True" in kept(front, task) for task in ("t1", "t2"))
    assert_consistent(front)


@pytest.mark.long
def test_a_task_that_landed_before_the_restart_is_not_lost(front: Staged) -> None:
    """The code of t1 stays. Its worker says that there is nothing to change."""
    tasks = [
        {"title": "Add sub", "description": "a"},
        {"title": "Add mul", "description": "b", "depends_on": ["Add sub"]},
    ]
    first = {**worker(times=1), "when": {"role": "worker", "task": "t1"}}
    second = {**worker(), "when": {"role": "worker", "task": "t2"}}
    with background(front, [hanging(front, "t2"), first, second, unchanged(), *basics(tasks)]) as driver:
        until((front.tmp / "begun-t2").exists)
        assert front("restart", "--stage", "IMPLEMENT").code == 0
        assert driver.wait(300) == 0
    assert {"src/t1.py", "src/t2.py"} <= front.landed
    assert front.show("src/t2.py") == "y = 1"
    assert_consistent(front)


# -- while it waits, and while nobody drives it


@pytest.mark.req("S3-67", "S3-76")
def test_a_restart_wakes_a_driver_that_waits_at_a_question_and_closes_the_question(front: Staged) -> None:
    with background(front, WAITING, "--wait") as driver:
        wait_for_question(front, "failure")
        assert front("restart", "--stage", "TEST").code == 0
        assert driver.wait(300) == 0
    assert restarts(front) == [("TEST", "TEST", "windlass restart", 1)]
    [closed] = front.events(QuestionAnswered)
    assert (closed.id, closed.answer, closed.by) == ("failure", "restart TEST", "windlass restart")
    assert phases(front)["2.1"] == 1
    assert_consistent(front)


def stop(front: Staged) -> None:
    assert front.go(WAITING, **LEAN).code == 10
    assert front("answer", "abort").code == 12


def wait(front: Staged) -> None:
    assert front.go(WAITING, **LEAN).code == 10


def pause(front: Staged) -> None:
    """The analyst of phase 3.3 pauses the run."""
    call = shlex.join([sys.executable, "-m", "windlass", "pause"])
    pausing = {"when": {"role": "docs-writer"}, "times": 1, "run": [f"cd {shlex.quote(str(front.root))} && {call}"]}
    rule: dict[str, Any] = {**pausing, "files": {"{out.docs}": "Right.\n"}, "say": "done"}
    assert front.go([rule, *AGAIN], **LEAN).code == 11


@pytest.mark.req("S3-67", "S3-69", "S3-70", "S3-77")
@pytest.mark.parametrize("rest", [wait, stop, pause])
@pytest.mark.parametrize("argv", [("restart", "--stage", "IMPLEMENT"), ("resume", "--restart", "IMPLEMENT")])
@pytest.mark.sweep(3)
def test_a_run_at_rest_is_driven_and_begins_the_stage_again(front: Staged, rest: Any, argv: tuple[str, ...]) -> None:
    rest(front)
    made = {name: (front.phases / name).read_text() for name in FILES["EXPLORE"] | FILES["PLAN"]}
    assert front(*argv).code == 0
    [found] = restarts(front)
    assert (found[0], found[2], found[3]) == ("IMPLEMENT", f"windlass {argv[0]}", 1)
    assert phases(front)["2.1"] == 2
    assert [phases(front)[phase] for phase in ("0", "1.1", "1.2", "1.3")] == [1, 1, 1, 1]
    assert {name: (front.phases / name).read_text() for name in made} == made
    assert front.made >= FILES["IMPLEMENT"]
    assert_consistent(front)


@pytest.mark.req("S3-10", "S3-63")
@pytest.mark.sweep(2)
@pytest.mark.parametrize("rest", [wait, stop])
def test_a_run_at_rest_goes_on_without_the_phase_that_failed(front: Staged, rest: Any) -> None:
    rest(front)
    assert front("skip", "--why", "good enough").code == 0
    [waived] = [event for event in front.events(PhaseSkipped) if event.waived]
    assert (waived.phase, waived.by, "good enough" in waived.reason) == ("3.3", "windlass skip", True)
    assert phases(front)["3.3"] == 1
    assert "good enough" in front.report
    assert_consistent(front)


@pytest.mark.long
def test_what_a_restarted_run_at_rest_says_as_json(front: Staged) -> None:
    wait(front)
    said = json.loads(front("restart", "--stage", "TEST", "--json").out.splitlines()[-1])
    assert said["state"] == "finished"


@pytest.mark.long
@pytest.mark.req("S3-78", "S3-79")
def test_a_person_s_restarts_count_and_after_the_last_one_the_person_is_asked(front: Staged) -> None:
    assert front.go(WAITING, **LEAN, stage="1").code == 10
    front.say([negative("3.3"), *basics()])
    assert front("restart", "--stage", "TEST").code == 10
    for _ in range(2):
        assert front("restart", "--stage", "TEST").code == 10
        assert [row["id"] for row in front.status["questions"]] == ["restarts-used-up"]
        assert front("resume").code == 10, "another driver comes to the same question"
    assert front.asked == ["failure", "failure", "restarts-used-up", "restarts-used-up"]
    assert restarts(front) == [("TEST", "TEST", "windlass restart", 1)]
    assert front("answer", "force").code == 0
    assert [one["phase"] for one in front.state["waivers"]] == ["3.3"]
    assert_consistent(front)


# -- refused


def refused(done: Done, *words: str) -> None:
    assert done.code == 1, done.out + done.err
    said = " ".join((done.out + done.err).split())
    assert all(word in said for word in words), said


@pytest.mark.parametrize("command", ["restart", "skip"])
@pytest.mark.sweep(2)
def test_a_finished_run_is_refused(front: Staged, command: str) -> None:
    assert front.go(AGAIN, **LEAN).code == 0
    refused(front(command), "is finished")
    assert restarts(front) == []


@pytest.mark.long
def test_a_stage_that_cannot_begin_again_is_refused_and_nothing_is_recorded(front: Staged) -> None:
    off = {"when": {"role": "simplifier"}, "exit": 3, "stderr": "no"}
    assert front.go([off, *AGAIN], **LEAN, explore="false").code == 10
    refused(front("restart", "--stage", "TEST"), "stage TEST has not begun", "IMPLEMENT")
    refused(front("restart", "--stage", "EXPLORE"), "stage EXPLORE is disabled")
    refused(front("restart", "--stage", "IMPLEMNT"), "there is no stage 'IMPLEMNT'", "IMPLEMENT")
    refused(front("restart", "--stage", "implement"), "there is no stage 'implement'")
    refused(front("resume", "--restart", "FINAL"), "stage FINAL has not begun")
    refused(front("restart", "nope", "--stage", "PLAN"), "nope")
    with closing(front.service.store) as store:
        assert store.runs.get(front.run).wanted == ""
    assert restarts(front) == []
    assert [row["id"] for row in front.status["questions"]] == ["failure"]


@pytest.mark.parametrize("command", [("restart", "--stage", "PLAN"), ("skip",), ("resume", "--restart", "PLAN")])
@pytest.mark.sweep(3)
def test_a_run_of_another_flow_is_refused(front: Staged, command: tuple[str, ...]) -> None:
    assert front.start(plan_basics("One")).code == 10
    refused(front(*command), "flow 'plan' has no stages")
    with closing(front.service.store) as store:
        assert store.runs.get(front.run).wanted == ""
