"""Drafting and reviewing a plan when something goes wrong, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import windlass
from front import (
    LEAN,
    NO_EXTRAS,
    ONE_TASK,
    Front,
    basics,
    builder,
    failing,
    passing,
    plan_of,
    plan_text,
    planner,
    scout,
)
from gitrepo import commit
from windlass.events import QuestionAsked, ReviewFinished

QUICK = "[retries]\ncrashed = 0\n"
BOTH = QUICK + NO_EXTRAS
ONE = QUICK + LEAN
FLOWS = Path(windlass.__file__).parent / "flow" / "builtin"
NO_TASKS = {"when": {"role": "planner"}, "files": {"{plan_path}": "# A plan without a block\n"}, "say": "done"}


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, ONE)


def question(front: Front) -> QuestionAsked:
    return front.events(QuestionAsked)[-1]


# -- drafting


@pytest.mark.req("S0-17", "S0-18")
def test_a_plan_without_tasks_is_asked_for_once_more_and_then_the_run_stops(front: Front) -> None:
    done = front.start([scout(), NO_TASKS, passing()], "--yes")
    assert done.code == 12
    assert [key for key in front.keys if "planner" in key] == ["plan-draft/planner#1", "plan-draft/planner#2"]
    assert "there is no closed block tagged `superteam-tasks`" in front.prompt("plan-draft/planner#2")
    assert not [key for key in front.keys if key.startswith("plan-review")]
    assert "superteam-tasks" in done.err
    assert "hint: windlass retry" in done.err
    assert front.state["error"]


@pytest.mark.req("S0-17")
def test_a_second_plan_with_tasks_is_taken(front: Front) -> None:
    front.start([scout(), {**NO_TASKS, "times": 1}, *basics("One")[1:]], "--yes")
    assert front.view.state == "finished"
    assert front.landed >= {"src/t1.py"}


@pytest.mark.long
@pytest.mark.req("S0-18")
def test_a_retry_after_an_empty_plan_asks_the_planner_alone_again(front: Front) -> None:
    front.start([scout(), NO_TASKS, passing()], "--yes")
    front.say(basics("One"))
    assert front("retry").code == 0
    drafts = [key for key in front.keys if key.startswith("plan-draft")]
    assert drafts == [
        *("plan-draft/scout", "plan-draft/planner#1", "plan-draft/planner#2"),
        "plan-draft+2/planner#1",
    ]


def test_a_plan_file_that_was_not_written_is_said_so(front: Front) -> None:
    lazy = {"when": {"role": "planner"}, "say": plan_text(["Only said"])}
    done = front.start([scout(), lazy, passing()], "--yes")
    assert done.code == 12
    assert "docs/plans/" in front.prompt("plan-draft/planner#2")
    assert "was not written" in done.err or "there is no" in done.err


@pytest.mark.sweep(6)
@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ([{"title": "A"}, {"title": "A"}], "two tasks have the title"),
        ([{"title": "A", "depends_on": ["B"]}, {"title": "B", "depends_on": ["A"]}], "these tasks wait for each other"),
        ([{"title": "A", "depends_on": ["t9"]}], "which is no task of this plan"),
        ([{"title": "A", "files": ["../../etc/passwd"]}], "../../etc/passwd"),
        ([{"description": "nameless"}], "title"),
    ],
    ids=["duplicate titles", "cycle", "unknown dependency", "path outside", "no title"],
)
def test_a_plan_that_cannot_be_carried_out_is_told_to_the_planner_and_then_stops_the_run(
    front: Front, tasks: list[dict[str, object]], problem: str
) -> None:
    bad = {"when": {"role": "planner"}, "files": {"{plan_path}": plan_of(tasks)}, "say": "done"}
    done = front.start([scout(), bad, passing()], "--yes")
    assert done.code == 12
    assert problem in front.prompt("plan-draft/planner#2")
    assert problem in done.err


@pytest.mark.long
@pytest.mark.req("S0-15", "S0-16")
def test_a_plan_of_the_same_name_is_neither_overwritten_nor_taken_for_the_new_one(front: Front) -> None:
    front.start(basics("One"))
    old = front.view.artifacts["plan"].path
    front("abort")
    commit(front.root, {old: plan_text(["Old"])})
    lazy = {"when": {"role": "planner"}, "say": "It is all there already.", "times": 1}
    assert front.start([scout(), lazy, *basics("New")[1:]], "--yes").code == 0
    assert front.view.artifacts["plan"].path == old.replace(".md", "-2.md")
    assert [task.title for task in front.view.tasks] == ["New"]
    assert front.show(old) == plan_text(["Old"]).strip()


@pytest.mark.req("S0-19")
@pytest.mark.parametrize("role", ["scout", "implementer"])
def test_a_missing_agent_is_named_before_anything_starts(tmp_path: Path, role: str) -> None:
    front = Front(tmp_path, f'[roles.{role}]\nagent = "none"\n')
    done = front.start(basics("One"), "--yes")
    assert done.code == 1
    assert f"no agent is available for role '{role}'" in done.err
    assert f"[roles.{role}]" in done.err
    assert front.service.runs() == []


@pytest.mark.sweep(2)
@pytest.mark.parametrize("role", ["scout", "planner"])
def test_an_agent_that_crashes_while_drafting_stops_the_run_which_can_be_retried(front: Front, role: str) -> None:
    crash = {"when": {"role": role}, "exit": 3, "stderr": "out of ideas"}
    done = front.start([crash, *basics("One")], "--yes")
    assert done.code == 12
    assert role in done.err
    assert "out of ideas" in done.err
    front.say(basics("One"))
    assert front("retry").code == 0


# -- reviewing


@pytest.mark.req("S0-30")
def test_without_plan_reviewers_the_approval_is_asked_at_once(front: Front) -> None:
    text = (FLOWS / "plan.yaml").read_text()
    flow = front.tmp / "own.yaml"
    flow.write_text(text.replace("      - {role: spec-reviewer, optional: true}\n", ""))
    done = front.start(basics("One"), "--flow", str(flow))
    assert done.code == 10
    assert front.keys == ["plan-draft/scout", "plan-draft/planner#1"]
    assert question(front).id == "approve"
    assert "no reviewer is available" in question(front).detail
    assert "passed" not in question(front).detail


@pytest.mark.req("S0-29", "S0-55")
def test_in_a_single_pass_findings_are_shown_and_nothing_is_revised(tmp_path: Path) -> None:
    front = Front(tmp_path, BOTH)
    rules = [failing("architect", "too coarse"), failing("quality-reviewer", "bad name", task="t1"), *basics("One")]
    done = front.start(rules, "--set", "review_mode=single-pass")
    assert done.code == 10
    assert "plan-review/fix#1" not in front.keys
    assert "too coarse" in question(front).detail
    assert "The reviews passed" not in question(front).detail
    assert front("answer", "approve").code == 10
    assert front("answer", "auto").code == 0
    assert front.states("t1") == ["pending", "implementing", "reviewing", "complete"]
    assert not [key for key in front.keys if "fix" in key]
    report = (front.folder / "report.md").read_text()
    assert "bad name" in report
    assert "too coarse" in report


REVIEWED = """
      - id: review
        kind: review
        of: changes
        reviewers: [{role: quality-reviewer, in: [task]}]
        fixer: {role: implementer, in: [task]}
        mode: single-pass
        threshold: high
        on: {pass: next, noted: next, blocking: fail, inconclusive: fail}
    land:"""


def test_a_single_pass_fixes_nothing_though_a_finding_blocks_and_there_is_a_fixer(tmp_path: Path) -> None:
    flow = ONE_TASK.replace("\n    land:", REVIEWED).replace("\nphases:", "\n  changes: {kind: diff}\nphases:")
    front = Front(tmp_path, ONE, {".windlass/flows/tiny.yaml": flow})
    done = front.start([failing("quality-reviewer", "bad name"), *basics("One")], "--flow", "tiny", "--yes")
    assert done.code == 12, done.out + done.err
    assert front.dispatches == [
        "implementer implement execute/t1/implement",
        "quality-reviewer review execute/t1/review#1",
    ]
    assert front.states("t1")[-1] == "failed"


@pytest.mark.req("S0-27", "S0-28")
def test_a_plan_that_keeps_failing_is_revised_three_times_and_then_shown_with_its_findings(tmp_path: Path) -> None:
    front = Front(tmp_path, BOTH)
    complaints = [failing("architect", f"complaint {n}", cycle=n) for n in (1, 2, 3, 4)]
    done = front.start([*complaints, *basics("One")])
    assert done.code == 10
    assert [key for key in front.keys if ".fix" in key or "/fix" in key] == [
        *("plan-review/fix#1", "plan-review/fix#2", "plan-review/fix#3")
    ]
    assert front.state["planReviewCycles"] == 3
    asked = question(front)
    assert asked.id == "approve"
    assert "complaint 4" in asked.detail
    assert "did not pass" in asked.detail


def test_the_number_of_plan_revisions_is_a_setting(front: Front) -> None:
    complaints = [failing("spec-reviewer", f"complaint {n}", phase="plan-review", cycle=n) for n in (1, 2, 3)]
    front.start([*complaints, *basics("One")], "--set", "max_plan_review_cycles=1")
    assert [key for key in front.keys if "/fix" in key] == ["plan-review/fix#1"]


def test_a_revision_that_closes_nothing_ends_the_loop_early(front: Front) -> None:
    front.start([failing("spec-reviewer", "the same again", phase="plan-review"), *basics("One")])
    assert [key for key in front.keys if "/fix" in key] == ["plan-review/fix#1"]
    assert "the same again" in question(front).detail


@pytest.mark.req("S0-32")
def test_revise_sends_the_comment_to_the_planner_reviews_again_and_asks_again(front: Front) -> None:
    front.start(basics("One", "Two"))
    revised = planner("One", "Two", "Three", when={"role": "planner", "purpose": "revise"})
    front.say([revised, *basics("One", "Two")])
    done = front("answer", "revise", "-m", "add a third task")
    assert done.code == 10
    wish = next(key for key in front.keys if key.startswith("plan-review+2"))
    assert "add a third task" in front.prompt(wish)
    assert front.keys[-1] == "plan-review+2/spec-reviewer#1"
    assert [event.key for event in front.events(QuestionAsked)] == ["plan-approval!approve", "plan-approval+2!approve"]
    assert "3. Three" in question(front).detail
    assert [task["title"] for task in front.state["tasks"]] == ["One", "Two", "Three"]


def dropped(front: Front, *complaint: str, **fields: object) -> str:
    """The id of the question that a revision without task 'Two' leads to."""
    found = [{"severity": "high", "message": message, **fields} for message in complaint]
    review = {"when": {"role": "spec-reviewer", "phase": "plan-review", "cycle": 1}}
    review["json"] = {"status": "fail", "findings": found, "summary": "no"}  # type: ignore[assignment]
    dropping = planner("One", when={"role": "planner", "purpose": "revise"}, times=1)
    assert front.start([dropping, review, *basics("One", "Two")], "--yes").code in (0, 10)
    assert front.keys.count("plan-review/fix#1") == 1
    return front.events(QuestionAsked)[0].id


@pytest.mark.sweep(9)
@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("Task 2 repeats the first", {}),
        ("Tasks 1-2 are one change", {}),
        ("drop t2", {}),
        ("'two' is not needed", {}),
        ("The decomposition is too fine", {}),
        ("It does the same again", {"tasks": [2]}),
        ("It does the same again", {"tasks": ["Two"]}),
        ("It does the same again", {"tasks": ["plan"]}),
    ],
)
def test_a_task_goes_when_a_finding_is_about_it_by_number_title_id_or_structure(
    front: Front, message: str, fields: dict[str, object]
) -> None:
    assert dropped(front, message, **fields) == "approve"
    assert [task.title for task in front.view.tasks] == ["One"]


def test_a_task_that_goes_without_a_finding_is_asked_about_with_the_findings_and_not_by_yes(front: Front) -> None:
    assert dropped(front, "One is vague") == "dropped-tasks"
    asked = question(front)
    assert "'Two'" in asked.text
    assert "One is vague" in asked.detail
    assert front("answer", "accept").code == 0
    assert [task.title for task in front.view.tasks] == ["One"]


@pytest.mark.long
def test_a_dropped_task_is_put_back_when_the_person_says_so(front: Front) -> None:
    dropped(front, "One is vague")
    assert front("answer", "restore").code == 0
    assert "Put these tasks back into the plan as they were: Two" in front.prompt("plan-review/restore#1")
    assert [task.title for task in front.view.tasks] == ["One", "Two"]


@pytest.mark.long
def test_the_question_after_a_revision_that_failed_shows_the_findings(front: Front) -> None:
    complaint = failing("spec-reviewer", "One is vague", phase="plan-review", cycle=1)
    broken = {"when": {"role": "planner", "purpose": "revise"}, "files": {"{plan_path}": "# Oh\n"}}
    front.start([broken, complaint, *basics("One")])
    assert "One is vague" in question(front).detail
    assert "A review gave no verdict" not in question(front).detail


@pytest.mark.long
def test_what_a_person_wants_changed_stands_before_the_findings_and_cannot_be_rejected(front: Front) -> None:
    front.start(basics("One"))
    assert front("answer", "revise", "-m", "use the Clock class").code == 10
    prompt = front.prompt("plan-review+2/wish")
    assert prompt.index("use the Clock class") < prompt.index("Revise the implementation plan")
    assert "you may not reject it" in prompt
    assert "What reviewers found" not in prompt


@pytest.mark.long
def test_a_person_may_have_tasks_dropped_without_naming_them(front: Front) -> None:
    front.start(basics("One", "Two"))
    front.say([planner("Both", when={"role": "planner", "purpose": "revise"}), *basics("One", "Two")])
    assert front("answer", "revise", "-m", "make it a single task").code == 10
    assert question(front).detail.endswith("1 task:\n  1. Both")


@pytest.mark.long
def test_a_revision_that_cannot_be_carried_out_is_sent_back_with_the_reason(front: Front) -> None:
    front.start(basics("One"))
    broken = {"when": {"role": "planner"}, "files": {"{plan_path}": "# Oh\n"}, "say": "done", "times": 1}
    front.say([broken, *basics("One")])
    assert front("answer", "revise", "-m", "better").code == 10
    assert "there is no closed block" in front.prompt("plan-review+2/wish", 2)
    assert [task["title"] for task in front.state["tasks"]] == ["One"]


@pytest.mark.long
def test_a_revision_may_drop_a_task_that_a_finding_names(front: Front) -> None:
    dropping = planner("One", when={"role": "planner", "purpose": "revise"})
    complaint = failing("spec-reviewer", "remove Two, it is not needed", phase="plan-review", cycle=1)
    front.start([dropping, complaint, *basics("One", "Two")])
    assert [task["title"] for task in front.state["tasks"]] == ["One"]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"exit": 5, "stderr": "reviewer fell over"}, "reviewer fell over"),
        ({"say": "Looks good to me!"}, "no verdict"),
    ],
    ids=["crash", "no block"],
)
def test_a_plan_review_without_a_verdict_is_told_in_the_approval_question(
    tmp_path: Path, rule: dict[str, object], reason: str
) -> None:
    front = Front(tmp_path, BOTH)
    done = front.start([{"when": {"role": "architect"}, **rule}, *basics("One")])
    assert done.code == 10
    verdicts = {event.role: event.verdict for event in front.events(ReviewFinished)}
    assert verdicts == {"architect": "inconclusive", "spec-reviewer": "pass"}
    assert "A review gave no verdict" in question(front).detail
    assert "architect" in question(front).detail


def test_an_answer_in_the_wrong_form_is_asked_for_again_twice_with_a_reminder(front: Front) -> None:
    chatty = {"when": {"role": "spec-reviewer"}, "say": "Fine by me.", "times": 2}
    front.start([chatty, *basics("One")])
    assert front.keys.count("plan-review/spec-reviewer#1") == 3
    assert "superteam-json" in front.prompt("plan-review/spec-reviewer#1", 2)
    assert front.events(ReviewFinished)[-1].verdict == "pass"


@pytest.mark.req("S0-11", "S0-31", "S0-85")
def test_without_an_approval_the_run_never_gets_to_configure(front: Front) -> None:
    front.start(basics("One"))
    for _ in range(2):
        assert front("resume").code == 10
    before = front.state
    refused = front("answer", "maybe")
    assert refused.code == 1
    assert "'maybe' is not an answer" in refused.err
    assert front.state == before
    assert front.status["phase"]["id"] == "plan-approval"
    assert front.asked == ["approve"]


def test_planning_roles_write_nothing_but_the_plan(front: Front) -> None:
    greedy = planner("One", files={"{plan_path}": plan_text(["One"]), "src/early.py": "z = 1\n"})
    front.start([scout(), greedy, builder(), passing()], "--yes")
    assert "src/early.py" not in front.landed
    assert any("src/early.py was changed by a role that may not" in text for text in front.warnings)
