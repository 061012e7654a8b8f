from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

import session_events as s
from windlass import events as e
from windlass.cost import Cost
from windlass.events import Event, Recorded
from windlass.model import RunState
from windlass.text import HIDDEN, clean, clean_block, elapsed, to_ascii
from windlass.views.build import fold
from windlass.views.log import log_line
from windlass.views.show import render_show
from windlass.views.state import View
from windlass.views.status import RunSummary, render_runs, render_status, status_json

NOW = s.START + 3600


def folded(*events: Event) -> View:
    return fold(s.recorded(iter(events)))


def up_to_approval() -> View:
    return fold(s.recorded(iter([*s.planning(), *list(s.approval())[:2]])))


@pytest.mark.req("S0-03")
def test_status_tells_phase_task_progress_and_cost() -> None:
    records = s.recorded(iter([*s.planning(), *s.approval(), *s.first_task(), *s.begin(2)]))
    text = render_status(fold(records), records[-1].at + 65, driver_alive=True)
    assert text == (
        "Run:       r7f3a2c (plan)\n"
        "Request:   Add rate limiting with token bucket algorithm\n"
        "State:     running, since 2026-02-07 13:57 UTC (4m 55s)\n"
        "Phase:     Execute: task 2/3 Rate limit middleware (reviewing), since 13:57 UTC\n"
        "           (4m 35s)\n"
        "Tasks:     1/3 done (1 complete, 1 reviewing, 1 pending)\n"
        "Cost:      $1.65 of $20.00, $18.35 left, 9600 tokens, 8 dispatches\n"
        "By phase:  plan-draft $0.25, plan-review $0.20, execute $1.20\n"
        "By role:   scout $0.05, planner $0.20, architect $0.10, spec-reviewer $0.20,\n"
        "           implementer $1.00, quality-reviewer $0.10\n"
        "Elapsed:   10m 05s\n"
        "Branch:    windlass/rate-limiting-r7f3a2c at 222222222222, not published yet\n"
        "Waits for: the driver's next step\n"
        "Next:\n"
        "  windlass log r7f3a2c --follow\n"
    )


@pytest.mark.parametrize("alive", [True, False, None])
def test_a_pending_question_is_shown_with_its_options_and_the_command_that_answers_it(alive: bool | None) -> None:
    text = render_status(up_to_approval(), NOW, driver_alive=alive)
    assert "Approve this plan? [approve/revise, default approve]" in text
    assert text.endswith("Next:\n  windlass answer r7f3a2c 'plan-approval!approve' VALUE\n")


def endings() -> Iterator[tuple[str, tuple[Event, ...], str]]:
    yield "not begun", (), "windlass resume r7f3a2c"
    yield "paused", (e.RunEnded("paused", "checkpoint"),), "windlass resume r7f3a2c"
    yield "stopped", (e.RunEnded("stopped", "no key", "log in"),), "windlass resume r7f3a2c"
    yield "blocked", (e.RunEnded("blocked", "gate"),), "windlass resume r7f3a2c"
    yield "quota", (e.WaitStarted("a/b", "claude", NOW + 600, "429"),), "windlass resume r7f3a2c"
    yield "dispatch", (e.DispatchStarted("a/b", 1, "scout", "claude"),), "windlass resume r7f3a2c"
    yield "asked", (e.QuestionAsked("p!q", "q", "Go?", []), e.RunEnded("waiting")), "answer r7f3a2c 'p!q' VALUE"
    answered = (e.QuestionAsked("p!q", "q", "Go?", []), e.RunEnded("waiting"), e.QuestionAnswered("p!q", "q", "y", "x"))
    yield "answered", answered, "windlass resume r7f3a2c"


@pytest.mark.parametrize(("events", "command"), [case[1:] for case in endings()], ids=[case[0] for case in endings()])
def test_every_state_that_is_not_final_says_since_when_what_for_and_the_next_command_without_a_driver(
    events: tuple[Event, ...], command: str
) -> None:
    view = folded(e.RunStarted("x", "plan", s.BASE, "b", None, None), *events)
    text = render_status(view, NOW, driver_alive=False)
    assert ", since 2026-02-07 13:5" in text
    assert "Waits for: " in text
    assert text.rstrip().endswith(command)


def test_a_stop_shows_its_reason_and_the_way_out() -> None:
    text = render_status(folded(e.RunEnded("stopped", "not logged in", "run claude login")), NOW, driver_alive=False)
    assert "State:     stopped: not logged in, since" in text
    assert "Hint:      run claude login" in text


