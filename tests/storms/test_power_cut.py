"""A power cut at any moment: the run goes on to the right end, and the user's own repository is sound."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from powercuts import Outage, disk, lacking

pytestmark = pytest.mark.long

CUTS = int(os.environ.get("WINDLASS_POWER_CUTS", "2"))
EVENTS = 75
"""About so many a whole run records."""


@pytest.mark.parametrize("seed", range(CUTS))
def test_after_a_power_cut_the_run_goes_on_and_the_users_git_works(seed: int, tmp_path: Path) -> None:
    if reason := lacking():
        pytest.skip(reason)
    with disk(tmp_path) as mounted:
        outage = Outage(mounted, seed)
        chance = random.Random(seed)
        for _ in range(chance.choice([1, 1, 2])):
            outage.cut_at(chance.randrange(EVENTS), chance.uniform(0.0, 0.2))
            outage.assert_repository_sound()
        if not outage.is_over():
            said = outage.go_on()
            assert said.code == 0, str(said)
        outage.assert_whole()
        outage.assert_repository_sound()
