"""What goes wrong between each real CLI and its model, and what becomes of the dispatch.

What whole runs show is in `test_faults_live.py`; here is the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from clis import PATIENT, left_behind

from jobs import dispatch, run
from processes_for_tests import until
from windlass.agents.base import Job
from windlass.model import ErrorClass

Model = Callable[..., Any]
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
Note = Callable[[str, object], None]


@pytest.mark.parametrize(
    ("status", "error", "row", "told"),
    [
        (402, ErrorClass.BILLING, "402", "told as an account without credit: the run stops"),
        (529, ErrorClass.OVERLOADED, "529 always", "told as overload: growing pauses of ours"),
    ],
    ids=["402", "529"],
)
def test_an_error_that_stays_is_told_by_its_class(
    job: Job, model: Model, agent: Any, status: int, error: ErrorClass, row: str, told: str, record_property: Note
) -> None:
    # with a time to come back the CLIs that insist are quick about it
    server = model({"json": PASS, "error": {"status": status, "retry_after": 1}})
    result = run(agent(server), job)
    assert (result.error, left_behind(job.run)) == (error, []), result.reason
    record_property(row, told)


def test_a_stop_in_the_middle_of_a_tool_leaves_no_process(
    job: Job, model: Model, agent: Any, record_property: Note
) -> None:
    mark = job.cwd / "tool-runs"
    server = model({"run": [f"touch {mark.name} && sleep 300"], "json": PASS})

    async def stopped() -> Any:
        stop = asyncio.Event()
        running = asyncio.create_task(dispatch(agent(server), job, stop=stop))
        await asyncio.to_thread(until, mark.exists, PATIENT)
        stop.set()
        return await running

    result = asyncio.run(stopped())
    assert (result.error, left_behind(job.run)) == (ErrorClass.KILLED, []), result.reason
    record_property("stopped in the middle of a tool", "no process is left")
