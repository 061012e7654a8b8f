"""The real screen of a whole run, letter by letter, in three widths: `WINDLASS_SCREENS=write pytest` writes it anew."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import pytest

from front import LEAN, Front, Rule, builder, passing, plan_of, scout, spent
from ttys import BACKSPACE, DOWN, ENTER, ESCAPE, RUN, Tty, steady, windlass_in
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


class Album:
    """The pictures of one width. A picture is waited for: when it is drawn does not matter, only that it comes."""

    def __init__(self, columns: int) -> None:
        self._file = FOLDER / f"run-{columns}.txt"
        text = "" if WRITE or not self._file.exists() else self._file.read_text(encoding="utf-8")
        parts = re.split(r"^=+ (.+)\n", text, flags=re.MULTILINE)[1:]
        self._wanted = dict(zip(parts[::2], (part.rstrip() + "\n" for part in parts[1::2]), strict=True))
        self._taken: dict[str, str] = {}

    def shows(self, tty: Tty, name: str, words: str) -> None:
        self._taken[name] = steady(tty.settled(words)) if WRITE else self._awaited(tty, name)

    def ends(self, tty: Tty, name: str) -> None:
        self._taken[name] = steady(without_report(tty.scrollback))
        if WRITE:
            FOLDER.mkdir(exist_ok=True)
            text = "\n".join(f"{'=' * 8} {name}\n{screen}" for name, screen in self._taken.items())
            self._file.write_text(text, encoding="utf-8")
        elif self._taken[name] != self._wanted[name]:
            self._differs(name, self._taken[name])

    def _awaited(self, tty: Tty, name: str) -> str:
        try:
            tty.wait_for(lambda text: steady(text) == self._wanted[name], name)
        except AssertionError:
            self._differs(name, steady(tty.text))
        return self._wanted[name]

    def _differs(self, name: str, screen: str) -> None:
        lines = (self._wanted[name].splitlines(), screen.splitlines())
        pytest.fail(f"{name}:\n" + "\n".join(difflib.unified_diff(*lines, "golden", "screen", n=20)), pytrace=False)


def without_report(text: str) -> str:
    """Its heading stays; what it says is shown in its own tests."""
    return re.sub(r"(Workflow Complete\n).*?(?=\n\n[^\n]+plan · " + RUN + ")", r"\1\n...", text, flags=re.DOTALL)


def rules() -> list[Rule]:
    plan = {"{plan_path}": plan_of(TASKS)}
    planner: Rule = {"when": {"role": "planner"}, "files": plan, "say": "done", **spent(0.52)}
    work = builder(run=["true reading the code", HELD], **spent(0.42))
    return [scout(**spent(0.14)), planner, work, passing(**spent(0.11))]


@pytest.mark.req("S1-10", "S1-17", "S1-66", "S1-67", "S1-88", "S1-89", "S1-90", "S1-91")
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_run_looks_like_this(tmp_path: Path, columns: int) -> None:
    front, album = Front(tmp_path, LEAN), Album(columns)
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
        album.shows(tty, "telling", "What shall the agents know?")
        tty.send(ESCAPE)
        tty.wait_gone("What shall the agents know?")
        (Path(front.env["HOME"]) / "gate").touch()
        assert tty.end() == Exit.OK
        album.ends(tty, "everything, when it is over")
        assert max(map(len, tty.scrollback.splitlines())) <= columns
