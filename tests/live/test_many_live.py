"""Sixteen dispatches at once through the real codex: the driver stays small, and every event is accounted for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clis import PATIENT, binary_of, left_behind, options

from jobs import run_id
from windlass.testing.scripted_model import ScriptedModel

Model = Callable[..., ScriptedModel]
MANY = 16
STEPS = 6
MOST_MB = 120
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
# A process of its own: what pytest and the model server hold is not the driver's.
DRIVER = """
import asyncio, json, os, resource, sys, time
from collections import Counter
from pathlib import Path
from windlass.agents import registry
from windlass.agents.base import Job, Limits
from windlass.agents.process.supervise import agent_env
from windlass.dispatch.local_site import run_agent

facts = json.loads(sys.argv[1])
adapter = registry.make("codex", facts["options"], dict(os.environ))

def job(n):
    cwd = Path(facts["folder"]) / f"slot{n}"
    cwd.mkdir()
    return Job(facts["run"], f"execute/t{n}/implement", 1, "implementer", "implement", "You build.", "Build it.",
        "codex", cwd, cwd.parent / f"attempt{n}", tools=("read", "bash", "write", "edit"), writes="code",
        task_id=f"t{n}", limits=Limits(wall_s=300.0))

async def one(n):
    seen = Counter()
    result = await run_agent(adapter, job(n), env=agent_env(os.environ), stop=asyncio.Event(), clock=time.time,
        on_event=lambda event: seen.update([type(event).__name__]), on_started=lambda proc: None)
    return {"n": n, "error": result.error, "reason": result.reason, "tools": result.tools, "seen": seen,
            "usage": [result.usage.input, result.usage.output], "text": result.text}

async def everyone():
    return await asyncio.gather(*(one(n) for n in range(facts["many"])))

found = asyncio.run(everyone())
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"results": found, "peak_mb": peak}))
"""


@pytest.mark.parametrize("name", ["codex"])
def test_sixteen_dispatches_at_once_fit_and_nothing_is_lost(name: str, tmp_path: Path, model: Model) -> None:
    rule = {"events": STEPS, "say": "Built {task_id}.", "json": PASS, "usage": {"input": 700, "output": 70}}
    server = model(rule)
    facts = {"folder": str(tmp_path), "run": run_id(tmp_path), "many": MANY}
    facts["options"] = options(server, binary_of(name))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(facts)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=5 * PATIENT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(one["error"], one["tools"], one["usage"]) for one in told["results"]] == [(None, STEPS, [700, 70])] * MANY
    whole = {"SessionSeen": 1, "ToolStarted": STEPS, "ToolFinished": STEPS, "Said": 1, "Done": 1}
    seen = [dict(one["seen"]) for one in told["results"]]
    # One for each response of the model, and its last word should that come before the last of them. On a busy machine
    # several responses are read together, so only the sum is certain.
    assert all(1 <= counts["Spent"] <= STEPS + 2 for counts in seen), seen
    assert [{kind: n for kind, n in counts.items() if kind != "Spent"} for counts in seen] == [whole] * MANY
    assert [f"Built t{one['n']}." in one["text"] for one in told["results"]] == [True] * MANY
    logged = [(tmp_path / f"attempt{n}" / "events.jsonl").read_text().splitlines() for n in range(MANY)]
    assert [Counter(json.loads(line)["type"] for line in lines) for lines in logged] == [*map(Counter, seen)]
    assert Counter(request.job.task_id for request in server.asked if request.job) == Counter(
        {f"t{n}": STEPS + 1 for n in range(MANY)}
    )
    assert left_behind(str(facts["run"])) == []
    assert told["peak_mb"] <= MOST_MB
