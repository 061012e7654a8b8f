"""Evidence of life, and the moment when there is none left."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.agents.base import Said, ToolFinished, ToolStarted
from windlass.agents.process.liveness import Liveness, Sample, newest

QUIET, FROZEN = 90.0, 300.0


def still(cpu: float = 1.0, children: int = 0, touched: int = 7) -> Sample:
    return Sample(cpu, children, touched)


def frozen_at(liveness: Liveness, samples: dict[float, Sample], until: float = 900.0) -> float | None:
    """When it counts as frozen, sampled every 5 s; between the given samples nothing changes."""
    now, seen = 0.0, still()
    while now < until:
        now += 5
        seen = samples.get(now, seen)
        liveness.tick(now, seen)
        if liveness.frozen(now):
            return now
    return None


def test_without_any_evidence_a_dispatch_is_frozen_after_the_limit() -> None:
    # the first sample has nothing to be compared with
    assert frozen_at(Liveness(0.0), {}) == FROZEN + 5


@pytest.mark.parametrize(
    "sign",
    [still(cpu=3.0), still(touched=8)],
    ids=["processor time", "a file touched"],
)
def test_a_sign_of_life_begins_the_wait_anew(sign: Sample) -> None:
    assert frozen_at(Liveness(0.0), {200.0: sign}) == 200 + FROZEN


def test_the_little_that_a_waiting_cli_uses_is_no_sign_of_life() -> None:
    idle = {float(at): still(cpu=1 + at * 0.02) for at in range(5, 900, 5)}
    assert frozen_at(Liveness(0.0), idle) == FROZEN + 5


def test_a_tool_that_runs_is_a_sign_of_life_and_a_stopped_one_is_not() -> None:
    at_work = Liveness(0.0)
    at_work.event(ToolStarted("bash", "running make"), 0.0)
    assert frozen_at(at_work, {5.0: still(children=1)}) is None
    stopped = Liveness(0.0)
    stopped.event(ToolStarted("bash", "running make"), 0.0)
    assert frozen_at(stopped, {5.0: still(children=0)}) == FROZEN + 5


def test_a_helper_process_without_a_tool_is_no_sign_of_life() -> None:
    liveness = Liveness(0.0)
    liveness.event(ToolStarted("bash", "running make"), 0.0)
    liveness.event(ToolFinished("bash", True), 0.0)
    assert frozen_at(liveness, {5.0: still(children=2)}) == FROZEN + 5


def test_an_event_is_a_sign_of_life() -> None:
    liveness = Liveness(0.0)
    for at in (5.0, 200.0):
        liveness.tick(at, still())
    liveness.event(Said("hm"), 200.0)
    liveness.tick(499.0, still())
    assert (liveness.frozen(499.0), bool(liveness.frozen(500.0))) == ("", True)


def test_it_warns_before_it_is_frozen() -> None:
    liveness = Liveness(0.0)
    told = {at: text for at in range(5, 300, 5) if (text := liveness.tick(float(at), still()))}
    assert list(told) == [QUIET]
    assert "seems stuck" in told[int(QUIET)]


def test_the_newest_file_is_found_in_folders_below_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "slot" / "src").mkdir(parents=True)
    (tmp_path / "slot" / "src" / "a.py").write_text("a")
    before = newest(tmp_path / "slot")
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "slot" / "src" / "link").symlink_to(other)
    linked = newest(tmp_path / "slot")
    (other / "b.py").write_text("b")
    assert newest(tmp_path / "slot") == linked >= before
    (tmp_path / "slot" / "src" / "c.py").write_text("c")
    assert newest(tmp_path / "slot") > linked
