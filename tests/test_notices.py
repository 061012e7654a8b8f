"""What reaches a person who is not looking: the line when a session begins, what Tab offers, messages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from front import LEAN, Front, basics

# -- the line of a session


@pytest.fixture
def waiting(tmp_path: Path) -> Front:
    front = Front(tmp_path, LEAN)
    assert front.start(basics("One")).code == 10
    return front


@pytest.mark.req("S0-07")
def test_a_session_that_begins_where_a_run_is_in_progress_is_told_in_one_line(waiting: Front) -> None:
    run = waiting.run
    told = (
        f"windlass: run {run} (Add sub and mul) waits for your answer to 'Approve this plan?': windlass status {run}\n"
    )
    assert waiting("status", "--brief").out == told
    (waiting.root / "docs").mkdir(exist_ok=True)
    assert waiting("status", "--brief", cwd=waiting.root / "docs").out == told
    waiting("answer", "approve", "--no-resume")
    assert f"is waiting: windlass resume {run}" in waiting("status", "--brief").out
    waiting("abort")
    assert waiting("status", "--brief").out == ""


def test_where_there_is_nothing_to_tell_the_line_is_not_there(tmp_path: Path) -> None:
    front = Front(tmp_path)
    for folder in (front.root, tmp_path):
        done = front("status", "--brief", cwd=folder)
        assert (done.code, done.out, done.err) == (0, "", "")
    assert not (front.root / ".git" / "windlass").exists()
    assert front("status", "--brief", "--json").code == 2


def test_the_line_hides_what_a_request_would_do_to_a_terminal(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN)
    front.start(basics("One"), request="Add\x1b[2J sub\u202e\nand " + "x" * 500)
    line = front("status", "--brief").out
    assert line.count("\n") == 1
    assert "(Add sub and xxx" in line
    assert len(line) < 250


# -- what Tab offers


def offered(front: Front, words: str) -> list[str]:
    """As the script that `windlass completions` prints asks for it."""
    asks = {
        "_WINDLASS_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "windlass"],
        cwd=front.root,
        env={**front.env, **asks},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_tab_offers_commands_runs_answers_and_flows(waiting: Front) -> None:
    assert offered(waiting, "windlass sta") == ["status"]
    assert "drive" not in offered(waiting, "windlass ")
    assert offered(waiting, "windlass show ") == [waiting.run]
    assert offered(waiting, "windlass answer ") == ["approve", "revise"]
    assert offered(waiting, "windlass run --flow br") == ["brainstorm"]
    assert offered(waiting, "windlass completions f") == ["fish"]


def test_tab_offers_nothing_and_says_nothing_where_there_are_no_runs(tmp_path: Path) -> None:
    front = Front(tmp_path)
    assert offered(front, "windlass show ") == []
    assert offered(front, "windlass answer ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_takes_in_is_fit_for_that_shell(tmp_path: Path, shell: str) -> None:
    front = Front(tmp_path)
    plain, noticing = (front("completions", shell, *more).out for more in ([], ["--notice"]))
    assert noticing.startswith(plain)
    assert "status --brief" in noticing
    assert "status --brief" not in plain
    if program := shutil.which(shell):
        done = subprocess.run([program, "-n"], input=noticing, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_bash_tells_of_a_run_once_per_folder(waiting: Front) -> None:
    bin = waiting.tmp / "bin"
    bin.mkdir()
    (bin / "windlass").write_text(f'#!/bin/sh\nexec {sys.executable} -m windlass "$@"\n')
    (bin / "windlass").chmod(0o755)
    script = 'eval "$(windlass completions bash --notice)"\n' + 'eval "$PROMPT_COMMAND"\n' * 2 + "cd /\n"
    done = subprocess.run(
        ["bash", "-c", script + 'eval "$PROMPT_COMMAND"'],
        cwd=waiting.root,
        env={**waiting.env, "PATH": f"{bin}{os.pathsep}{waiting.env['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("waits for your answer") == 1
