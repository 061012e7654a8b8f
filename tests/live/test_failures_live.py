"""What goes wrong between each real CLI and its model, and what becomes of the dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from clis import left_behind

from jobs import dispatch, run
from processes_for_tests import until
from windlass.agents.base import Job, Limits
from windlass.model import ErrorClass

Model = Callable[..., Any]
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "ok"}
A_MINUTE = Limits(wall_s=60.0)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, ErrorClass.AUTH),
        (402, ErrorClass.BILLING),
        (429, ErrorClass.RATE_LIMITED),
        (500, ErrorClass.OVERLOADED),
        (529, ErrorClass.OVERLOADED),
    ],
)
def test_an_error_that_stays_is_told_by_its_class(
    job: Job, model: Model, agent: Any, status: int, error: ErrorClass
) -> None:
    # with a time to come back the CLIs that insist are quick about it
    server = model({"json": PASS, "error": {"status": status, "retry_after": 1}})
    result = run(agent(server), replace(job, limits=A_MINUTE))
    assert (result.error, left_behind(job.run)) == (error, []), result.reason


def test_a_429_that_passes_is_got_over_by_the_cli_or_by_the_next_attempt(job: Job, model: Model, agent: Any) -> None:
    server = model({"json": PASS, "error": {"status": 429, "retry_after": 1, "times": 1}})
    result = run(agent(server), replace(job, limits=A_MINUTE))
    if result.error:
        assert result.error == ErrorClass.RATE_LIMITED
        result = run(agent(server), replace(job, attempt=2, folder=job.folder / "2", limits=A_MINUTE))
    assert (result.error, [request.status for request in server.asked]) == (None, [429, 200]), result.reason


def test_a_stream_that_always_breaks_off_is_a_failure_within_bounds(job: Job, model: Model, agent: Any) -> None:
    # no word twice, or gemini takes it for a loop
    said = " ".join(str(number) for number in range(600))
    server = model({"say": said, "json": PASS, "cut_after": 900})
    result = run(agent(server), replace(job, limits=Limits(wall_s=30.0)))
    # claude asks again without a stream, and that comes whole
    assert result.error in (None, ErrorClass.OVERLOADED, ErrorClass.TIMED_OUT, ErrorClass.CRASHED), result.reason
    assert (result.error is None) == (job.agent == "claude"), result.reason
    assert left_behind(job.run) == []


def test_a_model_that_hangs_ends_at_the_wall(job: Job, model: Model, agent: Any) -> None:
    result = run(agent(model({"say": "hm", "hang": True})), replace(job, limits=Limits(wall_s=12.0)))
    assert (result.error, left_behind(job.run)) == (ErrorClass.TIMED_OUT, []), result.reason


def test_a_stop_in_the_middle_of_a_tool_leaves_no_process(job: Job, model: Model, agent: Any) -> None:
    mark = job.cwd / "tool-runs"
    server = model({"run": [f"touch {mark.name} && sleep 300"], "json": PASS})

    async def stopped() -> Any:
        stop = asyncio.Event()
        running = asyncio.create_task(dispatch(agent(server), replace(job, limits=A_MINUTE), stop=stop))
        await asyncio.to_thread(until, mark.exists, 50)
        stop.set()
        return await running

    result = asyncio.run(stopped())
    assert (result.error, left_behind(job.run)) == (ErrorClass.KILLED, []), result.reason
