"""What agents say and leave behind when they say it badly: never a pass, never an escape, never a crash."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from front import LEAN, NO_EXTRAS, PASS, Front, basics, builder, passing, plan_text, scripted

QUICK = "[retries]\ncrashed = 0\n"
TASK = [builder(), passing()]
FENCE = "```"
VERDICT = json.dumps(PASS)
FAILED = json.dumps({"status": "fail", "findings": [{"message": "no"}], "summary": "no"})


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, QUICK + LEAN)


def reviewed_by(front: Front, program: str) -> str:
    """The spec reviewer's verdict when it is this Python program."""
    (front.tmp / "agent.py").write_text(program)
    odd = f'[agents.odd]\nargv = ["python3", "{front.tmp}/agent.py"]\n[roles.spec-reviewer]\nagent = "odd"\n'
    front.configure(QUICK + NO_EXTRAS + scripted(front) + odd)
    front.say(TASK)
    front("task", "x")
    return front.view.tasks[0].reviews["spec-reviewer"].verdict


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        (
            f"{FENCE}superteam-json\n{FAILED}\n{FENCE}\nOn second thoughts:\n{FENCE}superteam-json\n{VERDICT}\n{FENCE}",
            "pass",
        ),
        (f"{FENCE}superteam-json\n{VERDICT}\n{FENCE}\nNo!\n{FENCE}superteam-json\nnot json\n{FENCE}", "inconclusive"),
        (f"{FENCE}{FENCE}superteam-json\n{FENCE}superteam-json\n{VERDICT}\n{FENCE}\n{FENCE}{FENCE}", "inconclusive"),
        (f"{FENCE}superteam-json\n{VERDICT}", "inconclusive"),
        ("PASS. Everything is fine.", "inconclusive"),
        ("", "inconclusive"),
    ],
    ids=["two blocks", "last one broken", "block in a block", "never closed", "only words", "nothing"],
)
def test_only_a_last_closed_valid_block_is_a_verdict(front: Front, said: str, verdict: str) -> None:
    assert reviewed_by(front, f"print({said!r})") == verdict


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.stdout.buffer.write(b'\\xff\\xfe broken \\x80\\n')",
        "print('x' * 10_000_000)",
        "print('\\x1b[2J\\x1b]0;owned\\x07\\x1b[31mred\\x1b[0m\\x9b2J')",
        "print('\\x00' * 1000)",
    ],
    ids=["invalid UTF-8", "a line of 10 MB", "terminal escapes", "NULs"],
)
def test_odd_bytes_do_no_harm_and_the_verdict_after_them_counts(front: Front, program: str) -> None:
    block = f"{FENCE}superteam-json\n{VERDICT}\n{FENCE}"
    assert reviewed_by(front, f"{program}\nprint({block!r})") == "pass"
    shown = "".join(front(*command).out for command in (("log",), ("show",), ("status",)))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


def test_escapes_of_an_agent_never_reach_the_terminal(front: Front) -> None:
    nasty = "\x1b[2J\x1b]0;owned\x07 done"
    finding = {"status": "fail", "findings": [{"message": nasty, "file": nasty}], "summary": nasty}
    rules = [{"when": {"role": "spec-reviewer"}, "json": finding}, builder(say=nasty), passing()]
    done = front.task(rules, "x", "--set", "max_task_review_cycles=1")
    for text in (done.out, done.err, front("show").out, front("log").out, front("status").out):
        assert "\x1b" not in text
        assert "\x07" not in text


def test_an_agent_that_writes_outside_its_folder_by_a_link_is_not_followed(front: Front) -> None:
    """A plan file that is a link to somewhere else is not read."""
    secret = front.tmp / "secret.md"
    secret.write_text(plan_text(["Stolen"]))
    rule = {"when": {"role": "planner"}, "say": "done", "run": [f"mkdir -p docs/plans && ln -s {secret} {{plan_path}}"]}
    done = front.start([*basics("One")[:1], rule, passing()], "--yes")
    assert done.code == 12
    assert not front.view.tasks
