from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass.agents.contracts.fences import fence, last_block
from windlass.agents.contracts.registry import (
    CONTRACTS,
    Parsed,
    ReviewBlock,
    check,
    describe,
    json_schema,
    outcome,
    parse,
    reminder,
    verdict,
)
from windlass.agents.contracts.task_list import MatchResult, PlanTask, match_tasks, parse_plan
from windlass.errors import UserError
from windlass.model import Finding, Severity, Task, Verdict
from windlass.text import plain

TAG = ("superteam-json",)


def block(body: str, tag: str = "superteam-json") -> str:
    return f"```{tag}\n{body}\n```"


# Which block counts


@pytest.mark.req("S0-96")
@pytest.mark.req("S1-03")
@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```superteam-json\n1\n```", "1\n"),
        ("```superteam-json\n1\n```\ntext\n```superteam-json\n2\n```", "2\n"),
        ("~~~superteam-json\n1\n~~~", "1\n"),
        ("````superteam-json\n```\n1\n```\n````", "```\n1\n```\n"),
        ("````markdown\n```superteam-json\n1\n```\n````", None),
        ("```superteam-json\n1\n```\n````md\n```superteam-json\n2\n```\n````", "1\n"),
        ("```superteam-json\n1", None),
        ("```superteam-json\n1\n```\n```superteam-json\n2", "1\n"),
        ("```superteam-json\r\n1\r\n```\r\n", "1\n"),
        ("  ```superteam-json\n  a\n    b\n  ```", "a\n  b\n"),
        ("    ```superteam-json\n1\n    ```", None),
        ("```superteam-json\n1\n`````", "1\n"),
        ("````superteam-json\n1\n```", None),
        ("```superteam-json\n1\n~~~", None),
        ("```superteam-json extra words\n1\n```", "1\n"),
        ("```json\n1\n```", None),
        ("```python\nx\n```superteam-json\n1\n```", None),
        ("```x``` superteam-json", None),
        ("```superteam-json\n```", ""),
        ("", None),
    ],
)
def test_the_last_closed_block_with_the_tag_counts(text: str, found: str | None) -> None:
    assert last_block(text, TAG) == found


def reference(text: str, tags: tuple[str, ...]) -> str | None:
    """The same rules, line by line, without regard for speed."""
    body: list[str] = []
    found, opened = None, None
    for line in text.split("\n"):
        stripped = line.lstrip(" ")
        indent = len(line) - len(stripped)
        mark = stripped[: len(stripped) - len(stripped.lstrip(stripped[:1]))] if stripped[:1] in ("`", "~") else ""
        fenced = indent <= 3 and len(mark) >= 3
        info = stripped[len(mark) :]
        if opened is None:
            if fenced and not (mark[0] == "`" and "`" in info):
                opened, body = (mark, info, indent), []
        elif fenced and mark[0] == opened[0][0] and len(mark) >= len(opened[0]) and not info.strip():
            if (opened[1].split() or [""])[0] in tags:
                found = "".join(part + "\n" for part in body)
            opened = None
        else:
            body.append(line[min(opened[2], len(line) - len(line.lstrip(" "))) :])
    return found


pieces = st.sampled_from(
    ["```", "````", "~~~", "~~~~", "superteam-json", "\n", "\n", "\n", " ", "   ", "    ", "x", "`", "json", "\x1b[31m"]
)


@given(st.lists(pieces, max_size=40).map("".join))
@example("```superteam-json\n  ```\n```")
def test_any_mix_of_fences_is_read_as_the_rules_say(text: str) -> None:
    assert last_block(text, TAG) == reference(text, TAG)


@given(st.text(), st.text())
def test_text_before_a_block_that_is_closed_cannot_hide_it(before: str, body: str) -> None:
    body = json.dumps(body)
    told = f"{fence(plain(before))}\n{block(body)}"
    assert last_block(told, TAG) == body + "\n"


@given(st.text(alphabet=st.sampled_from("`~ \nab"), max_size=60))
def test_fenced_text_stays_one_block_whatever_is_in_it(text: str) -> None:
    assert last_block(fence(text, "data"), ("data",)) == (text.rstrip() + "\n")
    assert last_block(fence(f"{text}\n{block('1')}\n{text}", "data"), TAG) is None


