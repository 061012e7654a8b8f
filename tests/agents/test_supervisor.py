from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from processes_for_tests import alive, read_pid, stubborn, until
from windlass.agents.process import supervisor
from windlass.agents.process.launch import program

COMMAND = program("agents.process.supervisor.main")
QUIET: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
HEAVY = ("asyncio", "logging", "msgspec", "subprocess", "typing", "windlass.model")


def start(folder: Path, *argv: str, wall_s: float = 30.0, grace_s: float = 0.3, **more: Any) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    job = {
        "argv": list(argv),
        "cwd": str(folder),
        "env": dict(os.environ),
        "stdin": "",
        "stdout": str(folder / "stdout"),
        "stderr": str(folder / "stderr"),
        "folder": str(folder),
        "wall_s": wall_s,
        "grace_s": grace_s,
        "marker": "run:key@1",
    }
    assert process.stdin
    process.stdin.write(json.dumps(job | more).encode() + b"\n")
    process.stdin.flush()
    return process


def ended(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    process.wait(300)
    for pipe in (process.stdin, process.stdout):
        assert pipe
        pipe.close()
    facts: dict[str, Any] = json.loads((folder / "exit.json").read_text())
    facts.pop("seconds")
    return facts


def send(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin
    process.stdin.write(data)
    process.stdin.flush()


def test_code_and_output_of_the_program_are_kept_in_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello")
    process = start(tmp_path, "sh", "-c", "cat; echo bad >&2; exit 3", stdin=str(tmp_path / "in"))
    assert ended(process, tmp_path) == {"code": 3, "signal": None, "reason": "exited", "left": 0, "error": ""}
    assert ((tmp_path / "stdout").read_text(), (tmp_path / "stderr").read_text()) == ("hello", "bad\n")


def test_proc_json_names_both_processes_with_their_start_times(tmp_path: Path) -> None:
    process = start(tmp_path, "sleep", "60")
    assert process.stdout
    announced = json.loads(process.stdout.readline())
    assert announced == json.loads((tmp_path / "proc.json").read_text())
    assert announced["supervisor"] == {"pid": process.pid, "start": supervisor.start_ticks(process.pid)}
    agent = announced["agent"]
    assert psutil.Process(agent["pid"]).cmdline() == ["sleep", "60"]
    assert agent["start"] == supervisor.start_ticks(agent["pid"]) > 0
    assert (announced["marker"], announced["host"]) == ("run:key@1", os.uname().nodename)
    send(process, b"s")
    assert ended(process, tmp_path)["reason"] == "stopped"


def test_a_missing_program_is_told_with_what_the_system_said(tmp_path: Path) -> None:
    process = start(tmp_path, "/no/such/agent")
    said = "/no/such/agent: No such file or directory"
    assert ended(process, tmp_path) == {"code": None, "signal": None, "reason": "missing", "left": 0, "error": said}
    assert not (tmp_path / "proc.json").exists()


def test_a_missing_working_directory_is_told_too(tmp_path: Path) -> None:
    process = start(tmp_path, "true", cwd=str(tmp_path / "gone"))
    facts = ended(process, tmp_path)
    assert (facts["reason"], facts["error"]) == ("missing", "true: No such file or directory")


def test_the_wall_limit_ends_the_program(tmp_path: Path) -> None:
    process = start(tmp_path, "sleep", "60", wall_s=0.1)
    assert ended(process, tmp_path) == {"code": None, "signal": 15, "reason": "wall", "left": 0, "error": ""}


def test_a_program_that_ignores_term_is_killed_after_the_grace(tmp_path: Path) -> None:
    process = start(tmp_path, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done")
    until(lambda: (tmp_path / "stdout").exists() and (tmp_path / "stdout").read_text() == "up\n")
    send(process, b"s")
    assert ended(process, tmp_path) == {"code": None, "signal": 9, "reason": "stopped", "left": 0, "error": ""}


def test_a_stopped_process_is_woken_to_end(tmp_path: Path) -> None:
    process = start(tmp_path, "sh", "-c", "kill -STOP $$", grace_s=10)
    until((tmp_path / "proc.json").exists)
    agent = json.loads((tmp_path / "proc.json").read_text())["agent"]["pid"]
    until(lambda: psutil.Process(agent).status() == psutil.STATUS_STOPPED)
    send(process, b"s")
    assert ended(process, tmp_path)["signal"] == 15


@pytest.mark.parametrize("how", ["stop", "exit", "driver dies", "wall", "term"])
def test_a_daemon_that_ignores_term_is_gone_however_it_ends(tmp_path: Path, how: str) -> None:
    program, pid_file = stubborn(tmp_path)
    wait = "" if how == "exit" else "; sleep 60"
    command = f"{sys.executable} {program} {pid_file}{wait}"
    process = start(tmp_path, "sh", "-c", command, wall_s=1.0 if how == "wall" else 30.0)
    daemon = read_pid(pid_file) if how != "exit" else 0
    if how == "stop":
        send(process, b"s")
    elif how == "driver dies":
        assert process.stdin
        process.stdin.close()
    elif how == "term":
        process.send_signal(signal.SIGTERM)
    facts = ended(process, tmp_path)
    reasons = {"stop": "stopped", "exit": "exited", "driver dies": "driver-died", "wall": "wall", "term": "stopped"}
    assert (facts["reason"], facts["left"]) == (reasons[how], 0)
    assert not daemon or not alive(daemon)
    assert not list(marked(tmp_path))


def marked(folder: Path) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or [])]


def test_an_agent_that_signals_its_own_group_does_not_reach_the_supervisor(tmp_path: Path) -> None:
    process = start(tmp_path, "sh", "-c", "kill -KILL 0")
    assert ended(process, tmp_path) == {"code": None, "signal": 9, "reason": "exited", "left": 0, "error": ""}


def test_a_driver_that_dies_before_the_job_leaves_a_quiet_supervisor(tmp_path: Path) -> None:
    done = subprocess.run(COMMAND, check=False, **QUIET)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_stop_in_the_same_write_as_the_job_is_not_lost(tmp_path: Path) -> None:
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    job = {"argv": ["sleep", "60"], "cwd": str(tmp_path), "env": dict(os.environ), "stdout": str(tmp_path / "o"),
           "stderr": str(tmp_path / "e"), "folder": str(tmp_path), "wall_s": 60, "grace_s": 0.3}  # fmt: skip
    send(process, json.dumps(job).encode() + b"\ns")
    assert ended(process, tmp_path)["reason"] == "stopped"


def processor_time() -> float:
    """Of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_it_starts_fast_and_small(tmp_path: Path) -> None:
    own, bare, memory = [], [], 0
    for _ in range(5):
        before = processor_time()
        process = start(tmp_path, "sleep", "60")
        assert process.stdout
        process.stdout.readline()
        memory = psutil.Process(process.pid).memory_info().rss
        send(process, b"s")
        ended(process, tmp_path)
        own.append(processor_time() - before)
        before = processor_time()
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        bare.append(processor_time() - before)
    # 2.6 times; with asyncio it would be 9 times
    assert min(own) < 5 * min(bare)
    assert memory < 16 << 20


def test_it_imports_nothing_that_is_slow_to_start() -> None:
    *python, code, path = COMMAND
    look = f"print([name for name in {HEAVY!r} if name in sys.modules])"
    loaded = code.replace("sys.exit(supervisor.main())", look)
    assert subprocess.run([*python, loaded, path], check=False, **QUIET).stdout == b"[]\n"
