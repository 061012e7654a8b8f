from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobs import PythonAgent, dispatch, make_job, run, run_id
from processes_for_tests import alive, read_pid, stubborn, until
from windlass.agents.base import (
    AgentEvent,
    Done,
    Invocation,
    Limits,
    Said,
    SessionSeen,
    Spent,
    ToolFinished,
    ToolStarted,
)
from windlass.agents.process.agent_run import IDLE_REPORTS
from windlass.agents.process.supervise import Lines, ProcessExit, SupervisedProcess, agent_env, end_leftover, supervise
from windlass.errors import UserError
from windlass.locks import boot_id, process_start
from windlass.model import ErrorClass, Usage

SAY = "import json\ndef say(**fields): print(json.dumps(fields), flush=True)\n"


def no_one_left(tmp_path: Path) -> bool:
    marker = f"{run_id(tmp_path)}:execute/t1/implement@1"

    def marked(process: psutil.Process) -> bool:
        try:
            return process.environ().get("WINDLASS_ATTEMPT") == marker and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    return not any(marked(process) for process in psutil.process_iter())


# From stream to result


def test_a_stream_becomes_a_result_and_every_event_is_kept(tmp_path: Path) -> None:
    agent = PythonAgent(
        SAY + "import sys; prompt = sys.stdin.read()\n"
        "say(type='session', id='s1'); say(type='tool', tool='bash', text='running x')\n"
        "say(type='tool_end', tool='bash', ok=True); print('noise'); say(type='say', text=prompt)\n"
        "say(type='usage', input=10, output=2, cost_usd=0.5); say(type='done', text='Done: ' + prompt)"
    )
    events: list[AgentEvent] = []
    started: list[SupervisedProcess] = []
    job = make_job(tmp_path)
    result = run(agent, job, on_event=events.append, on_started=started.append)
    assert replace(result, seconds=0.0) == replace(
        result,
        seconds=0.0,
        text="Done: Build it.",
        usage=Usage(10, 2, 0, 0.5),
        session="s1",
        error=None,
        reason="",
        code=0,
        tools=1,
    )
    assert 0 < result.seconds < 30
    assert events == [
        SessionSeen("s1"),
        ToolStarted("bash", "running x"),
        ToolFinished("bash", True),
        Said("Build it."),
        Spent(Usage(10, 2, 0, 0.5), total=True),
        Done("Done: Build it."),
    ]
    kept = [json.loads(line) for line in (job.folder / "events.jsonl").read_text().splitlines()]
    assert [line["type"] for line in kept] == [type(event).__name__ for event in events]
    assert (job.folder / "prompt.md").read_text() == "Build it."
    assert SupervisedProcess.parse((job.folder / "proc.json").read_text()) == started[0]
    assert started[0].marker == f"{run_id(tmp_path)}:execute/t1/implement@1"


def test_success_is_judged_by_the_terminal_event_alone(tmp_path: Path) -> None:
    done = run(PythonAgent(SAY + "say(type='done', text='x'); raise SystemExit(7)"), make_job(tmp_path))
    assert (done.error, done.text, done.code) == (None, "x", 7)
    silent = run(PythonAgent("pass"), make_job(tmp_path))
    assert (silent.error, silent.code) == (ErrorClass.CRASHED, 0)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("HTTP 429 Too Many Requests", ErrorClass.RATE_LIMITED),
        ("529 overloaded_error", ErrorClass.OVERLOADED),
        ("401 Unauthorized", ErrorClass.AUTH),
        ("Your billing period is over", ErrorClass.BILLING),
        ("prompt is too long", ErrorClass.CONTEXT_OVERFLOW),
        ("write failed: No space left on device", ErrorClass.DISK_FULL),
        ("something else", ErrorClass.CRASHED),
    ],
)
def test_without_a_terminal_event_the_end_of_stderr_tells_why(tmp_path: Path, said: str, error: ErrorClass) -> None:
    result = run(PythonAgent(f"import sys; sys.stderr.write({said!r}); raise SystemExit(1)"), make_job(tmp_path))
    assert result.error is error
    assert said in result.reason


def test_a_missing_binary_is_told_as_such(tmp_path: Path) -> None:
    class Missing(PythonAgent):
        def invocation(self, job: Any) -> Invocation:
            return Invocation(("/no/such/cli",))

    result = run(Missing(""), make_job(tmp_path))
    assert (result.error, result.reason) == (ErrorClass.MISSING_BINARY, "/no/such/cli: No such file or directory")


def test_files_of_an_invocation_stay_below_the_attempt_s_folder(tmp_path: Path) -> None:
    class Escaping(PythonAgent):
        def invocation(self, job: Any) -> Invocation:
            return Invocation(("true",), files={"../evil": "x"})

    with pytest.raises(UserError, match="not a file below"):
        run(Escaping(""), make_job(tmp_path))
    assert not (tmp_path / "evil").exists()