@pytest.mark.sweep(3)
@pytest.mark.parametrize("filler", ["x" * 4, "`" * 4, "```\n", "~~~ a\n", " " * 4])
def test_ten_times_the_text_takes_about_ten_times_the_processor(filler: str) -> None:
    """Quadratic time would be a hundred times. The processor's time does not depend on how busy the machine is."""

    def seconds(characters: int) -> float:
        text = f"{filler * (characters // len(filler))}\n{block('1')}"
        begun = time.process_time()
        last_block(text, TAG)
        return time.process_time() - begun

    seconds(10_000)
    assert seconds(10_000_000) < 40 * max(min(seconds(1_000_000) for _ in range(3)), 0.001)


# Reviews


@pytest.mark.req("S1-79")
def test_a_review_block_gives_verdict_and_findings() -> None:
    body = {
        "status": "FAIL",
        "findings": [
            {"severity": "High", "file": "src/a.py", "line": "12", "message": "no refill", "suggestion": None}
        ],
        "summary": "not yet",
    }
    parsed = parse("review", f"I looked.\n{block(json.dumps(body))}")
    assert parsed.ok
    expected = ReviewBlock(Verdict.FAIL, (Finding("no refill", Severity.HIGH, "src/a.py", 12),), "not yet")
    assert ReviewBlock.from_json(parsed.value) == expected


@pytest.mark.parametrize(
    ("contract", "word", "meant"),
    [
        ("review", "pass", Verdict.PASS),
        ("review", "fail", Verdict.FAIL),
        ("review", "inconclusive", Verdict.INCONCLUSIVE),
        ("review", "ship it", Verdict.INCONCLUSIVE),
        ("review", "approved", Verdict.INCONCLUSIVE),
        ("staged-review", "approved", Verdict.PASS),
        ("staged-review", "needs_revision", Verdict.FAIL),
        ("staged-review", "blocked", Verdict.INCONCLUSIVE),
        ("final-review", "approved", Verdict.PASS),
        ("final-review", "blocked", Verdict.HARD_STOP),
        ("final-review", "needs_revision", Verdict.INCONCLUSIVE),
        ("staged-review", "pass", Verdict.INCONCLUSIVE),
        ("contract-review", "OK", Verdict.PASS),
        ("contract-review", "PASS WITH NOTES", Verdict.PASS_WITH_NOTES),
        ("contract-review", "BLOCKED", Verdict.FAIL),
        ("contract-review", "NEEDS_DECISION", Verdict.NEEDS_DECISION),
        ("contract-review", "fine", Verdict.INCONCLUSIVE),
    ],
)
def test_every_document_s_words_map_to_the_six_verdicts(contract: str, word: str, meant: Verdict) -> None:
    finding = {"severity": "low", "message": "m"}
    key = "issues" if contract in ("staged-review", "final-review") else "findings"
    parsed = parse(contract, block(json.dumps({"status": word, key: [finding]})))
    assert ReviewBlock.from_json(parsed.value).verdict is meant is verdict(contract, word)
    known = CONTRACTS[contract].verdicts
    assert parsed.ok == (word.lower().replace(" ", "_") in known)


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        "{}",
        '{"status": 1}',
        '{"status": ["pass"]}',
        "[]",
        "null",
        '{"status": "pass", "status": "fail"}',
        '{"status": "pass", "findings": [{"severity": "awful", "message": "m"}]}',
        '{"status": "pass", "findings": [{"severity": "low"}]}',
        '{"status": "pass", "n": NaN}',
        '{"status": "fail", "findings": []}',
        "[" * 100_000,
        '{"status": "pass", "n": ' + "9" * 5000 + "}",
        '{"status": "pass", "summary": "' + "x" * 1_000_001 + '"}',
    ],
)
def test_what_cannot_be_parsed_is_inconclusive_and_never_a_pass(body: str) -> None:
    parsed = parse("review", block(body))
    assert parsed.problem
    assert ReviewBlock.from_json(parsed.value).verdict is Verdict.INCONCLUSIVE


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")))
def test_no_text_without_a_block_steers(text: str) -> None:
    parsed = parse("review", text.replace("superteam", ""))
    assert (parsed.ok, ReviewBlock.from_json(parsed.value).verdict) == (False, Verdict.INCONCLUSIVE)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["status", "findings", "message"]), inner)
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(CONTRACTS)), json_values)
def test_no_data_makes_a_contract_crash(name: str, value: Any) -> None:
    parsed = parse(name, block(json.dumps(value), CONTRACTS[name].tags[0]))
    assert parsed.ok or parsed.problem
    assert check(name, value).ok == parsed.ok or CONTRACTS[name].language == "yaml"


