from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gitrepo import DATE, make_engine
from windlass.checks.run import (
    Check,
    CheckResult,
    RunOutput,
    acceptable,
    canary_tree,
    failing_tests,
    run_check,
)
from windlass.git.slots import Slots
from windlass.git.trees import changes, commit_tree


async def _runner(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float, folder: Path) -> RunOutput:
    done = subprocess.run(argv, cwd=cwd, env=dict(env), capture_output=True, timeout=timeout, check=False)  # noqa: ASYNC221
    out = folder / "out"
    out.write_bytes(done.stdout + done.stderr)
    return RunOutput(done.returncode, out, 0.5)


def _run(tmp_path: Path, code: str) -> CheckResult:
    check = Check((sys.executable, "-c", code))
    return asyncio.run(run_check(check, tmp_path, {}, tmp_path, _runner))


def test_exit_code_0_is_green(tmp_path: Path) -> None:
    result = _run(tmp_path, "print('FAILED tests/a.py::b was a name')")
    assert (result.ok, result.code, result.seconds, result.failing) == (True, 0, 0.5, ())
    assert result.tail == "FAILED tests/a.py::b was a name"


def test_any_other_exit_is_red_and_shows_the_end_of_the_output_without_escapes(tmp_path: Path) -> None:
    result = _run(tmp_path, r"print('x\n' * 9000 + '\x1b[31mE   boom\x1b[0m'); raise SystemExit(2)")
    assert (result.ok, result.code) == (False, 2)
    assert result.tail.endswith("x\nE   boom")
    assert len(result.tail) <= 4000


def test_a_timeout_is_red_whatever_its_code(tmp_path: Path) -> None:
    async def late(argv: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float, folder: Path) -> RunOutput:
        return RunOutput(0, folder / "none", timeout, timed_out=True)

    result = asyncio.run(run_check(Check(("x",), 3.0), tmp_path, {}, tmp_path, late))
    assert (result.ok, result.timed_out, result.tail, result.seconds) == (False, True, "", 3.0)
    assert not acceptable(result, ["tests/a.py::b"])


def test_a_result_can_be_stored(tmp_path: Path) -> None:
    stored = _run(tmp_path, "raise SystemExit('FAILED t.py::a')").to_json()
    assert stored["failing"] == ["t.py::a"]
    assert set(stored) == {"command", "ok", "code", "seconds", "tail", "failing", "timed_out"}


JUNIT = """<testsuite><testcase classname="a.B" name="ok" time="1"/>
<testcase classname="a.B" name="bad"><failure message="x">y</failure></testcase>
<testcase name="worse" classname=""><error/></testcase>
<testcase classname="a.B" name="skipped"><skipped/></testcase></testsuite>"""


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "FAILED tests/a.py::test_x[a - b] - assert 1\nERROR tests/b.py - boom",
            ("tests/a.py::test_x[a - b]", "tests/b.py"),
        ),
        ("FAILED tests/a.py::test_x - assert - 1\n1 failed", ("tests/a.py::test_x",)),
        ("FAIL: test_x (mod.Case)\n", ("test_x (mod.Case)",)),
        ("--- FAIL: TestX (0.0s)\n    --- FAIL: TestX/sub (0.0s)", ("TestX", "TestX/sub")),
        ("test a::b ... FAILED\ntest c ... ok", ("a::b",)),
        ("ok 1 - fine\nnot ok 2 - broken # why", ("broken",)),
        ("  ● suite › does x\n", ("suite › does x",)),
        (JUNIT, ("a.B::bad", "worse")),
        ("everything went wrong", ()),
    ],
)
def test_failing_tests_are_read_from_what_runners_print(text: str, wanted: tuple[str, ...]) -> None:
    assert failing_tests(text) == wanted


def test_only_failures_that_were_accepted_by_name_are_acceptable() -> None:
    red = CheckResult("x", False, 1, 0.1, "", ("a", "b"))
    assert acceptable(red, {"a", "b", "c"})
    assert not acceptable(red, {"a"})
    assert not acceptable(CheckResult("x", False, 1, 0.1, "crash"), {"a"})
    assert acceptable(CheckResult("x", True, 0, 0.1, ""), ())


FILES = {
    "app/code.py": "def f():\n    return 1\n",
    "tests/test_code.py": "from app.code import f\n\nassert f() == 1\n",
    "run.sh": "exit 0\n",
    "README.md": "hi\n",
    "data.json": "{}\n",
}


def test_the_canary_breaks_all_code_but_the_tests(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, FILES)
    base = engine.user.head
    tree = canary_tree(engine, base)
    assert [change.path for change in changes(engine, base, tree)] == ["app/code.py", "run.sh"]
    slot = Slots(engine).take("r1", "canary", commit_tree(engine, tree, [base], "canary\n", DATE))
    for argv in ([sys.executable, "-c", "import tests.test_code"], ["sh", "run.sh"]):
        assert subprocess.run(argv, cwd=slot.path, capture_output=True, check=False).returncode != 0


def test_without_code_the_canary_is_the_base_itself(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, {"README.md": "hi\n"})
    assert canary_tree(engine, engine.user.head) == engine.objects.tree_of(engine.user.head)


def test_checks_that_look_elsewhere_stay_green_on_the_canary(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, FILES)
    tree = canary_tree(engine, engine.user.head)
    slot = Slots(engine).take("r1", "canary", commit_tree(engine, tree, [engine.user.head], "canary\n", DATE))
    check = Check((sys.executable, "-c", "import tests.test_code"))
    here = asyncio.run(run_check(check, slot.path, {}, tmp_path, _runner))
    installed = asyncio.run(run_check(check, slot.path, {"PYTHONPATH": str(engine.user.root)}, tmp_path, _runner))
    assert not here.ok
    assert not installed.ok
    elsewhere = Check((sys.executable, "-P", "-c", "import tests.test_code"))
    assert asyncio.run(run_check(elsewhere, slot.path, {"PYTHONPATH": str(engine.user.root)}, tmp_path, _runner)).ok
