"""A repository that was moved or copied, and a state folder that was lost: said, repaired, and the run goes on."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from bench import Bench, Said, default_script, kill, make_bench, wait_for
from gitrepo import make_engine, make_repo, sh
from processes_for_tests import until
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.state_folder import OWNER

LANDED = "after execute/t1/land#1@1.finish"
IMPLEMENTED = "after execute/t2/implement@1.finish"


class Elsewhere(Bench):
    """The same bench, whose repository lies under another name."""

    name = "elsewhere"

    @property
    def root(self) -> Path:
        return self.folder / self.name


def crashed(folder: Path, point: str) -> Bench:
    bench = make_bench(folder)
    said = bench.run("--yes", crash=point)
    assert said.killed, str(said)
    return bench


def assert_finished(bench: Bench, said: Said) -> None:
    assert said.code == 0, str(said)
    assert bench.run_state == "finished"
    branch = bench.rows("SELECT branch FROM run")[0]["branch"]
    landed = sh(bench.root, "ls-tree", "-r", "--name-only", branch).split()
    assert {"src/sub.py", "src/mul.py", "src/left.py"} <= set(landed)
    assert sh(bench.root, "show", f"{branch}:src/mul.py").endswith("ZERO = 0")
    assert sh(bench.root, "fsck", "--no-dangling") == ""


def warnings(bench: Bench) -> str:
    return " ".join(row["data"] for row in bench.rows("SELECT data FROM event WHERE type = 'warned'"))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("point", [LANDED, IMPLEMENTED])
def test_a_moved_repository_goes_on_with_all_it_had(point: str, tmp_path: Path) -> None:
    bench = crashed(tmp_path, point)
    done = {row["key"] for row in bench.rows("SELECT key FROM step")}
    bench.root.rename(tmp_path / "elsewhere")
    moved = Elsewhere(tmp_path)
    said = moved.windlass("resume", "--yes")
    assert_finished(moved, said)
    assert f"moved from '{bench.root}'" in warnings(moved)
    # Nothing that had a result was done again.
    again = moved.rows("SELECT key FROM superseded")
    assert again == []
    assert done <= {row["key"] for row in moved.rows("SELECT key FROM step")}
    assert len(list(moved.state.glob("windlass/*/repo.git"))) == 1


@pytest.mark.long
@pytest.mark.parametrize("point", [LANDED, IMPLEMENTED])
def test_without_its_state_folder_a_run_does_again_what_is_lost_and_goes_on(point: str, tmp_path: Path) -> None:
    bench = crashed(tmp_path, point)
    shutil.rmtree(bench.state)
    said = bench.windlass("resume", "--yes")
    assert_finished(bench, said)
    assert "was lost" in warnings(bench)


PUBLISHED = """SELECT 1 FROM event WHERE type = 'branch.published'
               AND seq > (SELECT seq FROM event WHERE type = 'task.landed')"""


@pytest.mark.long
def test_a_copied_repository_goes_on_by_itself_and_leaves_the_originals_agents_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    slow = default_script(bench)
    gate = tmp_path / "gate"
    # The second task's agent waits until the test lets it go on.
    wait = f"until [ -e {gate} ]; do sleep 0.05; done"
    slow = [{**r, "run": [wait, *r["run"]]} if r["when"].get("task") == "t2" and "run" in r else r for r in slow]
    bench = make_bench(tmp_path, script=slow)
    driver = bench.begin("run", "Add sub and mul", "--script", str(bench.script), "--yes")
    try:
        wait_for(bench, "SELECT 1 FROM attempt WHERE key = 'execute/t2/implement' AND state = 'running'")
        until(lambda: bool(list(bench.run_folder.glob("attempts/execute/t2/implement/@1/proc.json"))))
        # The first task's commits are being unpacked in the background: a copy is made of what is whole.
        wait_for(bench, PUBLISHED)
        driver.send_signal(signal.SIGSTOP)  # it replaces files all the time, and a copy that meets one fails
        shutil.copytree(bench.root, tmp_path / "elsewhere", symlinks=True)
        driver.send_signal(signal.SIGCONT)
        copy = Elsewhere(tmp_path)
        other = copy.begin("resume", "--yes")
        try:
            wait_for(copy, "SELECT 1 FROM attempt WHERE key = 'execute/t2/implement' AND n = 2")
            assert driver.poll() is None
            states = bench.rows("SELECT state FROM attempt WHERE key = 'execute/t2/implement'")
            assert [row["state"] for row in states] == ["running"]
            gate.touch()
            assert other.wait(300) == 0, (tmp_path / "driver.out").read_text()
        finally:
            kill(other)
        assert driver.wait(300) == 0, (tmp_path / "driver.out").read_text()
    finally:
        kill(driver)
    for one in (bench, copy):
        assert_finished(one, Said(0, "", ""))
    assert f"a copy of '{bench.root}'" in warnings(copy)
    assert "a copy of" not in warnings(bench)
    assert [row["n"] for row in bench.rows("SELECT n FROM attempt WHERE key = 'execute/t2/implement'")] == [1]


def test_a_new_repository_at_the_old_path_does_not_get_the_moved_ones_folder(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    tip = engine.refs.tip("r1")
    engine.user.root.rename(tmp_path / "moved")
    make_repo(engine.user.root, {"other.txt": "x\n"})
    new = EngineRepo.open(user_repo.discover(engine.user.root), tmp_path / "state")
    assert new.refs.tip("r1") == ""
    moved = EngineRepo.open(user_repo.discover(tmp_path / "moved"), tmp_path / "state")
    assert moved.refs.tip("r1") == tip
    assert new.home != moved.home


def test_a_folder_of_an_older_windlass_is_taken_as_the_repositorys_own(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    (engine.home / OWNER).unlink()
    (engine.user.state / "place.json").unlink()
    again = EngineRepo.open(engine.user, tmp_path / "state")
    assert again.refs.tip("r1") == engine.user.head
    assert again.about is not None
    assert again.about.note == ""
