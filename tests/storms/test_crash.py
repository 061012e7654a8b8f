"""kill -9 at every recorded step and at random moments: what has a result is not paid for twice, no work is lost."""

from __future__ import annotations

import random
import signal
import subprocess
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pytest

from bench import (
    CONFIG,
    REQUEST,
    Bench,
    assert_state_file_readable,
    assert_whole,
    default_script,
    go_on_until_done,
    kill_supervisors,
    make_bench,
    wait_for,
)
from gitrepo import reachable, sh
from processes_for_tests import until

SMALL = CONFIG + '[roles.security-reviewer]\nagent = "none"\n[roles.performance-reviewer]\nagent = "none"\n'
POINTS = 104
"""Crash points of the small run, and some more."""


@dataclass(frozen=True)
class Told:
    """What the uninterrupted run came to."""

    tree: dict[str, str]
    keys: set[str]


def _uninterrupted(folder: Path, config: str) -> Told:
    bench = make_bench(folder, config=config)
    said = bench.run("--yes")
    assert said.code == 0, str(said)
    keys = {str(row["key"]) for row in bench.rows("SELECT key FROM attempt WHERE role != ''")}
    told = Told(bench.tree(), keys)
    assert_whole(bench, told.tree, told.keys, 0)
    return told


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _uninterrupted(tmp_path_factory.mktemp("small"), SMALL)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return _uninterrupted(tmp_path_factory.mktemp("full"), CONFIG)


@pytest.mark.req("S0-02", "S0-67")
@pytest.mark.sweep(52)
@pytest.mark.parametrize("point", range(1, POINTS + 1))
def test_killed_at_this_point_a_bare_windlass_brings_the_run_to_the_same_end(
    point: int, small: Told, tmp_path: Path
) -> None:
    bench = make_bench(tmp_path, config=SMALL)
    said = bench.run("--yes", crash=str(point))
    if said.killed:
        assert_state_file_readable(bench)
        go_on_until_done(bench)
    else:
        assert said.code == 0, str(said)
    assert_whole(bench, small.tree, small.keys, 1)


@pytest.mark.long
def test_the_sweep_passes_the_last_crash_point(small: Told, tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL)
    said = bench.run("--yes", crash=str(POINTS))
    assert said.code == 0, "the run has more crash points than the sweep kills at"


@pytest.mark.req("S0-78", "S0-86")
@pytest.mark.long
@pytest.mark.parametrize("lives", [(9, 3, 10, 4, 11), (8,), (6, 13, 5, 17, 7)])
def test_killed_again_and_again_it_still_comes_to_the_same_end(
    lives: tuple[int, ...], full: Told, tmp_path: Path
) -> None:
    bench, kills = make_bench(tmp_path), 0
    said = bench.run("--yes", crash=str(lives[0]))
    for points in cycle(lives):
        if not said.killed:
            break
        kills += 1
        assert kills < 120, "it never came to an end"
        assert_state_file_readable(bench)
        said = bench.windlass(crash=str(points))
    assert said.code == 0, str(said)
    assert kills >= 5
    assert_whole(bench, full.tree, full.keys, kills)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_killed_at_random_moments_with_agents_at_work_it_comes_to_the_same_end(
    seed: int, full: Told, tmp_path: Path
) -> None:
    """Every second time the supervisors die with the driver, so that agents are left alone."""
    chance, kills = random.Random(seed), 0
    bench = make_bench(tmp_path, sleep=0.1)
    with bench.first_driver("--yes") as driver:
        wait_for(bench, "SELECT 1 FROM run")
        ended = _ends_within(driver, chance.uniform(0.05, 0.8))
    while not ended and kills < 8:
        kills += 1
        if kills % 2:
            kill_supervisors(bench)
        assert_state_file_readable(bench)
        with bench.driver() as driver:
            ended = _ends_within(driver, chance.uniform(0.3, 0.9))
    if not ended:
        kills += 1 + go_on_until_done(bench)
    assert kills >= 3
    assert_whole(bench, full.tree, full.keys, kills)


