"""Every retry goes on with the CLI's own session where it can, in the slot as it was left."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from front import ONE_TASK, Front, Rule
from processes_for_tests import until
from windlass.events import DispatchFinished, WaitStarted

#: stands in for pi: notes how it was called, leaves a file half done and the locks of a git that was killed, then does
#: what its list says
AGENT = """\
import json, os, pathlib, subprocess, sys, time
home = pathlib.Path(__file__).parent
known = sys.argv[sys.argv.index("--session-id") + 1] if "--session-id" in sys.argv else ""
calls = home / "calls.jsonl"
number = len(calls.read_text().splitlines()) if calls.exists() else 0
mode = json.loads((home / "modes.json").read_text())[number]
half = pathlib.Path("half.txt")
with calls.open("a") as file:
    file.write(json.dumps({"session": known, "prompt": sys.stdin.read(), "found": half.exists(), "mode": mode}) + "\\n")
def say(**line):
    print(json.dumps(line), flush=True)
def end(reason, error="", text="hm"):
    usage = {"input": 100, "output": 10, "cost": {"total": 0.01}} if mode != "refused" else {}
    content = [{"type": "text", "text": text}] if mode != "refused" else []
    say(type="message_end", message={"role": "assistant", "content": content, "usage": usage, "stopReason": reason,
                                     "errorMessage": error})
    say(type="agent_settled")
    sys.exit(0)
if mode == "unknown":
    print("no such session", file=sys.stderr)
    sys.exit(1)
say(type="session", id=known or "s-1")
if mode == "refused":
    end("error", "429 try again in 0.1s")
say(type="tool_execution_start", toolName="write", args={"path": "half.txt"}, toolCallId="1")
half.write_text("half\\n")
say(type="tool_execution_end", toolName="write", toolCallId="1", isError=False)
usage = {"input": 50, "output": 5, "cost": {"total": 0.005}}
said = [{"type": "text", "text": "so far"}]
say(type="message_end", message={"role": "assistant", "content": said, "usage": usage, "stopReason": "toolUse"})
def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True, text=True).stdout.strip()
if mode != "ok":
    for name in ("index.lock", "HEAD.lock"):
        (pathlib.Path(git("rev-parse", "--absolute-git-dir")) / name).touch()
match mode:
    case "429" | "503":
        end("error", mode + " try again in 0.1s")
    case "crash":
        print("it broke", file=sys.stderr)
        os._exit(7)
    case "hang":
        time.sleep(600)
    case "ok":
        pathlib.Path("done.txt").write_text("done\\n")
        git("add", "done.txt")
        git("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-qm", "Built")
        end("stop", text="Built.")
"""


@dataclass
class Bench:
    front: Front
    home: Path

    def plan(self, *modes: str) -> None:
        (self.home / "modes.json").write_text(json.dumps(modes))

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.home / "calls.jsonl").read_text().splitlines()]

    @property
    def seen_at_work(self) -> bool:
        """By the driver, not only by us."""
        logs = self.front.root.glob(".git/windlass/runs/*/attempts/execute/t1/implement/@1/events.jsonl")
        return any("Spent" in log.read_text() for log in logs)

    def apart(self, *argv: str) -> int:
        """A driver of its own, as each is: one that lives on in this process would be taken for a second one."""
        env = {**self.front.env, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "windlass", *argv]
        return subprocess.run(command, cwd=self.front.root, env=env, capture_output=True, check=False).returncode

    def hold(self, seconds: float) -> None:
        """What the login waits for, as another run would have noted it."""
        path = Path(self.front.env["XDG_STATE_HOME"]) / "windlass" / "waits.db"
        with closing(sqlite3.connect(path)) as db, db:
            end = (time.time() + seconds, time.monotonic() + seconds)
            db.execute("UPDATE wait SET until = ?, ends = ?, opened = 0, prober = 0", end)

    def run(self) -> int:
        return self.front("run", "--flow", "tiny", "--yes", "--", "Add it").code

    @property
    def errors(self) -> list[str]:
        return [event.error for event in self.front.events(DispatchFinished)]

    def went_on(self, *modes: str) -> None:
        """The second call continued the first one's session, in its tree."""
        one, two = self.calls
        assert (one["mode"], two["mode"]) == modes
        assert (one["session"], two["session"]) == ("", "s-1")
        assert two["found"]
        assert "Title: Add it" in one["prompt"]
        assert "The working directory is as you left it" in two["prompt"]
        assert "Title: Add it" not in two["prompt"]
        assert {"half.txt", "done.txt"} <= self.front.landed


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    home = tmp_path / "agent"
    home.mkdir()
    (home / "agent.py").write_text(AGENT)
    version = '[ "$1" = --version ] && echo 0.87.1 && exit\n'
    (home / "pi").write_text(f'#!/bin/sh\n{version}exec {sys.executable} {home}/agent.py "$@"\n')
    (home / "pi").chmod(0o755)
    front = Front(tmp_path, files={".windlass/flows/tiny.yaml": ONE_TASK})
    configure(front, home)
    return Bench(front, home)


def configure(front: Front, home: Path, more: str = "", pause: str = "1s") -> None:
    front.configure(
        f'[agents]\ndefault = "pi"\n[agents.pi]\nbin = "{home}/pi"\n[retries]\npauses = ["{pause}"]\n{more}'
    )


