"""A whole run through a real CLI, from the front door: the model behind it is scripted, everything else is real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clis import binary_of, options

from front import LEAN, Front
from windlass.testing.scripted_model import ScriptedModel

PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
GOOD = {"when": {}, "json": PASS}
CODE = {"src/add.py": "x = 1\n", "tests/test_add.py": "def test_it(): pass\n"}


def front_of(tmp_path: Path, name: str, server: ScriptedModel, **more: Any) -> Front:
    settings = {**options(server, binary_of(name)), **more}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    text = "\n".join(["[agents]", f'default = "{name}"', f"[agents.{name}]", *lines, LEAN])
    return Front(tmp_path, text)


def build(*commands: str, **more: Any) -> dict[str, Any]:
    """An implementer who does the work and what it was told besides."""
    return {"when": {"role": "implementer"}, "files": CODE, "run": list(commands), "say": "Built.", **more}
