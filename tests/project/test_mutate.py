"""The tool that breaks the code: what it notices, what it refuses, what it writes down."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import mutate

ROOT = Path(__file__).parents[2]
HALF = "def half(n):\n    return n / 2\n"
SRC_FIRST = 'sys.path.insert(0, str(Path(__file__).parents[2] / "src"))\n'
TESTS = f"""import sys
from pathlib import Path

{SRC_FIRST}from half import half


def test_half():
    assert half(4) == 2


def test_nothing():
    assert half
"""


def listed(**fields: object) -> str:
    given = {
        "id": "twice",
        "file": "src/half.py",
        "old": "n / 2",
        "new": "n * 2",
        "tests": ["tests/test_half.py::test_half"],
        **fields,
    }
    return "[[mutation]]\n" + "".join(f"{name} = {value!r}\n" for name, value in given.items())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {"src/half.py": HALF, "tests/test_half.py": TESTS, "pyproject.toml": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(tree: Path, text: str, *arguments: str) -> int:
    path = tree / "tests/mutations.toml"
    path.write_text(text)
    return mutate.main(["--list", str(path), "--root", str(tree), *arguments])


def test_the_list_fits_the_tree() -> None:
    mutations = mutate.load(ROOT / "tests/mutations.toml")
    mutate.check(mutations, ROOT)
    assert len(mutations) >= 100


@pytest.mark.long
def test_a_mutation_that_a_test_notices_is_killed_and_the_tree_stays_as_it_was(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree, listed()) == 0
    assert "1 mutations: 1 killed, 0 survived, 0 hung, 0 invalid" in capsys.readouterr().out
    assert (tree / "src/half.py").read_text() == HALF


@pytest.mark.long
def test_a_mutation_that_nobody_notices_survives_and_is_named(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree, listed(tests=["tests/test_half.py::test_nothing"])) == 1
    assert "survived: twice (src/half.py)" in capsys.readouterr().out


@pytest.mark.long
def test_a_set_pythonpath_does_not_hide_the_mutation(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "tests/test_half.py").write_text(TESTS.replace(SRC_FIRST, ""))
    monkeypatch.setenv("PYTHONPATH", str(tree / "src"))
    assert run(tree, listed()) == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"old": "n / 3"}, "its old text stands 0 times in src/half.py, not once"),
        ({"old": "n"}, "not once"),
        ({"file": "src/gone.py"}, "src/gone.py"),
        ({"tests": ["tests/test_half.py::test_gone"]}, "there is no test tests/test_half.py::test_gone"),
        ({"tests": ["tests/test_gone.py"]}, "there is no test tests/test_gone.py"),
        ({"new": "n / 2"}, "a new text that differs"),
        ({"test": "x"}, "a mutation has"),
    ],
)
def test_a_list_that_does_not_fit_the_tree_is_refused(
    tree: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, object], words: str
) -> None:
    assert run(tree, listed(**fields)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.long
def test_tests_that_fail_anyway_notice_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "src/half.py").write_text(HALF.replace("/ 2", "/ 2 + 1"))
    assert run(tree, listed()) == 2
    assert "tests fail without a mutation" in capsys.readouterr().err


@pytest.mark.long
def test_a_mutation_that_no_longer_imports_proves_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tree, listed(new="n /")) == 1
    assert "0 killed, 0 survived, 0 hung, 1 invalid" in capsys.readouterr().out


def test_only_a_test_that_carries_the_number_and_failed_is_written_down(tmp_path: Path) -> None:
    mutation = mutate.Mutation("m1", "f", "a", "b", ("t",), ("S0-01", "S0-02"))
    result = mutate.Result(mutation, "killed", ("tests/x.py::test_a", "tests/x.py::test_b"), 1.0)
    found = mutate.noticed(
        [result], {"S0-01": ["tests/x.py::test_a", "tests/x.py::test_c"], "S0-02": ["tests/y.py::t"]}
    )
    assert found == {"S0-01": {"tests/x.py::test_a": ["m1"]}}
    path = tmp_path / "checked.toml"
    path.write_text('[S0-03]\n"t" = ["kept", "gone"]\n[S0-04]\n"t" = ["m1"]\n')
    mutate.record(path, found, ["m1"], {"m1", "kept"})
    assert tomllib.loads(path.read_text()) == {"S0-01": {"tests/x.py::test_a": ["m1"]}, "S0-03": {"t": ["kept"]}}
