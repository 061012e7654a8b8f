"""One plan run from the request to the report, through the command line, question by question."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from front import PASS, Done, Front, builder, failing, plan_text, planner, scout, spent
from windlass.events import (
    DispatchFinished,
    DispatchStarted,
    LandingRefused,
    PhaseEntered,
    PhaseFinished,
    RunStarted,
    TaskChanged,
    TaskLanded,
)
from windlass.model import RunState

REQUEST = "Add subtraction, multiplication and division"
CONFIG = """
[checks]
commands = [["/bin/sh", "-c", "grep -q 'x = 1' src/app.py && ! grep -rq BROKEN src"]]
"""
MISLEADING = "I planned it thus:\n```superteam-tasks\n- title: Never\n  description: Not in the file.\n```"


def fails_once(role: str, task: str, message: str) -> dict[str, Any]:
    return failing(role, message, task=task, cycle=1) | spent(0.01)


RULES = [
    scout(**spent(0.01)),
    planner("Subtract", "Multiply", "Divide", when={"role": "planner", "purpose": "revise"}, **spent(0.02)),
    planner("Subtract", "Multiply", say=MISLEADING, **spent(0.02)),
    {**failing("architect", "division is missing", phase="plan-review", cycle=1), **spent(0.01)},
    fails_once("spec-reviewer", "t2", "no zero case"),
    fails_once("quality-reviewer", "t2", "bad name"),
    failing("security-reviewer", "log the caller", severity="medium", task="t2") | spent(0.01),
    builder(
        when={"role": "implementer", "purpose": "fix"}, files={"src/t2.py": "y = {cycle}\n", "tests/test_more.py": ""}
    )
    | {"files": {"src/t2_more.py": "z = 1\n"}, **spent(0.03)},
    {
        "when": {"role": "implementer", "purpose": "land-fix"},
        "files": {"src/t3.py": "y = 1\n"},
        "commit": "fix: t3",
        "say": "mended",
        **spent(0.03),
    },
    builder(
        when={"role": "implementer", "task": "t3"},
        files={"src/t3.py": "BROKEN\n", "tests/test_t3.py": "def test_it(): pass\n"},
        **spent(0.05),
    ),
    builder(**spent(0.05)),
    failing("quality-reviewer", "two modules do the same", severity="low", phase="finalize") | spent(0.01),
    {"when": {}, "json": PASS, **spent(0.01)},
]


@dataclass
class Story:
    front: Front
    said: list[Done] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    """The state file at each question."""

    def note(self, done: Done) -> None:
        self.said.append(done)
        if self.front.state_file.exists():
            self.states.append(self.front.state)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    front = Front(tmp_path_factory.mktemp("story"), CONFIG)
    story = Story(front)
    story.note(front.start(RULES, request=REQUEST))
    for value in ("approve", "2", "Batch", ""):
        story.note(front("answer", value))
    return story


# -- starting, and the order of things


@pytest.mark.req("S0-01")
def test_a_request_starts_a_run_in_plan_draft(story: Story) -> None:
    started, entered = story.front.records[0].event, story.front.events(PhaseEntered)[0]
    assert isinstance(started, RunStarted)
    assert (started.request, entered.phase) == (REQUEST, "plan-draft")
    assert story.states[0]["userDescription"] == REQUEST


@pytest.mark.req("S0-10", "S0-68", "S0-74")
def test_a_run_without_failures_visits_the_phases_in_their_order(story: Story) -> None:
    labels = [event.label or event.phase for event in story.front.events(PhaseEntered)]
    labels += [event.label for event in story.front.events(PhaseFinished) if event.label]
    seen = [label for n, label in enumerate(labels) if n == 0 or labels[n - 1] != label]
    assert seen == ["plan-draft", "plan-review", "configure", "execute", "finalize", "done"]
    assert story.front.view.state is RunState.FINISHED


def test_it_waits_with_10_at_each_question_and_ends_with_0(story: Story) -> None:
    assert [done.code for done in story.said] == [10, 10, 10, 10, 0]


# -- drafting


@pytest.mark.req("S0-12")
def test_the_scout_has_finished_before_the_planner_starts(story: Story) -> None:
    events = [r.event for r in story.front.records]
    both = [e for e in events if isinstance(e, DispatchStarted | DispatchFinished) and e.role in ("scout", "planner")]
    assert [(type(event), event.role) for event in both[:3]] == [
        (DispatchStarted, "scout"),
        (DispatchFinished, "scout"),
        (DispatchStarted, "planner"),
    ]


@pytest.mark.req("S0-15")
def test_the_plan_lies_under_the_date_and_the_slug_of_the_run(story: Story) -> None:
    date = story.front.service.run().date
    assert story.states[0]["planPath"] == f"docs/plans/{date}-add-subtraction-multiplication-and.md"
    assert story.states[0]["planPath"] in story.front.landed


@pytest.mark.req("S0-16", "S0-20")
def test_the_plan_is_read_from_the_file_and_its_tasks_are_pending(story: Story) -> None:
    state = story.states[0]
    assert "Never" not in state["planContent"]
    assert state["planContent"] == plan_text(["Subtract", "Multiply", "Divide"])
    assert [(task["title"], task["status"]) for task in state["tasks"]] == [
        ("Subtract", "pending"),
        ("Multiply", "pending"),
        ("Divide", "pending"),
    ]
    assert state["currentTaskIndex"] == 0


# -- plan review


@pytest.mark.req("S0-21")
def test_both_plan_reviewers_are_at_work_at_the_same_time(story: Story) -> None:
    keys = ("plan-review/architect#1", "plan-review/spec-reviewer#1")
    events = [r.event for r in story.front.records]
    dispatches = [e for e in events if isinstance(e, DispatchStarted | DispatchFinished) and e.key in keys]
    assert [type(event) for event in dispatches] == [
        DispatchStarted,
        DispatchStarted,
        DispatchFinished,
        DispatchFinished,
    ]


@pytest.mark.req("S0-25", "S0-26")
def test_a_failed_plan_review_sends_plan_and_findings_to_the_planner_and_both_review_again(story: Story) -> None:
    front = story.front
    prompt = front.prompt("plan-review/fix#1")
    assert "division is missing" in prompt
    assert plan_text(["Subtract", "Multiply"]) in prompt
    after = front.keys[front.keys.index("plan-review/fix#1") + 1 :]
    assert set(after[:2]) == {"plan-review/architect#2", "plan-review/spec-reviewer#2"}
    assert plan_text(["Subtract", "Multiply", "Divide"]) in front.prompt("plan-review/spec-reviewer#2")


@pytest.mark.req("S0-27")
def test_plan_revisions_are_counted(story: Story) -> None:
    assert story.states[0]["planReviewCycles"] == 1


@pytest.mark.req("S0-24", "S0-33")
def test_results_and_numbered_titles_are_shown_before_the_approval_question(story: Story) -> None:
    text = story.said[0].out
    shown = text[: text.index("? Approve this plan?")]
    for wanted in ("architect", "spec-reviewer", "3 tasks", "1. Subtract", "2. Multiply", "3. Divide"):
        assert wanted in shown
    assert story.states[0]["pendingInteraction"]["options"] == [
        {"key": "approve", "label": "Approve"},
        {"key": "revise", "label": "Revise"},
    ]


@pytest.mark.req("S0-31")
def test_configure_is_entered_only_after_the_approval(story: Story) -> None:
    assert [state["phase"] for state in story.states] == ["plan-review", "configure", "configure", "configure"]
    assert story.front.answers["plan-approval!approve"] == "approve"


# -- configure


@pytest.mark.req("S0-34")
def test_configure_dispatches_nobody(story: Story) -> None:
    assert not [key for key in story.front.keys if key.startswith("configure")]


@pytest.mark.req("S0-35", "S0-36", "S0-37", "S0-38", "S0-40")
def test_configure_asks_one_at_a_time_in_its_order(story: Story) -> None:
    pending = [state["pendingInteraction"] for state in story.states[1:]]
    assert [question["id"] for question in pending] == ["review_mode", "execution_mode", "batch_size"]
    keys = [[option["key"] for option in question["options"]] for question in pending]
    assert keys == [["single-pass", "iterative"], ["auto", "checkpoint", "batch"], []]
    assert (pending[2]["type"], pending[2]["default"]) == ("input", "3")


@pytest.mark.req("S0-39", "S0-81", "S0-82")
def test_numbers_labels_and_an_empty_answer_are_taken(story: Story) -> None:
    answers = {event.id: event.answer for event in story.front.view.answers}
    assert answers == {"approve": "approve", "review_mode": "iterative", "execution_mode": "batch", "batch_size": "3"}


@pytest.mark.req("S0-80")
def test_it_asks_at_no_other_points(story: Story) -> None:
    assert story.front.asked == ["approve", "review_mode", "execution_mode", "batch_size"]


# -- execute


@pytest.mark.req("S0-41", "S0-46", "S0-49")
def test_a_task_goes_through_its_steps_in_order(story: Story) -> None:
    keys = [key.removeprefix("execute/t1/") for key in story.front.keys if key.startswith("execute/t1/")]
    assert keys[:3] == ["implement", "spec#1", "quality#1"]
    assert set(keys[3:]) == {"extra.security-reviewer#1", "extra.performance-reviewer#1"}
    assert [event.task for event in story.front.events(TaskLanded)] == ["t1", "t2", "t3"]


@pytest.mark.req("S0-43")
def test_the_head_before_a_task_is_stored_with_it(story: Story) -> None:
    front = story.front
    bases = {e.task: e.base for e in front.events(TaskChanged) if e.base}
    tips = [event.tip for event in front.events(TaskLanded)]
    assert bases == {"t1": bases["t1"], "t2": tips[0], "t3": tips[1]}
    assert front.git("diff", "--name-only", f"{front.view.base}..{bases['t1']}") == story.states[0]["planPath"]


@pytest.mark.req("S0-52", "S0-95")
@pytest.mark.parametrize(("step", "finding"), [("spec", "no zero case"), ("quality", "bad name")])
def test_a_failed_task_review_sends_task_kind_findings_and_files_to_the_implementer(
    story: Story, step: str, finding: str
) -> None:
    keys = story.front.keys
    at = keys.index(f"execute/t2/{step}.fix#1")
    assert (keys[at - 1], keys[at + 1]) == (f"execute/t2/{step}#1", f"execute/t2/{step}#2")
    prompt = story.front.prompt(keys[at])
    for wanted in ("Title: Multiply", f"The {step} review", finding, "- src/t2.py", "- tests/test_t2.py"):
        assert wanted in prompt


@pytest.mark.req("S0-53")
def test_changed_files_are_looked_at_again_after_a_fix(story: Story) -> None:
    assert "src/t2_more.py" not in story.front.prompt("execute/t2/spec#1")
    assert "src/t2_more.py" in story.front.prompt("execute/t2/quality#1")


@pytest.mark.req("S0-50")
def test_a_finding_below_critical_is_noted_and_nothing_stops(story: Story) -> None:
    report = (story.front.folder / "report.md").read_text()
    accepted = report[report.index("## Accepted Issues") :]
    assert "Multiply: medium: src/t1.py log the caller (security-reviewer)" in accepted
    assert story.front.states("t2")[-1] == "complete"


@pytest.mark.req("S0-65", "S0-66")
def test_a_task_changes_its_status_only_as_it_may(story: Story) -> None:
    front = story.front
    assert front.states("t1") == ["pending", "implementing", "reviewing", "complete"]
    assert front.states("t2") == [
        *("pending", "implementing", "reviewing", "fixing", "reviewing", "fixing", "reviewing", "complete")
    ]


def test_red_checks_at_landing_are_mended_and_then_it_lands(story: Story) -> None:
    assert [(e.task, e.why) for e in story.front.events(LandingRefused)] == [("t3", "red")]
    assert "execute/t3/land.fix#1" in story.front.keys
    assert story.front.show("src/t3.py") == "y = 1"


@pytest.mark.req("S0-62")
def test_nothing_pauses_within_a_batch(story: Story) -> None:
    entered = [e.task for e in story.front.events(TaskChanged) if e.state == "implementing"]
    assert entered == ["t1", "t2", "t3"]


# -- finalize


@pytest.mark.req("S0-70", "S0-71")
def test_the_final_review_sees_all_tasks_and_all_files_since_the_first(story: Story) -> None:
    runs = [key for key in story.front.keys if key.startswith("finalize")]
    assert runs == ["finalize/quality-reviewer#1"]
    prompt = story.front.prompt(runs[0])
    for wanted in ("- Subtract", "- Multiply", "- Divide", "- src/t1.py", "- src/t3.py", "- tests/test_t2.py"):
        assert wanted in prompt
    assert "docs/plans" not in prompt


@pytest.mark.req("S0-72", "S0-69")
def test_the_report_has_all_its_parts(story: Story) -> None:
    report = (story.front.folder / "report.md").read_text()
    for wanted in (
        *("# Workflow Complete", "- ✅ Subtract", "- ✅ Divide", "- 3 completed", "- 0 skipped", "- 0 escalated"),
        *("## Final Review", "two modules do the same", "## Changed Files", "- `src/t2_more.py`"),
    ):
        assert wanted in report
    assert f"Total cost: ${story.front.view.spent.usd:.2f}" in report


@pytest.mark.req("S0-73")
def test_the_state_file_is_gone_at_the_end_and_was_never_committed(story: Story) -> None:
    assert len(story.states) == 4
    assert not story.front.state_file.exists()
    assert ".superteam-workflow.json" not in story.front.landed


@pytest.mark.req("S0-90")
def test_the_cost_is_the_sum_of_the_dispatches(story: Story) -> None:
    costs = [event.cost_usd for event in story.front.events(DispatchFinished)]
    assert all(costs)
    assert story.front.view.spent.usd == pytest.approx(sum(cost or 0 for cost in costs))
    assert story.states[0]["totalCostUsd"] == pytest.approx(0.09)


# -- what a person sees


@pytest.mark.req("S0-101")
def test_the_terminal_tells_every_step(story: Story) -> None:
    text = "\n".join(done.out for done in story.said)
    wanted = (
        r"Scouting codebase\.\.\.",
        r"Drafting plan\.\.\.",
        r"docs/plans/\S+\.md",
        r"Plan review: .*architect",
        r"Task 1/3: Subtract",
        r"Implemented",
        r"Spec review: not yet",
        r"no zero case",
        r"Fix attempt 1/3",
        r"Spec review passed",
        r"Final review",
        r"Complete\. 3/3 tasks",
    )
    assert [line for line in wanted if not re.search(line, text)] == []


def test_the_user_s_checkout_is_as_it_was(story: Story) -> None:
    assert story.front.git("status", "--porcelain") == ""
    assert story.front.git("branch", "--show-current") == "main"
    assert not (story.front.root / "docs").exists()


@pytest.mark.req("S0-03")
def test_status_shows_phase_tasks_and_cost_and_changes_nothing(story: Story) -> None:
    before = len(story.front.records)
    status = story.front("status")
    assert "3/3" in status.out
    assert f"${story.front.view.spent.usd:.2f}" in status.out
    assert len(story.front.records) == before


@pytest.mark.req("S0-42")
def test_every_dispatch_of_every_phase_was_reserved_for_in_the_budget_first(story: Story) -> None:
    assert all(event.reserved_usd for event in story.front.events(DispatchStarted))


@pytest.mark.long
@pytest.mark.req("S0-09")
def test_the_same_answers_give_the_same_phases_and_dispatches(story: Story, tmp_path: Path) -> None:
    again = Front(tmp_path, CONFIG)
    again.start(RULES, "--answer", "approve=approve", "--set", "execution_mode=batch", request=REQUEST)
    again("resume", "--yes")

    def course(front: Front) -> list[tuple[str, ...]]:
        """Reviewers that work at the same time may start in any order."""
        entered = [(event.phase, event.key) for event in front.events(PhaseEntered)]
        return [*entered, *sorted((event.role, event.key) for event in front.events(DispatchStarted))]

    assert course(again) == course(story.front)