def test_a_quota_wait_says_whose_until_when_and_how_long_still() -> None:
    view = folded(e.WaitStarted("a/b", "claude", NOW + 720, "429 Too Many Requests"))
    text = " ".join(render_status(view, NOW, driver_alive=True).split())
    assert "Waits for: the quota of claude until 15:04 UTC (in 12m 00s): 429 Too Many Requests" in text


def test_a_running_state_without_a_driver_is_not_called_running_work() -> None:
    view = folded(e.DispatchStarted("a/b", 1, "scout", "claude"))
    assert "running, but no driver is alive" in render_status(view, NOW, driver_alive=False)
    assert "At work:" in render_status(view, NOW, driver_alive=True)
    assert "At work:" not in render_status(view, NOW, driver_alive=False)


def test_a_finished_run_says_how_to_see_the_code_and_how_to_take_it() -> None:
    text = render_status(fold(s.recorded(s.session())), NOW)
    assert "  git diff 111111111111..windlass/rate-limiting-r7f3a2c\n" in text
    assert text.endswith("  windlass land r7f3a2c\n")


def test_unchecked_work_is_said_in_the_status() -> None:
    assert "3/3 done (3 complete), 1 unchecked" in render_status(fold(s.recorded(s.session())), NOW)


def test_sixty_columns_hold_every_line_but_commands() -> None:
    for count in range(1, len(list(s.session())), 7):
        view = fold(s.recorded(iter(list(s.session())[:count])))
        for text in (render_status(view, NOW, width=60), render_show(view, NOW, width=60)):
            assert [line for line in text.splitlines() if len(line) > 60 and not line.startswith("  ")] == []


def test_ascii_status_has_no_other_character() -> None:
    view = folded(e.RunStarted("Grüße → ✓ 漢字", "plan", s.BASE, "b", None, None))
    assert render_status(view, NOW, unicode=False).isascii()
    assert render_show(fold(s.recorded(s.session())), NOW, unicode=False).isascii()


def test_show_lists_tasks_reviews_findings_costs_and_where_the_code_is() -> None:
    text = render_show(fold(s.recorded(s.session())), NOW)
    for part in (
        "  ✓ 2. Rate limit middleware (complete, $0.80 + $0.50 assumed)\n       spec-reviewer ✓ quality-reviewer ✓\n",
        "landed as 444444444444, checks: unchecked",
        "Plan review: architect ✓, spec-reviewer ✓",
        "Noted, not fixed\n  - low: src/bucket.py a name could be clearer\n",
        "  implementer: $1.50 + $0.50 assumed in 4\n",
        "  phase plan-draft: $0.25 in 2\n",
        "See the changes:\n  git diff 111111111111..windlass/rate-limiting-r7f3a2c\n",
        "Take them:\n  windlass land r7f3a2c\n",
    ):
        assert part in text


def test_runs_are_a_table_that_fits_the_width() -> None:
    view = fold(s.recorded(s.session()))
    assert render_runs([RunSummary.of(view)], width=80) == (
        "RUN      STATE     TASKS  COST                   STARTED (UTC)     REQUEST\n"
        "r7f3a2c  finished  3/3    $2.75 + $0.50 assumed  2026-02-07 13:52  Add rate l…\n"
    )
    assert render_runs([]) == "There are no runs here.\n"


def test_status_as_json_holds_what_the_text_holds() -> None:
    data = status_json(up_to_approval(), NOW, driver_alive=False)
    assert json.loads(json.dumps(data)) == data
    assert (data["state"], data["next"]) == ("waiting", "windlass answer r7f3a2c 'plan-approval!approve' VALUE")
    assert data["questions"] == [
        {
            "key": "plan-approval!approve",
            "id": "approve",
            "text": "Approve this plan?",
            "options": [
                {"key": "approve", "label": "Approve", "about": ""},
                {"key": "revise", "label": "Revise", "about": ""},
            ],
            "default": "approve",
            "detail": "",
            "task": "",
            "since": s.START + 250,
            "title": "",
        }
    ]


def test_a_log_line_has_the_time_in_utc_the_event_and_its_facts() -> None:
    event = e.DispatchFinished(
        "execute/t1/implement", 2, "implementer", "claude", "timed_out", "30m", 0.5, seconds=1800
    )
    assert log_line(Recorded(1, s.RUN, s.START, event)) == (
        "2026-02-07T13:52:00Z dispatch.finished execute/t1/implement@2 implementer timed_out: 30m (30m 00s, $0.50)"
    )


