"""`windlass fork`: a new run that shares the beginning of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from front import LEAN, Front, basics, builder, failing, passing, planner, scout, spent
from gitrepo import reachable, sh
from windlass.events import DispatchStarted, PhaseEntered
from windlass.model import RunState
from windlass.runs.service import Service
from windlass.store.rows import StepRow
from windlass.store.tips import tip_of_steps


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Front, str]:
    """A finished run of the plan flow with one task."""
    front = Front(tmp_path_factory.mktemp("story"), LEAN)
    rules = [scout(**spent(1)), planner("One", **spent(1)), builder(**spent(1)), passing()]
    assert front.start(rules, "--yes").code == 0
    return front, front.run


def forked(front: Front, run: str, phase: str) -> str:
    done = front("fork", run, "--at", phase)
    assert done.code == 0, done.err
    new = done.out.split()[1]
    assert f"windlass resume {new}" in done.out
    return new


def dispatched(service: Service, run: str) -> list[str]:
    return [record.event.key for record in service.events(run) if isinstance(record.event, DispatchStarted)]


def test_a_forked_run_dispatches_nothing_before_its_phase(story: tuple[Front, str]) -> None:
    front, run = story
    new = forked(front, run, "execute")
    assert front.service.run(new).parent == run
    assert front("resume", new).code == 0
    keys = dispatched(front.service, new)
    assert keys
    assert {key.split("/")[0] for key in keys} <= {"execute", "finalize"}
    assert "execute/t1/implement" in keys


def test_a_fork_owes_nothing_for_what_it_shares(story: tuple[Front, str]) -> None:
    front, run = story
    new = forked(front, run, "execute")
    assert front.service.view(run).spent.usd >= 3
    assert front.service.view(new).spent.usd == 0
    assert front.service.store.attempts.spend(new).known_usd == 0


def test_a_fork_at_the_first_phase_does_everything_anew(story: tuple[Front, str]) -> None:
    front, run = story
    new = forked(front, run, "plan-draft")
    assert front("resume", new).code == 0
    assert dispatched(front.service, new) == dispatched(front.service, run)


def test_a_fork_at_the_last_phase_has_the_same_code_on_a_branch_of_its_own(story: tuple[Front, str]) -> None:
    front, run = story
    new = forked(front, run, "report")
    assert front("resume", new).code == 0
    old_view, new_view = front.service.view(run), front.service.view(new)
    assert dispatched(front.service, new) == []
    assert new_view.published != old_view.published
    assert front.git("rev-parse", f"{new_view.published}^{{tree}}") == front.git(
        "rev-parse", f"{old_view.published}^{{tree}}"
    )


def test_a_fork_waits_until_it_is_resumed_and_says_so(story: tuple[Front, str]) -> None:
    front, run = story
    new = forked(front, run, "execute")
    assert front.service.run(new).state is RunState.PAUSED
    status = front("status", new).out
    assert f"forked from run {run} before 'execute'" in " ".join(status.split())
    assert f"windlass resume {new}" in status


def test_the_log_of_a_fork_ends_where_its_phase_begins(story: tuple[Front, str]) -> None:
    front, run = story
    new = forked(front, run, "execute")
    entered = [r.event.phase for r in front.service.events(new) if isinstance(r.event, PhaseEntered)]
    assert entered == ["plan-draft", "plan-review", "plan-approval", "configure"]
    assert front("resume", new).code == 0
    again = [r.event.phase for r in front.service.events(new) if isinstance(r.event, PhaseEntered)]
    assert again[:4] == entered
    assert again.count("plan-draft") == 1


@pytest.mark.long
def test_answers_are_shared_and_questions_of_the_phase_are_asked_again(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    assert front.start(basics("One")).code == 10
    assert front("answer", "approve", "--no-resume").code == 0
    assert front("resume").code == 10
    run = front.run
    after, before = forked(front, run, "configure"), forked(front, run, "plan-approval")
    assert [row.answer for row in front.service.store.questions.all(after)] == ["approve"]
    assert front.service.store.questions.all(before) == []
    assert front("resume", before).code == 10
    assert [row.id for row in front.service.questions.pending(before)] == ["approve"]


@pytest.mark.long
def test_a_retried_stop_before_the_phase_is_shared(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    rules = [{"when": {"role": "planner"}, "times": 2, "say": "nothing written"}, *basics("One")]
    assert front.start(rules, "--yes").code == 12
    assert front("retry").code == 0
    new = forked(front, front.run, "execute")
    assert front("resume", new).code == 0
    assert {key.split("/")[0] for key in dispatched(front.service, new)} <= {"execute", "finalize"}


def test_an_unknown_phase_is_refused_with_the_near_match(story: tuple[Front, str]) -> None:
    front, run = story
    done = front("fork", run, "--at", "excute")
    assert (done.code, done.err) == (1, "error: flow 'plan' has no phase 'excute'\nhint: did you mean 'execute'?\n")


def test_a_phase_that_was_never_reached_is_refused(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    assert front.start(basics("One")).code == 10
    done = front("fork", front.run, "--at", "report")
    assert done.code == 1
    assert "never reached 'report'" in done.err
    assert "it reached: plan-draft" in done.err
    assert len(front.service.runs()) == 1


def test_what_a_fork_shares_outlives_the_run_it_came_from(story: tuple[Front, str]) -> None:
    front, run = story
    new = forked(front, run, "report")
    assert front("gc", run).code == 0
    assert front("resume", new).code == 0
    assert reachable(front.root, sh(front.root, "rev-parse", front.service.view(new).published))


def step(seq: int, key: str, result: object) -> StepRow:
    return StepRow(seq, key, "", "", json.dumps(result))


def test_the_tip_is_that_of_the_last_commit_or_landing() -> None:
    refused = step(4, "execute/t2/land#1", {"kind": "red", "tip": "x" * 40})
    landed = step(3, "execute/t1/land#1", {"kind": "landed", "tip": "b" * 40})
    planned = step(1, "plan-draft/commit", "a" * 40)
    other = step(5, "execute/t2/implement", {"head": "c" * 40})
    assert tip_of_steps([planned], "base") == "a" * 40
    assert tip_of_steps([refused, landed, planned, other], "base") == "b" * 40
    assert tip_of_steps([other], "base") == "base"
    assert tip_of_steps([planned, step(2, "baseline/tip.1", "d" * 40)], "base") == "d" * 40
    mended = step(9, "finalize/land", {"tip": "e" * 40, "refused": ""})
    left = step(10, "finalize+2/land", {"tip": "f" * 40, "refused": "the checks fail"})
    assert tip_of_steps([planned, mended, left], "base") == "e" * 40
    assert tip_of_steps([planned, mended, step(11, "report/progress", "1" * 40)], "base") == "1" * 40


@pytest.mark.long
def test_fixing_cycles_of_shared_tasks_are_not_repeated(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    rules = [failing("spec-reviewer", "missing", times=1, task="t1"), *basics("One")]
    assert front.start(rules, "--yes").code == 0
    new = forked(front, front.run, "finalize")
    assert front("resume", new).code == 0
    assert {key.split("/")[0] for key in dispatched(front.service, new)} == {"finalize"}