def test_paths_and_escapes_in_findings_are_made_harmless() -> None:
    finding = {"severity": "low", "file": "../../etc/passwd", "line": "top", "message": "\u001b[31mred\u202e\ud800"}
    found = ReviewBlock.from_json(parse("review", block(json.dumps({"status": "fail", "findings": [finding]}))).value)
    assert found.findings == (Finding("red", Severity.LOW),)


def test_a_rejected_subtask_becomes_a_finding() -> None:
    told = parse("subtask-review", block('{"approved": false, "feedback": "refill"}'))
    assert ReviewBlock.from_json(told.value) == ReviewBlock(Verdict.FAIL, (Finding("refill"),), "refill")
    assert ReviewBlock.from_json(parse("subtask-review", block('{"approved": true}')).value).verdict is Verdict.PASS
    assert not parse("subtask-review", block('{"approved": false}')).ok


# The other contracts


@pytest.mark.req("S1-44")
@pytest.mark.req("S1-45")
@pytest.mark.req("S1-46")
@pytest.mark.req("S2-05")
@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_every_contract_describes_itself_with_an_example_that_meets_it(name: str) -> None:
    text = describe(name)
    assert f"```{CONTRACTS[name].tags[0]}\n" in text
    assert parse(name, text).ok
    assert json.loads(json.dumps(json_schema(name)))["type"] in ("object", "array")
    assert describe(name) in reminder(name, "it was\nempty")
    assert "it was empty" in reminder(name, "it was\nempty")


