"""No loss: random graphs, random conflicts, random kills. `make noloss` runs many more of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storms import Storm, Weather

RUNS = int(os.environ.get("WINDLASS_NOLOSS_RUNS", "6"))


@pytest.mark.req("S2-02", "S2-48", "S2-49")
@pytest.mark.parametrize("seed", range(RUNS))
def test_whatever_is_killed_no_commit_is_lost_every_task_lands_once_and_every_tip_is_green(
    seed: int, tmp_path: Path
) -> None:
    storm = Storm(tmp_path, Weather(seed * 1000))
    storm.weather_it()
    storm.assert_nothing_lost()