def test_the_agent_sees_the_allowed_environment_and_its_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    agent = PythonAgent(SAY + "import os; say(type='done', text=json.dumps(sorted(os.environ)))")
    names = set(json.loads(run(agent, make_job(tmp_path, env={"ALSO": "1"})).text))
    assert {"PATH", "HOME", "WINDLASS_ATTEMPT", "MINE", "ALSO"} <= names
    assert "SECRET_TOKEN" not in names


def test_the_environment_is_an_allow_list() -> None:
    given_env = {
        "PATH": "p",
        "LC_TIME": "c",
        "SSL_CERT_FILE": "f",
        "AWS_SECRET": "s",
        "GIT_DIR": "g",
        "KEY": "k",
        "PYTHONPATH": "x",
    }
    assert agent_env(given_env, ["KEY"]) == {"PATH": "p", "LC_TIME": "c", "SSL_CERT_FILE": "f", "KEY": "k"}
    assert agent_env({}, ci=True) == {"CI": "1"}


# Limits


def test_the_first_usage_report_beyond_the_role_s_limit_stops_the_dispatch(tmp_path: Path) -> None:
    agent = PythonAgent(
        SAY + "import time\nfor cost in (0.5, 0.9, 1.2, 9.0):\n    say(type='usage', cost_usd=cost); time.sleep(0.2)\n"
        "open('late', 'w').close(); time.sleep(60); say(type='done', text='x')"
    )
    job = make_job(tmp_path, limits=Limits(60.0, usd=1.0))
    result = run(agent, job)
    assert (result.error, result.usage.cost_usd) == (ErrorClass.OVER_BUDGET, 1.2)
    assert result.reason == "it spent $1.20, more than the limit of $1.00 for one dispatch of its role"
    assert not (job.cwd / "late").exists()
    assert no_one_left(tmp_path)


def test_a_report_that_comes_with_the_terminal_event_does_not_undo_it(tmp_path: Path) -> None:
    class AtTheEnd(PythonAgent):
        def parse(self, line: str) -> list[AgentEvent]:
            return [Spent(Usage(cost_usd=5.0)), Done("paid")]

    result = run(AtTheEnd("print('x')"), make_job(tmp_path, limits=Limits(60.0, usd=1.0)))
    assert (result.error, result.text, result.usage.cost_usd) == (None, "paid", 5.0)


def test_unknown_cost_is_never_zero(tmp_path: Path) -> None:
    agent = PythonAgent(SAY + "say(type='usage', input=5); say(type='done', text='x')")
    assert run(agent, make_job(tmp_path)).usage == Usage(5, 0, 0, None)


def test_usage_adds_up_unless_it_is_a_total(tmp_path: Path) -> None:
    class Adding(PythonAgent):
        def parse(self, line: str) -> list[AgentEvent]:
            reports: dict[str, AgentEvent] = {
                "a": Spent(Usage(1, 1, 0, 0.1)),
                "b": Spent(Usage(1, 1, 1, None)),
                "c": Spent(Usage(9, 9, 9, None), total=True),
            }
            return [reports[line]] if line in reports else [Done(line)]

    assert run(Adding("print('a\\nb\\na\\nend')"), make_job(tmp_path)).usage == Usage(3, 3, 1, 0.2)
    assert run(Adding("print('a\\nc\\nend')"), make_job(tmp_path)).usage == Usage(9, 9, 9, 0.1)


@pytest.mark.parametrize(
    ("step", "ends"),
    [("pass", True), ("say(type='say', text='again')", True), ("say(type='say', text=f'word {n}')", False)],
)
def test_a_loop_that_only_costs_is_ended(tmp_path: Path, step: str, ends: bool) -> None:
    loop = f"for n in range({IDLE_REPORTS + 9}):\n    say(type='usage', input=n); {step}\nsay(type='done', text='x')"
    result = run(PythonAgent(SAY + loop), make_job(tmp_path))
    assert (result.error is ErrorClass.TIMED_OUT) == ends, result
    assert ("without a new tool call" in result.reason) == ends


def test_too_many_turns_end_the_dispatch(tmp_path: Path) -> None:
    agent = PythonAgent(
        SAY + "import time\nwhile True:\n    say(type='tool', tool='bash', text='again'); time.sleep(0.01)"
    )
    result = run(agent, make_job(tmp_path, limits=Limits(60.0, turns=3)))
    assert (result.error, result.reason, result.tools) == (ErrorClass.TIMED_OUT, "more than 3 turns", 4)