@pytest.mark.sweep(2)
@pytest.mark.parametrize("mode", ["429", "503", "crash"])
def test_a_dispatch_that_failed_goes_on_with_its_session_in_its_tree(bench: Bench, mode: str) -> None:
    bench.plan(mode, "ok")
    assert bench.run() == 0
    bench.went_on(mode, "ok")


@pytest.mark.long
def test_a_dispatch_that_was_too_slow_goes_on_with_its_session(bench: Bench) -> None:
    configure(bench.front, bench.home, '[roles.implementer]\nwall = "4s"\n')
    bench.plan("hang", "ok")
    assert bench.run() == 0
    assert bench.errors == ["timed_out", ""]
    bench.went_on("hang", "ok")


def test_a_frozen_dispatch_is_ended_and_goes_on_with_its_session(bench: Bench) -> None:
    configure(bench.front, bench.home, '[limits]\nfrozen = "2s"\n')
    bench.plan("hang", "ok")
    assert bench.run() == 0
    assert bench.errors == ["timed_out", ""]
    assert "frozen: no event, no processor time and no file touched" in "".join(bench.front.warnings)
    bench.went_on("hang", "ok")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_driver_that_was_stopped_is_followed_by_one_that_goes_on_with_the_session(
    bench: Bench, number: signal.Signals
) -> None:
    bench.plan("hang", "ok")
    command = [sys.executable, "-m", "windlass", "run", "--flow", "tiny", "--yes", "--", "Add it"]
    env = {**bench.front.env, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(
        command, cwd=bench.front.root, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: bench.seen_at_work or driver.poll() is not None)
        driver.send_signal(number)
        driver.wait(300)
    finally:
        driver.kill()
        driver.wait()
    assert bench.front("resume").code == 0
    bench.went_on("hang", "ok")


@pytest.mark.long
def test_a_run_that_rested_in_a_wait_goes_on_with_the_session_however_often(bench: Bench) -> None:
    configure(bench.front, bench.home, 'longest_wait = "50ms"\n', pause="60s")
    bench.plan("429", "ok")
    assert bench.apart("run", "--flow", "tiny", "--yes", "--", "Add it") == 12
    # the service still names a time: this driver rests before it comes to the session
    bench.hold(30.0)
    assert bench.apart("resume") == 12
    bench.hold(0.0)
    configure(bench.front, bench.home)
    assert bench.apart("resume") == 0
    bench.went_on("429", "ok")


@pytest.mark.long
def test_a_session_that_the_cli_forgot_is_begun_anew_in_the_same_tree_and_told_what_lies_there(bench: Bench) -> None:
    bench.plan("crash", "unknown", "ok")
    assert bench.run() == 0
    first, second, third = bench.calls
    assert [call["session"] for call in (first, second, third)] == ["", "s-1", ""]
    assert third["found"]
    assert "Title: Add it" in third["prompt"]
    assert "their unfinished work is in this directory (uncommitted: 'half.txt')" in third["prompt"]


def test_a_dispatch_that_was_turned_away_at_once_begins_anew(bench: Bench) -> None:
    """Its session holds nothing that was paid for, and not every CLI keeps it."""
    bench.plan("refused", "ok")
    assert bench.run() == 0
    assert [call["session"] for call in bench.calls] == ["", ""]


@pytest.mark.long
def test_another_agent_begins_afresh_in_a_clean_tree_and_the_work_is_kept(bench: Bench) -> None:
    configure(bench.front, bench.home, 'longest_wait = "1s"\n')
    bench.plan("429", "429", "429", "429")
    assert bench.apart("run", "--flow", "tiny", "--yes", "--", "Add it") == 12
    rules: list[Rule] = [{"when": {}, "files": {"other.txt": "x\n"}, "say": "Built."}]
    bench.front.say(rules)
    assert bench.front("resume", "--agent", "scripted", "--script", str(bench.front.script)).code == 0
    assert "other.txt" in bench.front.landed
    assert "half.txt" not in bench.front.landed
    kept = bench.front.git("for-each-ref", "--format=%(objectname)", "refs/windlass/keep").split()
    assert any("half.txt" in bench.front.git("ls-tree", "-r", "--name-only", sha) for sha in kept)


def test_a_service_that_cannot_be_used_for_long_lets_the_run_rest_with_the_reason(bench: Bench) -> None:
    configure(bench.front, bench.home, 'longest_wait = "1s"\n')
    bench.plan(*["refused"] * 20)
    assert bench.run() == 12
    status = bench.front.status
    assert "retries.longest_wait" in status["reason"]
    assert "429" in status["reason"]
    assert len(bench.calls) <= 3


@pytest.mark.long
def test_a_run_in_another_repository_waits_for_the_same_login_and_says_so(bench: Bench, tmp_path: Path) -> None:
    configure(bench.front, bench.home, 'longest_wait = "1s"\n')
    (bench.home / "agent.py").write_text(AGENT.replace("try again in 0.1s", "try again in 30s"))
    bench.plan("429", "ok")
    assert bench.run() == 12
    other = Front(tmp_path / "other", files={".windlass/flows/tiny.yaml": ONE_TASK})
    other.__dict__["env"] = bench.front.env
    assert other("run", "--flow", "tiny", "--yes", "--", "Add it").code == 12
    assert len(bench.calls) == 1
    [wait] = other.events(WaitStarted)
    assert wait.credential.startswith("pi")
    assert "429" in wait.reason
    assert "the quota of pi until" in other.status["waiting_for"]
