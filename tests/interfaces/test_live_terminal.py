"""The live terminal through the front door: a real pseudo-terminal, real processes, the screen as a person sees it."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from front import LEAN, Front, Rule, basics, builder, passing, planner, scout, scripted
from processes_for_tests import until
from ttys import BACKSPACE, CTRL_C, CTRL_D, CTRL_O, DOWN, ENTER, ESCAPE, Tty, windlass_in
from windlass.errors import Exit
from windlass.events import QuestionAnswered, RunTold

ASKED = "Approve this plan?"
GATE = "while [ ! -e {gate} ]; do sleep 0.02; done"


class Person:
    """One repository and a person at its terminal."""

    def __init__(self, tmp: Path) -> None:
        self.front = Front(tmp, LEAN)
        self.gate = tmp / "gate"
        self.env = {name: value for name, value in self.front.env.items() if name not in ("COLUMNS", "TERM")}

    def held(self, **more: Any) -> Rule:
        """An implementer that works until the gate is open."""
        return builder(run=["echo one", GATE.format(gate=self.gate)], **more)

    def run(self, *rules: Rule, argv: tuple[str, ...] = (), **screen: Any) -> AbstractContextManager[Tty]:
        self.front.say(rules or basics("One", "Two"))
        given = ("--set", "review_mode=single-pass", "--set", "execution_mode=auto")
        return self("run", "Add sub and mul", "--script", str(self.front.script), *given, *argv, **screen)

    def __call__(self, *argv: str, env: dict[str, str] | None = None, **screen: Any) -> AbstractContextManager[Tty]:
        return windlass_in(self.front.root, {**self.env, **(env or {})}, *argv, **screen)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def approved(person: Person) -> bool:
    return "approve" in person.front.answers.values()


@pytest.mark.req("S1-04", "S1-10", "S1-11", "S1-12", "S1-66", "S1-87", "S1-89", "S1-91")
def test_a_run_from_first_question_to_report_at_one_terminal(person: Person) -> None:
    with person.run(scout(), planner("One", "Two"), person.held(), passing()) as tty:
        tty.wait(ASKED)
        tty.send("approve", ENTER)
        tty.wait("▸ running while [ ! -e")
        assert "  ✓ running echo one" in tty.lines
        assert "░░░░░░░░░░░░░░░░░░░░  0%  0/2 tasks" in tty.lines
        assert any(line.startswith("implementer  scripted") and "task 1/2" in line for line in tty.lines)
        person.gate.touch()
        assert tty.end() == Exit.OK
        text = tty.scrollback
    for words in ("2 tasks found:", "████████████████████  100%  2/2 tasks", "Workflow Complete", "windlass land"):
        assert words in text
    assert text.index("Workflow Complete") < text.index("100%  2/2 tasks") < text.index("Complete. 2/2 tasks")
    assert "p pause" not in tty.text


@pytest.mark.long
@pytest.mark.req("S1-06", "S1-50")
@pytest.mark.parametrize("key", [ESCAPE, CTRL_D])
def test_closing_the_dialog_pauses_and_resume_asks_the_same_question(person: Person, key: str) -> None:
    with person.run() as tty:
        tty.wait(ASKED)
        tty.send(key)
        assert tty.end() == Exit.PAUSED
        assert f"? {ASKED}" in tty.scrollback
        assert "windlass resume" in tty.text
    dispatched = len(person.front.dispatches)
    with person() as tty:
        tty.wait(ASKED)
        assert len(person.front.dispatches) == dispatched
        tty.send("1", ENTER)
        assert tty.end() == Exit.OK
    assert [event.by for event in person.front.events(QuestionAnswered)] == ["terminal"]


def test_an_answer_from_another_shell_closes_the_dialog_and_says_who_answered(person: Person) -> None:
    with person.run(scout(), planner("One"), person.held(), passing()) as tty:
        tty.wait(ASKED)
        tty.send("rev")
        assert person.front("answer", "approve").code == 0
        tty.wait("approve: approve (by windlass answer)")
        tty.wait("p pause")
        assert "› rev" not in tty.text
        person.gate.touch()
        assert tty.end() == Exit.OK


def test_a_reply_that_is_no_answer_is_said_and_the_dialog_stays(person: Person) -> None:
    with person.run() as tty:
        tty.wait(ASKED)
        tty.send(ENTER)
        tty.wait("choose one")
        tty.send("7", ENTER)
        tty.wait("one of 1) approve, 2) revise is expected")
        assert not approved(person)
        tty.send(BACKSPACE, DOWN, ENTER)
        assert tty.end() == Exit.OK
        assert approved(person)


def test_ctrl_c_once_pauses_when_the_agents_are_done(person: Person) -> None:
    with person.run(scout(), planner("One", "Two"), person.held(), passing(), argv=("--yes",)) as tty:
        tty.wait("▸ running while")
        tty.send(CTRL_C)
        tty.wait("pausing when the agents finish")
        person.gate.touch()
        assert tty.end() == Exit.PAUSED
    assert person.front.events(QuestionAnswered)
    assert "execute/t1/implement" in person.front.keys
    assert person.front.view.state == "paused"
    assert person.front("resume").code == Exit.OK
    assert person.front.keys.count("execute/t1/implement") == 1


@pytest.mark.long
def test_ctrl_c_twice_stops_now(person: Person) -> None:
    with person.run(scout(), planner("One"), person.held(), passing(), argv=("--yes",)) as tty:
        tty.wait("▸ running while")
        tty.send(CTRL_C)
        tty.wait("pausing")
        tty.send(CTRL_C)
        assert tty.end() == Exit.INTERRUPTED
    person.gate.touch()
    assert person.front("resume").code == Exit.OK


@pytest.mark.long
def test_a_pause_can_be_taken_back(person: Person) -> None:
    with person.run(scout(), planner("One"), person.held(), passing(), argv=("--yes",)) as tty:
        tty.wait("▸ running while")
        tty.send("p")
        tty.wait("pausing when the agents finish")
        tty.send("p")
        tty.wait("p pause")
        person.gate.touch()
        assert tty.end() == Exit.OK


@pytest.mark.long
def test_what_a_person_tells_goes_with_the_next_dispatch_that_writes_code(person: Person) -> None:
    with person.run(scout(), planner("One", "Two"), person.held(), passing(), argv=("--yes",)) as tty:
        tty.wait("▸ running while")
        tty.send("t")
        tty.wait("What should the agent that writes code know?")
        tty.send("use the Clock class", ENTER)
        tty.wait("message from terminal: use the Clock class")
        person.gate.touch()
        assert tty.end() == Exit.OK
    assert [event.text for event in person.front.events(RunTold)] == ["use the Clock class"]
    assert "use the Clock class" in person.front.prompt("execute/t2/implement")


@pytest.mark.long
def test_details_come_and_go(person: Person) -> None:
    with person.run(scout(), planner("One"), person.held(), passing(), argv=("--yes",), rows=40) as tty:
        tty.wait("▸ running while")
        tty.send("d")
        tty.wait("  working  execute/t1/implement@1")
        tty.send("d")
        tty.wait_gone("  working  execute/t1/implement@1")
        person.gate.touch()
        tty.end()


@pytest.mark.long
def test_left_to_the_background_the_run_goes_on_without_paying_twice(person: Person) -> None:
    with person.run(scout(), planner("One", "Two"), person.held(), passing(), argv=("--yes",)) as tty:
        tty.wait("▸ running while")
        tty.send("b")
        tty.wait("to the background when the agents finish")
        person.gate.touch()
        assert tty.end() == Exit.OK
        assert "continues in the background (process" in tty.scrollback
    until(lambda: person.front.view.state.final and not person.front.service.is_driven(person.front.run))
    assert person.front.view.state == "finished"
    assert len(set(person.front.keys)) == len(person.front.keys)


@pytest.mark.long
def test_left_twice_the_agent_is_stopped_and_begins_again_in_the_background(person: Person) -> None:
    with person.run(scout(), planner("One"), person.held(), passing(), argv=("--yes",)) as tty:
        tty.wait("▸ running while")
        tty.send("b")
        tty.wait("b again: now")
        tty.send("b")
        assert tty.end() == Exit.OK
    person.gate.touch()
    until(lambda: person.front.view.state.final)
    assert person.front.keys.count("execute/t1/implement") == 2


@pytest.mark.long
def test_a_terminal_that_is_closed_leaves_the_question_open(person: Person) -> None:
    with person.run() as tty:
        tty.wait(ASKED)
        tty.hang_up()
        # 120: Python could not flush its last words, because there is nobody left to read them.
        assert tty.end() in (Exit.PAUSED, Exit.INTERRUPTED, 120)
    assert person.front.view.state == "paused"
    assert [question.id for question in person.front.service.questions.pending(person.front.run)] == ["approve"]
    assert person.front("answer", "approve").code == Exit.OK


@pytest.mark.long
def test_a_terminal_that_takes_nothing_holds_up_nobody(person: Person) -> None:
    """Nobody reads from it: the run ends all the same."""
    many = [f"echo {n} {'x' * 200}" for n in range(60)]
    rules = (scout(), planner("One", "Two"), builder(run=many), passing())
    with person.run(*rules, argv=("--yes",)) as tty:
        tty.wait("p pause")
        tty.deaf.set()
        until(lambda: bool(person.front.service.runs()) and person.front.view.state.final)
        tty.deaf.clear()
        assert tty.end() == Exit.OK


def test_resized_while_it_runs_it_is_drawn_anew(person: Person) -> None:
    with person.run(scout(), planner("One"), person.held(), passing(), argv=("--yes",), columns=120) as tty:
        tty.wait("▸ running while")
        wide = max(map(len, tty.lines))
        tty.resize(60, 20)
        tty.wait_for(lambda text: max(map(len, text.splitlines())) <= 60 and "p pause" in text, "60 columns")
        assert wide > 100
        assert sum("plan · " in line for line in tty.lines) == 1
        person.gate.touch()
        assert tty.end() == Exit.OK


def editor(tmp: Path, body: str) -> dict[str, str]:
    program = tmp / "editor"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return {"EDITOR": str(program)}


REVISE = (scout(), planner("One"), passing())


@pytest.mark.long
@pytest.mark.req("S1-68")
def test_ctrl_o_takes_the_comment_from_the_editor(person: Person, tmp_path: Path) -> None:
    env = editor(tmp_path, 'grep -q "not part of your answer" "$1" && echo "Split it." > "$1"')
    with person.run(env=env) as tty:
        tty.wait(ASKED)
        tty.send("revise", ENTER)
        tty.wait("What should change?")
        tty.send(CTRL_O)
        tty.wait("approve: revise (by terminal): Split it.")
        tty.send(ESCAPE)
    assert person.front.events(QuestionAnswered)[0].comment == "Split it."


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("exit 3", "failed"),
        (': > "$1"', "the editor returned no text"),
        ("", "no editor is set"),
    ],
)
def test_an_editor_that_is_no_help_leaves_the_dialog_to_write_in(
    person: Person, tmp_path: Path, body: str, said: str
) -> None:
    with person.run(env=editor(tmp_path, body) if body else {}) as tty:
        tty.wait(ASKED)
        tty.send("revise", ENTER)
        tty.wait("What should change?")
        tty.send(CTRL_O)
        tty.wait(said)
        tty.send("Split it.", ENTER)
        tty.wait("approve: revise (by terminal): Split it.")


@pytest.mark.long
def test_what_was_written_while_another_answered_is_not_lost(person: Person, tmp_path: Path) -> None:
    opened, closed = tmp_path / "opened", tmp_path / "closed"
    body = f'touch {opened}; while [ ! -e {closed} ]; do sleep 0.02; done; echo "My words." > "$1"'
    rules = (scout(), planner("One"), person.held(), passing())
    with person.run(*rules, env=editor(tmp_path, body)) as tty:
        tty.wait(ASKED)
        tty.send("revise", ENTER)
        tty.wait("What should change?")
        tty.send(CTRL_O)
        until(opened.exists)
        assert person.front("answer", "approve").code == 0
        until(lambda: "execute/t1/implement" in person.front.keys)
        closed.touch()
        tty.wait("the question has been answered in the meantime")
        assert "    My words." in tty.scrollback
        person.gate.touch()
        assert tty.end() == Exit.OK


def test_no_colour_is_no_colour(person: Person) -> None:
    with person.run(argv=("--yes",), env={"NO_COLOR": "1"}) as tty:
        assert tty.end() == Exit.OK
        assert not any(f"\x1b[{code}".encode() in tty.raw for code in ("31m", "32m", "36m", "0;31", "0;32", "0;36"))


@pytest.mark.long
def test_without_unicode_every_letter_is_ascii(person: Person) -> None:
    with person.run(env={"PYTHONIOENCODING": "latin-1"}) as tty:
        tty.wait(ASKED)
        tty.send("approve", ENTER)
        assert tty.end() == Exit.OK
        assert tty.raw.isascii()
        assert "####################  100%  2/2 tasks" in tty.scrollback


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("env", "rows"), [({"TERM": "dumb"}, 24), ({}, 6)])
def test_a_simple_terminal_gets_lines_and_a_prompt(person: Person, env: dict[str, str], rows: int) -> None:
    with person.run(env=env, rows=rows) as tty:
        tty.wait("answer>")
        tty.send("approve", ENTER)
        assert tty.end() == Exit.OK
        assert "p pause" not in tty.scrollback
        assert "Complete. 2/2 tasks" in tty.scrollback


@pytest.mark.long
def test_the_terminal_is_given_back_as_it_was(person: Person) -> None:
    with person.run(argv=("--yes",)) as tty:
        tty.end()
        assert tty.raw.count(b"\x1b[?25h") >= 1
        assert tty.raw.rfind(b"\x1b[?25h") > tty.raw.rfind(b"\x1b[?25l")
        assert tty.raw.rfind(b"\x1b[?2004l") > tty.raw.rfind(b"\x1b[?2004h")


@pytest.mark.long
def test_an_interrupt_from_outside_stops_at_once(person: Person) -> None:
    with person.run(scout(), planner("One"), person.held(), passing(), argv=("--yes",)) as tty:
        tty.wait("▸ running while")
        tty.process.send_signal(signal.SIGINT)
        assert tty.end() == Exit.INTERRUPTED


@pytest.mark.req("S1-100")
def test_a_bare_windlass_asks_what_to_build_and_starts_it(person: Person) -> None:
    person.front.say(basics("One"))
    person.front.configure(scripted(person.front))
    with person() as tty:
        tty.wait("What do you want to build?")
        assert "─── Start Workflow ───" in tty.lines
        tty.send("Add sub", ENTER)
        tty.wait(ASKED)
        tty.send(ESCAPE)
        assert tty.end() == Exit.PAUSED
    assert person.front.service.run().request == "Add sub"


@pytest.mark.req("S1-100")
@pytest.mark.parametrize("key", [ENTER, CTRL_C, CTRL_D])
def test_nothing_to_build_leaves_nothing_behind(person: Person, key: str) -> None:
    with person() as tty:
        tty.wait("What do you want to build?")
        tty.send(key)
        assert tty.end() == Exit.OK
    assert not (person.front.root / ".git" / "windlass" / "windlass.db").exists()


@pytest.mark.long
@pytest.mark.req("S1-99")
@pytest.mark.parametrize(("answer", "states"), [("y", {"aborted", "paused"}), ("n", {"paused"})])
def test_a_request_beside_an_active_run_is_confirmed_first(person: Person, answer: str, states: set[str]) -> None:
    with person.run() as tty:
        tty.wait(ASKED)
        tty.send(ESCAPE)
        tty.end()
    with person.run() as tty:
        tty.wait("and start a new one?")
        tty.send(answer, ENTER)
        tty.wait(ASKED)
        tty.send(ESCAPE)
        assert tty.end() == Exit.PAUSED
    assert {str(run.state) for run in person.front.service.runs()} == states
