"""A brainstorm in which agents, files and money do not do what they should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brainstorming import APPROACHES, DESIGN, NO_EXTRAS, QUESTIONS, Brainstorm, planner, says
from front import Rule, builder, failing, scout, spent
from windlass.agents.contracts import registry as contracts
from windlass.answers import validate
from windlass.events import BudgetChanged, DispatchFinished, QuestionAsked
from windlass.kinds import proposals as items
from windlass.model import Answer, RunState, is_id
from windlass.text import HIDDEN

ONCE = NO_EXTRAS + "[retries]\ncrashed = 0\n"
QUIET = ("--answer", "question-1=1", "--answer", "question-2=x", "--answer", "question-3=1", "--answer", "approach=a1")
AGREED = (*QUIET, "--yes", "section-1", "--yes", "section-2", "--yes", "section-3")
WORDS = "I would rather talk about the weather. " * 20


def asked(front: Brainstorm) -> QuestionAsked:
    return front.events(QuestionAsked)[-1]


# -- agents


@pytest.mark.req("S1-03", "S1-48", "S1-49")
def test_an_answer_not_to_contract_is_asked_for_twice_more_and_then_a_person_is(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    prose: Rule = {"when": {"role": "brainstormer", "purpose": "questions"}, "say": WORDS, "times": 3}
    done = front.begin(prose)
    assert (done.code, front.open) == (10, "questions/asked#1!parse-error")
    assert front.keys.count("questions/brainstormer") == 3
    assert "could not be used: there is no closed block tagged `superteam-brainstorm-" in front.prompt(
        "questions/brainstormer", 3
    )
    question = asked(front)
    assert (question.title, [option["label"] for option in question.options]) == ("Parse Error", ["Retry", "Abort"])
    assert WORDS[:300] in question.detail
    assert WORDS[:320] not in question.detail
    front.say_yes("Retry")
    assert front.open == "questions+2!question-1"


@pytest.mark.req("S1-07", "S1-47", "S1-92", "S1-103", "S1-104", "S1-106", "S1-107", "S1-108")
def test_an_agent_that_fails_is_shown_with_its_output_and_tried_again_or_the_run_stops(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, ONCE)
    crash: Rule = {
        "when": {"role": "brainstormer", "purpose": "approaches"},
        "say": "thinking " * 100,
        "stderr": "Error: the model is gone",
        "exit": 7,
        "times": 2,
        **spent(0.25),
    }
    front.begin(crash, argv=QUIET)
    question = asked(front)
    assert (question.title, [o["label"] for o in question.options]) == (
        "Agent Error: brainstormer",
        ["Retry", "Abort workflow"],
    )
    assert "brainstormer: ended with code 7: Error: the model is gone" in question.detail
    assert ("thinking " * 100)[:500] in question.detail
    assert front.view.spent.usd == 0.25
    [failed] = [e for e in front.events(DispatchFinished) if e.error]
    assert (failed.cost_usd, failed.error) == (0.25, "crashed")

    front.say_yes("retry")
    assert front.open == "approaches+2/asked#2!agent-error"
    stopped = front.say_yes("abort")
    assert (stopped.code, front.view.state) == (12, RunState.STOPPED)
    assert "the model is gone" in front.state["error"]
    assert "windlass retry tries that phase again" in stopped.err

    resumed = front("resume")
    assert (resumed.code, front.state["error"]) == (10, None)
    assert front.open == "design/section-1#1!section-1"
    assert front.answers["approaches+3!approach"] == "a1"


@pytest.mark.long
def test_a_failed_revision_that_is_tried_again_asks_nothing_and_buys_nothing_twice(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, ONCE)
    crash: Rule = {
        "when": {"role": "brainstormer", "purpose": "revise-section"},
        "exit": 1,
        "stderr": "gone",
        "times": 2,
    }
    front.begin(crash, argv=(*QUIET, "--yes", "section-1"))
    front.say_yes("revise | more")
    assert front.open == "design/asked#1!agent-error"
    front.say_yes("retry")
    assert front.open == "design+2/asked#2!agent-error"
    front.say_yes("abort")
    front("resume")
    assert front.open == "design+3/section-2#2!section-2"
    assert [key for key in front.keys if key.startswith("design")] == [
        "design/brainstormer",
        *(f"design{visit}/section-2.revise#1" for visit in ("", "+2", "+3")),
    ]
    front.say_yes("yes")
    assert front.open == "design+3/section-3#1!section-3"
    sections = front.state["brainstorm"]["designSections"]
    assert [section["approved"] for section in sections] == [True, True, False]
    assert "- [ ] Design validated (2/3 sections)" in front.page


@pytest.mark.req("S1-51")
def test_a_scout_that_says_nothing_is_told_and_the_brainstorm_goes_on(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    front.begin({"when": {"role": "scout"}, "say": ""})
    assert front.open == "questions!question-1"
    assert front.warnings == ["scout wrote nothing; the run continues without it"]
    assert "What a scout found" not in front.prompt("questions/brainstormer")


@pytest.mark.long
@pytest.mark.req("S1-59", "S1-60", "S1-61")
@pytest.mark.parametrize("content", ["# Plan\n\nLots of words, no tasks.\n", None], ids=["no tasks", "no file"])
def test_a_plan_without_tasks_is_offered_one_retry_and_then_stops_with_all_that_is_known(
    content: str | None, tmp_path: Path
) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    files = {"files": {"{plan_path}": content}} if content else {}
    front.begin({"when": {"role": "planner"}, "say": "I wrote a fine plan.", **files, "times": 2}, argv=AGREED)
    assert front.open == "plan-write/asked#1!empty-plan"
    wanted = ("I wrote a fine plan.", "Lots of words" if content else "was not written")
    assert [word for word in wanted if word not in asked(front).detail] == []
    stopped = front.say_yes("retry")
    assert (stopped.code, front.view.state) == (12, RunState.STOPPED)
    assert [word for word in wanted if word not in front.state["error"]] == []
    assert wanted[1] in front.prompt("plan-write+2/planner").split("What was wrong with it")[1]
    assert "Data flow first." in (front.folder / "files" / front.view.artifacts["design"].path).read_text()
    resumed = front("resume")
    assert (resumed.code, front.open) == (10, "plan-approval!approve")


def test_a_wrong_number_of_items_is_sent_back_and_then_taken_with_a_warning(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    two = {**QUESTIONS, "questions": QUESTIONS["questions"][:2]}
    one = {**APPROACHES, "approaches": APPROACHES["approaches"][:1]}
    front.begin(says("questions", two), says("approaches", one, times=3), argv=("--yes",))
    assert front.keys.count("questions/brainstormer") == 3
    assert "there are 2 questions, 3 to 7 are wanted" in front.prompt("questions/brainstormer", 2)
    assert front.warnings == ["brainstormer: there are 2 questions, 3 to 7 are wanted; accepted anyway"]
    assert front.open == "approaches/asked#1!parse-error"
    assert "there are 1 approaches, 2 to 3 are wanted" in asked(front).detail


# -- what a person is shown


def block(name: str, value: dict[str, Any]) -> contracts.Parsed:
    return contracts.check(name, value)


def question(**more: Any) -> dict[str, Any]:
    one = {"id": "q1", "text": "Which?", "type": "choice", "options": ["a", "b"], **more}
    return {"type": "questions", "questions": [one, {"id": "q2", "text": "What?", "type": "input"}]}


@pytest.mark.req("S1-44", "S1-45", "S1-46")
@pytest.mark.parametrize(
    ("contract", "value", "told"),
    [
        ("questions", question(id="q2"), "two questions have the id 'q2'"),
        ("questions", question(options=[]), "a choice needs at least two options"),
        ("questions", question(options=["Same", "same"]), "two options of a question are the same"),
        ("questions", question(options=[str(n) for n in range(40)]), "at most 12 items"),
        ("questions", question(options=["x" * 5000, "b"]), "at most 200 characters"),
        ("questions", question(options=["  ", "b"]), "at least 1 character"),
        ("questions", question(text="\x1b[31m"), "at least 1 character"),
        ("questions", question(type="essay"), "'choice' or 'input'"),
        ("approaches", {**APPROACHES, "recommendation": "a9"}, "recommendation 'a9' is not the id of an approach"),
        (
            "sections",
            {"type": "design", "sections": [{"id": "s1", "title": "x", "content": ""}]},
            "at least 1 character",
        ),
        ("sections", {**DESIGN, "sections": DESIGN["sections"] * 2}, "two sections have the same title"),
    ],
)
def test_what_a_person_could_not_be_shown_is_sent_back(contract: str, value: dict[str, Any], told: str) -> None:
    parsed = block(contract, value)
    assert told in parsed.problem
    assert parsed.value is None


LABELS = st.text(min_size=1, max_size=30)


@given(st.lists(LABELS, min_size=2, max_size=12))
def test_every_option_that_passes_can_be_chosen_by_key_number_and_label(labels: list[str]) -> None:
    parsed = block("questions", question(options=labels))
    if parsed.problem:
        return
    query = items.queries(parsed.value)[0]
    asking = items.item_question(query, 1, 2)
    assert len({choice.key for choice in asking.options}) == len(labels)
    for number, choice in enumerate(asking.options, 1):
        assert is_id(choice.key)
        assert not HIDDEN.search(choice.label)
        assert validate(asking, choice.key) == Answer(choice.key)
        assert validate(asking, str(number)) == Answer(choice.key)
        assert query.answer_text(Answer(choice.key)) == choice.label
        by_label = validate(asking, choice.label)
        # A label that is a number is its place in the list, one that names two options is refused: never a guess.
        assert by_label == Answer(choice.key) or isinstance(by_label, str) or choice.label.isdecimal()


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_an_approach_is_chosen_by_an_id_that_can_be_typed(first: str, second: str) -> None:
    listed = [{"id": id, "title": f"Way {n}", "taskEstimate": 2} for n, id in enumerate((first, second, "other"))]
    parsed = block("approaches", {"type": "approaches", "approaches": listed, "recommendation": second})
    if parsed.problem:
        return
    proposed = items.approaches(parsed.value)
    choosing = items.approach_question(proposed, other=True)
    keys = [choice.key for choice in choosing.options]
    assert (len(set(keys)), keys[-1], all(map(is_id, keys))) == (4, "other", True)
    assert proposed.choice(Answer(choosing.yes)) == proposed.items[1]
    assert proposed.choice(Answer("other")) is None


def test_escapes_and_reordering_do_not_reach_the_screen(tmp_path: Path) -> None:
    evil = {
        **QUESTIONS["questions"][0],
        "text": "\x1b]0;pwned\x07Which\u202e one\x1b[2J?",
        "options": ["\x1b[31mred\x1b[0m", "\u2066blue"],
    }
    front = Brainstorm(tmp_path, NO_EXTRAS)
    done = front.begin(says("questions", {**QUESTIONS, "questions": [evil, *QUESTIONS["questions"][1:]]}))
    assert "? Which one?" in done.out
    assert "1) red\n" in done.out
    assert not HIDDEN.search(done.out)


def test_headings_inside_a_section_do_not_count_as_sections() -> None:
    section = items.Section("section-1", "Architecture", "# Top\n```\n## code\n```\n## Deep\ntext")
    assert section.text == "## Architecture\n\n### Top\n```\n## code\n```\n#### Deep\ntext"


# -- money


@pytest.mark.long
@pytest.mark.req("S1-109")
def test_beyond_the_budget_a_person_is_asked_and_the_raised_limit_is_recorded(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    costly = spent(0.5)
    rules = [scout(**spent(0.05)), says("questions", QUESTIONS, **costly), says("approaches", APPROACHES, **costly)]
    front.begin(*rules, argv=(*QUIET, "--yes", "--budget", "0.55"))
    assert front.open == "over-budget#1!over-budget"
    question = asked(front)
    assert (question.title, [o["label"] for o in question.options]) == ("Over Budget", ["Continue anyway", "Abort"])
    assert "($0.55 of $0.55)" in question.text
    assert any("Cost budget exceeded ($0.55 of $0.55)" in warning for warning in front.warnings)

    stopped = front.say_yes("abort")
    assert (stopped.code, front.view.state) == (12, RunState.STOPPED)
    front("resume")
    assert front.open == "over-budget#2!over-budget"
    front.say_yes("Continue anyway")
    [raised] = front.events(BudgetChanged)
    assert raised.limit_usd is not None
    # C-05: enough for ten dispatches like the one that asked, so that the next ones do not ask again
    assert raised.limit_usd >= 0.55 + 10 * 0.5
    assert raised.by.startswith("over-budget")
    assert "approaches/brainstormer" in front.keys
    assert front.open == "over-budget#3!over-budget", "each of the others is assumed to cost as much"
    assert len(front.keys) == 2 + 10


# -- the rest of the way


@pytest.mark.long
@pytest.mark.req("S1-69")
def test_an_abort_at_the_approval_ends_the_run_with_an_error(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    front.begin(argv=AGREED)
    done = front.say_yes("abort")
    assert (done.code, front.view.state) == (13, RunState.ABORTED)
    assert "'abort' was answered to 'approve'" in front.view.state_reason
    assert "**Status:** Aborted" in front.page


@pytest.mark.long
@pytest.mark.req("S1-73", "S1-82", "S1-83")
def test_an_escalated_task_is_named_with_its_review_and_findings(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS + "[settings]\nmax_task_review_cycles = 1\n")
    rules = [
        failing("spec-reviewer", "CORS is missing", task="t1"),
        builder(when={"role": "implementer", "purpose": "fix"}),
    ]
    front.begin(*rules, argv=(*AGREED, "--yes", "approve", "--set", "review_mode=iterative"))
    front.say_yes("batch")
    assert front.open == "configure!batch_size"
    assert asked(front).default == "3"
    front.say_yes("2")
    question = asked(front)
    assert (question.title, [o["label"] for o in question.options]) == (
        "Task Escalation",
        ["Retry", "Skip this task", "Abort workflow"],
    )
    assert "'Users' did not get through 'spec'" in question.text
    assert "CORS is missing" in question.detail
    done = front.say_yes("Skip this task")
    assert "- 1 skipped" in done.out


@pytest.mark.long
@pytest.mark.req("S1-85")
def test_a_fix_of_the_whole_that_breaks_the_checks_is_not_taken(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS + '[checks]\ncommands = [["/bin/sh", "-c", "! grep -rq BROKEN src"]]\n')
    breaking = builder(
        when={"role": "implementer", "purpose": "fix-run"}, files={"src/x.py": "BROKEN\n"}, commit="fix: x"
    )
    finding = failing("quality-reviewer", "two modules do the same", severity="low", phase="finalize", times=1)
    front.begin(
        finding, breaking, argv=(*AGREED, "--yes", "approve", "--yes", "execution_mode", "--yes", "review_mode")
    )
    assert front.open == "finalize/asked#1!final"
    front.say_yes("fix")
    assert front.open == "finalize+2/asked#2!final"
    assert "the fix was not taken: the checks fail" in asked(front).detail
    assert "two modules do the same" in asked(front).detail
    done = front.say_yes("accept")
    assert (done.code, "src/x.py" in front.landed) == (0, False)


def test_what_the_plan_drops_is_a_person_s_to_drop(tmp_path: Path) -> None:
    """A revision that drops a task without a finding is asked about; one that the user asked for may drop it."""
    front = Brainstorm(tmp_path, NO_EXTRAS)
    revising = {"role": "planner", "purpose": "revise"}
    shorter, whole = planner("Users", when=revising, times=1), planner("Users", "Login", when=revising, times=1)
    objection = failing("architect", "wrong order", phase="plan-review", times=1)
    front.begin(objection, shorter, whole, planner("Users", when=revising), argv=AGREED)
    assert front.keys.count("plan-review/fix#1") == 1
    assert "dropped-tasks" in front.open
    front.say_yes("restore")
    assert [task.title for task in front.view.tasks] == ["Users", "Login"]
    front.say_yes("revise | without the login")
    assert [task.title for task in front.view.tasks] == ["Users"]
