"""The live view as a function: what is known in, lines out."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import session_events as s
from windlass import events as e
from windlass.events import Event, Recorded
from windlass.interfaces.terminal.live_state import Live, Mood
from windlass.interfaces.terminal.panel import bar, panel, panel_above_dialog
from windlass.interfaces.terminal.spans import Look, Span, cells, cut, plain, row
from windlass.text import HIDDEN
from windlass.views.build import ViewBuilder

NOW = s.START + 1000.0


def live(events: Iterable[Event]) -> Live:
    return live_of(s.recorded(iter(events)))


def live_of(records: Iterable[Recorded]) -> Live:
    folder = ViewBuilder(s.RUN)
    found = Live(folder.live)
    for recorded in records:
        folder.feed(recorded)
        if isinstance(recorded.event, e.Activity):
            found.add(recorded.event)
    return found


def shown(found: Live, width: int = 80, height: int = 40, unicode: bool = True, now: float = NOW) -> list[str]:
    return plain(panel(found, Look(width, height, unicode), now)).splitlines()


def started(key: str = "execute/t2/implement", task: str = "t2", **more: object) -> e.DispatchStarted:
    return e.DispatchStarted(key, 1, "implementer", "claude", "opus", "implement", task, **more)  # type: ignore[arg-type]


def tool(text: str, call: str = "", key: str = "execute/t2/implement") -> e.Activity:
    return e.Activity(key, "implementer", "tool.started", text, call=call)


def ended(ok: bool, text: str = "", call: str = "", key: str = "execute/t2/implement") -> e.Activity:
    return e.Activity(key, "implementer", "tool.finished", text, ok, call=call)


def executing(*more: Event) -> list[Event]:
    begun = [e.TaskChanged("t2", "implementing"), started()]
    return [*s.planning(), *s.approval(), *s.first_task(), *begun, *more]


@pytest.mark.req("S1-88")
def test_the_footer_counts_the_questions_of_a_brainstorm() -> None:
    proposed: list[e.Json] = [{"id": f"question-{n}", "text": "?"} for n in (1, 2, 3)]
    asking = (
        e.PhaseEntered("questions", "questions", "elicit", "brainstorm.questions"),
        e.ItemsProposed("questions", "questions", proposed),
        *s.ask("questions", "question-1", "?", "a", "a", "b"),
    )
    assert shown(live(asking), width=120)[-1].startswith("Brainstorm: questions 2/3 · ")


@pytest.mark.req("S1-10", "S1-13", "S1-88", "S1-89", "S1-90")
def test_a_run_at_work() -> None:
    did = [
        tool("reading src/x.py"),
        ended(True),
        tool("running pytest -q"),
        ended(False, "2 failed"),
        tool("editing a"),
    ]
    assert shown(live(executing(*did))) == [
        "",
        "Add rate limiting with token bucket algorithm                     plan · r7f3a2c",
        "▸ Execute: task 2/3 Rate limit middleware (implementing)                 11m 00s",
        "",
        "██████░░░░░░░░░░░░░░  33%  1/3 tasks",
        "  ✓ 1 Token bucket implementation                                 $0.70 · 2m 30s",
        "  ▸ 2 Rate limit middleware                                implementing · 8m 10s",
        "  ○ 3 Configuration and tests",
        "",
        "implementer  claude opus                                       task 2/3 · 8m 00s",
        "  ✓ reading src/x.py",
        "  ✗ running pytest -q: 2 failed",
        "  ▸ editing a",
        "",
        "! implementer: no event for 7m 10s; it may be stuck",
        "Execute task 2/3 · $1.15 · $18.85 left · 16m 30s",
        "p pause  t tell  d details  b background",
    ]


@pytest.mark.req("S1-11")
def test_results_find_their_calls_whatever_the_order() -> None:
    found = live(executing(tool("one", "a"), tool("two", "b"), ended(False, "", "b"), ended(True, "", "a")))
    assert [(action.text, action.done) for action in found.actions["execute/t2/implement"]] == [
        ("one", "ok"),
        ("two", "failed"),
    ]


@pytest.mark.req("S1-10")
def test_an_agent_is_shown_by_its_last_eight_actions() -> None:
    found = live(executing(*(tool(f"step {n}", str(n)) for n in range(20))))
    lines = [line for line in shown(found) if line.startswith("  ▸ step")]
    assert lines == [f"  ▸ step {n}" for n in range(12, 20)]


def test_many_agents_are_a_row_each() -> None:
    many = [
        event
        for n in range(16)
        for event in (started(f"execute/t2/{n}"), tool(f"working on {n}", key=f"execute/t2/{n}"))
    ]
    lines = shown(live([*s.planning(), *s.approval(), *s.first_task(), *many]), height=40)
    assert [line.split("  ")[1] for line in lines if "working on" in line] == [f"working on {n}" for n in range(16)]


def test_agents_that_do_not_fit_are_counted() -> None:
    many = [started(f"execute/t2/{n}") for n in range(16)]
    lines = shown(live([*s.planning(), *s.approval(), *s.first_task(), *many]), height=16)
    assert len(lines) <= 16
    assert any("more agents at work" in line for line in lines)
    assert "p pause" in lines[-1]


@pytest.mark.req("S1-14")
def test_a_quiet_agent_is_a_warning_until_it_moves() -> None:
    records = s.recorded(iter(executing(tool("running make"))))
    last = records[-1].at
    quiet = shown(live_of(records), now=last + 95)
    assert "! implementer: no event for 1m 35s; it may be stuck" in quiet
    assert not any("may be stuck" in line for line in shown(live_of(records), now=last + 60))


def test_a_quota_wait_counts_down() -> None:
    wait = e.WaitStarted("execute/t2/implement", "claude", NOW + 65, "429")
    lines = shown(live(executing(wait)))
    assert any(line.startswith("! waiting for claude, 1m 05s to go") for line in lines)


@pytest.mark.req("S1-16")
@pytest.mark.parametrize(
    ("usd", "warning"),
    [
        (3.0, ""),
        (5.5, "! $6.65 spent, more than your warning limit of $5.00"),
        (18.5, "! $19.65 of $20.00 spent: the run will stop"),
    ],
)
def test_the_budget_is_a_warning_before_it_is_an_end(usd: float, warning: str) -> None:
    found = live(executing(e.Activity("execute/t2/implement", "implementer", "usage", "", cost_usd=usd)))
    lines = [line for line in shown(found) if line.startswith("! $")]
    assert [line[: len(warning)] for line in lines] == ([warning] if warning else [])


@pytest.mark.req("S1-89")
@pytest.mark.parametrize(("done", "line"), [(0, "0%"), (3, "42%"), (6, "85%"), (7, "100%")])
def test_percent_is_tasks_completed_rounded_down_and_the_bar_has_twenty_cells(done: int, line: str) -> None:
    tasks = e.TasksListed("p", [{"id": f"t{n}", "title": "x"} for n in range(7)])
    found = live([tasks, *(e.TaskChanged(f"t{n}", "complete") for n in range(done))])
    text = plain([bar(found.view, Look())]).strip()
    assert text.split()[1:] == [line, f"{done}/7", "tasks"]
    assert len(text.split()[0]) == 20
    assert text.count("█") == done * 20 // 7


def test_skipped_tasks_fill_no_bar() -> None:
    """The figure is the one of the line that says how the run ended."""
    tasks = e.TasksListed("p", [{"id": f"t{n}", "title": "x"} for n in range(3)])
    found = live([tasks, e.TaskChanged("t0", "skipped"), e.TaskChanged("t1", "escalated")])
    assert plain([bar(found.view, Look())]).split()[1:] == ["0%", "0/3", "tasks"]


def test_a_long_plan_shows_the_tasks_around_the_one_at_work() -> None:
    tasks = e.TasksListed("p", [{"id": f"t{n}", "title": f"Task {n}"} for n in range(60)])
    over = [e.TaskChanged(f"t{n}", "complete") for n in range(30)]
    lines = shown(live([tasks, *over, e.TaskChanged("t30", "implementing")]), height=20)
    assert len(lines) <= 20
    assert any("✓ 29 more tasks" in line for line in lines)
    assert any("▸ 31 Task 30" in line for line in lines)
    assert any(line.startswith("  ○ ") and line.endswith("more tasks") for line in lines)


@pytest.mark.parametrize(
    ("mood", "words"),
    [
        (Mood.RUNNING, "p pause"),
        (Mood.PAUSING, "p: continue"),
        (Mood.LEAVING, "b again: now"),
        (Mood.STOPPING, "stopping"),
    ],
)
def test_what_was_asked_for_is_said_until_it_happens(mood: Mood, words: str) -> None:
    found = live(executing())
    found.mood = mood
    assert words in shown(found)[-1]


def test_the_last_picture_has_the_tasks_and_no_keys() -> None:
    found = live(s.session())
    found.ended = True
    lines = shown(found)
    assert "████████████████████  100%  3/3 tasks" in lines
    assert [line[:5] for line in lines if line.startswith("  ")] == ["  ✓ 1", "  ✓ 2", "  ✓ 3"]
    assert not any("p pause" in line for line in lines)


def test_details_say_branch_cost_by_role_and_files() -> None:
    found = live(executing())
    found.details = True
    text = "\n".join(shown(found, width=120))
    for words in ("branch   windlass/rate-limiting", "scout $0.05 · planner $0.20", "7 dispatches", s.PLAN):
        assert words in text


@given(s.any_log(), st.sampled_from([40, 60, 80, 120]), st.integers(8, 40), st.booleans())
def test_whatever_happens_it_fits_and_hides_nothing(
    records: list[Recorded], width: int, height: int, unicode: bool
) -> None:
    found = live_of(records)
    look = Look(width, height, unicode)
    for details in (False, True):
        found.details = details
        lines = panel(found, look, NOW)
        assert len(lines) <= height
        for line in [*lines, *panel_above_dialog(found, look, NOW, 6)]:
            text = "".join(span.text for span in line)
            assert cells(line) <= width
            assert not HIDDEN.search(text)
            assert "\n" not in text
            assert unicode or text.isascii()


@given(st.text(max_size=60), st.text(max_size=30), st.integers(10, 80))
def test_a_row_is_never_wider_than_the_screen(left: str, right: str, width: int) -> None:
    look = Look(width)
    assert cells(row((look.span(left),), (look.span(right),) if right.strip() else (), look)) <= width
    assert cells(cut((look.span(left),), width)) <= width


def test_wide_letters_count_as_two_cells() -> None:
    assert plain([cut((Span("日本語の長い題名"),), 9)]) == "日本語の…\n"


def test_the_line_of_stages_shortens_its_restarts_on_a_narrow_screen() -> None:
    stages = ("EXPLORE", "PLAN", "IMPLEMENT", "TEST", "FINAL")
    schedule: list[e.Json] = [
        {"id": id, "enabled": True, "phases": [{"id": id.lower(), "kind": "produce"}]} for id in stages
    ]
    again = ["implement", "test"]
    restart = e.StageRestarted("IMPLEMENT", "implement", "TEST", "a code error", "windlass", 1, again)
    entered = e.PhaseEntered("implement", "implement+2", "produce", "Implement", "IMPLEMENT")
    found = live([e.ScheduleMade(schedule, 3), restart, entered])
    assert "○ EXPLORE ○ PLAN ▸ IMPLEMENT ↻1 ✗ TEST ○ FINAL" in shown(found, 60)
    assert "○ EXPLORE ○ PLAN ▸ IMPLEMENT (restart 1 of 3) ✗ TEST ○ FINAL" in shown(found, 80)
    assert "o EXPLORE o PLAN > IMPLEMENT ~1 x TEST o FINAL" in shown(found, 60, unicode=False)
