"""What a person types or passes that is no UTF-8, JSON of every command, one task of a plan, and an early Ctrl-C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from front import LEAN, Front, basics, builder, passing, plan_text
from windlass.events import TaskLanded
from windlass.interfaces.cli import COMMANDS, HIDDEN, NO_JSON, cli
from windlass.interfaces.terminal.dialog import Dialog, open_dialog, submit
from windlass.model import Choice, Question

BAD = os.fsdecode(b"caf\xe9")


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, LEAN)


# -- bytes that are no UTF-8


@pytest.mark.sweep(15)
@pytest.mark.parametrize(
    "argv",
    [
        ("run", BAD),
        ("task", BAD),
        ("answer", BAD),
        ("answer", "revise", "-m", BAD),
        ("tell", BAD),
        ("resume", BAD),
        ("run", "x", "--set", f"review_mode={BAD}"),
        ("run", "x", "--script", BAD),
        ("task", "--plan", BAD),
        ("land", "-m", BAD),
        ("flow", "check", BAD),
        ("flow", "new", BAD),
        ("--repo", BAD, "status"),
        ("status", BAD, "--json"),
    ],
)
def test_an_argument_that_is_no_utf_8_is_the_user_s_to_fix(front: Front, argv: tuple[str, ...]) -> None:
    front.start(basics("One"))
    before = len(front.records)
    done = front(*argv)
    assert done.code == 1, done.err
    assert r"not valid UTF-8: '" in done.err + done.out
    assert r"caf\udce9" in (done.err + done.out).replace("\\\\", "\\")
    assert len(front.records) == before


@pytest.mark.parametrize("kind", ["choice", "input"])
def test_what_is_typed_and_is_no_utf_8_is_asked_again(kind: str) -> None:
    options = (Choice("approve", "Approve"),) if kind == "choice" else ()
    found = submit(open_dialog(Question("q", "Well?", options, type=kind)), BAD)
    assert isinstance(found, Dialog)
    assert found.problem == "it is not valid UTF-8"


def test_a_comment_that_is_no_utf_8_is_asked_again() -> None:
    question = Question("q", "Well?", (Choice("revise", "Revise"),), comment="required")
    dialog = submit(open_dialog(question), "revise")
    assert isinstance(dialog, Dialog)
    found = submit(dialog, BAD)
    assert isinstance(found, Dialog)
    assert found.problem == "it is not valid UTF-8"


def test_files_that_are_no_utf_8_are_named(front: Front) -> None:
    for path in (".windlass/config.toml", ".windlass/flows/mine.yaml", ".windlass/roles/scout.md"):
        file = front.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"# caf\xe9\n")
        done = front("run", "--flow", "mine" if "flows" in path else "plan", "x")
        file.unlink()
        assert done.code == 1, done.err
        assert Path(path).name in done.err


@pytest.mark.parametrize("argv", [("status",), ("doctor",), ("runs", "--json"), ("init", "--yes"), ("run", "x")])
def test_a_repository_whose_folder_s_name_is_no_utf_8_is_said(front: Front, argv: tuple[str, ...]) -> None:
    odd = front.tmp / BAD
    front.root.rename(odd)
    done = front(*argv, cwd=odd)
    told = (done.err + done.out).encode("ascii", "backslashreplace").decode()
    assert done.code == 1, told
    assert "the name of this folder is not valid UTF-8" in told
    # What is said can be printed anywhere.
    assert (done.err + done.out).encode("utf-8")


# -- one task of a plan


@pytest.mark.req("S0-08")
@pytest.mark.parametrize("name", ["Second", "second", "2", "t2"])
def test_one_task_of_a_plan_is_carried_out_by_its_name(front: Front, name: str) -> None:
    plan = front.tmp / "mine.md"
    plan.write_text(plan_text(["First", "Second", "Third"]))
    done = front.task([builder(), passing()], "--plan", str(plan), name)
    assert done.code == 0, done.err
    assert [task.title for task in front.view.tasks] == ["Second"]
    assert len(front.events(TaskLanded)) == 1
    assert front.view.request == "Second"


def test_a_task_that_the_plan_does_not_have_is_refused_with_those_it_has(front: Front) -> None:
    plan = front.tmp / "mine.md"
    plan.write_text(plan_text(["First", "Second"]))
    done = front.task([builder(), passing()], "--plan", str(plan), "Fourth")
    assert done.code == 1
    assert "the plan has no task 'Fourth'" in done.err
    assert "1. First, 2. Second" in done.err
    assert not front.service.has_runs


# -- JSON


def test_every_command_has_json_or_a_reason_why_not() -> None:
    context = click.Context(cli)
    commands: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        below = command.commands if isinstance(command, click.Group) else {}
        commands |= {f"{name} {sub}": one for sub, one in below.items()} or {name: command}
    without = {name for name, one in commands.items() if not any("--json" in param.opts for param in one.params)}
    assert without == {*NO_JSON, *HIDDEN}


def test_an_answer_in_json_is_one_object_that_says_how_the_run_went_on(front: Front) -> None:
    front.start(basics("One"), "--set", "review_mode=iterative", "--set", "execution_mode=auto")
    said = json.loads(front("answer", "approve", "--json").out)
    assert (said["question"], said["answer"]) == ("plan-approval!approve", "approve")
    assert (said["went_on"]["state"], said["went_on"]["exit"]) == ("finished", 0)


def test_commands_that_ask_something_of_a_run_say_it_in_json(front: Front) -> None:
    front.start(basics("One"))
    run = front.run
    assert json.loads(front("tell", "hurry", "--json").out)["run"] == run
    assert json.loads(front("pause", "--json").out)["state"] == "waiting"
    forked = json.loads(front("fork", run, "--at", "plan-review", "--json").out)
    assert (forked["from"], forked["at"], forked["run"] != run) == (run, "plan-review", True)
    assert json.loads(front("abort", run, "--json").out)["state"] == "aborted"
    written = json.loads(front("init", "--json").out)
    assert Path(written["written"]).is_file()


# -- Ctrl-C


INTERRUPTED = """
import builtins, os, signal, sys
real, wanted = builtins.__import__, sys.argv.pop(1)
def importing(name, *args, **more):
    if name == wanted:
        builtins.__import__ = real
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *args, **more)
builtins.__import__ = importing
from windlass.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["click", "windlass.app", "windlass.runs.service", "windlass.runs.drive", "yaml"])
def test_ctrl_c_while_modules_are_loaded_prints_no_traceback(front: Front, module: str) -> None:
    argv = [sys.executable, "-c", INTERRUPTED, module, "run", "x"]
    done = subprocess.run(argv, cwd=front.root, env=front.env, capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "interrupted" in done.stderr
    assert not front.service.has_runs


def test_ctrl_c_at_python_s_own_end_changes_neither_output_nor_exit_code(front: Front) -> None:
    program = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "from windlass.__main__ import main\nmain()\n"
    )
    argv = [sys.executable, "-c", program, "status", "nosuchrun"]
    done = subprocess.run(argv, cwd=front.root, env=front.env, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "No runs here yet" in done.stdout


@pytest.mark.long
def test_the_tests_of_ctrl_c_hold_in_a_background_job_that_ignores_it(tmp_path: Path) -> None:
    """Otherwise Windlass ignores the signal too, and the tests prove nothing."""
    test = f"{Path(__file__)}::test_ctrl_c_while_modules_are_loaded_prints_no_traceback[click]"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}", test]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
