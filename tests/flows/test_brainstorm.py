"""One brainstorm from the request to the report, through the command line, question by question."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from brainstorming import COVERAGE, NO_EXTRAS, REQUEST, TITLES, Brainstorm, plan, planner
from front import Done, builder, failing, spent
from windlass.events import BranchPublished, ItemsProposed, PhaseEntered, PhaseFinished, QuestionAnswered
from windlass.model import RunState

OWN = "Basic auth from a file"
CONFIG = NO_EXTRAS + '[checks]\ncommands = [["/bin/sh", "-c", "! grep -rq BROKEN src"]]\n'
MENDED = {"src/common.py": "z = 1\n", "tests/test_common.py": "def test_it(): pass\n"}
RULES = [
    failing("architect", "say how it is tested", phase="plan-review", times=1),
    planner("Users", "Login", "Logout", when={"role": "planner", "purpose": "revise"}, **spent(0.02)),
    failing("quality-reviewer", "two modules do the same", severity="low", phase="finalize", times=1),
    builder(when={"role": "implementer", "purpose": "fix-run"}, files=MENDED, commit="fix: one module"),
]
ANSWERS = (
    *("saml", "under 100 ms", "2"),
    *("other", OWN),
    *("yes", "revise | Say where the token is kept", "Yes", "1"),
    *("revise | Add a way out", "approve"),
    *("auto", "iterative"),
    "fix",
)


@dataclass
class Story:
    front: Brainstorm
    said: list[Done] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The question that waits, before each answer."""
    states: list[dict[str, Any]] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)

    def note(self, done: Done) -> None:
        self.said.append(done)
        self.asked.append(next(iter(self.front.view.questions), ""))
        self.states.append(self.front.state if self.front.state_file.exists() else {})
        self.pages.append(self.front.page)

    def at(self, key: str) -> int:
        return self.asked.index(key)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    told = Story(Brainstorm(tmp_path_factory.mktemp("story"), CONFIG))
    told.note(told.front.begin(*RULES))
    for answer in ANSWERS:
        told.note(told.front.say_yes(answer))
    return told


@pytest.mark.req("S1-06", "S1-29", "S1-30", "S1-31", "S1-34", "S1-102")
def test_everything_is_asked_once_and_in_order(story: Story) -> None:
    assert story.asked == [
        *(f"questions!question-{n}" for n in (1, 2, 3)),
        *("approaches!approach", "approaches!own-approach"),
        *("design/section-1#1!section-1", "design/section-2#1!section-2"),
        *("design/section-2#2!section-2", "design/section-3#1!section-3"),
        *("plan-approval!approve", "plan-approval+2!approve"),
        *("configure!execution_mode", "configure!review_mode"),
        *("finalize/asked#1!final", ""),
    ]
    assert [done.code for done in story.said] == [10] * len(ANSWERS) + [0]
    assert story.front.view.state is RunState.FINISHED


@pytest.mark.req("S1-29", "S1-31")
def test_the_phases_have_the_names_of_the_document(story: Story) -> None:
    labels = [e.label or e.phase for e in story.front.events(PhaseEntered)]
    assert list(dict.fromkeys(labels)) == [
        *(f"brainstorm.{step}" for step in ("scout", "questions", "approaches", "design")),
        *("plan-write", "plan-review", "configure", "execute", "finalize"),
    ]
    assert [e.label for e in story.front.events(PhaseFinished) if e.phase == "design"] == ["brainstorm.done"]


@pytest.mark.req("S1-32", "S1-33", "S1-36", "S1-39", "S1-53")
def test_each_agent_is_given_what_was_found_and_decided_before_it(story: Story) -> None:
    prompts = {
        "questions": story.front.prompt("questions/brainstormer"),
        "approaches": story.front.prompt("approaches/brainstormer"),
        "design": story.front.prompt("design/brainstormer"),
        "plan": story.front.prompt("plan-write/planner"),
    }
    assert all("src/util.py" in text and REQUEST in text for text in prompts.values())
    assert "Ask 3 to 7" in prompts["questions"]
    assert all("under 100 ms" in prompts[name] and "SAML" in prompts[name] for name in ("approaches", "design"))
    assert OWN in prompts["design"]
    assert "Data flow, revised." in prompts["plan"]
    assert "2 to 3 approaches" in prompts["approaches"]
    assert "200 to 300 words" in prompts["design"]
    for word in ("architecture", "components", "data flow", "error handling", "testing approach"):
        assert word in prompts["design"]