def _ends_within(driver: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        assert driver.wait(seconds) == 0
    except subprocess.TimeoutExpired:
        return False
    return True


PLACES = [
    ("os:replace", "before", 3),
    ("os:replace", "before", 12),
    ("os:replace", "after", 13),
    ("windlass.views.files:replace_file", "before", 9),
    ("windlass.git.run_refs:RunRefs.show_tip", "before", 3),
    ("windlass.git.run_refs:RunRefs.show_tip", "after", 3),
    ("windlass.tasks.lander:publish", "before", 1),
    ("windlass.tasks.lander:publish", "after", 1),
    ("windlass.git.slots:Slots.take", "after", 2),
    ("windlass.git.slots:Slots.release", "before", 2),
    ("windlass.git.slots:keep", "after", 2),
    ("windlass.git.run_refs:RunRefs.hold", "before", 1),
    ("windlass.git.trees:harvest", "after", 1),
    ("windlass.driver.artifacts:commit_artifacts", "after", 1),
]


@pytest.mark.long
@pytest.mark.parametrize("call", PLACES, ids=lambda call: "-".join(map(str, call)))
def test_killed_between_an_effect_and_its_record_it_comes_to_the_same_end(
    call: tuple[str, str, int], small: Told, tmp_path: Path
) -> None:
    place, when, number = call
    bench = make_bench(tmp_path, config=SMALL)
    said = bench.killed_at(place, when, number, "run", REQUEST, "--script", str(bench.script), "--yes")
    assert said.killed, f"{place} was not called {number} times: {said}"
    if bench.home.joinpath("windlass.db").exists() and bench.rows("SELECT 1 FROM run"):
        go_on_until_done(bench)
    else:
        assert bench.run("--yes").code == 0
    assert_whole(bench, small.tree, small.keys, 1)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("alone", [False, True], ids=["supervisor lives", "supervisor dies too"])
def test_an_agent_that_ignores_term_does_not_outlive_the_driver(alone: bool, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    stubborn = {"when": {"role": "scout", "attempt": 1}, "hang": True, "ignore_term": True}
    make_bench(tmp_path, script=[stubborn, *default_script(bench)], config=SMALL)
    with bench.first_driver("--yes") as driver:
        until(lambda: any(bench.home.glob("runs/*/scripted/dispatches.jsonl")))
        if alone:
            # Stopped, so that nobody asks the agent to end before it has made itself deaf.
            driver.send_signal(signal.SIGSTOP)
            assert kill_supervisors(bench) >= 1
    if alone:
        assert bench.leftovers()
    go_on_until_done(bench)
    assert not bench.leftovers()
    scouts = bench.rows("SELECT n, state FROM attempt WHERE role = 'scout' ORDER BY n")
    assert scouts == [{"n": 1, "state": "interrupted"}, {"n": 2, "state": "done"}]


@pytest.mark.long
def test_what_an_interrupted_agent_made_is_reachable_from_a_keep_ref(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    script = default_script(bench)
    first = next(rule for rule in script if rule["when"].get("task") == "t1")
    dying = {**first, "when": {**first["when"], "attempt": 1}, "hang": True}
    dying["run"] = [*first["run"], "echo unsaved > src/unsaved.py"]
    make_bench(tmp_path, script=[dying, *script], config=SMALL)
    with bench.first_driver("--yes"):
        until(lambda: any(bench.state.glob("windlass/*/slots/*/src/unsaved.py")))
    go_on_until_done(bench)
    lost, *_ = bench.commits_made()
    assert reachable(bench.engine, lost) or reachable(bench.root, lost)
    kept = bench.rows("SELECT key FROM attempt WHERE state = 'interrupted'")[0]["key"]
    assert _kept_files(bench, kept) >= {"src/sub.py", "src/unsaved.py"}


def _kept_files(bench: Bench, key: str) -> set[str]:
    refs = sh(bench.root, "for-each-ref", "--format=%(refname)", f"refs/windlass/keep/{bench.id}/{key}").split()
    refs += sh(bench.engine, "for-each-ref", "--format=%(refname)", f"refs/windlass/keep/{bench.id}/{key}").split()
    found: set[str] = set()
    for ref in refs:
        for place in (bench.engine, bench.root):
            found |= set(sh(place, "ls-tree", "-r", "--name-only", ref, check=False).split())
    return found


def test_an_interrupt_saves_the_state_and_leaves_no_process(tmp_path: Path) -> None:
    bench = make_bench(tmp_path, config=SMALL, sleep=0.2)
    with bench.first_driver("--yes") as driver:
        wait_for(bench, "SELECT 1 FROM attempt WHERE role = 'planner' AND state = 'running'")
        driver.send_signal(signal.SIGINT)
        assert driver.wait(300) == 130
    assert not bench.leftovers()
    assert bench.run_state == "paused"
    go_on_until_done(bench)
    planners = bench.rows("SELECT n, state FROM attempt WHERE role = 'planner' ORDER BY n")
    assert planners == [{"n": 1, "state": "failed"}, {"n": 2, "state": "done"}]
