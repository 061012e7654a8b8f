"""A git that is killed while a run begins: said as what it is, and the next start finds nothing in its way."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench import Bench, make_bench
from gitrepo import make_repo, sh
from windlass.errors import GitUnansweredError
from windlass.git import run as git

# Ends the Nth call by a real signal, before git does anything or after it has done all of it.
GIT = """#!/bin/sh
n=1
until mkdir {folder}/call$n 2>/dev/null; do n=$((n+1)); done
if [ $n = {number} ]; then
  [ {when} = before ] || {git} "$@"
  kill -9 $$
fi
exec {git} "$@"
"""


def dying(bench: Bench, number: int, when: str) -> Bench:
    folder = bench.folder / f"git-{when}-{number}"
    folder.mkdir()
    program = folder / "git"
    program.write_text(GIT.format(folder=folder, number=number, when=when, git=shutil.which("git")))
    program.chmod(0o755)
    return Bench(bench.folder, {"PATH": f"{folder}:{bench.environ()['PATH']}"})


def begun(bench: Bench) -> bool:
    return (bench.home / "windlass.db").exists() and bool(bench.rows("SELECT 1 FROM run"))


@pytest.mark.long
@pytest.mark.req("S2-02")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_git_killed_anywhere_before_the_run_exists_is_exit_12_and_the_next_start_works(
    when: str, tmp_path: Path
) -> None:
    bench = make_bench(tmp_path)
    for number in range(1, 60):
        said = dying(bench, number, when).run("--yes")
        assert said.code == 12, str(said)
        assert "was ended by signal 9" in said.err, str(said)
        if begun(bench):
            break
        assert "run the same command again" in said.err
    assert number > 5, "this met no start-up at all"
    assert len(bench.rows("SELECT 1 FROM run")) == 1
    assert bench.windlass("resume", "--yes").code == 0


def test_a_killed_git_is_no_answer_even_to_who_asked_for_the_exit_code(tmp_path: Path) -> None:
    make_repo(tmp_path)
    with pytest.raises(GitUnansweredError, match="ended by signal 15"):
        git.run(["-c", "alias.die=!kill -TERM $PPID; sleep 1", "die"], tmp_path, check=False)


def test_what_git_says_itself_is_no_signal() -> None:
    assert {code: git.signal_of(code) for code in (-9, 137, 143)} == {-9: 9, 137: 9, 143: 15}
    assert not any(git.signal_of(code) for code in (0, 1, 2, 128, 129, 255))


def test_a_repository_without_commits_is_still_told_as_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.root.mkdir()
    sh(bench.root, "init", "-q")
    bench.script.write_text("[]")
    said = bench.run("--yes")
    assert (said.code, "no commit yet" in said.err) == (1, True)