@pytest.mark.req("S1-34", "S1-35", "S1-37", "S1-38")
def test_questions_have_a_title_and_approaches_a_star(story: Story) -> None:
    out = "\n".join(done.out for done in story.said)
    for title in ("Question 1 of 3", "Question 3 of 3", "Choose Approach", "Design Section: Architecture"):
        assert f"--- {title} ---" in out
    assert "e.g., <100ms p99" in out
    assert "1) a1 - Middleware: * recommended, about 2 tasks. Clean." in out
    assert "3) other - Other" in out


@pytest.mark.req("S1-05", "S1-35", "S1-42", "S1-52", "S1-97", "S1-101")
def test_the_state_file_has_every_answer_as_soon_as_it_is_given(story: Story) -> None:
    first, second = story.states[0], story.states[1]
    assert (first["phase"], first["brainstorm"]["step"]) == ("brainstorm", "questions")
    assert first["brainstorm"]["scoutOutput"].startswith("A small program")
    assert [q["answer"] for q in first["brainstorm"]["questions"]] == [None, None, None]
    assert [q["answer"] for q in second["brainstorm"]["questions"]] == ["SAML", None, None]
    assert (first["brainstorm"]["currentQuestionIndex"], second["brainstorm"]["currentQuestionIndex"]) == (0, 1)
    designing = story.states[story.at("design/section-2#2!section-2")]["brainstorm"]
    assert (designing["chosenApproach"], designing["customApproach"]) == (None, OWN)
    assert [(s["title"], s["content"], s["approved"]) for s in designing["designSections"]] == [
        ("Architecture", "Architecture first.", True),
        ("Data flow", "Data flow, revised.", False),
        ("Testing", "Testing first.", False),
    ]
    assert designing["currentSectionIndex"] == 1
    planned = story.states[story.at("plan-approval!approve")]
    assert set(planned) >= {
        *("phase", "brainstorm", "config", "userDescription", "designPath", "designContent", "planPath"),
        *("planContent", "tasks", "currentTaskIndex", "planReviewCycles", "totalCostUsd", "startedAt", "error"),
    }
    assert (planned["phase"], planned["brainstorm"]["step"]) == ("plan-review", "done")
    assert planned["designPath"].endswith("-add-user-authentication-design.md")
    assert "Data flow, revised." in planned["designContent"]


@pytest.mark.req("S1-04")
def test_the_state_file_knows_no_pending_interaction(story: Story) -> None:
    assert "pendingInteraction" not in story.states[0]


@pytest.mark.req("S1-40", "S1-41")
def test_a_section_sent_back_is_written_anew_alone_and_shown_again(story: Story) -> None:
    revisions = [key for key in story.front.keys if ".revise" in key]
    assert revisions == ["design/section-2.revise#1"]
    prompt = story.front.prompt("design/section-2.revise#1")
    assert "Say where the token is kept" in prompt
    assert "Data flow first." in prompt
    assert "Data flow first." in story.said[story.at("design/section-2#1!section-2")].out
    assert "Data flow, revised." in story.said[story.at("design/section-2#2!section-2")].out
    [whole, one] = [e for e in story.front.events(ItemsProposed) if e.item == "sections"]
    assert (len(whole.items), len(one.items)) == (3, 1)


@pytest.mark.req("S1-43")
def test_the_approved_sections_are_the_design_on_the_branch(story: Story) -> None:
    path = story.front.view.artifacts["design"].path
    assert path.startswith("docs/plans/")
    assert story.front.show(path) == (
        f"# Design: {REQUEST}\n\n## Architecture\n\nArchitecture first.\n\n"
        "## Data flow\n\nData flow, revised.\n\n## Testing\n\nTesting first."
    )


@pytest.mark.req("S1-54", "S1-55")
def test_the_plan_is_read_from_its_file(story: Story) -> None:
    path = story.front.view.artifacts["plan"].path
    assert path.endswith("-add-user-authentication-plan.md")
    assert [task.title for task in story.front.view.tasks] == ["Users", "Login", "Logout"]
    drafted = story.front.prompt("plan-write/planner")
    for words in ("**Goal**", "**Architecture**", "**Tech stack**", "2 to 5 minutes", "superteam-tasks", path):
        assert words in drafted


@pytest.mark.req("S1-62", "S1-63", "S1-64", "S1-65", "S1-70")
def test_both_reviews_judge_the_plan_by_the_design_and_the_planner_mends_it(story: Story) -> None:
    reviewed = [line for line in story.front.dispatches if " plan-review/" in line]
    assert reviewed == [
        "architect review-plan plan-review/architect#1",
        "spec-reviewer review-plan plan-review/spec-reviewer#1",
        "planner revise plan-review/fix#1",
        "architect rereview-plan plan-review/architect#2",
        "spec-reviewer rereview-plan plan-review/spec-reviewer#2",
    ]
    for key in ("plan-review/architect#1", "plan-review/spec-reviewer#1"):
        prompt = story.front.prompt(key)
        assert "Data flow, revised." in prompt
        assert "Does the plan implement it, with nothing missing and nothing added?" in prompt
    assert "design patterns, modularity" in story.front.prompt("plan-review/architect#1")
    assert "**Completeness**" in story.front.prompt("plan-review/spec-reviewer#1")


