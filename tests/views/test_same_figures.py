"""What a run spent, told in many places: each of them says the same, and it is what the agents reported."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from bench import CONFIG, PLAN, Bench, Said, make_bench, writer
from processes_for_tests import until

LEAN = "".join(
    f'[roles.{role}]\nagent = "none"\n' for role in ("security-reviewer", "performance-reviewer", "architect")
)
#: no whole cents, so that a figure that was rounded twice, or not at all, differs
USUAL = {"input": 91, "output": 13, "cost_usd": 0.0137}
STUCK = {"input": 71, "output": 7, "cost_usd": 0.0831}
AT_TOOL = {"when": {"role": "scout", "attempt": 1}, "usage": STUCK, "usage_steps": [0.0831], "run": ["sleep 300"]}
SILENT = {"input": 31, "output": 5}
#: not the figure of a warning, which is that of an earlier moment
COST = re.compile(r"(?<!are spent: )\$[\d.]+ of \$[\d.]+(?: \([^)]*\))?(?:, \$[\d.]+ left)?")


def script(bench: Bench, *first: dict[str, Any]) -> list[dict[str, Any]]:
    """The spec reviewer of the first task does not say what it cost."""
    return [
        *first,
        {"when": {"role": "scout"}, "say": "A calculator.", "usage": USUAL},
        {"when": {"role": "planner"}, "files": {"{plan_path}": PLAN}, "say": "done", "usage": USUAL},
        {**writer(bench, {"role": "implementer", "task": "t1"}, "sub", "def sub(): ...\n"), "usage": USUAL},
        {**writer(bench, {"role": "implementer", "task": "t2"}, "mul", "def mul(): ...\n"), "usage": USUAL},
        {"when": {"role": "spec-reviewer", "task": "t1"}, "json": {"status": "pass", "findings": []}, "usage": SILENT},
        {"when": {}, "json": {"status": "pass", "findings": []}, "usage": USUAL},
    ]


class Truth:
    """What the agents of a bench were told to report, added up over the dispatches that they wrote down."""

    def __init__(self, bench: Bench, stuck: int = 0) -> None:
        dispatches = bench.dispatches()
        silent = sum(one["role"] == "spec-reviewer" and one["task"] == "t1" for one in dispatches)
        usual = len(dispatches) - silent - stuck
        counts = ((usual, USUAL), (stuck, STUCK), (silent, SILENT))
        self.known = sum(count * usage.get("cost_usd", 0.0) for count, usage in counts)
        self.assumed, self.unknown = 0.5 * silent, silent
        self.input = sum(count * int(usage["input"]) for count, usage in counts)
        self.output = sum(count * int(usage["output"]) for count, usage in counts)
        self.dispatches = len(dispatches)

    def line(self, limit: float) -> str:
        spent = self.known + self.assumed
        caveat = f" ($0.50 of it assumed for {self.unknown} dispatch of unknown cost)" if self.unknown else ""
        return f"${spent:.2f} of ${limit:.2f}{caveat}, ${max(limit - spent, 0.0):.2f} left"

    def assert_is(self, told: dict[str, Any], limit: float) -> None:
        cost = told["cost"]
        assert [cost[name] for name in ("input", "output", "unknown", "dispatches")] == [
            self.input,
            self.output,
            self.unknown,
            self.dispatches,
        ]
        spent = self.known + self.assumed
        expected = (self.known, self.assumed, self.known, self.assumed, spent, max(limit - spent, 0.0))
        names = ("known_usd", "assumed_usd", "spent_usd", "left_usd")
        known, assumed, all_of_it, left = (told[name] for name in names)
        assert (cost["usd"], cost["assumed_usd"], known, assumed, all_of_it, left) == pytest.approx(expected)
        for parts in (told["cost_by_role"], told["cost_by_phase"]):
            assert sum(part["usd"] for part in parts.values()) == pytest.approx(self.known)
            assert sum(part["input"] + part["output"] for part in parts.values()) == self.input + self.output
            assert sum(part["assumed_usd"] for part in parts.values()) == pytest.approx(self.assumed)


def over_mcp(bench: Bench) -> list[str]:
    """The JSON of `status` and `list`, and the text of `status` and `show`."""

    async def ask() -> list[str]:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "windlass", "mcp"], env=bench.environ(), cwd=bench.root
        )
        async with Client(server) as client:
            calls = (("status", {"as_json": True}), ("list", {"as_json": True}), ("status", {}), ("show", {}))
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
        return ["".join(part.text for part in one.content if isinstance(part, TextContent)) for one in results]

    return asyncio.run(asyncio.wait_for(ask(), 120))


def assert_same(bench: Bench, limit: float, truth: Truth, said: Said, *files: str) -> None:
    status, runs, status_text, show_text = over_mcp(bench)
    [listed] = bench.windlass("runs", "--json").json
    for told in (
        bench.windlass("status", "--json").json,
        bench.windlass("show", "--json").json,
        listed,
        json.loads(status),
        json.loads(runs)[0],
    ):
        truth.assert_is(told, limit)
    texts = [bench.windlass("status").out, bench.windlass("show").out, status_text, show_text]
    texts += [(bench.run_folder / name).read_text() for name in files]
    line = truth.line(limit)
    for text in (*texts, said.out + said.err):
        told = set(COST.findall(" ".join(text.split())))
        assert told
        # A stop says what is spent, and not what is left.
        assert told <= {line, line.partition(", $")[0]}, text
    for text in texts[:1]:
        assert f"{truth.input + truth.output} tokens, {truth.dispatches} dispatches" in " ".join(text.split())


def kill_at_tool(bench: Bench, *args: str) -> None:
    """The scout's tool is at work: all that the dispatch has spent so far is in its stream."""

    def is_stuck() -> bool:
        return any("sleep 300" in path.read_text() for path in bench.home.glob("runs/*/attempts/**/stdout"))

    with bench.driver(*args) as driver:
        until(lambda: is_stuck() or driver.poll() is not None, 60.0)
        driver.kill()
        driver.wait()


