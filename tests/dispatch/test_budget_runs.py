"""Money over whole runs: what has no money left does not start, what spends more than the run has is stopped."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench import CONFIG, Bench, default_script, make_bench, rule
from processes_for_tests import until

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


@pytest.mark.long
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
    assert "more than the limit of $0.50 for one dispatch of its role" in said.err
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


@pytest.mark.long
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


# -- what is known, what is assumed, and what is given back


def _figure(bench: Bench) -> tuple[float, float, int]:
    told = bench.windlass("status", "--json").json
    return round(told["known_usd"], 6), round(told["assumed_usd"], 6), told["assumed_dispatches"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("stderr", ["429 Too Many Requests", "503 Service Unavailable", "connect ECONNREFUSED"])
def test_an_outage_that_gave_no_token_costs_nothing(tmp_path: Path, stderr: str) -> None:
    bench = Bench(tmp_path)
    out = {"when": {"role": "scout"}, "times": 4, "stderr": stderr, "exit": 1}
    make_bench(tmp_path, script=[out, *default_script(bench)], config=SMALL + '[retries]\npauses = ["1ms"]\n')
    assert bench.run("--budget", "1").code == 10
    rows = bench.rows("SELECT cost_usd FROM attempt WHERE role = 'scout' ORDER BY n")
    assert [row["cost_usd"] for row in rows[:4]] == [0.0] * 4
    assert _figure(bench)[1:] == (0.0, 0)


def test_an_answer_that_broke_off_is_assumed_to_have_cost_something(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    cut = {"when": {"role": "scout"}, "times": 1, "stderr": "stream disconnected before completion", "exit": 1}
    make_bench(tmp_path, script=[cut, *default_script(bench)], config=SMALL + '[retries]\npauses = ["1ms"]\n')
    assert bench.run().code == 10
    assert _figure(bench)[1:] == (0.5, 1)


@pytest.mark.long
def test_what_interrupted_dispatches_spent_is_counted_and_every_interface_says_the_same(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    stuck = [
        {"when": {"role": "scout", "attempt": n}, "usage_steps": [0.04, 0.08], "run": ["sleep 300"]} for n in (1, 2)
    ]
    rest = [{**one, "usage": {"input": 9, "output": 9, "cost_usd": 0.01}} for one in default_script(bench)]
    make_bench(tmp_path, script=[*stuck, *rest], config=SMALL)
    _kill_in_tool(bench, 1, "run", "Add sub and mul", "--script", str(bench.script))
    _kill_in_tool(bench, 2, "resume")
    assert bench.windlass("resume").code == 10
    interrupted = bench.rows("SELECT cost_usd FROM attempt WHERE state = 'interrupted'")
    assert [row["cost_usd"] for row in interrupted] == [0.08, 0.08]
    known = _spent(bench)
    assert _figure(bench) == (round(known, 6), 0.0, 0)
    line = f"${known:.2f} of $20.00, ${20 - known:.2f} left"
    assert line in bench.windlass("status").out
    assert line in bench.windlass("show").out


def test_an_abort_without_a_driver_counts_what_its_agents_spent(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    make_bench(tmp_path, script=[{"when": {}, "usage_steps": [0.08], "run": ["sleep 300"]}], config=SMALL)
    _kill_in_tool(bench, 1, "run", "Add sub and mul", "--script", str(bench.script))
    assert bench.windlass("abort").code == 0
    assert _figure(bench) == (0.08, 0.0, 0)


def _kill_in_tool(bench: Bench, nth: int, *args: str) -> None:
    """Its tool is at work: all that the dispatch spent is in its stream."""
    with bench.driver(*args) as driver:
        until(lambda: _at_tools(bench) >= nth or driver.poll() is not None, 60.0)
        driver.kill()
        driver.wait()


def _at_tools(bench: Bench) -> int:
    streams = bench.home.glob("runs/*/attempts/**/stdout")
    return sum("sleep 300" in path.read_text() for path in streams)


@pytest.mark.long
def test_what_a_dispatch_at_work_has_spent_is_seen_from_outside(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    busy = {"when": {"role": "scout"}, "usage_steps": [0.1] * 8 + [0.7], "hang": True}
    make_bench(tmp_path, script=[busy], config=SMALL)
    with bench.first_driver() as driver:
        until(lambda: _known(bench) > 0 or driver.poll() is not None, 60.0)
        assert driver.poll() is None


def _known(bench: Bench) -> float:
    told = bench.windlass("status", "--json")
    return float(told.json.get("known_usd", 0.0)) if told.code == 0 else 0.0


@pytest.mark.long
def test_what_was_assumed_is_given_back_when_the_files_of_an_older_version_tell_the_cost(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    stuck = {"when": {"role": "scout", "attempt": 1}, "usage_steps": [0.08], "run": ["sleep 300"]}
    make_bench(tmp_path, script=[stuck, *default_script(bench)], config=SMALL)
    _kill_in_tool(bench, 1, "run", "Add sub and mul", "--script", str(bench.script))
    with closing(sqlite3.connect(bench.home / "windlass.db")) as database, database:
        # as it was recorded before: interrupted, without a cost and without an event of its end
        database.execute("UPDATE attempt SET state = 'interrupted', error = 'driver_lost', ended_at = started_at")
        database.execute("UPDATE attempt SET usage = 'null'")
    assert bench.windlass("resume").code == 10
    known, assumed, unknown = _figure(bench)
    assert (assumed, unknown) == (0.0, 0)
    assert bench.rows("SELECT cost_usd FROM attempt WHERE state = 'interrupted'") == [{"cost_usd": 0.08}]
    assert known == pytest.approx(_spent(bench))


@pytest.mark.long
def test_an_agent_with_a_price_of_its_own_costs_that_whatever_it_uses(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL + "[agents.scripted]\ncost_usd = 0\n", usage=DEAR)
    said = bench.run("--yes", "--budget", "0.1")
    assert said.code == 0, str(said)
    assert _figure(bench) == (0.0, 0.0, 0)


def test_a_price_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL + '[agents.scripted]\ncost_usd = "free"\n')
    said = bench.run("--yes")
    assert said.code == 1, str(said)
    assert "cost_usd" in said.err
    assert "[agents.scripted]" in said.err


@pytest.mark.long
def test_a_model_without_a_price_is_named_before_the_first_dispatch_and_by_doctor(tmp_path: Path) -> None:
    model = '[agents]\ndefault = "codex"\n[agents.codex]\nbin = "/nowhere/codex"\nmodel = "own-model"\n'
    bench = make_bench(tmp_path, config=SMALL + model)
    said = bench.windlass("run", "Add sub", "--yes")
    assert said.code == 12, str(said)
    words = " ".join(said.out.split())
    assert "codex: no price is known for model 'own-model'" in words
    assert "5,000,000 tokens a dispatch and 20,000,000 tokens a run" in words
    assert words.index("no price is known") < words.index("Scouting")
    assert "no price is known for model 'own-model'" in " ".join(bench.windlass("doctor").out.split())


def test_a_model_of_one_s_own_whose_cost_is_said_to_be_nothing_is_not_named(tmp_path: Path) -> None:
    model = '[agents]\ndefault = "codex"\n[agents.codex]\nbin = "/nowhere/codex"\nmodel = "own-model"\ncost_usd = 0\n'
    bench = make_bench(tmp_path, config=SMALL + model)
    assert "no price" not in bench.windlass("run", "Add sub", "--yes").out


@pytest.mark.long
def test_a_dispatch_whose_tokens_have_no_price_is_stopped_at_its_ceiling(tmp_path: Path) -> None:
    silent = {"when": {"role": "scout"}, "usage": {"input": 900, "output": 200}, "hang": True, "say": "…"}
    bench = make_bench(tmp_path, script=[silent], config=SMALL + "[budget]\ndispatch_tokens = 1000\n")
    said = bench.run("--yes")
    assert said.code == 12, str(said)
    assert "1100 tokens of a model without a price" in said.err
    assert "[budget]" in said.err