def test_the_wall_limit_ends_the_dispatch(tmp_path: Path) -> None:
    result = run(PythonAgent("import time; time.sleep(60)"), make_job(tmp_path, limits=Limits(0.3)))
    assert (result.error, result.reason) == (ErrorClass.TIMED_OUT, "no end within 0.3 s")


def test_a_cli_that_does_not_end_after_its_terminal_event_is_ended(tmp_path: Path) -> None:
    agent = PythonAgent(SAY + "import time; say(type='done', text='x'); time.sleep(3600)")
    assert run(agent, make_job(tmp_path), linger_s=0.1).error is None


# Stopping


def starts(program: Path, pid_file: Path) -> str:
    """An agent that starts the daemon as a tool and goes on working."""
    spawn = f"os.spawnl(os.P_WAIT, {sys.executable!r}, 'py', {str(program)!r}, {str(pid_file)!r})"
    return f"import os, time; {spawn}; time.sleep(60)"


def test_a_stop_leaves_nothing_of_a_daemonised_tree(tmp_path: Path) -> None:
    program, pid_file = stubborn(tmp_path)
    agent = PythonAgent(starts(program, pid_file))

    async def scenario() -> tuple[Any, int]:
        stop = asyncio.Event()
        task = asyncio.create_task(dispatch(agent, make_job(tmp_path), stop=stop))
        daemon = await asyncio.to_thread(read_pid, pid_file)
        stop.set()
        return await task, daemon

    result, daemon = asyncio.run(scenario())
    assert (result.error, result.reason) == (ErrorClass.KILLED, "stopped")
    assert not alive(daemon)
    assert no_one_left(tmp_path)


def test_a_cancelled_dispatch_leaves_nothing_behind(tmp_path: Path) -> None:
    program, pid_file = stubborn(tmp_path)
    agent = PythonAgent(starts(program, pid_file))

    async def scenario() -> int:
        task = asyncio.create_task(dispatch(agent, make_job(tmp_path)))
        daemon = await asyncio.to_thread(read_pid, pid_file)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return daemon

    daemon = asyncio.run(scenario())
    assert not alive(daemon)
    assert no_one_left(tmp_path)


def test_an_error_in_a_callback_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(event: AgentEvent) -> None:
        raise RuntimeError("a bug of ours")

    agent = PythonAgent(SAY + "import time; say(type='say', text='x'); time.sleep(60)")
    with pytest.raises(RuntimeError, match="a bug of ours"):
        run(agent, make_job(tmp_path), on_event=fail)
    assert no_one_left(tmp_path)


DRIVER = """
import asyncio, sys
sys.path[:0] = [{tests!r}]
from pathlib import Path
from jobs import PythonAgent, dispatch, make_job
asyncio.run(dispatch(PythonAgent({program!r}), make_job(Path({folder!r}))))
"""


def test_kill_9_of_the_driver_leaves_no_process_behind(tmp_path: Path) -> None:
    program, pid_file = stubborn(tmp_path)
    agent = starts(program, pid_file)
    text = DRIVER.format(tests=str(Path(__file__).parents[1]), program=agent, folder=str(tmp_path))
    driver = subprocess.Popen([sys.executable, "-c", text])
    daemon = read_pid(pid_file)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    until((tmp_path / "attempt" / "exit.json").exists)
    assert json.loads((tmp_path / "attempt" / "exit.json").read_text())["reason"] == "driver-died"
    assert not alive(daemon)
    assert no_one_left(tmp_path)


def test_when_the_supervisor_itself_is_killed_its_tree_is_ended(tmp_path: Path) -> None:
    agent = PythonAgent("import time; time.sleep(60)")
    result = run(agent, make_job(tmp_path), on_started=lambda proc: os.kill(proc.supervisor, signal.SIGKILL))
    assert (result.error, result.reason) == (ErrorClass.DRIVER_LOST, "the supervisor was killed")
    assert no_one_left(tmp_path)


# What an earlier driver left


