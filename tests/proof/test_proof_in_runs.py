"""The proof in a run: who is told, what is remembered, what survives a kill, and what a person sees of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench import Bench
from front import LEAN, NO_EXTRAS, ONE_TASK, Front, passing, plan_of, planner, scout
from gitrepo import sh
from proofs import ADD_SUB, BASE, REPORTING, TEST_SUB, Proving, counted, runs_in
from windlass.events import LandingRefused, TaskLanded, TaskProved
from windlass.views.state import QuestionView

CHEAT = {"calc.py": ADD_SUB, "tests/test_sub.py": "def test_sub():\n    assert True\n"}
HONEST = {"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB}
OLD_TEST = BASE["tests/test_calc.py"]


def building(files: dict[str, str], **when: Any) -> dict[str, Any]:
    return {"when": {"role": "implementer", **when}, "files": files, "commit": "work", "say": "done"}


def asked(front: Front) -> QuestionView:
    [question] = front.view.questions.values()
    return question


# -- a refused proof goes back to the task


@pytest.mark.long
@pytest.mark.req("S0-44", "S1-77")
def test_an_unproved_task_goes_back_with_the_facts_and_lands_when_they_are_mended(tmp_path: Path) -> None:
    proving = Proving(tmp_path, fixer=True)
    done = proving.start([building(HONEST, purpose="land-fix"), building(CHEAT)])
    assert done.code == 0, done.err
    assert [proof.proof for proof in proving.proofs] == ["unproved", "proved"]
    assert [refused.why for refused in proving.front.events(LandingRefused)] == ["unproved"]
    told = proving.front.prompt("execute/t1/land.fix#1")
    assert "the new tests pass, or do not run, without the code: tests.test_sub::test_sub" in told
    assert "--junitxml={junit} {files}" in told
    assert "- the task's tests without its code: 1 passed" in told
    assert "TDD proved: 1 test is red without the code" in done.out


@pytest.mark.long
def test_a_task_that_stays_unproved_is_the_flow_s_to_route(tmp_path: Path) -> None:
    front = Front(tmp_path, f"[tests]\nrun_files = {json.dumps(REPORTING)}\n{LEAN}", BASE)
    rules = [scout(), planner("Subtract"), building(CHEAT), passing()]
    more = ("--answer", "approve=approve", "--set", "review_mode=single-pass", "--set", "execution_mode=auto")
    assert front.start(rules, *more).code == 10
    assert front.asked[-1] == "escalation"
    assert [proof.proof for proof in front.events(TaskProved)] == ["unproved"] * 3
    assert "landing refused (unproved): unproved: the new tests pass" in asked(front).text


# -- what a person sees


def test_show_and_report_have_the_verdict_and_its_evidence(tmp_path: Path) -> None:
    proving = Proving(tmp_path)
    found = proving.change(HONEST)
    told = proving.front.status["tasks"][0]["proof"]
    assert told["proof"] == "proved"
    assert told["trees"] == found.trees
    assert told["tests"] == {"red": ["tests.test_sub::test_sub"]}
    shown = proving.front("show").out
    for words in ("TDD proved: 1 test is red", "without the code " + str(found.trees["o"])[:12], "red: tests.test_sub"):
        assert words in shown
    # The trees are what the engine's repository has, to look at.
    engine = next((tmp_path / "home" / "state").glob("windlass/*/repo.git"))
    old = sh(engine, "ls-tree", "-r", "--name-only", str(found.trees["o"])).splitlines()
    assert "tests/test_sub.py" in old
    assert "def sub" not in sh(engine, "show", f"{found.trees['o']}:calc.py")


def test_without_a_test_command_nothing_is_run_and_it_is_said(tmp_path: Path) -> None:
    front = Front(tmp_path, NO_EXTRAS, BASE)
    assert front.task([building(CHEAT), passing()], "Subtract").code == 0
    assert [(proof.proof, proof.ok) for proof in front.events(TaskProved)] == [("unchecked", True)]
    assert "- TDD: unchecked (`tests.run_files` is not configured)" in (front.folder / "report.md").read_text()


def test_what_the_plan_declares_is_shown_with_the_plan_that_is_approved(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN, BASE)
    plan = plan_of(
        [{"title": "Tidy up", "description": "Do it.", "tdd": "preserve"}, {"title": "Add", "description": "x"}]
    )
    rules = [scout(), {**planner(), "files": {"{plan_path}": plan}}, passing()]
    assert front.start(rules).code == 10
    assert "1. Tidy up (tdd: preserve)\n  2. Add" in asked(front).detail


def test_a_word_that_no_declaration_is_sends_the_plan_back(tmp_path: Path) -> None:
    proving = Proving(tmp_path)
    done = proving.start([building(HONEST)], tdd="later")
    assert done.code == 12
    assert "behaviour-change, test-only, preserve, exempt" in done.err


# -- once is enough


@pytest.mark.long
def test_results_are_shared_between_tasks_and_cycles(tmp_path: Path) -> None:
    log = tmp_path / "runs"
    proving = Proving(tmp_path, run_files=counted(log, REPORTING))
    more = ADD_SUB + "\n\ndef mul(a, b):\n    return a * b\n"
    tests = [OLD_TEST + "\n\nimport calc\n\n\ndef test_sub():\n    assert calc.sub(3, 1) == 2\n"]
    tests.append(tests[0] + "\n\ndef test_mul():\n    assert calc.mul(2, 3) == 6\n")
    rules = [
        building({"calc.py": ADD_SUB, "tests/test_calc.py": tests[0]}, task="t1"),
        building({"calc.py": more, "tests/test_calc.py": tests[1]}, task="t2"),
    ]
    plan = plan_of([{"title": "Sub", "description": "x"}, {"title": "Mul", "description": "y", "depends_on": ["t1"]}])
    planned = {"when": {"role": "planner"}, "files": {"{plan_path}": plan}, "say": "done"}
    assert proving.front.start([planned, *rules], "--flow", str(proving.flow)).code == 0
    assert [proof.proof for proof in proving.proofs] == ["proved", "proved"]
    # b h w o o2 x for the first; the base of the second is the tree that the first one's head was.
    assert runs_in(log) == 6 + 5


@pytest.mark.long
@pytest.mark.parametrize(("point", "again"), [("after h", 0), ("before o2", 1), ("before", 1)])
def test_a_driver_killed_in_the_middle_of_a_proof_repeats_no_run_that_has_a_result(
    tmp_path: Path, point: str, again: int
) -> None:
    log = tmp_path / "runs"
    proving = Proving(tmp_path, run_files=counted(log, REPORTING))
    clean = _record(proving)
    assert runs_in(log) == 4
    shutil.rmtree(proving.front.root / ".git" / "windlass")
    log.unlink()
    bench = _bench(proving)
    when, _, tree = point.partition(" ")
    key = next(key for key in clean if key.startswith(f"execute/t1/proof#1/{tree}.")) if tree else "execute/t1/proof#1"
    killed = bench.windlass(
        "run", "--flow", str(proving.flow), "--script", str(bench.script), "Do it", crash=f"{when} {key}"
    )
    assert killed.killed
    assert bench.windlass("resume").code == 0
    assert runs_in(log) == 4 + (again if tree else 0)
    assert {row["key"] for row in bench.rows("SELECT key FROM step")} == clean
    assert bench.run_state == "finished"
    assert not bench.leftovers()


def _record(proving: Proving) -> set[str]:
    proving.change(HONEST)
    return {row["key"] for row in _bench(proving).rows("SELECT key FROM step")}


def _bench(proving: Proving) -> Bench:
    front = proving.front
    folders = {name: value for name, value in front.env.items() if name.startswith(("XDG_", "GIT_")) or name == "HOME"}
    return Bench(front.tmp, {**folders, "PATH": os.environ["PATH"]})


@pytest.mark.long
def test_a_test_command_that_is_configured_later_proves_only_what_has_not_landed(tmp_path: Path) -> None:
    settings = "[retries]\ncrashed = 0\n" + NO_EXTRAS
    front = Front(tmp_path, settings, BASE)
    plan = tmp_path / "mine.md"
    plan.write_text(plan_of([{"title": "One", "description": "x"}, {"title": "Two", "description": "y"}]))
    crash = {"when": {"role": "implementer", "task": "t2"}, "exit": 9, "stderr": "no", "times": 1}
    second = {"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB}
    first = {"one.py": "x = 1\n", "tests/test_one.py": "def test_one(): pass\n"}
    rules = [crash, building(first, task="t1"), building(second, task="t2"), passing()]
    assert front.task(rules, "--plan", str(plan)).code == 12
    front.configure(f"[tests]\nrun_files = {json.dumps(REPORTING)}\n{settings}")
    assert front("retry").code == 0
    assert [(proof.task, proof.proof) for proof in front.events(TaskProved)] == [("t1", "unchecked"), ("t2", "proved")]


@pytest.mark.long
def test_the_user_s_checkout_is_not_touched_and_slots_are_left_clean(tmp_path: Path) -> None:
    proving = Proving(tmp_path)
    before = proving.front.git("for-each-ref", "refs/heads")
    proving.change(CHEAT)
    assert proving.front.git("status", "--porcelain", "--ignored") == ""
    assert proving.front.git("for-each-ref", "refs/heads") == before
    slot = next((tmp_path / "home" / "state").glob("windlass/*/slots/1"))
    assert not list(slot.rglob("__pycache__"))


# -- more ways to be right


@pytest.mark.long
def test_an_accepted_failing_test_is_a_test_written_first(tmp_path: Path) -> None:
    wish = {**BASE, "tests/test_wish.py": "import calc\n\n\ndef test_sub():\n    assert calc.sub(3, 1) == 2\n"}
    checks = f"[checks]\ncommands = [{json.dumps([*REPORTING[:-2], '-rfE'])}]\n"
    proving = Proving(tmp_path, base=wish, config=checks)
    done = proving.front.start(
        [
            {"when": {"role": "planner"}, "files": {"{plan_path}": plan_of([{"title": "T", "description": "x"}])}},
            building({"calc.py": ADD_SUB}),
        ],
        *("--flow", str(proving.flow), "--answer", "baseline=accept"),
    )
    assert done.code == 0, done.out + done.err
    assert (proving.proofs[0].proof, proving.proofs[0].tests) == ("proved", {"red": ["tests.test_wish::test_sub"]})


@pytest.mark.long
def test_a_flow_that_preserves_asks_for_no_new_test(tmp_path: Path) -> None:
    proving = Proving(tmp_path, tdd="preserve")
    moved = BASE["calc.py"].replace("return a + b", "return b + a")
    assert proving.change({"calc.py": moved}).proof == "preserved"


def test_a_flow_without_tdd_is_not_proved(tmp_path: Path) -> None:
    proving = Proving(tmp_path, tdd="off")
    proving.flow.write_text(proving.flow.read_text().replace(", unproved: fail", ""))
    assert proving.start([building(CHEAT)]).code == 0
    assert proving.proofs == []


@pytest.mark.long
@pytest.mark.parametrize("name", ["ä ö.py", "-x.py", "with'quote.py"])
def test_odd_file_names_are_proved_like_others(tmp_path: Path, name: str) -> None:
    files = {"calc.py": ADD_SUB, f"tests/test_{name}": TEST_SUB}
    assert Proving(tmp_path).change(files).proof == "proved"


def test_run_files_without_its_placeholder_is_refused_with_an_example(tmp_path: Path) -> None:
    front = Front(tmp_path, '[tests]\nrun_files = ["pytest", "-q"]\n')
    done = front("run", "x")
    assert done.code == 1
    assert "it has no {files} or {folders}" in done.err


@pytest.mark.long
def test_a_wave_goes_on_without_the_task_that_stays_unproved(tmp_path: Path) -> None:
    proving = Proving(tmp_path)
    text = proving.flow.read_text().replace("failure: stop", "failure: continue\n    order: waves\n    slots: 2")
    proving.flow.write_text(text.replace(", stopped: stop", ""))
    plan = plan_of([{"title": "One", "description": "x", "files": ["a"]}, {"title": "Two", "description": "y"}])
    planned = {"when": {"role": "planner"}, "files": {"{plan_path}": plan}, "say": "done"}
    alone = {"two.py": "def two():\n    return 2\n"}
    test = {"tests/test_two.py": "import two\n\n\ndef test_two():\n    assert two.two() == 2\n"}
    rules = [planned, building(CHEAT, task="t1"), building({**alone, **test}, task="t2")]
    done = proving.front.start(rules, "--flow", str(proving.flow))
    assert done.code == 14, done.out + done.err
    assert {task.id: task.state for task in proving.front.view.tasks} == {"t1": "failed", "t2": "complete"}
    assert {proof.task: proof.proof for proof in proving.proofs} == {"t1": "unproved", "t2": "proved"}


@pytest.mark.parametrize(("guard", "code"), [("", 12), (", guard: off", 0)])
def test_a_call_without_the_guard_may_change_code_without_a_test(tmp_path: Path, guard: str, code: int) -> None:
    call = "{role: implementer, in: [task, plan]"
    flow = ONE_TASK.replace("tdd: off", "tdd: required").replace(call, f"{call}{guard}")
    flow = flow.replace("red: fail", "red: fail, unproved: fail")
    front = Front(tmp_path, "[retries]\ncrashed = 0\n", {".windlass/flows/tiny.yaml": flow})
    rules = [{"when": {}, "files": {"src/new.py": "x = 1\n"}, "commit": "feat: new", "say": "done"}]
    done = front.start(rules, "--flow", "tiny", "--yes")
    assert done.code == code, done.out + done.err
    told = "The TDD guard refused the change" in front.prompt(front.keys[-1], len(front.keys))
    assert told is (code != 0)


SECOND_PROVED = "SELECT 1 FROM event WHERE type = 'task.proved' AND data LIKE '%t2%'"


@pytest.mark.long
def test_a_wave_lands_in_the_order_of_the_plan_whoever_is_proved_first(tmp_path: Path) -> None:
    proving = Proving(tmp_path)
    text = proving.flow.read_text().replace("failure: stop", "failure: continue\n    order: waves\n    slots: 2")
    proving.flow.write_text(text.replace(", stopped: stop", ""))
    plan = plan_of([{"title": "One", "description": "x", "files": ["one.py"]}, {"title": "Two", "description": "y"}])
    planned = {"when": {"role": "planner"}, "files": {"{plan_path}": plan}, "say": "done"}
    database = proving.front.root / ".git" / "windlass" / "windlass.db"
    look = f"sqlite3.connect({str(database)!r}).execute({SECOND_PROVED!r}).fetchone()"
    wait = f"import sqlite3, time\nfor _ in range(1200):\n    if {look}:\n        break\n    time.sleep(0.05)\n"
    rules = [planned]
    for task, name, before in (("t1", "one", wait), ("t2", "two", "")):
        test = f"import {name}\n{before}\n\ndef test_it():\n    assert {name}.{name}() == 1\n"
        files = {f"{name}.py": f"def {name}():\n    return 1\n", f"tests/test_{name}.py": test}
        rules.append(building(files, task=task))
    done = proving.front.start(rules, "--flow", str(proving.flow))
    assert done.code == 0, done.out + done.err
    assert [proof.task for proof in proving.proofs] == ["t2", "t1"]
    assert [event.task for event in proving.front.events(TaskLanded)] == ["t1", "t2"]
