"""Requirements that a person meets through the command line, each with a test that was seen failing without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brainstorming import COVERAGE, DESIGN, TITLES, Brainstorm, says
from captured import told
from front import (
    LEAN,
    NO_EXTRAS,
    NO_PLAN_REVIEW,
    PASS,
    Front,
    Rule,
    basics,
    builder,
    failing,
    passing,
    plan_of,
    planner,
    scripted,
)
from team import Team, asks, engineer, subtask
from team import basics as team_basics
from windlass.agents.assignment import assign
from windlass.agents.base import ToolFinished, ToolStarted, ToolUpdated
from windlass.agents.roles import load_roles
from windlass.config.schema import Config
from windlass.conversion import convert
from windlass.events import (
    DispatchFinished,
    DispatchStarted,
    QuestionAsked,
    RunEnded,
    RunResumed,
    StepEntered,
    TaskChanged,
    TaskLanded,
    TasksListed,
)

QUICK = "[retries]\ncrashed = 0\n"
CONFIGURED = ("--set", "review_mode=iterative", "--set", "execution_mode=auto")
APPROVED = ("--answer", "approve=approve", *CONFIGURED)
SETTLED = ("question-1", "question-3", "approach", "section-1", "section-2", "section-3", "approve")
AGREED = ("--answer", "question-2=fast", *(word for id in SETTLED for word in ("--yes", id)), *CONFIGURED)
NO_SPEC = '[roles.spec-reviewer]\nagent = "none"\n'


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, QUICK + LEAN)


def last_question(front: Front) -> QuestionAsked:
    return front.events(QuestionAsked)[-1]


def within(path: str, word: str) -> str:
    """A shell command that ends when the file holds the word, and fails after ten seconds."""
    return f"n=0; until grep -q '{word}' '{path}'; do n=$((n+1)); [ $n -lt 200 ] || exit 9; sleep 0.05; done"


# -- S0: plan


@pytest.mark.req("S0-20")
def test_a_plan_that_was_just_parsed_has_pending_tasks_and_no_revisions(front: Front) -> None:
    assert front.start(basics("One", "Two")).code == 10
    state = front.state
    assert [task["status"] for task in state["tasks"]] == ["pending", "pending"]
    assert (state["currentTaskIndex"], state["planReviewCycles"]) == (0, 0)


@pytest.mark.req("S0-30")
def test_without_any_plan_reviewer_the_shipped_flow_asks_for_the_approval_at_once(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + LEAN + NO_SPEC)
    done = front.start(basics("One"))
    assert done.code == 10, done
    assert front.keys == ["plan-draft/scout", "plan-draft/planner#1"]
    assert last_question(front).id == "approve"
    assert "no reviewer is available" in last_question(front).detail
    assert front("resume", "--yes").code == 0
    assert not [key for key in front.keys if "/spec" in key]
    assert any("without its spec review: no agent plays spec-reviewer" in text for text in front.warnings)


@pytest.mark.req("S0-49")
def test_security_and_performance_are_reviewed_at_the_same_time_after_the_quality_review(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + NO_PLAN_REVIEW)

    def meeting(role: str, other: str) -> Rule:
        """A reviewer that waits until the other one is at work, but not for ever."""
        seen = f"[ -e {tmp_path}/{other} ]"
        wait = f"touch {tmp_path}/{role}; n=0; until {seen} || [ $n = 1500 ]; do n=$((n+1)); sleep 0.02; done"
        return {"when": {"role": role}, "run": [wait], "json": PASS}

    both = ("security-reviewer", "performance-reviewer")
    assert front.start([meeting(*both), meeting(*both[::-1]), *basics("One")], *APPROVED).code == 0
    keys = ("execute/t1/quality#1", "execute/t1/extra.security-reviewer#1", "execute/t1/extra.performance-reviewer#1")
    events = [r.event for r in front.records]
    found = [e for e in events if isinstance(e, DispatchStarted | DispatchFinished) and e.key in keys]
    assert [type(event) for event in found] == [
        *(DispatchStarted, DispatchFinished),
        *(DispatchStarted, DispatchStarted, DispatchFinished, DispatchFinished),
    ]
    assert {event.key for event in found[:2]} == {keys[0]}
    assert {event.key for event in found[2:]} == set(keys[1:])


@pytest.mark.req("S0-62")
def test_in_auto_mode_the_next_task_starts_at_once(front: Front) -> None:
    assert front.start(basics("One", "Two", "Three"), *APPROVED).code == 0
    assert front.asked == ["approve"]
    assert [event.task for event in front.events(TaskLanded)] == ["t1", "t2", "t3"]
    assert front.events(RunResumed) == []
    assert [event.state for event in front.events(RunEnded)] == ["finished"]


@pytest.mark.req("S0-75")
def test_every_state_of_a_task_is_in_the_state_file_while_it_lasts(front: Front) -> None:
    """Each agent waits for its own state in the file, and fails if it never stands there."""
    file = str(front.root / ".git" / "windlass" / "runs" / "*" / ".superteam-workflow.json")

    def seen(state: str) -> list[str]:
        return [within(file, f'"status": "{state}"').replace(f"'{file}'", file)]

    complaint = failing("spec-reviewer", "wrong", task="t1", cycle=1)
    rules: list[Rule] = [
        {**complaint, "run": seen("reviewing")},
        builder(when={"role": "implementer", "purpose": "fix"}, run=seen("fixing")),
        builder(run=seen("implementing")),
    ]
    assert front.start([*rules, *basics("One")], *APPROVED).code == 0
    assert front.states("t1") == [
        *("pending", "implementing", "reviewing", "fixing", "reviewing", "complete"),
    ]


@pytest.mark.req("S0-06", "S0-04", "S1-98")
def test_the_one_command_answers_starts_and_tells_control_words_from_text(front: Front) -> None:
    front.configure(QUICK + LEAN + scripted(front))
    front.say(basics("One"))
    assert front("workflow", "  Add", "sub  ").code == 10
    assert front.service.run().request == "Add sub"
    refused = front("workflow", "perhaps")
    assert (refused.code, len(front.service.runs())) == (1, 1)
    assert "'perhaps' is not an answer" in refused.err
    assert front("workflow", " approve ").code == 10
    assert front.answers == {"plan-approval!approve": "approve"}
    assert "iterative" in front("workflow", " status ").out
    assert front("workflow", "abort").code == 0
    told_after = front("workflow", "status").out
    assert told_after.startswith("No run is active here.\n")
    assert not front.state_file.exists()
    # Any other word is what to build.
    assert front("workflow", "resume").code == 10
    assert front.service.run().request == "resume"


# -- S0: prompts

CONTENT = "SECRET_OF_THE_SOURCE = 1\n"


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Front:
    """A run whose only task is sent back once by each reviewer; the second fix adds a file."""
    front = Front(tmp_path_factory.mktemp("mended"), QUICK + LEAN)
    task = {"title": "One", "description": "Do One.", "files": ["src/t1.py"]}
    files = {"src/t1.py": CONTENT, "tests/test_t1.py": "def test_it(): pass\n"}
    fix = builder(when={"role": "implementer", "purpose": "fix"}) | {
        "files": {"src/late.py": CONTENT, "src/t1.py": "y = 2\n"}
    }
    rules = [
        failing("spec-reviewer", "no zero case", task="t1", cycle=1),
        fix,
        builder(files=files),
        planner(files={"{plan_path}": plan_of([task])}),
    ]
    assert front.start([*rules, *basics("One")], *APPROVED).code == 0
    return front


@pytest.mark.req("S0-47", "S0-53")
def test_every_spec_review_prompt_has_the_requirements_and_the_changed_files_of_its_moment(mended: Front) -> None:
    first, second = mended.prompt("execute/t1/spec#1"), mended.prompt("execute/t1/spec#2")
    for prompt in (first, second):
        for wanted in ("Title: One", "Do One.", "- src/t1.py", "- tests/test_t1.py"):
            assert wanted in prompt
    assert "- src/late.py" not in first
    assert "- src/late.py\n" in second


@pytest.mark.req("S0-94")
def test_no_prompt_of_a_task_holds_the_text_of_a_source_file(mended: Front) -> None:
    keys = [key for key in mended.keys if key.startswith("execute/t1/")]
    assert len(keys) == 5
    for key in keys:
        prompt = mended.prompt(key)
        assert "Title: One" in prompt
        assert "Do One." in prompt
        assert "Files:\n- src/t1.py" in prompt
        assert "SECRET_OF_THE_SOURCE" not in prompt
    assert "- src/t1.py: line 1" in mended.prompt("execute/t1/spec#2")
    assert "- src/late.py: new" in mended.prompt("execute/t1/spec#2")


@pytest.mark.req("S0-08")
def test_a_task_of_one_s_own_plan_has_no_plan_phases_no_questions_and_stops_without_an_escalation(front: Front) -> None:
    plan = front.tmp / "mine.md"
    plan.write_text(plan_of([{"title": "First", "description": "Do it."}]))
    mumbling: Rule = {"when": {"role": "quality-reviewer"}, "say": "Hmm."}
    done = front.task([mumbling, builder(), passing()], "--plan", str(plan))
    assert done.code == 12
    assert front.asked == []
    assert {key.split("/")[0] for key in front.keys} == {"execute"}
    assert [event.state for event in front.events(TaskChanged)][-1] != "escalated"


# -- S1: brainstorm


@pytest.mark.long
@pytest.mark.req("S1-82")
@pytest.mark.parametrize("role", ["security-reviewer", "performance-reviewer"])
def test_a_critical_finding_of_either_optional_reviewer_is_escalated_in_a_brainstorm(tmp_path: Path, role: str) -> None:
    front = Brainstorm(tmp_path, QUICK)
    hole = failing(role, "it can be broken", severity="critical", task="t1")
    done = front.begin(hole, argv=AGREED)
    assert done.code == 10, done
    asked = last_question(front)
    assert asked.id == "escalation"
    assert "it can be broken" in asked.detail
    assert not front.events(TaskLanded)


@pytest.mark.req("S1-83")
def test_the_escalation_names_task_review_attempts_and_last_findings(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, QUICK + NO_EXTRAS)
    same = failing("spec-reviewer", "CORS is missing", task="t1")
    done = front.begin(same, argv=AGREED)
    assert done.code == 10, done
    asked = last_question(front)
    assert asked.title == "Task Escalation"
    assert "'Users'" in asked.text
    assert "'spec'" in asked.text
    assert "failed after 2 attempts" in asked.text
    assert "CORS is missing" in asked.detail
    assert [option["key"] for option in asked.options if isinstance(option, dict)] == ["continue", "skip", "abort"]
    assert next(option["label"] for option in asked.options if isinstance(option, dict)) == "Retry"


@pytest.mark.req("S1-40")
def test_a_design_section_is_shown_whole_and_asked_about(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, QUICK + NO_EXTRAS)
    lines = [f"  line {n} of the section" for n in range(1, 120)]
    sections = [{"id": f"s{n}", "title": t, "content": "\n".join(lines)} for n, t in enumerate(TITLES, 1)]
    front.begin(says("sections", {**DESIGN, "sections": sections}))
    done = front.say_yes("1", "fast", "1", "1")
    asked = last_question(front)
    assert asked.title == "Design Section: Architecture"
    assert [option["key"] for option in asked.options if isinstance(option, dict)] == ["yes", "revise"]
    assert [line for line in lines if line not in done.out] == []


@pytest.mark.long
@pytest.mark.req("S1-68")
def test_revise_hands_the_words_to_the_planner_and_reviews_and_asks_again(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, QUICK + NO_EXTRAS)
    front.begin()
    front.say_yes("1", "fast", "1", "1", "yes", "yes", "yes")
    [waiting] = front.service.questions.pending(front.run)
    assert waiting.data["comment"] == "editor"
    before = len(front.keys)
    assert front.say_yes("revise | Split the login").code == 10
    assert [key.split("/")[1] for key in front.keys[before:]] == ["wish", "architect#1", "spec-reviewer#1"]
    assert "Split the login" in front.prompt(front.keys[before])
    assert front.open == "plan-approval+2!approve"


@pytest.mark.long
@pytest.mark.req("S1-22")
def test_the_brainstorm_section_of_the_page_ticks_off_each_step_when_it_is_done(tmp_path: Path) -> None:
    front = Brainstorm(tmp_path, QUICK + NO_EXTRAS)
    front.begin()

    def boxes() -> list[str]:
        part = front.page.split("## Brainstorm\n")[1].split("\n\n")[0]
        return part.splitlines()

    assert boxes()[:3] == ["- [x] Scout codebase", "- [ ] Requirements (0 questions answered)", "- [ ] Approach"]
    front.say_yes("1", "fast", "1")
    assert boxes()[1:3] == ["- [x] Requirements (3 questions answered)", "- [ ] Approach"]
    front.say_yes("1", "yes")
    assert boxes()[2:4] == ["- [x] Approach: Middleware", "- [ ] Design validated (1/3 sections)"]
    front.say_yes("yes", "yes")
    assert boxes()[3] == "- [x] Design validated (3/3 sections)"
    assert boxes()[4].startswith("- [x] Design: docs/plans/")
    assert COVERAGE in front.show(front.view.artifacts["plan"].path)


# -- S1: agents


@pytest.mark.req("S1-09")
def test_tool_starts_updates_and_ends_of_pi_are_passed_on_in_order() -> None:
    call = {"toolCallId": "c1", "toolName": "bash"}
    found = told(
        "pi",
        {"type": "tool_execution_start", **call, "args": {"command": "pytest"}},
        {
            "type": "tool_execution_update",
            **call,
            "partialResult": {"content": [{"type": "text", "text": "a\nPASS 3/3"}]},
        },
        {"type": "tool_execution_update", **call, "partialResult": "PASS 4/4\n"},
        {"type": "tool_execution_end", **call, "isError": False, "result": {"content": []}},
    )
    assert [type(event) for event in found] == [ToolStarted, ToolUpdated, ToolUpdated, ToolFinished]
    assert [event.text for event in found if isinstance(event, ToolUpdated)] == ["PASS 3/3", "PASS 4/4"]
    assert {event.id for event in found if isinstance(event, ToolStarted | ToolUpdated | ToolFinished)} == {"c1"}


@pytest.mark.req("S1-93")
def test_a_role_has_the_model_of_its_profile_on_a_cli_that_serves_it() -> None:
    roles, config = load_roles([]), Config()

    def models(agent: str, config: Config = config) -> dict[str, str]:
        found = {role: assign(config, roles, role, everyone=agent).model for role in roles}
        return {role: model for role, model in found.items() if model}

    assert models("claude") == {
        "scout": "claude-sonnet-4-5",
        "implementer": "claude-opus-4-6",
        "spec-reviewer": "claude-opus-4-6",
        "quality-reviewer": "claude-sonnet-4-5",
        "sonnet-4.5": "claude-sonnet-4-5",
        "opus-4.5": "claude-opus-4-5",
    }
    assert models("codex") == {"architect": "gpt-5.2", "security-reviewer": "gpt-5.3-codex"}
    assert roles["performance-reviewer"].recommended == "gemini-3-pro-high"
    assert models("gemini") == models("scripted") == {}
    own = convert({"agents": {"claude": {"model": "mine"}}, "roles": {"scout": {"model": "other"}}}, Config)
    assert models("claude", own) == {"scout": "other"}
    assert assign(config, roles, "planner", "implementer", everyone="claude").model == "claude-opus-4-6"
    reading = ("read", "grep", "find", "ls")
    assert roles["scout"].tools == (*reading, "bash")
    for role in ("spec-reviewer", "quality-reviewer", "architect", "security-reviewer", "performance-reviewer"):
        assert roles[role].tools == reading


@pytest.mark.sweep(3)
@pytest.mark.req("S1-98")
@pytest.mark.parametrize("word", ["status now", "Status", "abort it"])
def test_only_the_exact_words_are_control_words(front: Front, word: str) -> None:
    front.configure(QUICK + LEAN + scripted(front))
    front.say(basics("One"))
    assert front("workflow", word).code == 10
    assert front.service.run().request == word


# -- S2: team


@pytest.mark.req("S2-06")
def test_what_the_architect_says_reaches_the_person_line_by_line(tmp_path: Path) -> None:
    team = Team(tmp_path)
    message = "Per user,\n\n  or per address?\n" + "\n".join(f"* point {n}" for n in range(1, 30))
    done = team.go([asks(message, 1), *team_basics(subtask("a"))], clarify=True)
    assert last_question(team).detail == message
    shown = "".join(f"  {line}\n" if line else "\n" for line in message.splitlines())
    assert shown in done.out


@pytest.mark.req("S2-21", "S2-27")
def test_a_checkpoint_that_names_a_worktree_is_reached_when_the_worktree_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = Team(tmp_path)
    seen: dict[str, list[str]] = {}

    def look(event: StepEntered) -> None:
        slots = (team.tmp / "home" / "state" / "windlass").glob("*/slots/*/.git")
        seen.setdefault(event.label, [path.parent.name for path in slots if path.with_name("README.md").exists()])

    from windlass.engine.journal import Journal

    real = Journal.emit

    def emit(self: Journal, at: str, *events: Any, **more: Any) -> None:
        for event in events:
            if isinstance(event, StepEntered):
                look(event)
        real(self, at, *events, **more)

    monkeypatch.setattr(Journal, "emit", emit)
    assert team.go(team_basics(subtask("a"))).code == 0
    assert seen["REPO_SYNC"] == []
    assert seen["WORKSPACE_CREATED"] == ["1"]


@pytest.mark.long
@pytest.mark.req("S2-26")
def test_the_subtasks_are_stored_with_their_parallel_group_when_they_are_planned(tmp_path: Path) -> None:
    team = Team(tmp_path)
    tasks = [subtask("a"), subtask("b"), subtask("c", "a", "b"), subtask("d", "a"), subtask("e", "c")]
    assert team.go(team_basics(*tasks)).code == 0
    events = [recorded.event for recorded in team.records]
    listed = next(n for n, event in enumerate(events) if isinstance(event, TasksListed))
    planned = next(n for n, event in enumerate(events) if getattr(event, "label", "") == "PLANNED")
    assert listed < planned
    groups = {task["id"]: task["group"] for task in team.status["tasks"]}
    assert groups == {"a": 1, "b": 1, "c": 2, "d": 2, "e": 3}


@pytest.mark.req("S2-38")
def test_no_subtask_of_the_second_group_starts_before_the_first_has_landed_as_a_whole(tmp_path: Path) -> None:
    """`c` needs `a` alone, which has landed when `b` is done again: only a barrier keeps `c` back."""
    team = Team(tmp_path)
    tasks = [subtask("a"), subtask("b"), subtask("c", "a")]
    both = [
        engineer(when={"role": "swe", "task": task}, times=1, files={"src/shared.py": f"x = '{task}'\n"})
        for task in ("a", "b")
    ]
    done = team.go([*both, *team_basics(*tasks)], "--set", "failure_policy=retry")
    assert done.code == 0, done.out + done.err
    assert team.keys.count("execute/b+2/implement") == 1, "b was in conflict with a"
    events = [recorded.event for recorded in team.records]
    landed = [n for n, event in enumerate(events) if isinstance(event, TaskLanded)]
    began = next(n for n, e in enumerate(events) if isinstance(e, DispatchStarted) and e.task == "c")
    assert [events[n].task for n in landed] == ["a", "b", "c"]  # type: ignore[attr-defined]
    assert landed[1] < began


@pytest.mark.req("S2-44")
def test_the_worktrees_of_the_pool_are_gone_when_the_run_has_ended(tmp_path: Path) -> None:
    team = Team(tmp_path)
    assert team.go(team_basics(subtask("a"), subtask("b"))).code == 0
    home = team.tmp / "home" / "state" / "windlass"
    assert [path.name for path in home.glob("*/slots/*") if path.is_dir()] == []
    assert {"src/a.py", "src/b.py"} <= team.landed


def test_a_pool_that_is_to_be_kept_stays(tmp_path: Path) -> None:
    team = Team(tmp_path)
    assert team.go(team_basics(subtask("a")), "--keep").code == 0
    assert list((team.tmp / "home" / "state" / "windlass").glob("*/slots/1/src/a.py"))
