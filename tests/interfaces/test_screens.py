"""The real screen of a whole run, letter by letter, in three widths: `WINDLASS_SCREENS=write pytest` writes it anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from album import Album
from front import LEAN, Front, Rule, builder, passing, plan_of, scout, spent
from ttys import BACKSPACE, DOWN, ENTER, ESCAPE, windlass_in
from windlass.errors import Exit

REQUEST = "Add rate limiting with a token bucket, and tell clients how long to wait"
HELD = "until [ -e ~/gate ]; do sleep 0.02; done"
TASKS = [
    {"title": "Token bucket implementation", "description": "A bucket.", "files": ["src/t1.py"]},
    {"title": "Rate limit middleware that answers 429 with a Retry-After header", "description": "Limit."},
]


def rules() -> list[Rule]:
    plan = {"{plan_path}": plan_of(TASKS)}
    planner: Rule = {"when": {"role": "planner"}, "files": plan, "say": "done", **spent(0.52)}
    work = builder(run=["true reading the code", HELD], **spent(0.42))
    return [scout(**spent(0.14)), planner, work, passing(**spent(0.11))]


@pytest.mark.sweep(3)
@pytest.mark.req("S1-10", "S1-17", "S1-66", "S1-67", "S1-88", "S1-89", "S1-90", "S1-91")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_run_looks_like_this(tmp_path: Path, columns: int) -> None:
    front, album = Front(tmp_path, LEAN), Album(f"run-{columns}")
    front.say(rules())
    env = {name: value for name, value in front.env.items() if name not in ("COLUMNS", "TERM")}
    argv = ("run", REQUEST, "--script", str(front.script))
    with windlass_in(front.root, env, *argv, columns=columns, rows=30, still=True) as tty:
        album.shows(tty, "the first question", "Approve this plan?")
        tty.send("maybe", ENTER)
        album.shows(tty, "a reply that is no answer", "is expected")
        tty.send(BACKSPACE * 5, "1", ENTER)
        album.shows(tty, "the next question", "How shall reviews work?")
        tty.send(DOWN, ENTER)
        tty.wait("When shall I pause?")
        tty.send(ENTER)
        album.shows(tty, "at work", f"▸ running {HELD[:20]}")
        tty.send("d")
        album.shows(tty, "with details", "  working ")
        tty.send("t")
        album.shows(tty, "telling", "What should the agent that writes code know?")
        tty.send(ESCAPE)
        tty.wait_gone("What should the agent that writes code know?")
        (Path(front.env["HOME"]) / "gate").touch()
        assert tty.end() == Exit.OK
        album.ends(tty, "everything, when it is over")
        assert max(map(len, tty.scrollback.splitlines())) <= columns