@pytest.mark.req("S1-66", "S1-67", "S1-68")
def test_the_plan_is_shown_before_it_is_approved_and_revised_with_the_words_of_the_user(story: Story) -> None:
    shown = story.said[story.at("plan-approval!approve")].out
    assert "3 tasks:\n    1. Users\n    2. Login\n    3. Logout" in shown
    assert [f"{n}) {word}" in shown for n, word in enumerate(("approve", "revise", "abort"), 1)] == [True] * 3
    assert "Add a way out" in story.front.prompt("plan-review+2/wish")
    assert [line for line in story.front.dispatches if "plan-review+2/" in line][1:] == [
        "architect review-plan plan-review+2/architect#1",
        "spec-reviewer review-plan plan-review+2/spec-reviewer#1",
    ]


@pytest.mark.req("S1-71", "S1-72")
def test_execution_mode_is_asked_first_and_iterative_is_the_first_review_mode(story: Story) -> None:
    out = story.said[story.at("configure!review_mode")].out
    assert "--- Review Mode ---" in out
    assert "1) iterative" in out


@pytest.mark.req("S1-74")
def test_a_task_is_built_then_judged_for_spec_then_for_quality_then_landed(story: Story) -> None:
    mine = [key for key in story.front.keys if key.startswith("execute/t1/")]
    assert mine == ["execute/t1/implement", "execute/t1/spec#1", "execute/t1/quality#1"]
    first = story.front.view.tasks[0]
    assert (bool(first.base), first.state, bool(first.landed)) == (True, "complete", True)


@pytest.mark.req("S1-84", "S1-85")
def test_what_the_final_review_found_is_mended_checked_and_on_the_branch(story: Story) -> None:
    assert "two modules do the same" in story.said[story.at("finalize/asked#1!final")].out
    mended = story.front.prompt("finalize+2/wish")
    assert "two modules do the same" in mended
    assert "src/t1.py" in mended
    assert {"src/common.py", "src/t1.py", "src/t3.py"} <= story.front.landed
    assert story.front.dispatches[-1] == "quality-reviewer review-run finalize+2/quality-reviewer#1"
    asked = story.front.prompt("finalize/quality-reviewer#1")
    assert all(words in asked for words in ("- Users", "- Logout", "src/t2.py"))


@pytest.mark.req("S1-86", "S1-87", "S1-91")
def test_the_report_tells_what_was_done_and_the_state_file_is_gone(story: Story) -> None:
    out = story.said[-1].out
    for words in ("Workflow Complete", "- 3 completed", "- 0 skipped", "Total cost: ", "Elapsed: ", "3/3 tasks"):
        assert words in out
    assert not story.front.state_file.exists()


def test_the_report_has_the_files_of_the_final_fix_and_names_the_last_commit(story: Story) -> None:
    report = (story.front.folder / "report.md").read_text()
    assert "- `src/common.py`" in report
    head = story.front.git("rev-parse", story.front.branch)
    assert f"at `{head[:12]}`" in report
    tdd = next(line for line in story.front.page.splitlines() if "| TDD: " in line).rpartition("TDD: ")[2]
    assert f"- TDD: {tdd}" in report


@pytest.mark.req("S1-19", "S1-20", "S1-21", "S1-22", "S1-23", "S1-24", "S1-25")
def test_the_progress_page_follows_every_answer(story: Story) -> None:
    assert "**Status:** Waiting: Brainstorm: questions | " in story.pages[0]
    assert "- [ ] Requirements (1 question answered)" in story.pages[1]
    designing = story.pages[story.at("design/section-2#2!section-2")]
    assert f"- [x] Approach: {OWN}" in designing
    assert "- [ ] Design validated (1/3 sections)" in designing
    approval = story.pages[story.at("plan-approval!approve")]
    assert "- [x] Architect review: ✓\n- [x] Spec review: ✓\n- [ ] Approved by user" in approval
    assert "- [x] Approved by user" in story.pages[-1]
    assert "- [x] 3. Logout — spec ✓ quality ✓" in story.pages[-1]


