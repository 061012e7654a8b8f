"""A project's own instructions reach the model behind a real CLI when they are asked for, and not otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs_live import GOOD, build, front_of

from gitrepo import commit

NAME = "claude"
RULE = "Every function is named after a bird."


@pytest.mark.parametrize("asked", [True, False])
def test_instructions_reach_the_model_when_they_are_asked_for(tmp_path: Path, model: Any, asked: bool) -> None:
    server = model(build(), GOOD)
    front = front_of(tmp_path, NAME, server)
    commit(front.root, {"AGENTS.md": f"{RULE}\n", "CLAUDE.md": f"{RULE}\n"})
    if asked:
        config = front.root / ".windlass/config.toml"
        config.parent.mkdir()
        config.write_text('[workspace]\ninstructions = ["AGENTS.md"]\n')
    done = front("task", "Add a bird", "--agent", NAME, "--yes")
    assert done.code == 0, done.out + done.err
    roles = {request.job.role for request in server.asked if request.job}
    assert {"implementer", "spec-reviewer"} <= roles
    assert {RULE in request.text for request in server.asked} == {asked}