def test_every_event_has_a_log_line_of_one_line() -> None:
    for recorded in s.recorded(s.session()):
        line = log_line(recorded)
        assert recorded.event.type in line
        assert "\n" not in line


def test_status_starts_without_heavy_packages() -> None:
    code = "import sys, windlass.views.status; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"pydantic", "rich", "yaml", "asyncio", "click", "prompt_toolkit", "tree_sitter"}.isdisjoint(loaded)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(), "$0.00"),
        (Cost(1.234), "$1.23"),
        (Cost(0, 1.0, 2), "$1.00 assumed"),
        (Cost(1.2, 1.0, 2), "$1.20 + $1.00 assumed"),
        (Cost(0.0042), "$0.0042"),
    ],
)
def test_money_never_hides_what_is_assumed(cost: Cost, text: str) -> None:
    assert cost.text == text


@pytest.mark.parametrize(
    ("cost", "line"),
    [
        (Cost(0.16), "$0.16"),
        (Cost(0.16, limit=20.0), "$0.16 of $20.00, $19.84 left"),
        (
            Cost(0.16, 0.5, 1, 20.0),
            "$0.66 of $20.00 ($0.50 of it assumed for 1 dispatch of unknown cost), $19.34 left",
        ),
        (Cost(0, 2.0, 4, 2.0), "$2.00 of $2.00 ($2.00 of it assumed for 4 dispatches of unknown cost), $0.00 left"),
        (Cost(1.3, 0.0, 0, 1.0), "$1.30 of $1.00, $0.00 left"),
    ],
)
def test_one_figure_says_what_is_known_assumed_and_left(cost: Cost, line: str) -> None:
    assert cost.line == line


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (45.9, "45s"), (723, "12m 03s"), (7500, "2h 05m"), (273_600, "3d 04h"), (float("inf"), "?")],
)
def test_elapsed_times_are_readable(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\nnext", "next"),
        ("a\u202egpj.exe", "agpj.exe"),
        ("ok\rbad", "ok bad"),
        ("\x9b2Jgone", "gone"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("a\ud800b", "ab"),
        ("abcdef", "abcd…"),
    ],
)
def test_clean_text_is_one_line_without_terminal_tricks(raw: str, shown: str) -> None:
    assert clean(raw, 5 if raw == "abcdef" else 300) == shown


@given(s.texts)
def test_nothing_hidden_survives_cleaning(text: str) -> None:
    assert not HIDDEN.search(clean_block(text))
    assert clean(clean(text)) == clean(text)
    assert to_ascii(text).isascii()


@given(s.any_log())
def test_any_log_can_be_shown_and_hides_nothing(records: list[Recorded]) -> None:
    view = fold(records, s.RUN)
    texts = [
        render_status(view, NOW, width=60, driver_alive=False),
        render_show(view, NOW, unicode=False),
        render_runs([RunSummary.of(view)]),
        *(log_line(recorded) for recorded in records),
    ]
    json.dumps(status_json(view))
    assert [text for text in texts if HIDDEN.search(text)] == []


def test_every_run_state_has_a_next_command() -> None:
    for state in RunState:
        assert "windlass " in render_status(folded(e.RunEnded(state.value)), NOW).split("Next:")[1]


def test_programs_get_the_cost_of_the_run_of_each_phase_task_and_role_and_the_date_of_the_prices() -> None:
    reckoned = e.DispatchFinished("plan-draft/b", 1, "planner", "codex", cost_usd=0.5, prices="2026-02-01")
    view = fold(s.recorded(iter([*s.planning(), *s.approval(), *s.first_task(), reckoned])))
    told: dict[str, Any] = status_json(view, NOW)
    assert (told["cost"]["usd"], told["cost"]["prices"]) == (pytest.approx(1.65), "2026-02-01")
    assert told["cost_by_phase"]["plan-draft"]["usd"] == pytest.approx(0.75)
    assert told["cost_by_phase"]["execute"]["prices"] == ""
    assert told["cost_by_role"]["planner"]["usd"] == pytest.approx(0.7)
    assert told["tasks"][0]["cost"]["dispatches"] > 0
    assert "at list prices of 2026-02-01" in render_status(view, NOW, width=200)
    assert "at list prices of 2026-02-01" in render_show(view, NOW, width=200)
