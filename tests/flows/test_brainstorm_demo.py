"""The bundled brainstorm on the sample repository: unattended, and by hand to the last question."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from demos import Demo, windlass
from windlass.runs.demo import SCENES

pytestmark = pytest.mark.long

REQUEST = SCENES["brainstorm"].request
BUILT = {"shortlink/users.py", "shortlink/tokens.py", "shortlink/auth.py", "tests/test_auth.py"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Only the sample is made; the run is started as its last lines say, with every answer but the last."""
    base = tmp_path_factory.mktemp("demo")
    home, folder = base / "home", base / "sample"
    home.mkdir()
    told = windlass(home, "demo", "--flow", "brainstorm", "--no-run", "--into", str(folder), cwd=base)
    assert f"windlass run --flow brainstorm '{REQUEST}'" in told.stdout
    given = {key: value for key, value in SCENES["brainstorm"].answers.items() if key != "final"}
    words = [word for key, value in given.items() for word in ("--answer", f"{key}={value}")]
    done = windlass(home, "run", "--flow", "brainstorm", *words, REQUEST, cwd=folder)
    return Demo(folder, home, done.returncode, done.stdout, done.stderr)


def test_it_goes_from_the_first_question_to_the_last_one(made: Demo) -> None:
    assert made.code == 10, made.out + made.err
    titles = [line.strip("─ ") for line in made.out.splitlines() if line.startswith("───")]
    assert titles == [
        *(f"Question {n} of 4" for n in (1, 2, 3, 4)),
        "Choose Approach",
        *(f"Design Section: {name}" for name in ("Architecture", "Components", "Data flow", "Errors and testing")),
        *("Plan Approval", "Execution Mode", "Review Mode", "Final Review"),
    ]
    assert "POST /logout is missing" in made.out


def test_the_fix_that_a_person_asks_for_is_built_checked_and_landed(made: Demo) -> None:
    done = made.windlass("answer", "fix")
    assert done.returncode == 0, done.stdout + done.stderr
    files = set(made.git("ls-tree", "-r", "--name-only", made.branch).splitlines())
    assert files >= BUILT
    assert {Path(name).name[11:] for name in files if name.startswith("docs/plans/")} == {
        f"add-user-authentication-{what}.md" for what in ("design", "plan", "progress")
    }
    assert "SHORTLINK_USERS" in made.git("show", f"{made.branch}:README.md")
    tree = made.folder.parent / "built"
    made.git("worktree", "add", "--quiet", "--detach", str(tree), made.branch)
    tested = subprocess.run([sys.executable, "-m", "unittest", "-q"], cwd=tree, capture_output=True, check=False)
    assert tested.returncode == 0, tested.stderr.decode()


def test_a_demo_plays_the_person_too(tmp_path: Path) -> None:
    done = windlass(tmp_path, "demo", "--flow", "brainstorm", "--into", str(tmp_path / "sample"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3/3 tasks" in done.stdout
    assert "final: accept (by --answer)" in done.stdout
