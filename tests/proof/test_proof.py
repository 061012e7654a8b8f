"""What an honest task gets, and what each way to cheat gets: one task, real git, real pytest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from front import plan_of
from proofs import ADD_SUB, BASE, PYTEST, REPORTING, TEST_SUB, Proving
from windlass.proof.facts import ProofTree
from windlass.proof.rules import shuffle_trees

pytestmark = pytest.mark.long

OLD_TEST = BASE["tests/test_calc.py"]
HONEST_SUB = {"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB}


@pytest.fixture
def proving(tmp_path: Path) -> Proving:
    return Proving(tmp_path)


# -- honest work


@pytest.mark.req("S0-44")
def test_a_function_with_its_test_is_proved(proving: Proving) -> None:
    found = proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB})
    assert (found.proof, found.tests) == ("proved", {"red": ["tests.test_sub::test_sub"]})
    assert list(found.trees) == ["h", "o", "o2", "x"]
    assert "pytest" in found.command


@pytest.mark.req("S0-44")
def test_a_new_module_is_proved_although_its_test_could_not_load_before(proving: Proving) -> None:
    test = "from shape import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n"
    found = proving.change({"shape.py": "def area(a, b):\n    return a * b\n", "tests/test_shape.py": test})
    assert (found.proof, found.tests) == ("proved", {"red by absence": ["tests.test_shape::test_area"]})


def test_a_bug_fix_is_proved_by_the_test_that_shows_the_bug(proving: Proving) -> None:
    fixed = BASE["calc.py"].replace("n // 2", "n / 2")
    test = OLD_TEST + "\n\ndef test_half_of_an_odd_number():\n    assert half(3) == 1.5\n"
    found = proving.change({"calc.py": fixed, "tests/test_calc.py": test})
    assert (found.proof, found.tests) == ("proved", {"red": ["tests.test_calc::test_half_of_an_odd_number"]})
    assert list(found.trees) == ["h", "b", "w", "o", "o2", "x"]


def test_a_rewritten_test_of_the_same_name_proves_too(proving: Proving) -> None:
    fixed = BASE["calc.py"].replace("n // 2", "n / 2")
    test = OLD_TEST.replace("assert half(8) == 4", "assert half(8) == 4\n    assert half(3) == 1.5")
    found = proving.change({"calc.py": fixed, "tests/test_calc.py": test})
    assert (found.proof, found.tests) == ("proved", {"red": ["tests.test_calc::test_half"]})


def test_a_constant_is_proved_by_a_test_of_its_value(proving: Proving) -> None:
    test = "import calc\n\n\ndef test_limit():\n    assert calc.LIMIT == 7\n"
    found = proving.change({"calc.py": ADD_SUB + "\n\nLIMIT = 7\n", "tests/test_limit.py": test})
    assert found.proof == "proved"


def test_refactoring_that_declares_it_preserves(proving: Proving) -> None:
    moved = "def add(a, b):\n    return sum((a, b))\n\n\ndef half(n):\n    return n >> 1\n"
    found = proving.change({"calc.py": moved}, tdd="preserve")
    assert found.proof == "preserved"
    assert found.tests == {"kept": ["tests.test_calc::test_add", "tests.test_calc::test_half"]}


def test_documentation_is_exempt_and_nothing_is_run(proving: Proving) -> None:
    found = proving.change({"README.md": "more\n", "docs/use.md": "so\n"})
    assert (found.proof, found.trees) == ("exempt", {})


def test_an_exemption_of_the_approved_plan_holds(proving: Proving) -> None:
    assert proving.change({"calc.py": ADD_SUB}, tdd="exempt").proof == "exempt"


def test_tests_alone_land_when_the_plan_declares_them(proving: Proving) -> None:
    more = OLD_TEST + "\n\ndef test_add_is_symmetric():\n    assert add(1, 2) == add(2, 1)\n"
    found = proving.change({"tests/test_calc.py": more}, tdd="test-only")
    assert (found.proof, found.tests) == ("tests only", {"new": ["tests.test_calc::test_add_is_symmetric"]})


def test_a_declared_change_of_behaviour_may_change_what_a_test_expects(proving: Proving) -> None:
    changed = {
        "calc.py": BASE["calc.py"].replace("n // 2", "n / 4"),
        "tests/test_calc.py": OLD_TEST.replace("== 4", "== 2"),
    }
    assert proving.change(changed, tdd="behaviour-change").proof == "proved"


# -- cheats


def test_assert_true_is_unproved(proving: Proving) -> None:
    found = proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": "def test_sub():\n    assert True\n"})
    assert found.proof == "unproved"
    assert "without the code" in found.reason


def test_a_test_that_only_imports_is_unproved(proving: Proving) -> None:
    code = {"shape.py": "def area(a, b):\n    return a * b\n"}
    top = proving.change({**code, "tests/test_shape.py": "import shape\n\n\ndef test_area():\n    assert shape.area\n"})
    assert top.proof == "unproved"
    assert "hollowed out" in top.reason


def test_an_import_inside_the_test_is_unproved(proving: Proving) -> None:
    test = "def test_area():\n    from shape import area\n    area(1, 2)\n"
    found = proving.change({"shape.py": "def area(a, b):\n    return a * b\n", "tests/test_shape.py": test})
    assert found.proof == "unproved"


def test_a_skipped_new_test_is_unproved(proving: Proving) -> None:
    skipped = TEST_SUB.replace("def test", "import pytest\n\n\n@pytest.mark.skip\ndef test")
    assert proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": skipped}).proof == "unproved"


@pytest.mark.parametrize("mark", ["skip", "xfail(strict=False, run=False)"])
def test_an_old_test_that_is_skipped_or_expected_to_fail_is_weakened(proving: Proving, mark: str) -> None:
    marked = "import pytest\n" + OLD_TEST.replace("def test_half", f"@pytest.mark.{mark}\ndef test_half")
    found = proving.change({"calc.py": ADD_SUB, "tests/test_calc.py": marked, "tests/test_sub.py": TEST_SUB})
    assert (found.proof, found.tests) == ("weakened", {"weakened": ["tests.test_calc::test_half"]})


def test_a_deleted_test_is_weakened(proving: Proving) -> None:
    fewer = OLD_TEST.split("\n\n\ndef test_half")[0] + "\n"
    found = proving.change({"calc.py": ADD_SUB, "tests/test_calc.py": fewer, "tests/test_sub.py": TEST_SUB})
    assert found.proof == "weakened"
    assert "test_half (gone)" in found.reason


def test_a_deleted_test_file_is_weakened(proving: Proving) -> None:
    changed = {"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB}
    assert proving.change(changed, delete=("tests/test_calc.py",)).proof == "weakened"


def test_a_test_made_to_expect_what_broke_has_changed_its_expectation(proving: Proving) -> None:
    broken = {
        "calc.py": ADD_SUB.replace("n // 2", "n"),
        "tests/test_calc.py": OLD_TEST.replace("half(8) == 4", "half(8)"),
    }
    found = proving.change({**broken, "tests/test_sub.py": TEST_SUB})
    assert (found.proof, found.tests) == ("expectation changed", {"expectation": ["tests.test_calc::test_half"]})


def test_code_smuggled_into_a_test_helper_is_unproved(proving: Proving) -> None:
    helper = "def sub(a, b):\n    return a - b\n"
    test = "from tests.helper import sub\n\n\ndef test_sub():\n    assert sub(5, 2) == 3\n"
    changed = {"calc.py": ADD_SUB, "tests/helper.py": helper, "tests/test_sub.py": test}
    assert proving.change(changed).proof == "unproved"


def test_red_by_a_syntax_error_that_only_the_old_code_has_is_unproved(proving: Proving) -> None:
    test = (
        "import os\n\nif not os.path.exists('shape.py'):\n    raise SyntaxError('red')\n\n\n"
        "def test_area():\n    assert True\n"
    )
    found = proving.change({"shape.py": "def area(a, b):\n    return a * b\n", "tests/test_shape.py": test})
    assert found.proof == "unproved"


def test_red_by_timeout_is_unproved(tmp_path: Path) -> None:
    proving = Proving(tmp_path, tests='timeout = "5s"')
    test = (
        "import time\n\nimport calc\n\n\ndef test_sub():\n    while not hasattr(calc, 'sub'):\n        time.sleep(1)\n"
    )
    found = proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": test})
    assert found.proof == "unproved"
    assert "not end in time" in found.reason


def test_red_by_chance_is_flaky(proving: Proving, tmp_path: Path) -> None:
    count = tmp_path / "count"
    test = (
        "import calc\n\n\ndef test_sub():\n    if not hasattr(calc, 'sub'):\n"
        f"        with open({str(count)!r}, 'a+') as f:\n"
        "            f.write('x')\n            f.seek(0)\n            assert len(f.read()) != 1\n"
    )
    found = proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": test})
    assert (found.proof, found.tests) == ("flaky", {"flaky": ["tests.test_sub::test_sub"]})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pytest.ini", "[pytest]\naddopts = --deselect tests/test_calc.py::test_half\n"),
        ("pyproject.toml", '[tool.pytest.ini_options]\naddopts = "-k sub"\n'),
        ("tests/conftest.py", "def pytest_collection_modifyitems(items):\n    items[:] = items[:1]\n"),
        (".github/workflows/ci.yml", "on: push\n"),
    ],
)
def test_what_decides_how_tests_are_run_is_protected(proving: Proving, name: str, text: str) -> None:
    found = proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB, name: text})
    assert (found.proof, name in found.reason, found.trees) == ("harness changed", True, {})


def test_a_harness_file_that_the_plan_names_may_change(proving: Proving) -> None:
    fixture = "import pytest\n\n\n@pytest.fixture\ndef five():\n    return 5\n"
    test = "import calc\n\n\ndef test_sub(five):\n    assert calc.sub(five, 2) == 3\n"
    changed = {"calc.py": ADD_SUB, "tests/conftest.py": fixture, "tests/test_sub.py": test}
    assert proving.change(changed, files=["calc.py", "tests/conftest.py"]).proof == "proved"


def test_a_new_dependency_in_pyproject_is_no_change_of_the_harness(proving: Proving) -> None:
    project = '[project]\nname = "calc"\nversion = "1"\ndependencies = ["attrs"]\n'
    changed = {"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB, "pyproject.toml": project}
    assert proving.change(changed).proof == "proved"


@pytest.mark.parametrize("where", ["tests/sub.snap", "sub.snap"])
def test_a_snapshot_written_at_run_time_is_unproved(proving: Proving, where: str) -> None:
    test = (
        f"import pathlib\n\nimport calc\n\n\ndef test_sub():\n    snap = pathlib.Path({where!r})\n"
        "    said = str(calc.sub(5, 2) if hasattr(calc, 'sub') else 'nothing')\n"
        "    if not snap.exists():\n        snap.write_text(said)\n    assert snap.read_text() == said\n"
    )
    assert proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": test}).proof == "unproved"


def test_code_without_any_test_is_unproved_and_nothing_is_run(proving: Proving) -> None:
    found = proving.change({"calc.py": ADD_SUB})
    assert (found.proof, found.trees) == ("unproved", {})
    assert "calc.py" in found.reason


def test_tests_alone_are_unproved(proving: Proving) -> None:
    assert proving.change({"tests/test_more.py": "def test_more():\n    assert True\n"}).proof == "unproved"


def test_refactoring_that_breaks_a_test_is_not_preserved(proving: Proving) -> None:
    found = proving.change({"calc.py": BASE["calc.py"].replace("n // 2", "n")}, tdd="preserve")
    assert found.proof == "unproved"


def test_a_base_that_is_not_green_proves_nothing(tmp_path: Path) -> None:
    red = {**BASE, "tests/test_calc.py": OLD_TEST + "\n\ndef test_red():\n    assert add(1, 1) == 3\n"}
    test = (
        red["tests/test_calc.py"]
        .replace("== 3\n\n\ndef test_half", "== 3\n\n\ndef test_half")
        .replace("add(1, 1) == 3", "add(1, 1) == 2")
    )
    found = Proving(tmp_path, base=red).change({"calc.py": ADD_SUB, "tests/test_calc.py": test})
    assert found.proof == "unproved"
    assert "before the task began: tests.test_calc::test_red" in found.reason


# -- without a report


def test_without_a_report_exit_codes_prove_it_coarsely(tmp_path: Path) -> None:
    proving = Proving(tmp_path, run_files=[*PYTEST, "{files}"])
    found = proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB})
    assert (found.proof, list(found.trees)) == ("proved (coarse)", ["h", "o", "o2", "x"])


def test_without_a_report_assert_true_is_still_unproved(tmp_path: Path) -> None:
    proving = Proving(tmp_path, run_files=[*PYTEST, "{files}"])
    changed = {"calc.py": ADD_SUB, "tests/test_sub.py": "def test_sub():\n    assert True\n"}
    assert proving.change(changed).proof == "unproved"


def test_the_command_is_told_what_its_report_must_say(tmp_path: Path) -> None:
    told = 'test -f "$JEST_JUNIT_TEST_CASE_PROPERTIES_DIR/$JEST_JUNIT_TEST_CASE_PROPERTIES_JSON_FILE" && exec "$0" "$@"'
    found = Proving(tmp_path, run_files=["sh", "-c", told, *REPORTING]).change(
        {"calc.py": ADD_SUB, "tests/test_sub.py": TEST_SUB}
    )
    assert found.proof == "proved"


# -- what a test can see of its surroundings, through the front door


def told(proving: Proving, words: str) -> str:
    """What a test sees on each tree, in the order in which they ran: it writes it outside of the slot."""
    log = proving.front.tmp / "seen"
    test = "import os, sys, subprocess, tempfile\n\nimport calc\n\n\ndef test_sub():\n"
    test += f"    with open({str(log)!r}, 'a') as f:\n        print({words}, file=f)\n    assert calc.sub(5, 2) == 3\n"
    assert proving.change({"calc.py": ADD_SUB, "tests/test_sub.py": test}).proof == "proved"
    return log.read_text()


@pytest.mark.parametrize(
    "words",
    [
        "sys.argv",
        "os.getcwd()",
        "sorted(os.environ.items())",
        "subprocess.check_output(['git', 'log', '--format=%P %s %ct'])",
        "repr(subprocess.getoutput('git diff HEAD~1'))",
        "repr(subprocess.getoutput('git for-each-ref | while read sha kind ref; do git diff $sha; done'))",
        "subprocess.check_output(['git', 'status', '--porcelain', '--ignored'])",
        "os.stat('calc.py').st_mtime_ns, os.stat('tests/test_sub.py').st_mtime_ns, os.stat('tests').st_mtime_ns",
        "os.listdir(tempfile.gettempdir())",
    ],
    ids=["arguments", "folder", "environment", "history", "parent", "refs", "status", "times", "temporary files"],
)
def test_a_test_sees_the_same_surroundings_on_every_tree(proving: Proving, words: str) -> None:
    seen = told(proving, words).splitlines()
    assert len(seen) >= 4
    assert len(set(seen)) == 1


def test_trees_are_proved_in_an_order_that_differs_from_proof_to_proof() -> None:
    orders = {tuple(shuffle_trees(tuple(ProofTree), str(seed))) for seed in range(50)}
    assert len(orders) == 50
    assert {order[0] for order in orders} == set(ProofTree)
    assert shuffle_trees(tuple(ProofTree), "1") == shuffle_trees(tuple(ProofTree), "1")


def test_what_an_agent_left_among_ignored_files_is_not_there_when_its_work_is_proved(tmp_path: Path) -> None:
    base = {**BASE, ".gitignore": "__pycache__/\n.venv/\nplugin.py\n"}
    proving = Proving(tmp_path, base=base)
    test = "import os\n\n\ndef test_sub():\n    assert os.path.exists('plugin.py')\n"
    rule = {
        "when": {"role": "implementer"},
        "run": ["mkdir -p .venv && touch .venv/x plugin.py"],
        "files": {"calc.py": ADD_SUB, "tests/test_sub.py": test},
        "commit": "work",
        "say": "done",
    }
    assert proving.start([rule]).code == 12
    assert [(proof.proof, "not green at its head" in proof.reason) for proof in proving.proofs] == [("unproved", True)]


def test_the_set_up_runs_once_for_several_proofs_and_again_when_a_lock_file_changes(tmp_path: Path) -> None:
    log = tmp_path / "setups"
    setup = ["sh", "-c", f'pwd >> "{log}"; mkdir -p .venv && cp requirements.txt .venv/installed']
    base = {**BASE, ".gitignore": "__pycache__/\n.venv/\n", "requirements.txt": "a\n"}
    proving = Proving(tmp_path, base=base, config=f"[workspace]\nsetup = [{json.dumps(setup)}]\n")
    tests = [
        f"import calc\n\n\ndef test_{name}():\n    assert open('.venv/installed').read() == {lock!r}\n"
        f"    assert calc.{name}(4, 2) == {answer}\n"
        for name, lock, answer in (("sub", "a\n", 2), ("mul", "a\n", 8), ("div", "b\n", 2))
    ]
    mul = ADD_SUB + "\n\ndef mul(a, b):\n    return a * b\n"
    div = {"calc.py": mul + "\n\ndef div(a, b):\n    return a // b\n", "requirements.txt": "b\n"}
    work = [{"calc.py": ADD_SUB, "tests/test_sub.py": tests[0]}, {"calc.py": mul, "tests/test_mul.py": tests[1]}]
    rules = [
        {"when": {"role": "implementer", "task": f"t{n}"}, "files": files, "commit": "work", "say": "done"}
        for n, files in enumerate([*work, {**div, "tests/test_div.py": tests[2]}], 1)
    ]
    tasks = [{"title": "Sub"}, {"title": "Mul", "depends_on": ["t1"]}, {"title": "Div", "depends_on": ["t2"]}]
    plan = plan_of([{**task, "description": "x"} for task in tasks])
    planned = {"when": {"role": "planner"}, "files": {"{plan_path}": plan}, "say": "done"}
    done = proving.front.start([planned, *rules], "--flow", str(proving.flow))
    assert done.code == 0, done.out + done.err
    assert [proof.proof for proof in proving.proofs] == ["proved"] * 3
    proved_in = [line for line in log.read_text().splitlines() if "/proofs/" in line]
    assert len(proved_in) == 2


NEW_HEAD = {
    "calc.py": ADD_SUB + "\n\nclass Sum(int):\n    pass\n",
    "tests/test_sub.py": "import calc\n\n\ndef test_sub():\n    assert hasattr(calc, 'sub')\n",
}
WITH_CLASS = {**BASE, "calc.py": BASE["calc.py"] + "\n\nclass Sum:\n    pass\n"}


def test_a_weak_proof_asks_a_person(tmp_path: Path) -> None:
    proving = Proving(tmp_path, base=WITH_CLASS)
    done = proving.start([{"when": {"role": "implementer"}, "files": NEW_HEAD, "commit": "work", "say": "done"}])
    assert (done.code, proving.front.asked) == (10, ["weak"])
    assert [proof.proof for proof in proving.proofs] == ["weak"]
    assert "a part of it still runs: calc.py: the head of class Sum" in proving.proofs[0].reason
    assert proving.front("answer", "refuse").code == 12


def test_a_weak_proof_may_be_refused_at_once(tmp_path: Path) -> None:
    found = Proving(tmp_path, base=WITH_CLASS, tests='weak = "refuse"').change(NEW_HEAD)
    assert (found.proof, found.ok) == ("weak", False)


def test_tests_that_lack_what_only_an_agent_installed_are_told_where_to_name_it(tmp_path: Path) -> None:
    found = Proving(tmp_path, run_files=["false", "{junit}", "{files}"]).change(HONEST_SUB)
    assert found.proof == "unproved"
    assert "name them in workspace.setup" in found.reason
