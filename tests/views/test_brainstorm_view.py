"""What a person sees of a brainstorm, and what its parts do without any agent: data in, words out."""

from __future__ import annotations

from pathlib import Path

import pytest

import session_events as s
from brainstorming import QUESTIONS
from captured import a_job
from windlass import events as e
from windlass.agents.base import Spent, ToolFinished, ToolStarted
from windlass.agents.cli.pi import PiAdapter
from windlass.agents.contracts import registry as contracts
from windlass.agents.process.liveness import QUIET_S, Liveness, Sample
from windlass.agents.roles import BUILT_IN, load_role
from windlass.interfaces.terminal import event_lines as said
from windlass.model import Usage
from windlass.views.build import fold
from windlass.views.outlook import headline
from windlass.views.progress import render_progress

ROOT = Path(__file__).parents[2]
THREE: list[e.Json] = [{"id": f"question-{n}", "text": "?"} for n in (1, 2, 3)]
ASKING = (
    e.PhaseEntered("questions", "questions", "elicit", "brainstorm.questions"),
    e.ItemsProposed("questions", "questions", THREE),
    *s.ask("questions", "question-1", "?", "a", "a", "b"),
)


@pytest.mark.req("S1-88")
def test_the_headline_counts_questions_and_sections() -> None:
    assert headline(fold(s.recorded(iter(ASKING)))) == "Brainstorm: questions 2/3"
    sections: list[e.Json] = [{"id": "section-1"}, {"id": "section-2"}]
    designing = (
        *ASKING,
        e.PhaseEntered("design", "design", "elicit", "brainstorm.design"),
        e.ItemsProposed("design", "sections", sections),
    )
    assert headline(fold(s.recorded(iter(designing)))) == "Brainstorm: design 1/2"


@pytest.mark.req("S1-18", "S1-90")
@pytest.mark.parametrize(
    ("role", "purpose", "words"),
    [
        ("scout", "draft", "Scouting codebase..."),
        ("brainstormer", "questions", "Generating questions..."),
        ("brainstormer", "approaches", "Proposing approaches..."),
        ("brainstormer", "sections", "Writing design..."),
        ("brainstormer", "revise-section", "Revising the section..."),
        ("architect", "review-plan", "Reviewing plan..."),
        ("implementer", "implement", "Implementing..."),
    ],
)
def test_a_step_that_begins_is_said_in_one_line(role: str, purpose: str, words: str) -> None:
    line = said.start_line(e.DispatchStarted("k", 1, role, "claude", purpose=purpose))
    assert line.startswith(words)
    assert "\n" not in line


@pytest.mark.req("S1-01")
def test_what_an_agent_adds_to_its_answer_steers_nothing() -> None:
    parsed = contracts.check("questions", {**QUESTIONS, "next": "finish", "approved": True, "outcome": "abort"})
    assert isinstance(parsed.value, dict)
    assert set(parsed.value) == {"type", "questions"}
    assert contracts.outcome(parsed.value) == "ok"


@pytest.mark.req("S1-02")
def test_an_agent_starts_alone_with_the_tools_of_its_role_only() -> None:
    argv = PiAdapter().invocation(a_job(tools=("read", "find"), writes="none")).argv
    wanted = {"--mode", "json", "--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes"}
    assert wanted <= set(argv)
    assert set(argv[argv.index("--tools") + 1].split(",")) == {"read", "find"}


@pytest.mark.req("S1-08", "S1-09")
def test_tool_events_are_told_in_the_order_they_come() -> None:
    lines = [
        e.Activity("k", "scout", "tool.started", "reading src/app.py"),
        e.Activity("k", "scout", "tool.finished", "read", ok=False),
        e.Activity("k", "scout", "text", "found it"),
    ]
    assert [said.activity(line) for line in lines] == ["· reading src/app.py", "✗ read", "· found it"]


@pytest.mark.req("S1-14")
def test_a_silence_of_90_seconds_is_told_once_and_ends_nothing() -> None:
    liveness = Liveness(0.0)
    busy = Sample(1.0, 1)
    assert (QUIET_S, liveness.tick(89.0, busy)) == (90.0, "")
    assert "may be stuck" in liveness.tick(91.0, Sample(9.0, 1))
    assert liveness.tick(95.0, Sample(19.0, 1)) == ""
    liveness.event(ToolStarted("bash", "running x"), 96.0)
    assert liveness.tick(100.0, busy) == ""


@pytest.mark.req("S1-15")
def test_three_failing_commands_in_a_row_are_told_before_the_agent_ends() -> None:
    liveness = Liveness(0.0)
    told = [liveness.event(ToolFinished("bash", ok=False), float(n)) for n in range(3)]
    assert told == ["", "", "3 tool errors in a row"]


@pytest.mark.req("S1-16")
def test_a_cost_that_an_agent_reports_is_in_the_view_at_once() -> None:
    spent = Spent(Usage(cost_usd=0.4))
    started = e.DispatchStarted("k", 1, "scout", "pi")
    usage = e.Activity("k", "scout", "usage", "", cost_usd=spent.usage.cost_usd)
    assert fold(s.recorded(iter([started, usage]))).running["k"].cost_usd == 0.4
    assert said.activity(usage) == "· $0.40 so far"


@pytest.mark.req("S1-58")
def test_the_planner_is_no_implementer() -> None:
    planner, implementer = (load_role(BUILT_IN / f"{name}.md") for name in ("planner", "implementer"))
    assert (planner.guard, implementer.guard) == ("", "tdd")
    assert "You do not implement." in planner.system
    assert "tdd" not in " ".join(str(prompt.pieces) for prompt in planner.prompts.values()).split()


@pytest.mark.req("S1-110")
def test_parser_page_and_headline_work_on_data_alone() -> None:
    view = fold(s.recorded(iter(ASKING)))
    assert contracts.parse("questions", "no block").problem
    assert "- [ ] Requirements (1 question answered)" in render_progress(view)
    assert headline(view)


@pytest.mark.req("S1-111")
def test_the_documentation_has_a_page_for_the_flow_and_one_for_agents() -> None:
    guide = (ROOT / "docs" / "guides" / "brainstorm.md").read_text(encoding="utf-8")
    for phase in ("scout", "questions", "approaches", "design", "plan-write", "plan-review", "configure", "finalize"):
        assert f"| {phase} |" in guide
    assert all((ROOT / name).exists() for name in ("README.md", "CHANGELOG.md", "docs/guides/agents.md"))
