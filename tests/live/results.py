"""What the live suite saw, a line for each test: kept beside the CLIs, read by `tools/agents_table.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from clis import CLIS, FOLDER

RESULTS = FOLDER / "results.jsonl"


def note(report: pytest.TestReport) -> None:
    file, _, name = report.nodeid.partition("::")
    test, _, parameters = name.partition("[")
    agents = [one for one in re.split(r"[-\]]", parameters) if one in CLIS]
    if not agents or not FOLDER.is_dir():
        return
    seen = {str(what): str(how) for what, how in report.user_properties}
    line = {"agent": agents[0], "file": Path(file).stem, "test": test, "case": parameters.rstrip("]")}
    with RESULTS.open("a", encoding="utf-8") as log:
        log.write(json.dumps({**line, "ok": report.passed, "seen": seen}, ensure_ascii=False) + "\n")
