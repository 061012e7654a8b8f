"""`windlass doctor` looks at the engine's repository, and `--repair` makes it whole again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench import Bench, make_bench
from gitrepo import make_engine, make_repo, sh
from processes_for_tests import until
from windlass.agents.process.supervise import FOLDER, MARKER
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.engine_repo import INIT_VARIABLES, EngineRepo, init_options

CRASH = "after execute/t2/implement@1.finish"


@pytest.fixture
def stopped(tmp_path: Path) -> Bench:
    """A run that was killed with one task landed and another implemented."""
    bench = make_bench(tmp_path)
    assert bench.run("--yes", crash=CRASH).killed
    return bench


def engine_findings(bench: Bench, *argv: str) -> list[dict[str, str]]:
    found = bench.windlass("doctor", "--json", *argv).json["findings"]
    return [one for one in found if one["topic"] in ("engine", "repair")]


def assert_goes_on(bench: Bench) -> None:
    said = bench.windlass("resume", "--yes")
    assert said.code == 0, str(said)
    branch = bench.rows("SELECT branch FROM run")[0]["branch"]
    assert {"src/sub.py", "src/mul.py"} <= set(sh(bench.root, "ls-tree", "-r", "--name-only", branch).split())


@pytest.mark.long
def test_a_whole_engine_repository_is_said_to_be_whole(stopped: Bench) -> None:
    assert [one["level"] for one in engine_findings(stopped)] == ["ok"]


def break_config(bench: Bench) -> None:
    (bench.engine / "config").write_text("[core]\n\tbare = false\n")


def break_alternates(bench: Bench) -> None:
    (bench.engine / "objects" / "info" / "alternates").write_text("/nowhere/objects\n")


def break_refs(bench: Bench) -> None:
    (bench.engine / "refs" / "windlass" / bench.id / "tip").write_text("")


def break_objects(bench: Bench) -> None:
    for file in bench.engine.glob("objects/[0-9a-f][0-9a-f]/*"):
        file.chmod(0o644)
        file.write_bytes(b"")


def lose_everything(bench: Bench) -> None:
    shutil.rmtree(bench.state)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("damage", [break_config, break_alternates, break_refs, break_objects, lose_everything])
def test_damage_is_named_and_repair_makes_the_engines_repository_whole(damage: object, stopped: Bench) -> None:
    assert callable(damage)
    damage(stopped)
    found = engine_findings(stopped)
    assert "fix" in [one["level"] for one in found], found
    assert {one["hint"] for one in found} == {"windlass doctor --repair"}
    said = engine_findings(stopped, "--repair")
    assert "fix" not in [one["level"] for one in said], said
    assert [one["level"] for one in engine_findings(stopped)] in (["ok"], ["note", "ok"])
    assert_goes_on(stopped)


@pytest.mark.long
def test_a_repository_that_was_moved_is_said_to_be_and_doctor_changes_nothing(stopped: Bench, tmp_path: Path) -> None:
    before = sorted(stopped.state.rglob("*"))
    stopped.root.rename(tmp_path / "elsewhere")
    said = subprocess.run(
        [sys.executable, "-m", "windlass", "doctor", "--json"],
        cwd=tmp_path / "elsewhere",
        env=stopped.environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"was moved from '{stopped.root}'" in said.stdout
    assert sorted(stopped.state.rglob("*")) == before


def test_doctor_names_only_processes_of_its_own_repository(tmp_path: Path) -> None:
    """`windlass check` has the same name in every repository, and a copied repository has the same runs."""
    ours, theirs = make_bench(tmp_path / "ours"), make_bench(tmp_path / "theirs")
    assert ours.windlass("check").code == 0
    started = []
    try:
        for bench in (ours, theirs):
            env = {**os.environ, MARKER: "check:check@1", FOLDER: str(bench.home / "check" / "attempts")}
            started.append(subprocess.Popen(["sleep", "60"], env=env))
        until(lambda: all(Path(f"/proc/{one.pid}/cmdline").read_bytes().startswith(b"sleep") for one in started))
        said = ours.windlass("doctor").out
        assert f"process {started[0].pid} is a leftover of check:check@1" in said
        assert f"process {started[1].pid}" not in said
    finally:
        for one in started:
            one.kill()
            one.wait()


# -- how the engine's repository is made


def test_refs_are_files_whatever_the_persons_configuration_says() -> None:
    assert "--ref-format=files" in init_options("sha1", (2, 45, 0))
    assert "--ref-format=files" in init_options("sha256", (3, 0))
    # An older git knows no other format, and refuses an option that it does not know.
    assert "--ref-format=files" not in init_options("sha1", (2, 39, 5))
    assert INIT_VARIABLES == {"GIT_DEFAULT_REF_FORMAT": "files"}


GIT = """#!/bin/sh
if [ "$1" = version ] || [ "$(eval echo \\${$#})" = version ]; then echo "git version 2.45.1"; exit 0; fi
for word in "$@"; do
  if [ "$word" = init ]; then echo "$GIT_DEFAULT_REF_FORMAT $*" >> FOLDER/inits; fi
done
rest=
for word in "$@"; do
  [ "$word" = --ref-format=files ] || rest="$rest '$word'"
done
eval exec REAL $rest
"""


def test_a_new_git_is_told_the_format_of_refs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = user_repo.discover(make_repo(tmp_path / "user"))
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(GIT.replace("FOLDER", str(tmp_path)).replace("REAL", git.program()))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    EngineRepo.open(user, tmp_path / "state")
    line = (tmp_path / "inits").read_text()
    assert line.startswith("files ")
    assert "--ref-format=files" in line


PERSONAL = """
[init]
	templateDir = {folder}/template
	defaultBranch = trunk
	defaultRefFormat = reftable
	defaultObjectFormat = sha256
[core]
	sharedRepository = group
[safe]
	bareRepository = explicit
[extensions]
	worktreeConfig = true
"""


def test_a_persons_own_settings_do_not_shape_the_engines_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "template" / "hooks").mkdir(parents=True)
    (tmp_path / "template" / "hooks" / "post-checkout").write_text("#!/bin/sh\n")
    (tmp_path / "gitconfig").write_text(PERSONAL.format(folder=tmp_path))
    make_repo(tmp_path / "user")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    engine = EngineRepo.open(user_repo.discover(tmp_path / "user"), tmp_path / "state")
    engine.refs.set_tip("r1", engine.user.head, "")
    assert (engine.path / "HEAD").read_text() == "ref: refs/heads/main\n"
    assert not (engine.path / "hooks").exists()
    assert engine.refs.tip("r1") == engine.user.head
    # A ref that names another is read by git itself, which must be told that the repository is bare.
    sh(engine.path, f"--git-dir={engine.path}", "symbolic-ref", "refs/heads/also", "refs/windlass/r1/tip")
    assert engine.refs.all()["refs/heads/also"] == engine.user.head


def test_a_torn_head_does_not_hide_the_repository(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    (engine.path / "HEAD").write_text("")
    assert EngineRepo.open(engine.user, tmp_path / "state").refs.tip("r1") == engine.user.head
