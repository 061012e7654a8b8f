"""Money over whole runs: what has no money left does not start, what spends more than the run has is stopped."""

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
def test_a_run_that_has_reached_its_limit_starts_no_dispatch(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL, usage=DEAR)
    said = bench.run("--yes", "--budget", "0.9")
    assert said.code == 12, str(said)
    assert _spent(bench) == pytest.approx(0.9)
    assert len(bench.dispatches()) == 3
    assert "--budget" in said.err
    state = json.loads((bench.run_folder / ".superteam-workflow.json").read_text())
    assert state["totalCostUsd"] == pytest.approx(0.9)
    assert state["error"]


def test_a_dispatch_far_dearer_than_those_before_it_is_not_stopped_while_the_run_has_money(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    dear = {
        **next(rule for rule in default_script(bench) if rule["when"].get("role") == "implementer"),
        "when": {"role": "implementer", "task": "Multiply"},
        "usage": {"input": 9, "output": 9, "cost_usd": 6.0},
        "usage_steps": [0.5, 2.0, 6.0],
    }
    mul = {"files": {"src/mul.py": "def mul(a, b):\n    return a * b\n", "tests/test_mul.py": "def test_mul(): ...\n"}}
    cheap = [{**one, "usage": {"input": 9, "output": 9, "cost_usd": 0.01}} for one in default_script(bench)]
    make_bench(tmp_path, script=[{**dear, **mul, "run": [], "commit": "Add mul"}, *cheap], config=SMALL)
    said = bench.run("--yes", "--budget", "20")
    assert said.code == 0, str(said)
    assert bench.rows("SELECT count(*) AS n FROM attempt WHERE error = 'over_budget'") == [{"n": 0}]
    assert max(row["cost_usd"] for row in bench.rows("SELECT cost_usd FROM attempt WHERE role != ''")) == 6.0


def test_a_crash_at_the_first_attempt_leaves_the_second_all_the_run_has(tmp_path: Path) -> None:
    """What a stump cost is no measure for the work."""
    bench = Bench(tmp_path)
    stump = {"when": {"role": "scout", "attempt": 1}, "usage_steps": [0.01], "say": "…", "exit": 3}
    whole = {"when": {"role": "scout"}, "usage": DEAR, "usage_steps": [0.1, 0.3], "say": "A calculator."}
    make_bench(tmp_path, script=[stump, whole, *default_script(bench)], config=SMALL + "[retries]\npauses = ['1ms']\n")
    assert bench.run("--budget", "20").code == 10
    attempts = bench.rows("SELECT state, error, cost_usd FROM attempt WHERE role = 'scout' ORDER BY n")
    assert [(row["state"], row["error"]) for row in attempts] == [("failed", "crashed"), ("done", "")]
    assert attempts[1]["cost_usd"] == pytest.approx(0.3)


def test_a_role_s_own_limit_stops_its_dispatch_and_names_itself(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    greedy = {"when": {"role": "scout"}, "usage_steps": [0.2, 0.9], "hang": True, "say": "…"}
    make_bench(tmp_path, script=[greedy, *default_script(bench)], config=SMALL + "[roles.scout]\nusd = 0.5\n")
    said = bench.run("--yes")
    assert said.code == 12, str(said)
    assert "more than the $0.50 that one dispatch of its role may" in said.err
    assert "[roles.scout]" in said.err


@pytest.mark.req("S0-87")
def test_with_a_higher_limit_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL, usage=DEAR)
    assert bench.run("--yes", "--budget", "0.9").code == 12
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
    bench = make_bench(tmp_path, config=SMALL + "[budget]\nstop_usd = 0.9\n", usage=DEAR)
    assert bench.run("--yes").code == 12
    config = bench.root / ".windlass" / "config.toml"
    config.write_text(config.read_text().replace("stop_usd = 0.9", "stop_usd = 20.0"))
    said = bench.windlass()
    assert said.code == 0, str(said)


@pytest.mark.req("S0-89")
def test_a_dispatch_that_spends_more_than_the_run_has_is_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    greedy = {"when": {"role": "scout"}, "usage_steps": [0.2, 0.9, 1.8], "hang": True, "say": "…"}
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
def test_what_is_paid_for_and_complete_stands_though_it_passed_the_limit(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL, usage=DEAR)
    said = bench.run("--yes", "--budget", "1")
    assert said.code == 12, str(said)
    assert _spent(bench) == pytest.approx(1.2)
    assert bench.rows("SELECT count(*) AS n FROM attempt WHERE state = 'done'") == [{"n": 4}]
    assert "$1.20 of $1.00 are spent" in said.err


def test_a_cost_that_no_agent_told_shows_as_unknown(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    silent = {"when": {"role": "scout"}, "say": "A calculator."}
    make_bench(tmp_path, script=[silent, *default_script(bench)], config=SMALL)
    assert bench.run().code == 10
    assert bench.rows("SELECT cost_usd FROM attempt WHERE role = 'scout'") == [{"cost_usd": None}]
    status = bench.windlass("status")
    assert "($0.50 of it assumed for 1 dispatch of unknown cost)" in " ".join(status.out.split())
    told = bench.windlass("status", "--json").json
    assert told["cost"]["unknown"] == told["assumed_dispatches"] == 1
    assert (told["assumed_usd"], told["limit_usd"]) == (0.5, 20.0)
    assert told["left_usd"] == pytest.approx(20.0 - told["known_usd"] - 0.5)


def test_silent_dispatches_count_against_the_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    silent = [{**one, "usage": {"input": 5, "output": 5}} for one in default_script(bench)]
    make_bench(tmp_path, script=[*silent, rule({})], config=SMALL)
    said = bench.run("--yes", "--budget", "1")
    assert said.code == 12, str(said)
    assert len(bench.dispatches()) <= 3
