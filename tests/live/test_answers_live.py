"""What each real CLI makes of an answer that is none, and what becomes of a verdict beside a quoted one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from clis import left_behind

from jobs import run
from windlass.agents.base import AgentResult, Job, Limits

Model = Callable[..., Any]


def ended(result: AgentResult) -> bool:
    """It came to a good end with something to say."""
    return result.error is None and bool(result.text.strip() or result.structured)


@pytest.mark.parametrize("stop", ["length", "refusal", "empty"])
def test_an_answer_that_was_cut_refused_or_left_out_is_no_answer(job: Job, model: Model, agent: Any, stop: str) -> None:
    job = replace(job, contract="", schema=None)
    result = run(agent(model({"say": "I have begun to", "stop": stop})), job)
    print("PROBE", agent, stop, result.error, repr(result.reason), repr(result.text))
    assert not ended(result)


def test_a_daemon_that_holds_the_output_open_does_not_hold_the_dispatch(job: Job, model: Model, agent: Any) -> None:
    server = model({"run": ["sleep 600 & echo begun"], "say": "Built."})
    job = replace(job, contract="", schema=None, limits=Limits(wall_s=60.0))
    result = run(agent(server), job)
    print("PROBE", result.error, repr(result.reason), repr(result.text), result.seconds)
    assert (result.error, result.text.strip()) == (None, "Built.")
    assert left_behind(job.run) == []