def orphan(folder: Path, env: dict[str, str], cwd: Path | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"], env={**os.environ, **env}, cwd=cwd or folder, start_new_session=True)


def proc_json(folder: Path, pid: int, **more: Any) -> Path:
    start = process_start(pid)
    facts = {"supervisor": {"pid": pid, "start": start}, "agent": {"pid": pid, "start": start}, "boot_id": boot_id(),
             "host": socket.gethostname(), "marker": "m"}  # fmt: skip
    path = folder / "proc.json"
    path.write_text(json.dumps(facts | more))
    return path


def leftover(path: Path, marker: str = "m", slot: Path | None = None) -> bool:
    return end_leftover(path, host=socket.gethostname(), boot_id=boot_id(), marker=marker, slot=slot, grace_s=0.3)


@pytest.mark.parametrize("found_by", ["pid", "marker", "slot"])
def test_a_leftover_is_found_by_pid_marker_or_place_and_ended(tmp_path: Path, found_by: str) -> None:
    (tmp_path / "slot").mkdir()
    marker = f"m-{tmp_path.name}"
    process = orphan(tmp_path, {"WINDLASS_ATTEMPT": marker} if found_by == "marker" else {}, tmp_path / "slot")
    path = proc_json(tmp_path, process.pid) if found_by == "pid" else tmp_path / "missing.json"
    assert leftover(path, marker, tmp_path / "slot" if found_by == "slot" else None)
    assert process.wait(300) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("changed", "confirmed"),
    [
        ({"host": "elsewhere"}, False),
        ({"boot_id": "an earlier one"}, True),
        ({"supervisor": {"pid": 1, "start": 5}, "agent": {"pid": -1, "start": 5}}, True),
    ],
)
def test_a_stranger_with_the_same_pid_is_left_alone(tmp_path: Path, changed: dict[str, Any], confirmed: bool) -> None:
    process = orphan(tmp_path, {})
    if "agent" in changed:
        changed["agent"]["pid"] = process.pid
    assert leftover(proc_json(tmp_path, process.pid, **changed), "nobody has this") is confirmed
    assert process.poll() is None
    process.kill()
    process.wait()


def test_a_broken_proc_json_is_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "proc.json").write_text('{"supervisor": 3')
    assert leftover(tmp_path / "proc.json", "nobody has this")


def test_start_times_tell_processes_apart() -> None:
    assert process_start(os.getpid()) > 0
    assert process_start(2**22 + 1) == 0
    assert boot_id() == boot_id()


# Checks and raw lines


def supervised(
    tmp_path: Path, *argv: str, on_line: Callable[[str], None] | None = None, wall_s: float = 30.0
) -> ProcessExit:
    async def scenario() -> ProcessExit:
        return await supervise(
            Invocation(argv), cwd=tmp_path, env=dict(os.environ), folder=tmp_path / "check", wall_s=wall_s,
            on_line=on_line, stop=asyncio.Event(), grace_s=0.3,
        )  # fmt: skip

    return asyncio.run(scenario())


def test_a_check_runs_through_the_same_supervisor(tmp_path: Path) -> None:
    ended = supervised(tmp_path, "sh", "-c", "echo out; exit 2")
    assert (ended.code, ended.reason, ended.left) == (2, "exited", 0)
    assert (tmp_path / "check" / "stdout").read_text() == "out\n"
    assert supervised(tmp_path, "sleep", "60", wall_s=0.2).reason == "wall"


def test_supervisors_outlive_the_process_that_forks_them_and_another_takes_its_place(tmp_path: Path) -> None:
    """Killed while one is at work, and again while nothing is."""
    assert supervised(tmp_path, "true").code == 0
    (forker,) = [child for child in psutil.Process().children() if "supervisor.serve" in " ".join(child.cmdline())]
    program = f"import os, signal; os.kill({forker.pid}, signal.SIGKILL); print('still here')"
    assert supervised(tmp_path, sys.executable, "-c", program).code == 0
    assert (tmp_path / "check" / "stdout").read_text() == "still here\n"
    assert supervised(tmp_path, "sh", "-c", "exit 3").code == 3
    assert not alive(forker.pid)


def test_a_line_of_ten_megabytes_and_broken_utf8_arrive_whole(tmp_path: Path) -> None:
    lines: list[str] = []
    program = "import sys; sys.stdout.buffer.write(b'x' * 10_000_000 + b'\\n\\n\\xff\\xfe{\\r\\nlast')"
    supervised(tmp_path, sys.executable, "-c", program, on_line=lines.append)
    assert lines == ["x" * 10_000_000, "", "\ufffd\ufffd{", "last"]


@given(st.binary(max_size=200), st.lists(st.integers(1, 20), max_size=30))
def test_lines_do_not_depend_on_how_they_are_cut(data: bytes, cuts: list[int]) -> None:
    whole: list[str] = []
    pieces: list[str] = []
    one, many = Lines(whole.append), Lines(pieces.append)
    one.read(data)
    one.end()
    rest = data
    for cut in cuts:
        many.read(rest[:cut])
        rest = rest[cut:]
    many.read(rest)
    many.end()
    assert pieces == whole


def test_many_dispatches_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        jobs = []
        for n in range(8):
            (tmp_path / str(n)).mkdir()
            job = make_job(tmp_path / str(n), key=f"k{n}")
            jobs.append(
                dispatch(PythonAgent(SAY + f"import time; time.sleep(0.05); say(type='done', text='{n}')"), job)
            )
        return [result.text for result in await asyncio.gather(*jobs)]

    assert asyncio.run(scenario()) == [str(n) for n in range(8)]
