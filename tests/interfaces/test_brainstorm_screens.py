"""The bundled brainstorm at a real terminal, by keys alone, and what its screens look like in three widths."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from album import Album
from front import Front, Rule
from ttys import DOWN, ENTER, ESCAPE, Tty, windlass_in
from windlass.errors import Exit
from windlass.events import QuestionAnswered
from windlass.runs.demo import SCENES

SCENE = SCENES["brainstorm"]
QUESTIONS = ("What shall need a login?", "How do people prove who they are?", "Should sessions be", "How long shall a")
RIGHT = "Does this section look right?"
HELD = "until [ -e ~/gate ]; do sleep 0.02; done"


class Sample(Front):
    """The demo's repository, as `windlass demo --flow brainstorm --no-run` leaves it, and a person at its terminal."""

    def __init__(self, tmp: Path) -> None:
        super().__init__(tmp)
        self.root = tmp / "sample"
        with mock.patch.object(sys, "executable", self._python()):
            told = self("demo", "--flow", "brainstorm", "--no-run", "--into", str(self.root), cwd=tmp)
        assert f"windlass run --flow brainstorm '{SCENE.request}'" in told.out

    def _python(self) -> str:
        """This one, by a name that is the same on every machine: the screens show the sample's checks."""
        program = self.tmp / "bin" / "python"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        program.chmod(0o755)
        self.env["PATH"] = f"{program.parent}{os.pathsep}{self.env['PATH']}"
        return program.name

    def at(self, *argv: str, **screen: Any) -> AbstractContextManager[Tty]:
        env = {name: value for name, value in self.env.items() if name not in ("COLUMNS", "TERM")}
        return windlass_in(self.root, env, *argv, rows=30, **screen)

    def hold(self) -> tuple[str, str]:
        """The bundled script, except that the first implementer works until the gate is open."""
        rules: list[Rule] = yaml.safe_load(SCENE.script.read_text(encoding="utf-8"))
        first = next(rule for rule in rules if rule["when"]["role"] == "implementer")
        first["run"] = ["true reading the code", HELD]
        self.say(rules)
        return "--script", str(self.script)

    def release(self) -> None:
        (Path(self.env["HOME"]) / "gate").touch()


@pytest.fixture
def sample(tmp_path: Path) -> Sample:
    return Sample(tmp_path)


@pytest.mark.req("S1-10", "S1-18", "S1-34", "S1-37", "S1-40", "S1-41", "S1-66", "S1-67", "S1-71", "S1-72")
@pytest.mark.req("S1-85", "S1-88", "S1-89", "S1-90", "S1-91")
@pytest.mark.long
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_brainstorm_from_the_first_question_to_the_report_looks_like_this(sample: Sample, columns: int) -> None:
    album = Album(f"brainstorm-{columns}")
    argv = ("run", "--flow", "brainstorm", SCENE.request, *sample.hold())
    with sample.at(*argv, columns=columns, still=True) as tty:
        album.shows(tty, "the first question", QUESTIONS[0])
        tty.send("1", ENTER)
        tty.wait(QUESTIONS[1])
        tty.send("name-and-password", ENTER)
        tty.wait(QUESTIONS[2])
        tty.send("signed token in a cookie (stateless)", ENTER)
        album.shows(tty, "a question to be answered in words", QUESTIONS[3])
        tty.send("12 hours", ENTER)
        album.shows(tty, "the approaches", "Which approach shall it be?")
        tty.send(DOWN, ENTER)
        album.shows(tty, "a section of the design", RIGHT)
        tty.send("no", ENTER)
        album.shows(tty, "what to change in it", "What should change?")
        tty.send("Shorter, please", ENTER)
        album.shows(tty, "the section as it was revised", "section-1: revise")
        for title in ("Components", "Data flow", "Errors and testing"):
            tty.send("yes", ENTER)
            tty.wait(title)
        tty.send("1", ENTER)
        album.shows(tty, "the plan to be approved", "Approve this plan?")
        tty.send("approve", ENTER)
        album.shows(tty, "how to go on", "When shall I pause?")
        tty.send(ENTER)
        tty.wait("How shall reviews work?")
        tty.send("iterative", ENTER)
        album.shows(tty, "at work", f"▸ running {HELD[:20]}")
        sample.release()
        album.shows(tty, "what the final review found", "Shall they be fixed?")
        tty.send("fix", ENTER)
        assert tty.end() == Exit.OK
        album.ends(tty, "everything, when it is over")
        assert max(map(len, tty.scrollback.splitlines())) <= columns


@pytest.mark.long
@pytest.mark.req("S1-04", "S1-06", "S1-34", "S1-35", "S1-50")
def test_left_resized_and_answered_from_elsewhere_it_stays_at_the_question_that_is_open(sample: Sample) -> None:
    with sample.at("run", "--flow", "brainstorm", SCENE.request, columns=120) as tty:
        tty.wait(QUESTIONS[0])
        tty.send("1", ENTER)
        tty.wait(QUESTIONS[1])
        tty.send(ESCAPE)
        assert tty.end() == Exit.PAUSED
        assert "windlass resume" in tty.text
    bought = sample.keys
    with sample.at("resume", columns=120) as tty:
        tty.wait("─── Question 2 of 4 ───")
        assert QUESTIONS[0] not in tty.text
        tty.send("oauth")
        tty.wait("› oauth")
        tty.resize(60, 30)
        tty.wait_for(lambda text: whole(text, 60) and "› oauth" in text, "the dialog and what is typed, in 60 columns")
        assert sample("answer", "name-and-password").code == Exit.OK
        tty.wait("question-2: name-and-password (by windlass answer)")
        tty.wait("─── Question 3 of 4 ───")
        assert "› oauth" not in tty.text
        tty.send(ESCAPE)
        assert tty.end() == Exit.PAUSED
    assert sample.keys == bought == ["scout/scout", "questions/brainstormer"]
    answered = [(event.id, event.by) for event in sample.events(QuestionAnswered)]
    assert answered == [("question-1", "terminal"), ("question-2", "windlass answer")]
    assert [question.id for question in sample.service.questions.pending(sample.run)] == ["question-3"]


def whole(text: str, columns: int) -> bool:
    """One dialog, with nothing of the wider one left."""
    lines = text.splitlines()
    heads = [line for line in lines if "brainstorm · " in line]
    return len(heads) == 1 and len(heads[0]) == columns and max(map(len, lines)) <= columns
