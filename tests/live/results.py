"""What the live suite saw, a line for each test: kept beside the CLIs, read by `tools/agents_table.py`."""

from __future__ import annotations

import json
import re

import pytest
from clis import CLIS, FOLDER

RESULTS = FOLDER / "results.jsonl"


def note(report: pytest.TestReport) -> None:
    test, _, parameters = report.nodeid.rpartition("::")[2].partition("[")
    agents = [one for one in re.split(r"[-\]]", parameters) if one in CLIS]
    if not agents or not FOLDER.is_dir():
        return
    seen = {str(what): str(how) for what, how in report.user_properties}
    line = {"agent": agents[0], "test": test, "case": parameters.rstrip("]"), "ok": report.passed, "seen": seen}
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
