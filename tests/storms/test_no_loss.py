"""No loss: random graphs, random conflicts, random kills. `make noloss` runs many more of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storm import Storm, Weather

RUNS = int(os.environ.get("WINDLASS_NOLOSS_RUNS", "6"))
#: crash points of a run with four slots, six tasks, a textual conflict and a quarrel, and some more
POINTS = 140
STEP = 1 if "WINDLASS_NOLOSS_RUNS" in os.environ else 20
SEED = 9


@pytest.mark.req("S2-02", "S2-48", "S2-49")
@pytest.mark.sweep(6)
@pytest.mark.parametrize("seed", range(RUNS))
def test_whatever_is_killed_no_commit_is_lost_every_task_lands_once_and_every_tip_is_green(
    seed: int, tmp_path: Path
) -> None:
    storm = Storm(tmp_path, Weather(seed * 1000))
    storm.weather_it()
    storm.assert_nothing_lost()


@pytest.mark.long
@pytest.mark.req("S2-02", "S2-48", "S2-49")
@pytest.mark.parametrize("point", range(6, POINTS + 1, STEP))
def test_killed_at_this_point_of_a_run_with_four_slots_nothing_is_lost_or_done_twice(
    point: int, tmp_path: Path
) -> None:
    storm = Storm(tmp_path, Weather(SEED, (("point", point),)))
    storm.weather_it()
    storm.assert_nothing_lost()
