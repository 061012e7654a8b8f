from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import parsing
from benchmarks.clock import best_in_turns
from benchmarks.figures import Figure, as_json, table
from benchmarks.sample import make_sample

WITHIN = Figure("steps", 1.5, "x", 2.0, detail="279 µs")
OVER = Figure("a task", 120.0, "ms", 50.0)
UNDER = Figure("faster", 3.0, "x", 4.0, at_least=True)


def test_a_figure_is_judged_by_its_limit() -> None:
    assert [figure.ok for figure in (WITHIN, OVER, UNDER)] == [True, False, False]


def test_the_table_says_what_is_over_and_what_is_under() -> None:
    assert table([WITHIN, OVER, UNDER]).splitlines() == [
        "figure  measured       limit",
        "steps     1.50 x   <= 2.00 x  ok     279 µs",
        "a task    120 ms  <= 50.0 ms  over",
        "faster    3.00 x   >= 4.00 x  under",
    ]


def test_programs_get_every_figure_with_its_verdict() -> None:
    assert [row["ok"] for row in json.loads(as_json([WITHIN, OVER]))] == [True, False]


def test_works_take_turns_and_the_best_of_each_counts() -> None:
    turns: list[str] = []
    times = {"a": iter([3.0, 1.0]), "b": iter([2.0, 5.0])}

    def work(name: str) -> float:
        turns.append(name)
        return next(times[name])

    best = best_in_turns({"a": lambda: work("a"), "b": lambda: work("b")}, 2)
    assert turns == ["a", "b", "a", "b"]
    assert best == pytest.approx({"a": 1.0, "b": 2.0})


@pytest.mark.parametrize("name", parsing.CLIS)
def test_what_is_parsed_is_whole_lines_of_the_real_cli_and_as_many_as_are_counted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "EVENTS", 300)
    stream = parsing.recorded(name)
    assert len([json.loads(line) for line in stream.splitlines()]) == 300
    assert parsing.seconds(name, stream) > 0


def test_every_figure_of_parsing_is_a_rate_with_the_demanded_one_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "EVENTS", 300)
    monkeypatch.setattr(parsing, "slowness", lambda: 1.0)
    found = list(parsing.figures(1))
    assert [(figure.name, figure.limit, figure.unit, figure.at_least) for figure in found] == [
        (f"{name}'s events read", 20.0, "k/s", True) for name in parsing.CLIS
    ]


def test_a_planner_that_writes_its_file_and_prints_nothing_has_answered(tmp_path: Path) -> None:
    """The run that the benchmarks time: its agent is a shell script that never prints a word."""
    sample = make_sample(tmp_path / "sample", tasks=2, pause=0.0)
    sample.run("run", "Write files", "--flow", "many-tasks")
    assert len(sample.event_times("task.landed")) == 2
