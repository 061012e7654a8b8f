"""What goes wrong between each real CLI and its model, through whole runs: its class, its wait, and a right end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from clis import PATIENT, pace
from runs_live import FIRST, Tiny, build

from processes_for_tests import until
from windlass.events import WaitStarted
from windlass.model import ErrorClass
from windlass.testing.scripted_model import ScriptedModel

Model = Callable[..., ScriptedModel]
Note = Callable[[str, object], None]
#: a CLI's own tries within one dispatch: claude asks three times, codex four, opencode six
MOST_REQUESTS = 8
RESET_S = 3.0
PAUSES = '[retries]\npauses = ["1s", "2s"]\n'


def at_first(**fault: Any) -> dict[str, Any]:
    return {**build(), "when": FIRST, **fault}


# -- what the model server answers


def test_a_login_that_is_refused_stops_the_run_and_a_resume_ends_right(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    run = Tiny(tmp_path, name, model(at_first(error={"status": 401}), build()))
    done = run.start()
    assert (done.code, run.errors) == (12, [ErrorClass.AUTH]), done.out + done.err
    assert "log in to the agent" in done.err
    assert len(run.asked(1)) <= MOST_REQUESTS
    run.is_clean()
    run.ended_right(run.front("resume"))
    record_property("401", f"the run stops, {tries(run)}; a resume ends right")


def test_a_429_that_passes_is_got_over(name: str, tmp_path: Path, model: Model, record_property: Note) -> None:
    run = Tiny(tmp_path, name, model({**build(), "error": {"status": 429, "retry_after": 1, "times": 1}}))
    run.ended_right(run.start())
    assert [request.status for request in run.server.asked][:2] == [429, 200]
    assert run.errors in ([""], [ErrorClass.RATE_LIMITED, ""])
    assert len(run.front.events(WaitStarted)) == len(run.errors) - 1
    record_property("429 once", "asked again by the CLI" if len(run.errors) == 1 else "asked again after our wait")


def test_a_429_with_a_reset_is_waited_for_in_sight_of_everybody(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    run = Tiny(tmp_path, name, model(at_first(error={"status": 429, "retry_after": RESET_S}), build()))
    with run.driver() as driver:
        until(lambda: run.look()["waits"] != [] or driver.poll() is not None, PATIENT)
        assert driver.wait(PATIENT) == 0, run.said
    run.ended_right(run.front("status"))
    [wait] = run.waits
    assert run.errors == [ErrorClass.RATE_LIMITED, ""]
    assert [one["until"] for one in run.seen["waits"]] == [wait.until]
    # on a busy machine the wait can be over when the look at it is
    assert f"the quota of {name}" in run.seen["waiting_for"] or run.seen_at >= wait.until
    refused, again = run.asked(1), run.asked(2)[0]
    assert {request.status for request in refused} == {429}
    # the clocks of a CLI and of the model server are read at different moments
    assert wait.until >= refused[-1].at + RESET_S - 0.1
    assert again.at >= wait.until
    began = next(one.at for one in run.front.records if one.event == wait)
    if name != "codex":
        # On a busy machine the reset can be over when the CLI ends; then the wait is our first pause.
        assert wait.until - began <= RESET_S or began >= refused[-1].at + RESET_S
    told = "as long as our first pause, it tells no reset" if name == "codex" else "until the reset"
    record_property("429 always, with a reset in 3 s", f"a wait in sight of all, {told}; {tries(run)}")


def test_a_500_that_stays_is_asked_again_in_growing_pauses(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    broken = at_first(error={"status": 500, "retry_after": 1})
    run = Tiny(tmp_path, name, model(broken, {**broken, "when": {**FIRST, "attempt": "2"}}, build()), PAUSES)
    run.ended_right(run.start())
    assert run.errors == [ErrorClass.OVERLOADED, ErrorClass.OVERLOADED, ""]
    assert [len(run.asked(n)) <= MOST_REQUESTS for n in (1, 2)] == [True, True]
    # nobody asks while the timer runs
    starts = [run.asked(n)[0].at for n in (2, 3)]
    assert [start >= wait.until for start, wait in zip(starts, run.waits, strict=True)] == [True, True]
    assert [later > sooner for sooner, later in pairwise(wait.until for wait in run.waits)] == [True]
    record_property("500 always", f"growing pauses of ours, {tries(run)}")


def test_a_stream_that_breaks_off_is_got_over(name: str, tmp_path: Path, model: Model, record_property: Note) -> None:
    run = Tiny(tmp_path, name, model({**build(), "cut_after": 500, "cut_times": 1}), PAUSES)
    run.ended_right(run.start())
    assert run.errors in ([""], [ErrorClass.OVERLOADED, ""])
    how = "asked again by the CLI" if len(run.errors) == 1 else "asked again after our pause"
    record_property("the model's stream is cut once", how)


def test_a_stream_that_always_breaks_off_is_given_up_within_bounds_and_the_next_attempt_ends_right(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    run = Tiny(tmp_path, name, model(at_first(cut_after=500), build()), PAUSES)
    run.ended_right(run.start())
    if name == "claude":
        # it asks again without a stream, and that comes whole
        assert run.errors == [""]
        assert {request.body["stream"] for request in run.asked(1)} == {True, False}
    else:
        assert run.errors == [ErrorClass.OVERLOADED, ""]
        assert len(run.asked(1)) <= MOST_REQUESTS
        assert run.asked(2)[0].at >= run.waits[0].until
    how = "asks without a stream" if name == "claude" else "given up, asked again after our pause"
    record_property("it is always cut", f"{how}; ends right")


# -- what never ends by itself


def short_of_time(name: str) -> str:
    """Time enough to start and to ask, however busy the machine is."""
    wall = min(max(10.0, (10 if name == "opencode" else 4) * pace(name)), PATIENT / 2)
    return f'[roles.implementer]\nwall = "{wall:.0f}s"\n[retries]\ntimed_out = 0\n'


def test_a_model_that_hangs_is_ended_by_our_limit_and_a_retry_ends_right(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    stuck = {"when": {"role": "implementer"}, "say": "hm", "hang": True, "times": 1}
    run = Tiny(tmp_path, name, model(stuck, build()), short_of_time(name))
    done = run.start()
    assert (done.code, run.errors) == (12, [ErrorClass.TIMED_OUT]), done.out + done.err
    assert run.asked(1) != []
    run.is_clean()
    run.configure("")
    run.ended_right(run.front("retry"))
    record_property("the model hangs", "ended at our time limit; a retry ends right")


#: a turn costs $0.45 by the model of claude, pi and opencode, $0.19 by the others'. The second passes the limit, but
#: opencode tells a turn when its tools are at their end, which the second's never are. claude obeys a limit of its own.
BUDGETS = {"claude": "0.70", "codex": "0.30", "pi": "0.70", "gemini": "0.30", "opencode": "0.30"}
DEAR = {"input": 450_000, "output": 3}
#: the first leaves a process at work, the second never ends
BUSY = ["(sleep 300 > /dev/null 2>&1 &) ; echo here > tool-runs", "sleep 300"]


def test_a_budget_used_up_among_tools_stops_them_and_a_higher_one_ends_right(
    name: str, tmp_path: Path, model: Model, record_property: Note
) -> None:
    busy = {"when": FIRST, "run": BUSY, "usage": DEAR, "say": "Never said."}
    run = Tiny(tmp_path, name, model(busy, build()))
    done = run.start("--budget", BUDGETS[name])
    assert (done.code, run.errors) == (12, [ErrorClass.OVER_BUDGET]), done
    assert "--budget" in done.err
    assert "tool-runs" in tool_traces(run)
    run.is_clean()
    spent = run.front.status["cost"]
    # one report beyond the limit at most
    assert float(BUDGETS[name]) < spent["usd"] < float(BUDGETS[name]) + 0.5
    # opencode may have asked for its second turn when the stop reaches it: the cost of that response is assumed
    assert spent["unknown"] <= (name == "opencode" and len(run.asked(1)) > 1)
    asked = len(run.server.asked)
    assert (run.front("resume").code, len(run.server.asked)) == (12, asked)
    run.ended_right(run.front("resume", "--budget", "20"))
    how = "stopped at the report that passes it; with a higher one it ends right"
    record_property("a budget used up among tools", how)


def tool_traces(run: Tiny) -> set[str]:
    """What the first attempt left, in its slot or kept."""
    kept = run.front.git("for-each-ref", "--format=%(objectname)", "refs/windlass/keep").split()
    trees = [run.front.git("ls-tree", "--name-only", sha) for sha in kept]
    return {name for tree in trees for name in tree.splitlines()} | {
        path.name for path in run.front.tmp.rglob("tool-runs")
    }


def tries(run: Tiny) -> str:
    return "at once" if len(run.asked(1)) == 1 else "after tries of its own"
