from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import spec

ROOT = Path(__file__).parents[2]
REQUIREMENTS = spec.requirements((ROOT / "docs/spec/requirements.md").read_text(encoding="utf-8"))
COUNTS = {"S0": 101, "S1": 111, "S2": 56, "S3": 85, "S4": 114}


def marked(path: Path) -> set[str]:
    """The numbers in `pytest.mark.req(...)`, read from the source so that one file can be tested alone."""
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    found = (call.args for call in calls if ast.unparse(call.func) == "pytest.mark.req")
    return {str(argument.value) for arguments in found for argument in arguments if isinstance(argument, ast.Constant)}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=lambda path: path.stem)
def test_marks_refer_to_requirements_that_exist(path: Path) -> None:
    assert marked(path) - set(REQUIREMENTS) == set()


def test_every_requirement_is_listed_once_and_without_gaps() -> None:
    for group, count in COUNTS.items():
        assert [n for n in REQUIREMENTS if n.startswith(group)] == [f"{group}-{i:02}" for i in range(1, count + 1)]


def test_what_waits_is_named_by_numbers_that_exist() -> None:
    later = tomllib.loads((ROOT / "docs/spec/later.toml").read_text(encoding="utf-8"))
    for key in later:
        group, first, last = spec._span(key)
        assert group in COUNTS
        assert key == group or f"{group}-{first:02}" in REQUIREMENTS
        assert key == group or f"{group}-{last:02}" in REQUIREMENTS


def test_the_narrowest_reason_counts() -> None:
    later = {"S1": "wide", "S1-02..S1-03": "middle", "S1-03": "narrow"}
    found = spec.reasons(later, ["S0-01", "S1-01", "S1-02", "S1-03"])
    assert found == {"S0-01": "", "S1-01": "wide", "S1-02": "middle", "S1-03": "narrow"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "spec").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "spec/requirements.md").write_text(
        "- **S0-01** [L1] {cli} one -> 1\n- **S0-02** [L2] {cli} two -> 2\n- **S1-01** [L3] {cli} three -> 3\n"
    )
    (tmp_path / "spec/later.toml").write_text('"S1" = "not yet"\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  req: numbers\n")
    write_tests(tmp_path, '@pytest.mark.req("S0-01")\n@pytest.mark.parametrize("x", [1, 2])\ndef test_a(x): 1 / 0\n')
    return tmp_path


def write_tests(project: Path, text: str) -> None:
    (project / "tests/test_it.py").write_text(f"import pytest\n\n{text}")


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/spec.py"), "--tests", "tests", "--spec", "spec", *arguments]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, timeout=300)


def test_a_requirement_without_test_or_reason_fails_the_listing(project: Path) -> None:
    done = run(project, "--json")
    states = {row["number"]: (row["state"], row["tests"]) for row in json.loads(done.stdout)}
    assert states == {
        "S0-01": ("claimed", ["tests/test_it.py::test_a"]),
        "S0-02": ("open", []),
        "S1-01": ("later", []),
    }
    assert done.returncode == 1


def test_a_group_is_judged_alone(project: Path) -> None:
    done = run(project, "--group", "S1")
    assert "S1-01   later   not yet" in done.stdout
    assert "S0-01" not in done.stdout
    assert done.returncode == 0


@pytest.mark.long
def test_a_mark_without_a_requirement_fails_the_listing(project: Path) -> None:
    write_tests(project, '@pytest.mark.req("S0-01", "S0-02", "S0-99")\ndef test_a(): pass\n')
    done = run(project)
    assert "marks without a requirement: S0-99" in done.stderr
    assert done.returncode == 1


@pytest.mark.long
def test_tests_that_cannot_be_collected_are_said(project: Path) -> None:
    write_tests(project, "import nothing_of_that_name\n")
    done = run(project)
    assert "cannot be collected" in done.stderr
    assert done.returncode == 1


MUTATION = """[[mutation]]
id = "one"
file = "src/one.py"
old = "1"
new = "2"
tests = ["tests/test_it.py::test_a"]
breaks = ["S0-01"]
"""


@pytest.mark.long
def test_a_requirement_is_proved_only_when_its_test_was_seen_failing(project: Path) -> None:
    (project / "tests/mutations.toml").write_text(MUTATION)
    (project / "tests/checked_by_breaking.toml").write_text('[S0-01]\n"tests/test_it.py::test_a" = ["one"]\n')
    done = run(project, "--json")
    assert {row["number"]: row["state"] for row in json.loads(done.stdout)}["S0-01"] == "proved"
    counted = run(project).stdout
    assert "(seen failing: one)" in counted
    assert "all         1        0      1     1    3" in counted


@pytest.mark.long
@pytest.mark.parametrize(
    ("test", "mutation"), [("tests/test_it.py::test_gone", "one"), ("tests/test_it.py::test_a", "gone")]
)
def test_a_check_whose_test_or_mutation_is_gone_fails_the_listing(project: Path, test: str, mutation: str) -> None:
    (project / "tests/mutations.toml").write_text(MUTATION)
    (project / "tests/checked_by_breaking.toml").write_text(f'[S0-01]\n"{test}" = ["{mutation}"]\n')
    done = run(project)
    assert done.returncode == 1
    assert f"S0-01: {test} by {mutation}" in done.stderr
