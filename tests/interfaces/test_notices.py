"""What reaches a person who is not looking: the line when a session begins, what Tab offers, messages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from front import LEAN, Front, basics
from windlass.events import Event, QuestionAnswered, QuestionAsked, Recorded, RunEnded
from windlass.runs.notices import Notice, Notices, Subject

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
    at = str(len(words.split(" ")) - 1)
    asks = {"_WINDLASS_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": at}
    done = subprocess.run(
        [sys.executable, "-m", "windlass"],
        cwd=front.root,
        env={**front.env, **asks},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.long
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


@pytest.mark.long
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
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("waits for your answer") == 1


# -- messages


@dataclass
class Inbox:
    """A service on loopback that takes messages."""

    port: int = 0
    got: list[dict[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"json://secret-user:secret-word-1@127.0.0.1:{self.port}/in"

    @property
    def titles(self) -> list[str]:
        return [message["title"].partition(" run ")[2].partition(" ")[2] for message in self.got]


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    box = Inbox()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            box.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        box.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield box
        server.shutdown()
        thread.join()


def notifying(*urls: str) -> str:
    return f"{LEAN}[notify]\nurls = {json.dumps(urls)}\n"


def test_a_message_tells_that_a_run_waits_and_the_command_to_answer(tmp_path: Path, inbox: Inbox) -> None:
    front = Front(tmp_path, notifying(inbox.url))
    assert front.start(basics("One")).code == 10
    [message] = inbox.got
    assert message["title"] == f"windlass: repo: run {front.run} waits for your answer"
    assert message["message"] == (
        "Add sub and mul\nApprove this plan?\nOptions: approve, revise\n"
        f"Answer: windlass answer {front.run} 'plan-approval!approve' VALUE"
    )
    front("abort")


def test_questions_that_were_answered_beforehand_are_no_message_and_the_end_is_one(
    tmp_path: Path, inbox: Inbox
) -> None:
    front = Front(tmp_path, notifying(inbox.url))
    assert front.start(basics("One"), "--yes").code == 0
    assert inbox.titles == ["finished"]
    assert f"Land it: windlass land {front.run}" in inbox.got[0]["message"]


def test_a_run_that_stops_says_why_and_how_to_go_on(tmp_path: Path, inbox: Inbox) -> None:
    front = Front(tmp_path, notifying(inbox.url))
    assert front.start(basics("One"), "--yes", "--budget", "0").code == 12
    assert inbox.titles == ["is stopped"]
    assert f"Continue: windlass resume {front.run}" in inbox.got[0]["message"]


def test_a_message_that_cannot_be_delivered_hurts_nothing_and_tells_no_address(tmp_path: Path) -> None:
    front = Front(tmp_path, notifying("json://secret-user:secret-word-1@127.0.0.1:9/in", "nowhere://secret-word-2/x"))
    done = front.start(basics("One"), "--yes")
    assert done.code == 0
    log = (front.folder / "notify.log").read_text()
    assert "notify.urls 1 (json): was not delivered" in log
    assert "notify.urls 2 (nowhere): is not a known address" in log
    assert "secret" not in log + done.out + done.err


def test_an_address_that_is_none_is_refused_without_being_shown(tmp_path: Path) -> None:
    front = Front(tmp_path, notifying("secret-word-3"))
    done = front.start(basics("One"), "--yes")
    assert done.code == 1
    assert "an address has the form SCHEME://" in done.err
    assert "secret-word-3" not in done.out + done.err


def told(seq: int, event: Event) -> Recorded:
    return Recorded(seq, "r1", 0.0, event)


def test_a_question_on_a_screen_is_a_message_only_when_it_stays_open() -> None:
    sent: list[Notice] = []
    arrived = threading.Event()

    def send(notice: Notice) -> None:
        sent.append(notice)
        arrived.set()

    asked = [told(n, QuestionAsked(f"p!q{n}", f"q{n}", f"Q{n}?", [])) for n in (1, 2)]
    with Notices(Subject("r1", "Do it", "repo"), send, patience_s=0.05) as watching:
        watching.on_event(asked[0])
        assert arrived.wait(300)
        watching.on_event(told(3, RunEnded("waiting")))
    with Notices(Subject("r1", "Do it", "repo"), send, patience_s=3600) as watching:
        watching.on_event(asked[1])
        watching.on_event(told(4, QuestionAnswered("p!q2", "q2", "yes", "terminal")))
        watching.on_event(told(5, RunEnded("waiting")))
    assert [notice.body.splitlines()[1] for notice in sent] == ["Q1?"]
