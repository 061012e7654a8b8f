"""Tasks that do not go as they should, through the command line."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from front import LEAN, NO_PLAN_REVIEW, Front, Rule, basics, builder, failing, passing, plan_of, planner, scout
from gitrepo import footprint, reachable
from windlass.events import DispatchFinished, LandingRefused, QuestionAsked, TaskChanged, TaskLanded
from windlass.git.engine_repo import EngineRepo

QUICK = "[retries]\ncrashed = 0\n"
CHECKS = '[checks]\ncommands = [["/bin/sh", "-c", "grep -q \'x = 1\' src/app.py && ! grep -rqs BROKEN src"]]\n'
STATES = {"pending", "implementing", "reviewing", "fixing", "complete", "skipped", "escalated"}
APPROVED = ("--answer", "approve=approve", "--set", "review_mode=iterative", "--set", "execution_mode=auto")
CRASH: Rule = {"when": {"role": "implementer", "task": "t1"}, "exit": 9, "stderr": "it broke", "times": 1}


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, QUICK + LEAN)


def escalation(front: Front) -> QuestionAsked:
    asked = front.events(QuestionAsked)[-1]
    assert asked.id == "escalation"
    return asked


# -- when a person is asked


@pytest.mark.req("S0-54", "S0-56")
def test_a_review_that_keeps_failing_is_fixed_three_times_and_then_escalated(front: Front) -> None:
    complaints = [failing("spec-reviewer", f"complaint {n}", task="t1", cycle=n) for n in (1, 2, 3, 4)]
    done = front.start([*complaints, *basics("One")], *APPROVED)
    assert done.code == 10
    assert [key for key in front.keys if ".fix#" in key] == [f"execute/t1/spec.fix#{n}" for n in (1, 2, 3)]
    for n in (1, 2, 3):
        assert f"Fix attempt {n}/3" in done.out
    asked = escalation(front)
    assert "One" in asked.text
    assert "complaint 4" in asked.text + asked.detail
    assert [option["key"] for option in asked.options if isinstance(option, dict)] == ["continue", "skip", "abort"]
    assert front.states("t1")[-1] == "escalated"
    assert front.state["tasks"][0]["status"] == "escalated"


@pytest.mark.long
def test_a_fix_that_closes_nothing_is_escalated_at_once_and_the_work_of_a_skipped_task_is_kept(front: Front) -> None:
    said = front.tmp / "commits"
    who = "-c user.name=a -c user.email=a@b"
    noting = builder(run=[f"git add -A; git {who} commit -qm w; git rev-parse HEAD >> {said}"])
    same = failing("spec-reviewer", "the same again", task="t1")
    assert front.start([same, scout(), planner("One"), noting, passing()], *APPROVED).code == 10
    assert [key for key in front.keys if ".fix#" in key] == ["execute/t1/spec.fix#1"]
    assert "closed no finding" in escalation(front).text
    assert front("answer", "skip").code == 14
    made = set(said.read_text().split()) - {front.view.tasks[0].base}
    assert made
    assert all(reachable(engine(front), sha) for sha in made)


def test_an_implementer_that_had_nothing_to_change_is_said_with_its_reason(front: Front) -> None:
    idle = {"when": {"role": "implementer"}, "json": {"nothing_to_change": True, "reason": "add() is there"}}
    assert front.start([scout(), planner("One"), idle, passing()], "--yes").code == 0
    assert "implementer: it changed nothing: add() is there" in (front.folder / "report.md").read_text()


@pytest.mark.long
def test_after_continue_the_implementer_reads_the_finding_with_its_place_and_no_book_keeping(front: Front) -> None:
    finding = {"severity": "high", "file": "src/t1.py", "line": 7, "message": "zero is missing", "suggestion": "add it"}
    bad = {"when": {"role": "spec-reviewer", "task": "t1"}, "json": {"status": "fail", "findings": [finding]}}
    front.start([bad, *basics("One")], *APPROVED)
    assert "(src/t1.py:7)" in escalation(front).detail
    front.say(basics("One"))
    assert front("answer", "continue", "-m", "mind the edge").code == 0
    prompt = front.prompt("execute/t1+2/implement")
    assert "- [high] src/t1.py:7 zero is missing\n  suggestion: add it" in prompt
    assert "mind the edge" in prompt
    assert "answered" not in prompt


def test_a_message_waits_for_whoever_writes_code_and_status_log_and_report_say_when_it_came(front: Front) -> None:
    front.start(basics("One"))
    run = front.service.run().id
    assert "queued" in front("tell", run, "use the Clock class").out
    assert "not delivered yet" in front("status").out
    assert front("answer", "revise", "-m", "better").code == 10
    assert "Clock" not in front.prompt("plan-review+2/wish")
    front("answer", "approve")
    assert front("resume", "--yes").code == 0
    assert "use the Clock class" in front.prompt("execute/t1/implement")
    assert "Clock" not in front.prompt("execute/t1/spec#1")
    assert "delivered to implementer (execute/t1/implement@1)" in " ".join(front("status").out.split())
    assert "told: use the Clock class" in front("log").out
    assert "delivered to implementer" in (front.folder / "report.md").read_text()


@pytest.mark.long
def test_a_message_for_a_role_goes_to_that_role(front: Front) -> None:
    front.start(basics("One"))
    run = front.service.run().id
    front("tell", run, "--role", "spec-reviewer", "mind zero")
    assert front("tell", run, "--role", "plannr", "x").code == 1
    front("answer", "approve")
    assert front("resume", "--yes").code == 0
    assert "mind zero" not in front.prompt("execute/t1/implement")
    assert "mind zero" in front.prompt("execute/t1/spec#1")
    assert "mind zero" not in front.prompt("execute/t1/quality#1")


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("key", "words"), [("refused", "usage policy"), ("context_overflow", "prompt is too long")])
def test_the_retries_of_a_class_are_as_many_as_configured(tmp_path: Path, key: str, words: str) -> None:
    front = Front(tmp_path, f"[retries]\n{key} = 2\n" + LEAN)
    failing_twice = {"when": {"role": "implementer"}, "exit": 1, "stderr": words, "times": 2}
    assert front.start([failing_twice, *basics("One")], "--yes").code == 0
    assert front.keys.count("execute/t1/implement") == 3


@pytest.mark.req("S0-57")
def test_a_task_review_without_a_verdict_is_escalated_and_not_fixed(front: Front) -> None:
    mumbling = {"when": {"role": "quality-reviewer", "task": "t1"}, "say": "Hmm."}
    assert front.start([mumbling, *basics("One")], *APPROVED).code == 10
    assert "quality-reviewer" in escalation(front).text
    assert not [key for key in front.keys if ".fix" in key]
    assert front.view.tasks[0].reviews["quality-reviewer"].verdict == "inconclusive"


@pytest.mark.sweep(3)
@pytest.mark.req("S0-58")
@pytest.mark.parametrize("role", ["implementer", "spec-reviewer", "quality-reviewer"])
def test_an_agent_that_ends_badly_in_execute_is_escalated(front: Front, role: str) -> None:
    crash = {"when": {"role": role, "task": "t1"}, "exit": 9, "stderr": "it broke"}
    done = front.start([crash, *basics("One")], *APPROVED)
    assert done.code == 10
    assert "it broke" in escalation(front).text
    assert "9" in escalation(front).text


@pytest.mark.req("S0-58")
def test_a_fixer_that_ends_badly_is_escalated(front: Front) -> None:
    crash = {"when": {"role": "implementer", "purpose": "fix"}, "exit": 9, "stderr": "it broke"}
    complaint = failing("spec-reviewer", "wrong", task="t1", cycle=1)
    assert front.start([crash, complaint, *basics("One")], *APPROVED).code == 10
    assert "it broke" in escalation(front).text


@pytest.mark.req("S0-51")
def test_a_critical_finding_of_an_optional_reviewer_is_escalated(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + NO_PLAN_REVIEW)
    hole = failing("security-reviewer", "remote code execution", severity="critical", task="t1")
    assert front.start([hole, *basics("One")], *APPROVED).code == 10
    assert "remote code execution" in escalation(front).text
    assert not front.events(TaskLanded)


@pytest.mark.long
@pytest.mark.req("S0-51")
def test_a_critical_finding_is_escalated_also_when_its_reviewer_passes_the_whole(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + NO_PLAN_REVIEW)
    hole = failing("performance-reviewer", "quadratic", severity="critical", task="t1")
    hole["json"]["status"] = "pass"
    assert front.start([hole, *basics("One")], *APPROVED).code == 10
    assert "quadratic" in escalation(front).text


@pytest.mark.req("S0-49")
def test_missing_optional_reviewers_are_no_error(front: Front) -> None:
    assert front.start(basics("One"), "--yes").code == 0
    assert not [key for key in front.keys if "extra" in key]


# -- what a person may answer


@pytest.mark.sweep(4)
@pytest.mark.req("S0-59")
@pytest.mark.parametrize("word", ["continue", "Continue", "retry", "1"])
def test_continue_runs_the_task_again_from_its_start(front: Front, word: str) -> None:
    front.start([CRASH, *basics("One")], *APPROVED)
    done = front("answer", word)
    assert done.code == 0
    assert front.states("t1") == [
        *("pending", "implementing", "escalated", "pending", "implementing", "reviewing", "complete")
    ]
    assert [key for key in front.keys if "implement" in key] == ["execute/t1/implement", "execute/t1+2/implement"]


@pytest.mark.req("S0-60", "S0-69", "S0-72")
def test_skip_leaves_the_task_out_and_goes_on_with_the_next(front: Front) -> None:
    front.start([CRASH, *basics("One", "Two")], *APPROVED)
    assert front("answer", "skip").code == 14
    assert [task.state for task in front.view.tasks] == ["skipped", "complete"]
    assert "- One" not in front.prompt("finalize/quality-reviewer#1")
    assert "- Two" in front.prompt("finalize/quality-reviewer#1")
    report = (front.folder / "report.md").read_text()
    assert "- 1 completed" in report
    assert "- 1 skipped" in report
    assert "src/t1.py" not in front.landed


@pytest.mark.req("S0-61")
def test_abort_ends_the_run_and_says_who_wanted_it(front: Front) -> None:
    front.start([CRASH, *basics("One", "Two")], *APPROVED)
    done = front("answer", "abort")
    assert done.code == 13
    assert front.view.state == "aborted"
    assert "abort" in front.view.state_reason
    assert not front.state_file.exists()
    assert front("resume").code == 1


@pytest.mark.req("S0-04")
def test_the_abort_command_clears_the_active_run_and_keeps_its_work(front: Front) -> None:
    front.start([CRASH, *basics("One", "Two")], *APPROVED)
    run = front.run
    assert front("abort").code == 0
    assert not front.state_file.exists()
    assert front.service.active() is None
    assert "aborted" in front("status").out
    assert "No run is active" in front().out
    assert front.branch in front.git("branch", "--list", "--format=%(refname:short)")
    assert front("show", run).code == 0


def test_the_dependents_of_a_skipped_task_are_skipped_with_the_reason(front: Front) -> None:
    tasks: list[dict[str, Any]] = [{"title": "One"}, {"title": "Two", "depends_on": ["One"]}, {"title": "Three"}]
    plan = planner(files={"{plan_path}": plan_of(tasks)})
    front.start([CRASH, scout(), plan, builder(), passing()], *APPROVED)
    assert front("answer", "skip").code == 14
    assert [task.state for task in front.view.tasks] == ["skipped", "skipped", "complete"]
    assert "t1" in front.view.tasks[1].reason
    assert not [key for key in front.keys if "/t2/" in key]
    assert "Two" in (front.folder / "report.md").read_text()


# -- pauses


@pytest.mark.req("S0-63", "S0-86", "S0-67")
def test_checkpoint_mode_rests_after_each_task_with_everything_saved(front: Front) -> None:
    done = front.start(basics("One", "Two", "Three"), "--yes", "--set", "execution_mode=checkpoint")
    assert done.code == 11
    assert "windlass resume" in done.out
    assert [task["status"] for task in front.state["tasks"]] == ["complete", "pending", "pending"]
    assert front.state["currentTaskIndex"] == 1
    assert front("status").out.count("windlass resume")
    assert front().code == 11
    assert front().code == 0
    assert [key for key in front.keys if "implement" in key] == [f"execute/t{n}/implement" for n in (1, 2, 3)]


@pytest.mark.long
@pytest.mark.req("S0-64")
def test_batch_mode_rests_after_every_n_tasks_counted_anew_on_each_resume(front: Front) -> None:
    titles = ("One", "Two", "Three", "Four", "Five")
    crash = {**CRASH, "when": {"role": "implementer", "task": "t2"}}
    done = front.start(
        [crash, *basics(*titles)], *APPROVED[:4], "--set", "execution_mode=batch", "--set", "batch_size=2"
    )
    assert (done.code, front.state["currentTaskIndex"]) == (10, 1)
    # The answer begins a new count: t2 and t3 make a batch.
    assert (front("answer", "continue").code, front.state["currentTaskIndex"]) == (11, 3)
    assert front().code == 0


# -- checks and proof


def red_fixer(text: str) -> Rule:
    files = {"src/t1.py": text}
    return {"when": {"role": "implementer", "purpose": "land-fix"}, "files": files, "commit": "fix", "say": "tried"}


def test_checks_that_stay_red_are_escalated_and_nothing_lands(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + LEAN + CHECKS)
    broken = builder(files={"src/t1.py": "BROKEN\n", "tests/test_t1.py": "def test_it(): pass\n"})
    done = front.start([red_fixer("BROKEN again\n"), broken, *basics("One")], *APPROVED)
    assert done.code == 10
    assert [event.why for event in front.events(LandingRefused)] == ["red", "red", "red"]
    assert [key for key in front.keys if "land.fix" in key] == ["execute/t1/land.fix#1", "execute/t1/land.fix#2"]
    assert "landing refused (red)" in escalation(front).text
    assert "src/t1.py" not in front.landed
    assert front("answer", "skip").code == 14


RED = '[checks]\ncommands = [["/bin/sh", "-c", "grep -q GREEN src/app.py"]]\n'


def test_checks_that_are_red_before_any_work_are_mended_first_when_a_person_says_so(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + LEAN + RED)
    files = {"src/app.py": "GREEN\n"}
    mend = {"when": {"purpose": "baseline-fix"}, "files": files, "commit": "fix: base", "say": "ok"}
    assert front.start([mend, *basics("One")], "--yes").code == 10
    asked = front.events(QuestionAsked)[-1]
    assert asked.id == "baseline"
    assert "grep -q GREEN src/app.py ended with code 1" in asked.detail
    assert [option["key"] for option in asked.options if isinstance(option, dict)] == ["fix", "stop"]
    assert front("answer", "fix").code == 0
    assert front.keys[0] == "baseline/fix#1"
    assert front.show("src/app.py") == "GREEN"
    assert front.view.tasks[0].checks == "passed"


def test_checks_that_are_red_before_any_work_may_stop_the_run_before_a_cent_is_spent(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + LEAN + RED)
    front.start(basics("One"), "--yes")
    assert front("answer", "stop").code == 13
    assert front.keys == []


@pytest.mark.req("S0-44")
def test_code_without_a_test_is_sent_back_with_the_reason(front: Front) -> None:
    careless = builder(files={"src/t1.py": "y = 1\n"}, times=1)
    assert front.start([scout(), planner("One"), careless, builder(), passing()], "--yes").code == 0
    assert "code changed without a test: src/t1.py" in front.prompt("execute/t1/implement", 2)
    assert "tests/test_t1.py" in front.landed


@pytest.mark.req("S0-44")
def test_code_that_stays_without_a_test_is_escalated(front: Front) -> None:
    careless = builder(files={"src/t1.py": "y = 1\n"})
    assert front.start([scout(), planner("One"), careless, passing()], *APPROVED).code == 10
    assert front.keys.count("execute/t1/implement") == 3
    assert "code changed without a test" in escalation(front).text
    assert front.state["config"]["tddMode"] == "tdd"


# -- agents that break their bounds


def test_what_a_reviewer_writes_is_undone_kept_and_reported(front: Front) -> None:
    meddling = {**passing(), "when": {"role": "spec-reviewer", "task": "t1"}, "files": {"src/t1.py": "y = 666\n"}}
    assert front.start([meddling, *basics("One")], "--yes").code == 0
    assert front.show("src/t1.py") == "y = 1"
    said = [text for text in front.warnings if "src/t1.py was changed by a role that may not" in text]
    assert len(said) == 1
    assert "spec-reviewer" in said[0]
    assert said[0] in (front.folder / "report.md").read_text()


def engine(front: Front) -> Path:
    with front.inside(front.root):
        from windlass.git import user_repo

        return EngineRepo.open(user_repo.discover(front.root), Path(front.env["XDG_STATE_HOME"])).path


def test_a_branch_and_a_stash_of_an_implementer_stay_in_its_slot_and_are_kept(front: Front) -> None:
    who = "-c user.name=a -c user.email=a@b"
    stray = f"git checkout -q -b elsewhere && echo 1 > src/extra.py && git add -A && git {who} commit -qm stray"
    note = "git rev-parse HEAD > {cwd}/../stray"
    tricks = [stray, note, f"echo later > src/app.py && git {who} stash -q"]
    before = footprint(front.root)
    assert front.start([scout(), planner("One"), builder(run=tricks), passing()], "--yes").code == 0
    assert front.git("stash", "list") == before.stash == ""
    assert "elsewhere" not in front.git("branch", "--list")
    listed = front.git("for-each-ref", "--format=%(refname)", "refs/windlass/keep").splitlines()
    kept = [ref for ref in listed if "/execute/t1/" in ref]
    assert any("later" in front.git("show", f"{ref}:src/app.py") for ref in kept), kept
    assert front.show("src/app.py") == "x = 1"
    lost = next(engine(front).parent.rglob("stray")).read_text().strip()
    assert reachable(engine(front), lost) or reachable(front.root, lost)


def test_a_head_without_a_commit_is_put_right(front: Front) -> None:
    orphan = builder(run=["git checkout -q --orphan nothing && git rm -rqf --cached ."])
    del orphan["commit"]
    assert front.start([scout(), planner("One"), orphan, passing()], "--yes").code == 0
    assert front.landed >= {"README.md", "src/app.py", "src/t1.py", "tests/test_t1.py"}
    assert front.git("merge-base", "--is-ancestor", front.view.base, front.branch) == ""


def test_files_left_uncommitted_are_committed_by_the_engine_in_its_own_name(front: Front) -> None:
    forgetful = builder()
    del forgetful["commit"]
    assert front.start([scout(), planner("One"), forgetful, passing()], "--yes").code == 0
    assert front.landed >= {"src/t1.py", "tests/test_t1.py"}
    assert "committed by Windlass" in front.git("log", "--format=%B", front.branch)


def test_a_change_of_the_user_s_own_refs_is_reported_and_left_alone(front: Front) -> None:
    outside = builder(run=[f"git -C {front.root} tag surprise"])
    assert front.start([scout(), planner("One"), outside, passing()], "--yes").code == 0
    assert front.git("tag") == "surprise"
    assert any("refs/tags/surprise" in text and "left as it is" in text for text in front.warnings)


# -- statuses


@pytest.mark.long
@pytest.mark.req("S0-65", "S0-66")
def test_no_task_ever_has_a_status_or_makes_a_change_that_is_not_listed(front: Front) -> None:
    complaint = failing("spec-reviewer", "wrong", task="t2", cycle=1)
    front.start([CRASH, complaint, *basics("One", "Two")], *APPROVED)
    front("answer", "continue")
    running = {"implementing", "reviewing", "fixing"}
    allowed = {
        *(("pending", "implementing"), ("implementing", "reviewing"), ("reviewing", "complete")),
        *(("reviewing", "fixing"), ("fixing", "reviewing"), ("escalated", "pending"), ("escalated", "skipped")),
        *((state, end) for state in running for end in ("escalated", "skipped")),
    }
    for task in ("t1", "t2"):
        seen = front.states(task)
        assert set(seen) <= STATES
        assert set(pairwise(seen)) <= allowed
    assert {event.state for event in front.events(TaskChanged)} <= STATES


def test_a_failed_attempt_is_paid_for_and_counted(front: Front) -> None:
    paid: dict[str, Any] = {**CRASH, "usage": {"input": 1, "output": 1, "cost_usd": 0.25}}
    front.start([paid, *basics("One")], *APPROVED)
    costs = [event.cost_usd for event in front.events(DispatchFinished) if event.error]
    assert costs == [0.25]
    assert front.view.spent.usd == pytest.approx(0.25)
