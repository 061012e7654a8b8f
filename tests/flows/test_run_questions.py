"""Questions of whole runs: stored before they are asked, answered from anywhere, by the first valid answer."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench import CONFIG, Bench, go_on_until_done, make_bench, wait_for
from gitrepo import footprint

SMALL = CONFIG + '[roles.security-reviewer]\nagent = "none"\n[roles.performance-reviewer]\nagent = "none"\n'


@pytest.fixture
def waiting(tmp_path: Path) -> Bench:
    """A run that waits for the approval of its plan; nobody drives it."""
    bench = make_bench(tmp_path, config=SMALL)
    said = bench.run()
    assert said.code == 10, str(said)
    return bench


@pytest.mark.req("S0-31", "S0-84")
def test_a_run_that_waits_says_so_and_how_to_answer(waiting: Bench) -> None:
    before = footprint(waiting.root)
    status = waiting.windlass("status")
    assert status.code == 0
    assert "Approve this plan?" in status.out
    assert "windlass answer" in status.out
    assert "approve" in status.out
    assert "revise" in status.out
    pending = json.loads((waiting.run_folder / ".superteam-workflow.json").read_text())["pendingInteraction"]
    assert "Approve this plan?" in json.dumps(pending)
    assert not waiting.rows("SELECT 1 FROM attempt WHERE key LIKE 'execute/%'")
    assert footprint(waiting.root) == before


@pytest.mark.long
def test_killed_while_it_waits_for_an_answer_the_answer_from_another_shell_continues_it(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL)
    with bench.first_driver("--wait"):
        wait_for(bench, "SELECT 1 FROM question WHERE state = 'pending'")
    status = bench.windlass("status")
    assert "Approve this plan?" in status.out
    assert "windlass answer" in status.out
    said = bench.windlass("answer", "approve", "--no-resume")
    assert said.code == 0, str(said)
    assert [row["answer"] for row in bench.rows("SELECT answer FROM question WHERE id = 'approve'")] == ["approve"]
    assert bench.windlass("resume", "--yes").code == 0
    assert len(bench.rows("SELECT 1 FROM attempt WHERE role = 'planner'")) == 1


def test_an_answer_from_another_shell_wakes_a_driver_that_waits(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL)
    with bench.first_driver("--wait") as driver:
        for question, answer in (("approve", "1"), ("review_mode", "iterative"), ("execution_mode", "Auto")):
            wait_for(bench, f"SELECT 1 FROM question WHERE state = 'pending' AND id = '{question}'")
            said = bench.windlass("answer", question, answer)
            assert said.code == 0, str(said)
        assert driver.wait(300) == 0
    assert [row["by"] for row in bench.rows("SELECT by FROM question")] == ["windlass answer"] * 3


def test_two_answers_at_once_one_wins_and_the_other_is_told(waiting: Bench) -> None:
    def answer(value: str) -> tuple[str, int, str]:
        said = waiting.windlass("answer", "approve", value, "--no-resume")
        return value, said.code, said.err

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(answer, ["approve", "revise"]))
    (winner, _, _), (_, code, told) = sorted(results, key=lambda result: result[1])
    assert [row["answer"] for row in waiting.rows("SELECT answer FROM question WHERE id = 'approve'")] == [winner]
    assert code == 1
    assert f"already answered with '{winner}'" in told
    events = waiting.rows("SELECT data FROM event WHERE type = 'question.answered'")
    assert len(events) == 1


@pytest.mark.req("S0-85")
def test_an_answer_that_is_none_of_the_options_changes_nothing(waiting: Bench) -> None:
    before = waiting.rows("SELECT * FROM question")
    said = waiting.windlass("answer", "approve", "perhaps")
    assert said.code == 1
    assert "approve" in said.err
    assert waiting.rows("SELECT * FROM question") == before
    assert not waiting.rows("SELECT 1 FROM event WHERE type = 'question.answered'")


@pytest.mark.long
@pytest.mark.req("S0-40")
def test_interrupted_between_two_questions_only_the_unanswered_are_asked_again(waiting: Bench) -> None:
    assert waiting.windlass("answer", "approve").code == 10
    assert waiting.windlass("answer", "review_mode", "single-pass").code == 10
    again = waiting.windlass()
    assert again.code == 10
    asked = waiting.rows("SELECT id, state FROM question ORDER BY asked_at")
    assert asked == [
        {"id": "approve", "state": "answered"},
        {"id": "review_mode", "state": "answered"},
        {"id": "execution_mode", "state": "pending"},
    ]
    assert waiting.windlass("answer", "execution_mode", "auto").code == 0
    assert len(waiting.rows("SELECT 1 FROM event WHERE type = 'question.asked'")) == 3


@pytest.mark.long
@pytest.mark.parametrize("point", ["before", "after"])
@pytest.mark.parametrize("what", ["plan-approval!approve.ask", "configure!review_mode.answer"])
def test_killed_around_a_question_it_is_asked_and_answered_once(point: str, what: str, tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL)
    assert bench.run("--yes", crash=f"{point} {what}").killed
    go_on_until_done(bench)
    for kind in ("asked", "answered"):
        rows = bench.rows(f"SELECT data FROM event WHERE type = 'question.{kind}' ORDER BY seq")
        ids = [json.loads(row["data"])["id"] for row in rows]
        assert ids == ["approve", "review_mode", "execution_mode"]


@pytest.mark.long
@pytest.mark.req("S0-32")
def test_a_person_may_send_the_plan_back_and_is_asked_again(waiting: Bench) -> None:
    said = waiting.windlass("answer", "revise", "-m", "split it")
    assert said.code == 10, str(said)
    asked = [row["key"] for row in waiting.rows("SELECT key FROM question ORDER BY asked_at")]
    assert asked == ["plan-approval!approve", "plan-approval+2!approve"]


def test_an_answer_given_beforehand_may_not_lead_back(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL)
    said = bench.run("--answer", "approve=revise")
    assert said.code != 0
    assert "back" in said.err
    assert not bench.home.exists() or not bench.rows("SELECT 1 FROM attempt WHERE key LIKE 'plan-review+2%'")


def test_a_second_driver_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL)
    with bench.first_driver("--wait") as driver:
        wait_for(bench, "SELECT 1 FROM question WHERE state = 'pending'")
        said = bench.windlass()
        assert said.code == 1, str(said)
        assert f"process {driver.pid}" in said.err
    # The lock of a killed driver is free at once.
    assert bench.windlass("resume", "--yes").code == 0