@pytest.mark.req("S1-26", "S1-28")
def test_the_last_form_of_the_page_is_on_the_branch(story: Story) -> None:
    committed = story.front.show(story.front.page_name)
    assert "**Status:** Complete | " in committed
    log = committed.split("## Log\n")[1]
    for words in (
        *("Workflow started", "Scout completed (2 files mapped)", "Question 1 of 3: SAML", "Design approved"),
        *(
            "Plan written (2 tasks)",
            "Plan revised (3 tasks)",
            "Plan review passed",
            "Task 1 started",
            "Task 1 complete",
        ),
    ):
        assert f"— {words}" in log
    assert story.pages[-1].startswith(committed.split("## Log")[0])
    assert story.front.events(BranchPublished)[-1].commit == story.front.git("rev-parse", story.front.branch)


def test_who_answered_what_is_on_record(story: Story) -> None:
    said = {e.key: (e.answer, e.comment) for e in story.front.events(QuestionAnswered)}
    assert said["questions!question-1"] == ("saml", "")
    assert said["design/section-2#1!section-2"] == ("revise", "Say where the token is kept")
    assert said["approaches!own-approach"] == (OWN, "")


# -- unattended


@pytest.mark.req("S1-38", "S1-39", "S1-73")
def test_unattended_it_takes_what_the_agents_recommend(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    done = front.begin(argv=("--yes", "--answer", "question-3=Server", "--set", "execution_mode=auto"))
    assert done.code == 0, done.out + done.err
    answers = front.answers
    assert (answers["questions!question-1"], answers["questions!question-3"]) == ("oauth-2-0-google", "server")
    assert answers["questions!question-2"].startswith("No preference")
    assert answers["approaches!approach"] == "a1"
    assert front.landed >= {"src/t1.py", "src/t2.py", front.page_name}


def test_an_answer_to_a_question_nobody_asks_is_refused(tmp_path: Path) -> None:
    done = Brainstorm(tmp_path).begin(argv=("--answer", "question-99=x"))
    assert (done.code, "asks no question 'question-99'" in done.err) == (1, True)


def test_an_answer_given_beforehand_cannot_send_a_section_back(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    done = front.begin(argv=("--yes", "--answer", "section-2=revise"))
    assert done.code != 0
    assert "section-2" in done.err
    assert front.view.state is RunState.STOPPED


# -- what is approved stays


QUIET = (
    *("--answer", "question-1=1", "--answer", "question-2=x", "--answer", "question-3=1"),
    *("--answer", "approach=a1"),
)
DROPS = plan("Users", "Login", coverage="Design coverage: Architecture, Testing")


@pytest.mark.long
def test_a_plan_that_leaves_out_a_section_of_the_design_is_sent_back(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    front.begin({**planner(), "files": {"{plan_path}": DROPS}, "times": 1}, argv=("--yes",))
    assert front.keys.count("plan-write/planner") == 2
    assert "a word on Data flow of the approved design is missing" in front.prompt("plan-write/planner", 2)
    assert front.view.state is RunState.FINISHED


@pytest.mark.long
def test_a_revision_that_drops_an_approved_section_is_refused_although_the_user_asked_for_it(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    dropping = {**planner(), "when": {"role": "planner", "purpose": "revise"}, "files": {"{plan_path}": DROPS}}
    agreed = ("--yes", "section-1", "--yes", "section-2", "--yes", "section-3")
    front.begin({**dropping, "times": 1}, argv=(*agreed, *QUIET))
    front.say_yes("revise | shorter")
    assert front.keys.count("plan-review+2/wish") == 2
    assert "Data flow" in front.prompt("plan-review+2/wish", 2).split("refused")[1]
    assert front.open == "plan-approval+2!approve"
    assert COVERAGE in (front.folder / "files" / front.view.artifacts["plan"].path).read_text()


def test_a_revision_changes_no_section_but_its_own(tmp_path: Path) -> None:
    greedy = {
        "type": "design",
        "sections": [
            {"id": "s1", "title": "Architecture", "content": "stolen"},
            {"id": "s2", "title": "x", "content": "y"},
        ],
    }
    front = Brainstorm(tmp_path, NO_EXTRAS)
    rule = {"when": {"role": "brainstormer", "purpose": "revise-section"}, "json": greedy, "times": 1}
    front.begin(rule, argv=("--yes", "section-1", "--yes", "section-3", *QUIET))
    front.say_yes("revise | more", "yes")
    design = front.state["designContent"]
    assert "stolen" not in design
    assert [line for line in design.splitlines() if line.startswith("## ")] == [f"## {title}" for title in TITLES]


def test_the_same_run_as_json_can_be_read_by_a_program(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, NO_EXTRAS)
    done = front.begin(argv=("--json",))
    [asked] = [json.loads(line) for line in done.out.splitlines() if '"question.asked"' in line]
    assert (asked["title"], asked["id"]) == ("Question 1 of 3", "question-1")
    assert [option["key"] for option in asked["options"]] == ["oauth-2-0-google", "saml", "custom"]
