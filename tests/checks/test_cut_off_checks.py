"""A check whose supervisor was killed has said nothing: it is run again, and no agent is paid to mend it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import FILES, Bench, default_script
from gitrepo import make_repo
from proofs import ADD_SUB, REPORTING, TEST_SUB, Proving

# Kills the supervisor (the parent of the check) as long as fewer than so many lines are in the file.
KILL = """echo $PPID >> {count}
if [ $(wc -l < {count}) -le {times} ]; then kill -9 $PPID; sleep 30; fi
"""
QUIET = '[roles.security-reviewer]\nagent = "none"\n[roles.performance-reviewer]\nagent = "none"\n'
COMMANDS = {
    "checks": '[checks]\ncommands = [["sh", "kill.sh"]]\n',
    "set-up": '[workspace]\nsetup = [["sh", "kill.sh"]]\n',
}


def _bench(folder: Path, config: str, times: int) -> Bench:
    bench = Bench(folder)
    count = folder / "count"
    files = {**FILES, "kill.sh": KILL.format(count=count, times=times), ".windlass/config.toml": config + QUIET}
    make_repo(bench.root, files)
    bench.script.write_text(json.dumps(default_script(bench)))
    return bench


@pytest.mark.long
@pytest.mark.parametrize("what", COMMANDS)
def test_what_was_cut_off_by_a_killed_supervisor_is_run_again(what: str, tmp_path: Path) -> None:
    bench = _bench(tmp_path, COMMANDS[what], times=2)
    said = bench.run("--yes")
    assert said.code == 0, str(said)
    roles = {(line["role"], line["purpose"]) for line in bench.dispatches()}
    assert not {purpose for _, purpose in roles} & {"baseline-fix", "land-fix"}
    assert len((tmp_path / "count").read_text().splitlines()) > 2
    assert not bench.leftovers()


@pytest.mark.long
@pytest.mark.parametrize("what", COMMANDS)
def test_what_is_cut_off_again_and_again_stops_the_run_with_its_reason(what: str, tmp_path: Path) -> None:
    bench = _bench(tmp_path, COMMANDS[what], times=99)
    said = bench.run("--yes")
    assert said.code == 12, str(said)
    assert "its supervisor was killed" in said.out + said.err
    assert len((tmp_path / "count").read_text().splitlines()) == 3
    assert bench.run_state == "stopped"
    assert not bench.leftovers()


@pytest.mark.long
def test_a_proof_run_that_was_cut_off_is_run_again_and_the_verdict_is_the_same(tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = KILL.format(count=count, times=1) + 'exec "$@"'
    proving = Proving(tmp_path, run_files=["sh", "-c", script, "killing", *REPORTING])
    found = proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB})
    assert (found.ok, found.proof) == (True, "proved")


def test_checks_that_run_side_by_side_have_different_markers(tmp_path: Path) -> None:
    """Whoever ends what one killed check left must not end another."""
    bench = _bench(tmp_path, COMMANDS["checks"], times=0)
    assert bench.run("--yes").code == 0
    markers = [json.loads(path.read_text())["marker"] for path in bench.run_folder.rglob("check*/proc.json")]
    assert len(markers) == len(set(markers)) > 2
