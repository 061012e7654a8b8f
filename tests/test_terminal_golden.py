"""The real screen of a whole run, letter by letter, in three widths: `WINDLASS_SCREENS=write pytest` writes it anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from front import LEAN, Front, Rule, builder, passing, plan_of, scout, spent
from ttys import DOWN, ENTER, ESCAPE, RUN, Tty, steady, windlass_in
from windlass.errors import Exit

FOLDER = Path(__file__).parent / "screens"
#: read before a test's clean room takes it away
WRITE = os.environ.get("WINDLASS_SCREENS") == "write"
REQUEST = "Add rate limiting with a token bucket, and tell clients how long to wait"
HELD = "until [ -e ~/gate ]; do sleep 0.02; done"
TASKS = [
    {"title": "Token bucket implementation", "description": "A bucket.", "files": ["src/t1.py"]},
    {"title": "Rate limit middleware that answers 429 with a Retry-After header", "description": "Limit."},
]


def rules() -> list[Rule]:
    planner: Rule = {
        "when": {"role": "planner"},
        "files": {"{plan_path}": plan_of(TASKS)},
        "say": "done",
        **spent(0.52),
    }
    work = builder(run=["true reading the code", HELD], **spent(0.42))
    return [scout(**spent(0.14)), planner, work, passing(**spent(0.11))]


def sections(tty: Tty, gate: Path) -> list[tuple[str, str]]:
    found = [("the first question", tty.settled("Approve this plan?"))]
    tty.send("maybe", ENTER)
    found.append(("a reply that is no answer", tty.settled("is expected")))
    tty.send("\x7f" * 5, "1", ENTER)
    found.append(("the next question", tty.settled("How shall reviews work?")))
    tty.send(DOWN, ENTER)
    tty.settled("When shall I pause?")
    tty.send(ENTER)
    found.append(("at work", tty.settled(f"▸ running {HELD[:20]}")))
    tty.send("d")
    found.append(("with details", tty.settled("  working ")))
    tty.send("t")
    found.append(("telling", tty.settled("What shall the agents know?")))
    tty.send(ESCAPE)
    tty.wait_gone("What shall the agents know?")
    gate.touch()
    assert tty.end() == Exit.OK
    return [*found, ("everything, when it is over", tty.scrollback)]


@pytest.mark.req("S1-10", "S1-17", "S1-66", "S1-67", "S1-88", "S1-89", "S1-90", "S1-91")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_run_looks_like_this(tmp_path: Path, columns: int) -> None:
    front = Front(tmp_path, LEAN)
    gate = Path(front.env["HOME"]) / "gate"
    front.say(rules())
    env = {name: value for name, value in front.env.items() if name not in ("COLUMNS", "TERM")}
    argv = ("run", REQUEST, "--script", str(front.script))
    with windlass_in(front.root, env, *argv, columns=columns, rows=30, still=True) as tty:
        found = sections(tty, gate)
    text = "\n".join(f"{'=' * 8} {name}\n{steady(screen)}" for name, screen in found)
    golden = FOLDER / f"run-{columns}.txt"
    if WRITE:
        FOLDER.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert RUN in text
    assert max(map(len, text.splitlines())) <= columns
