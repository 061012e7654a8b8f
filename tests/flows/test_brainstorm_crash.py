"""kill -9 at every sub-step of a brainstorm: nothing answered is asked again, nothing bought is bought again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench import Bench, Said, make_bench, wait_for
from brainstorming import NO_EXTRAS, REQUEST, brainstorm
from processes_for_tests import until

FACTS = ("question-1=SAML", "question-2=fast", "question-3=1")
CHOICE = ("approach=other", "own-approach=Basic auth")
SECTIONS = ("section-1=yes", "section-2=yes", "section-3=yes")
ALL = (*FACTS, *CHOICE, *SECTIONS)
APPROVAL = "plan-approval!approve"
KEYS = {
    *("scout/scout", "questions/brainstormer", "approaches/brainstormer", "design/brainstormer"),
    *("plan-write/planner", "plan-review/architect#1", "plan-review/spec-reviewer#1"),
}
POINTS = [
    *("after scout/scout@1.begin", "before scout/scout@1.finish", "after questions/brainstormer@1.finish"),
    *("after questions!question-1.answer", "before questions!question-2.answer", "before questions/answers"),
    *("before approaches/brainstormer@1.finish", "after approaches!approach.answer", "after approaches/approach"),
    *("after design/brainstormer@1.finish", "before design/section-2#1!section-2.answer", "before design/design"),
    *("after design/design", "after design/commit", "before plan-write/planner@1.finish", "after plan-write/commit"),
    *("after plan-review/architect#1@1.finish", f"after {APPROVAL}.ask"),
]


def bench_of(tmp_path: Path) -> Bench:
    return make_bench(tmp_path, script=brainstorm(), config=NO_EXTRAS)


def begin(bench: Bench, *answers: str, crash: str = "", more: tuple[str, ...] = ()) -> Said:
    given = [word for answer in answers for word in ("--answer", answer)]
    return bench.windlass(
        "run", "--flow", "brainstorm", "--script", str(bench.script), *given, *more, REQUEST, crash=crash
    )


def opened(bench: Bench) -> list[str]:
    return [row["key"] for row in bench.rows("SELECT key FROM question WHERE state = 'pending'")]


def assert_nothing_twice(bench: Bench, keys: set[str]) -> None:
    done = bench.rows("SELECT key FROM attempt WHERE role != '' AND state = 'done'")
    assert Counter(row["key"] for row in done) == Counter(keys)
    events = bench.rows("SELECT type, json_extract(data, '$.key') AS key FROM event WHERE type LIKE 'question.%'")
    assert set(Counter((row["type"], row["key"]) for row in events).values()) == {1}
    items = bench.rows("SELECT json_extract(data, '$.key') AS key FROM event WHERE type = 'items.proposed'")
    assert Counter(row["key"] for row in items) == Counter(["questions", "approaches", "design"])


@pytest.mark.req("S1-05", "S1-06", "S1-35", "S1-42")
@pytest.mark.sweep(20)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_this_sub_step_a_bare_windlass_comes_to_the_same_question(point: str, tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    said = begin(bench, *ALL, crash=point)
    assert said.killed, f"there is no such point: {said}"
    resumed = bench.windlass()
    assert resumed.code == 10, str(resumed)
    assert opened(bench) == [APPROVAL]
    assert "Approve this plan?" in resumed.out
    assert_nothing_twice(bench, KEYS)
    answers = {
        row["id"]: row["answer"] for row in bench.rows("SELECT id, answer FROM question WHERE state != 'pending'")
    }
    assert (answers["question-1"], answers["own-approach"], answers["section-3"]) == ("saml", "Basic auth", "yes")


@pytest.mark.sweep(4)
@pytest.mark.req("S1-06", "S1-50")
@pytest.mark.parametrize(
    ("given", "key", "title"),
    [
        ((), "questions!question-1", "Question 1 of 3"),
        (FACTS[:2], "questions!question-3", "Question 3 of 3"),
        ((*FACTS, CHOICE[0]), "approaches!own-approach", "Your approach"),
        ((*FACTS, *CHOICE, SECTIONS[0]), "design/section-2#1!section-2", "Design Section: Data flow"),
    ],
)
def test_killed_at_an_open_question_a_resume_shows_that_question_and_no_other(
    given: tuple[str, ...], key: str, title: str, tmp_path: Path
) -> None:
    bench = bench_of(tmp_path)
    assert begin(bench, *given, crash=f"after {key}.ask").killed
    resumed = bench.windlass()
    assert (resumed.code, opened(bench)) == (10, [key])
    shown = [line for line in resumed.out.splitlines() if line.startswith("───")]
    assert shown == [f"─── {title} ───"]


@pytest.mark.long
@pytest.mark.req("S1-41")
@pytest.mark.parametrize(
    "point",
    [
        "before design/section-2.revise#1@1.finish",
        "after design/section-2#2!section-2.ask",
    ],
)
def test_killed_while_a_section_is_revised_the_revision_is_bought_once_and_shown(point: str, tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    begin(bench, *FACTS, *CHOICE, SECTIONS[0])
    assert bench.windlass("answer", "revise", "--comment", "more", crash=point).killed
    resumed = bench.windlass()
    assert (resumed.code, opened(bench)) == (10, ["design/section-2#2!section-2"])
    assert "Data flow, revised." in resumed.out
    done = bench.rows("SELECT key FROM attempt WHERE key LIKE '%revise%' AND state = 'done'")
    assert [row["key"] for row in done] == ["design/section-2.revise#1"]


@pytest.mark.long
@pytest.mark.req("S1-04")
def test_answers_from_another_shell_drive_a_run_that_waits(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    words = ("SAML", "fast", "1", "a1", "yes", "yes", "yes", "approve", "auto", "iterative")
    with bench.driver("run", "--flow", "brainstorm", "--script", str(bench.script), "--wait", REQUEST) as driver:
        for number, word in enumerate(words, 1):
            wait_for(bench, "SELECT 1 FROM question WHERE state = 'pending'")
            assert bench.windlass("answer", "--no-resume", word).code == 0
            wait_for(bench, f"SELECT 1 FROM question WHERE state != 'pending' GROUP BY 1 HAVING count(*) >= {number}")
        until(lambda: driver.poll() is not None)
        assert driver.returncode == 0
    assert bench.run_state == "finished"