SCHEMAS = json.loads((Path(__file__).parents[1] / "contract_schemas.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(CONTRACTS))
def test_the_json_schema_of_a_contract_stays_as_agents_know_it(name: str) -> None:
    assert json.dumps(json_schema(name)) == json.dumps(SCHEMAS[name])


@pytest.mark.parametrize(
    ("name", "body", "problem"),
    [
        ("questions", {"type": "questions", "questions": []}, "questions: must have at least 1 item"),
        ("questions", {"type": "design", "questions": []}, "type: must be 'questions'"),
        (
            "questions",
            {"type": "questions", "questions": [{"id": "q", "text": "?", "type": "choice", "options": ["a"]}]},
            "a choice needs at least two options",
        ),
        (
            "questions",
            {"type": "questions", "questions": [{"id": "q", "text": "?", "type": "input"}] * 2},
            "two questions have the id 'q'",
        ),
        (
            "approaches",
            {"type": "approaches", "approaches": [{"id": "a1", "title": "x"}], "recommendation": "a2"},
            "recommendation 'a2' is not the id of an approach",
        ),
        ("sections", {"type": "design", "sections": [{"id": "s", "title": "t", "content": ""}]}, "content"),
        ("acceptance", {"criteria": [{"id": "AC-1", "text": "works"}]}, "criteria.0.check: is missing"),
        (
            "subtasks",
            {
                "subtasks": [
                    {"id": "a", "title": "A", "depends_on": ["b"]},
                    {"id": "b", "title": "B", "depends_on": ["a"]},
                ]
            },
            "these tasks wait for each other",
        ),
        ("clarification", {"status": "maybe", "message": "m"}, "status: must be 'questions' or 'ready'"),
    ],
)
def test_a_block_that_breaks_its_contract_says_where(name: str, body: Any, problem: str) -> None:
    parsed = parse(name, block(json.dumps(body), CONTRACTS[name].tags[0]))
    assert parsed.value is None
    assert problem in parsed.problem


def test_files_of_their_own_need_no_fence() -> None:
    assert parse("acceptance", '{"criteria": [{"id": "AC-1", "text": "t", "check": "c", "met": true}]}').ok
    listed = "- {id: t1, title: A, depends_on: [], acceptance_checks: [make], done_when: [AC-1], needs_qa: false}"
    value = parse("contract-tasks", listed).value
    assert isinstance(value, dict)
    assert value["tasks"][0]["needs_qa"] is False  # type: ignore[index,call-overload]
    assert not parse("contract-tasks", "- {id: t1, title: A, depends_on: []}").ok


def test_contracts_can_name_an_outcome_of_their_own() -> None:
    assert outcome(parse("test-result", block('{"passed": false, "errors": ["x"]}')).value) == "rejected"
    assert outcome(parse("test-result", block('{"passed": true}')).value) == "ok"
    assert outcome(parse("coder-result", block('{"status": "TOO_COMPLEX", "reason": "r"}')).value) == "too_complex"
    assert outcome(None) == "ok"


def test_an_unknown_contract_names_the_near_one() -> None:
    with pytest.raises(UserError) as caught:
        parse("reveiw", "")
    assert caught.value.hint == "did you mean 'review'?"


# Plans


def plan(body: str, tag: str = "superteam-tasks") -> str:
    return f"# Plan\n\n{block(body, tag)}\n"


@pytest.mark.req("S0-16")
@pytest.mark.req("S1-55")
@pytest.mark.parametrize("tag", ["superteam-tasks", "superteam-plan"])
def test_a_plan_is_read_from_its_block(tag: str) -> None:
    body = """
- title: Bucket
  description: |
    on: off
    1.3
  files: [./src/a.py, "tests/test a.py"]
  difficulty: hard
- title: "Limit: the API"
  depends_on: [t1, bucket]
  files:
"""
    assert parse_plan(plan(body, tag)).tasks == (
        PlanTask("Bucket", "", "on: off\n1.3", ("src/a.py", "tests/test a.py"), (), "hard"),
        PlanTask("Limit: the API", depends_on=("t1", "bucket"), needs=(0,)),
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("- title: A\n- description: no title", "task 2 has no title"),
        ("- title: A\n- title: a!", "two tasks have the title 'a'"),
        ("- {title: A, id: x}\n- {title: B, id: x}", "two tasks have the id 'x'"),
        ("- {title: A, id: 'a b'}", "task 1 ('A') has the id 'a b'"),
        ("- {title: A, depends_on: [t7]}", "'A' depends on 't7', which is no task of this plan"),
        ("- {title: A, depends_on: [t2]}\n- {title: B, depends_on: [t1]}", "wait for each other: 'A' -> 'B' -> 'A'"),
        ("- {title: A, depends_on: [t1]}", "wait for each other: 'A' -> 'A'"),
        ("- {title: A, files: [/etc/passwd]}", "the file '/etc/passwd', which is not a path inside the repository"),
        ("- {title: A, files: [a/../../b]}", "'a/../../b'"),
        ("- {title: A, files: ['C:\\x']}", "not a path inside"),
        ("- {title: A, files: ['~/x']}", "not a path inside"),
        ("- {title: A, files: [.git/config]}", "not a path inside"),
        ("- {title: A, difficulty: heroic}", "difficulty 'heroic'"),
        ("- just text", "task 1 is not a mapping"),
        ("title: A", "must be a list"),
        ("- &a {title: A}\n- *a", "an anchor '&a'"),
        ("- !!python/object:os.system {title: A}", "a tag"),
        ("- {title: A, title: B}", "the key 'title' occurs twice"),
        ("- title: [", "not valid YAML: line"),
        ("[" * 50 + "]" * 50, "nested deeper than"),
        ("- title: " + "x" * 8_000_001, "more than 8,000,000 characters"),
        ("- {title: a}\n" * 10_001, "10001 tasks"),
    ],
)
def test_a_broken_plan_says_what_is_wrong(body: str, problem: str) -> None:
    parsed = parse_plan(plan(body))
    assert (parsed.tasks, parsed.empty) == ((), False)
    assert problem in parsed.problem


@pytest.mark.parametrize(
    "text", ["", "no block", plan(""), plan("[]"), plan("tasks: []"), "```superteam-tasks\n- title: A\n"]
)
def test_a_plan_without_tasks_is_empty_not_broken(text: str) -> None:
    parsed = parse_plan(text)
    assert parsed.empty
    assert parsed.problem


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")) | st.lists(pieces).map("".join))
def test_no_plan_makes_the_parser_crash(text: str) -> None:
    for attempt in (text, plan(text), plan(f"- title: {text}"), plan(json.dumps([{"title": text, "files": [text]}]))):
        parsed = parse_plan(attempt)
        assert bool(parsed.tasks) != bool(parsed.problem)
        assert all(task.title == plain(task.title) and "\x1b" not in task.title for task in parsed.tasks)


# Task ids


def ids(result: MatchResult) -> list[str]:
    assert not result.problem
    return [task.id for task in result.tasks]


def matched(body: str, old: tuple[Task, ...] = (), **more: Any) -> MatchResult:
    parsed = parse_plan(plan(body))
    assert not parsed.problem
    return match_tasks(old, parsed.tasks, **more)


def test_a_first_plan_gets_ids_in_order_unless_it_names_its_own() -> None:
    assert ids(matched("- title: A\n- {title: B, id: core}\n- {title: C, depends_on: [t1, core]}")) == [
        "t1",
        "core",
        "t3",
    ]
    result = matched("- {title: A, id: t2}\n- title: B\n- {title: C, depends_on: [B]}")
    assert ids(result) == ["t2", "t3", "t4"]
    assert result.tasks[2].depends_on == (result.tasks[1].id,)


OLD = matched("- {title: A, description: one}\n- {title: B, description: two}\n- {title: C, description: three}").tasks


@pytest.mark.parametrize(
    ("body", "given_ids"),
    [
        ("- {title: B}\n- {title: 'a!'}\n- {title: C}", ["t2", "t1", "t3"]),
        ("- {title: New name, description: two}\n- {title: A}\n- {title: C}", ["t2", "t1", "t3"]),
        ("- {title: Other, id: t2}\n- {title: A}\n- {title: C}", ["t2", "t1", "t3"]),
        ("- {title: A}\n- {title: D}\n- {title: B}\n- {title: C}", ["t1", "t4", "t2", "t3"]),
        ("- {title: D}\n- {title: E, depends_on: [t1]}", ["t4", "t5"]),
        ("- {title: D, id: mine}\n- {title: A, id: first}", ["mine", "t1"]),
    ],
)
def test_a_new_plan_keeps_ids_by_id_then_title_then_description(body: str, given_ids: list[str]) -> None:
    assert ids(matched(body, OLD)) == given_ids


def test_an_id_is_never_used_for_another_task() -> None:
    first = matched("- {title: A, description: one}", OLD)
    assert ids(first) == ["t1"]
    assert ids(matched("- {title: A}\n- {title: Z}", first.tasks, used={"t2", "t3"})) == ["t1", "t4"]
    assert ids(matched("- {title: A}\n- {title: Z, id: t3}", first.tasks, used={"t2", "t3"})) == ["t1", "t4"]


def test_a_started_or_landed_task_that_a_plan_drops_is_refused_by_name() -> None:
    problem = matched("- {title: C}", OLD, started={"t2"}, landed={"t1"}).problem
    assert problem == "the new plan drops tasks that are already at work or done: t1 'A' (landed); t2 'B' (started)"


def test_a_landed_task_that_changed_is_a_follow_up_visit() -> None:
    result = matched(
        "- {title: A, description: one more}\n- {title: B, description: two}\n- {title: C}", OLD, landed={"t1", "t2"}
    )
    assert [(task.id, task.visit) for task in result.tasks] == [("t1", 2), ("t2", 1), ("t3", 1)]


titles = st.lists(st.sampled_from("ABCDEFGH"), unique=True, min_size=1, max_size=8)


@given(titles, st.lists(titles, min_size=1, max_size=5))
def test_ids_stay_with_their_titles_through_any_series_of_plans(first: list[str], later: list[list[str]]) -> None:
    tasks = matched("\n".join(f"- title: {name}" for name in first)).tasks
    used: dict[str, str] = {task.id: task.title for task in tasks}
    for names in later:
        known = {task.title: task.id for task in tasks}
        tasks = matched("\n".join(f"- title: {name}" for name in names), tasks, used=set(used)).tasks
        for task in tasks:
            assert task.id == known.get(task.title, task.id)
            assert used.setdefault(task.id, task.title) == task.title


def test_parsed_is_ok_only_without_a_problem() -> None:
    assert Parsed([1]).ok
    assert not Parsed([1], "x").ok
