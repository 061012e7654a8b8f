"""Money over whole runs: the dispatch that would pass the limit does not start, the one that does is stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runs import CONFIG, Bench, default_script, make_bench, rule

SMALL = CONFIG + '[roles.security-reviewer]\nagent = "none"\n[roles.performance-reviewer]\nagent = "none"\n'
DEAR = {"input": 100, "output": 20, "cost_usd": 0.3}


def _spent(bench: Bench) -> float:
    return float(bench.rows("SELECT coalesce(sum(cost_usd), 0) AS usd FROM attempt")[0]["usd"])


@pytest.mark.req("S0-42", "S0-88", "S0-90")
def test_a_run_stops_before_the_dispatch_that_would_pass_its_limit(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL, usage=DEAR)
    said = bench.run("--yes", "--budget", "1")
    assert said.code == 12, str(said)
    assert _spent(bench) == pytest.approx(0.9)
    assert len(bench.dispatches()) == 3
    assert "--budget" in said.err
    state = json.loads((bench.run_folder / ".superteam-workflow.json").read_text())
    assert state["totalCostUsd"] == pytest.approx(0.9)
    assert state["error"]


@pytest.mark.req("S0-87")
def test_with_a_higher_limit_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL, usage=DEAR)
    assert bench.run("--yes", "--budget", "1").code == 12
    first = [line["key"] for line in bench.dispatches()]
    assert bench.windlass("resume").code == 12
    assert [line["key"] for line in bench.dispatches()] == first
    said = bench.windlass("resume", "--budget", "20")
    assert said.code == 0, str(said)
    keys = [line["key"] for line in bench.dispatches()]
    assert keys[: len(first)] == first
    assert len(keys) == len(set(keys))


@pytest.mark.req("S0-87", "S0-91")
def test_a_limit_raised_in_the_config_counts_for_a_run_that_stopped_on_it(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL + "[budget]\nstop_usd = 1.0\n", usage=DEAR)
    assert bench.run("--yes").code == 12
    config = bench.root / ".windlass" / "config.toml"
    config.write_text(config.read_text().replace("stop_usd = 1.0", "stop_usd = 20.0"))
    said = bench.windlass()
    assert said.code == 0, str(said)


@pytest.mark.req("S0-89")
def test_a_dispatch_that_streams_past_its_reservation_is_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    greedy = {"when": {"role": "scout"}, "usage": DEAR, "usage_steps": [0.2, 0.9, 1.8], "hang": True, "say": "…"}
    make_bench(tmp_path, script=[greedy, *default_script(bench)], config=SMALL)
    said = bench.run("--yes", "--budget", "1")
    assert said.code == 12, str(said)
    scout = bench.rows("SELECT state, error, cost_usd FROM attempt")
    assert [(row["state"], row["error"]) for row in scout] == [("failed", "over_budget")]
    # What it had spent when it was stopped counts.
    assert scout[0]["cost_usd"] == pytest.approx(1.8)
    assert not bench.leftovers()


@pytest.mark.req("S0-92")
def test_past_the_warning_it_warns_once_and_goes_on(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL + "[budget]\nwarn_usd = 0.5\n", usage=DEAR)
    said = bench.run("--yes")
    assert said.code == 0, str(said)
    warned = [json.loads(row["data"]) for row in bench.rows("SELECT data FROM event WHERE type = 'warned'")]
    assert [w["code"] for w in warned if w["code"] == "budget"] == ["budget"]


@pytest.mark.req("S0-03")
def test_a_cost_that_no_agent_told_shows_as_unknown(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    silent = {"when": {"role": "scout"}, "say": "A calculator."}
    make_bench(tmp_path, script=[silent, *default_script(bench)], config=SMALL)
    assert bench.run().code == 10
    assert bench.rows("SELECT cost_usd FROM attempt WHERE role = 'scout'") == [{"cost_usd": None}]
    status = bench.windlass("status")
    assert "unknown" in status.out
    assert bench.windlass("status", "--json").json["cost"]["unknown"] == 1


def test_silent_dispatches_count_against_the_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    silent = [{**one, "usage": {"input": 5, "output": 5}} for one in default_script(bench)]
    make_bench(tmp_path, script=[*silent, rule({})], config=SMALL)
    said = bench.run("--yes", "--budget", "1")
    assert said.code == 12, str(said)
    assert len(bench.dispatches()) <= 3