def undisturbed(bench: Bench) -> tuple[Said, int]:
    return bench.run("--yes", "--budget", "0.59"), 0


def interrupted(bench: Bench) -> tuple[Said, int]:
    kill_at_tool(bench, "run", "Add sub and mul", "--script", str(bench.script), "--yes", "--budget", "0.65")
    return bench.windlass("resume"), 1


@pytest.mark.long
@pytest.mark.parametrize(("begin", "limit"), [(undisturbed, 0.59), (interrupted, 0.65)], ids=["whole", "killed"])
def test_every_interface_says_what_the_agents_reported(
    tmp_path: Path, begin: Callable[[Bench], tuple[Said, int]], limit: float
) -> None:
    bench = Bench(tmp_path)
    first = [AT_TOOL] if begin is interrupted else []
    make_bench(tmp_path, script=script(bench, *first), config=CONFIG + LEAN)
    said, lost = begin(bench)
    assert said.code == 12, str(said)
    assert_same(bench, limit, Truth(bench, lost), said)
    state = json.loads((bench.run_folder / ".superteam-workflow.json").read_text())
    assert state["totalCostUsd"] == pytest.approx(Truth(bench, lost).known)
    assert state["assumedCostUsd"] == pytest.approx(Truth(bench, lost).assumed)
    said = bench.windlass("resume", "--budget", "20")
    assert said.code == 0, str(said)
    assert_same(bench, 20.0, Truth(bench, lost), said, "report.md")


@pytest.mark.long
def test_a_cost_that_is_found_later_takes_the_place_of_what_was_assumed(tmp_path: Path) -> None:
    """An older version recorded the end of an attempt without its cost; the attempt's own files tell it."""
    bench = Bench(tmp_path)
    make_bench(tmp_path, script=script(bench, AT_TOOL), config=CONFIG + LEAN)
    kill_at_tool(bench, "run", "Add sub and mul", "--script", str(bench.script))
    assert bench.windlass("resume").code == 10
    _forget_cost(bench)
    before = bench.windlass("status", "--json").json
    assert (before["assumed_usd"], before["assumed_dispatches"]) == (0.5, 1)
    assert bench.windlass("resume").code == 10
    truth = Truth(bench, stuck=1)
    for _ in range(2):
        status = bench.windlass("status", "--json").json
        truth.assert_is(status, 20.0)
        assert status["cost_by_role"]["scout"]["unknown"] == 0
        [told] = [line for line in bench.windlass("log").out.splitlines() if "not $0.50 assumed" in line]
        assert "scout cost $0.08, not $0.50 assumed" in told
        # The second time there is nothing left to find out.
        assert bench.windlass("resume").code == 10
    assert_same(bench, 20.0, truth, bench.windlass("status"))


def _forget_cost(bench: Bench) -> None:
    """As it was recorded before attempts said what was assumed for them."""
    with closing(sqlite3.connect(bench.home / "windlass.db")) as database, database:
        database.execute("UPDATE attempt SET usage = 'null', cost_usd = NULL WHERE state = 'interrupted'")
        [(seq, data)] = database.execute(
            "SELECT seq, data FROM event WHERE type = 'dispatch.finished' AND json_extract(data, '$.error') != ''"
        ).fetchall()
        event = {**json.loads(data), "cost_usd": None, "input": 0, "output": 0}
        del event["assumed_usd"]
        database.execute("UPDATE event SET data = ? WHERE seq = ?", (json.dumps(event), seq))
