"""A `land` that is killed at any moment: the next command finishes it or takes it back, file by file."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import zygote
from gitrepo import footprint, make_engine, sh, write
from windlass.git import user_repo
from windlass.git.user_checkout import FOLLOW, CheckoutMove, Settled, advance, settle

FILES = {
    "kept.txt": "kept\n",
    "changed.txt": "old\n" * 50,
    "gone.txt": "gone\n",
    "folder": "a file where a folder will be\n",
    "other/deep/file.txt": "in a folder where a file will be\n",
    "tool.sh": "#!/bin/sh\n",
}
NEW = {"changed.txt": "new\n" * 5000, "added/one.txt": "one\n", "folder/inside.txt": "1\n", "other": "a file now\n"}
# Moves a checkout in a process of its own, which is killed at the Nth call of `place`.
LANDER = """
import importlib, os, signal, sys
from pathlib import Path
root, before, after, place, when, number = sys.argv[1:]
module, _, name = place.partition(":")
owner = importlib.import_module(module)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
real, left = getattr(owner, last), [int(number)]
def dying(*args, **more):
    left[0] -= 1
    if when == "before" and left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args, **more)
    if when == "after" and left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
from windlass.git import user_repo
from windlass.git.user_checkout import CheckoutMove, advance
user = user_repo.discover(Path(root))
setattr(owner, last, dying)
advance(user, CheckoutMove("land", "r1", "main", before, after, {"tip": after}))
"""
# Every effect of a move goes through one of these.
PLACES = ("windlass.git.run:run_raw", "os:link", "pathlib:Path.replace", "pathlib:Path.unlink")


class Ground:
    """A checkout on `main`, and a commit that changes it in every way a commit can."""

    def __init__(self, tmp_path: Path) -> None:
        self.engine = make_engine(tmp_path, FILES)
        self.user = self.engine.user
        self.root = self.user.root
        self.before = self.user.head
        sh(self.root, "checkout", "-q", "-b", "work")
        for name in ("gone.txt", "folder", "other/deep/file.txt"):
            (self.root / name).unlink()
        shutil.rmtree(self.root / "other")
        write(self.root, NEW)
        (self.root / "tool.sh").chmod(0o755)
        (self.root / "link").symlink_to("kept.txt")
        sh(self.root, "add", "-A")
        sh(self.root, "commit", "-qm", "all of it")
        self.after = sh(self.root, "rev-parse", "HEAD")
        self.files_after = footprint(self.root).files
        sh(self.root, "checkout", "-q", "main")
        self.files_before = footprint(self.root).files

    def again(self) -> None:
        sh(self.root, "reset", "-q", "--hard", self.before)
        sh(self.root, "clean", "-fdq")

    def killed(self, place: str, when: str, number: int, env: dict[str, str] | None = None) -> bool:
        program = ["-c", LANDER, str(self.root), self.before, self.after, place, when, str(number)]
        done = zygote.run(program, cwd=self.root, env={**os.environ, **(env or {})})
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode != 0

    def assert_whole(self, settled: Settled | None) -> None:
        head = sh(self.root, "rev-parse", "main")
        landed = head == self.after
        assert head in (self.before, self.after)
        assert sh(self.root, "status", "--porcelain", "--untracked-files=all") == ""
        assert footprint(self.root).files == (self.files_after if landed else self.files_before)
        assert not (self.root / ".git" / "index.lock").exists()
        assert not list((self.root / ".git" / "windlass" / "checkout").glob("*.json"))
        assert settled is None or settled.untouched == ()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_move_killed_at_any_effect_is_finished_or_taken_back(place: str, when: str, tmp_path: Path) -> None:
    ground, kills = Ground(tmp_path), 0
    while ground.killed(place, when, kills + 1):
        kills += 1
        recorded: list[CheckoutMove] = []
        settled = settle(user_repo.discover(ground.root), recorded.append)
        landed = sh(ground.root, "rev-parse", "main") == ground.after
        # Killed after the intent was gone there is nothing to settle, and the branch shows it.
        assert bool(recorded) == (settled is not None and settled.how == "finished")
        assert landed == (settled is None or settled.how == "finished") or (settled is None and not landed)
        ground.assert_whole(settled)
        ground.again()
    assert kills >= 1, "the move met no such call"
    ground.assert_whole(None)
    assert sh(ground.root, "rev-parse", "main") == ground.after


# Called by git for every file that it writes: the Nth call kills git, or the lander and git.
SMUDGE = """#!/bin/sh
echo . >> {folder}/calls
if [ $(wc -l < {folder}/calls) = {number} ]; then
  git=$PPID
  [ {who} = git ] || kill -9 $(ps -o ppid= -p $git)
  kill -9 $git
fi
cat
"""


@pytest.mark.long
@pytest.mark.parametrize("who", ["git", "both"])
def test_a_git_killed_between_two_files_leaves_nothing_half_done(who: str, tmp_path: Path) -> None:
    ground, kills = Ground(tmp_path), 0
    script = tmp_path / "smudge"
    write(ground.root / ".git" / "info", {"attributes": "* filter=slow\n"})
    sh(ground.root, "config", "filter.slow.smudge", str(script))
    for number in range(1, 20):
        (tmp_path / "calls").unlink(missing_ok=True)
        script.write_text(SMUDGE.format(folder=tmp_path, number=number, who=who))
        script.chmod(0o755)
        command = [sys.executable, "-c", LANDER, str(ground.root), ground.before, ground.after]
        done = subprocess.run([*command, "os:link", "before", "99"], capture_output=True, check=False)
        if done.returncode == 0:
            break
        kills += 1
        assert done.returncode == (1 if who == "git" else -signal.SIGKILL), done.stderr.decode()
        script.write_text("#!/bin/sh\ncat\n")
        settled = settle(user_repo.discover(ground.root))
        # The lander itself takes back what its git left; killed with it, the next command does.
        assert (settled is None) == (who == "git"), done.stderr.decode()
        assert sh(ground.root, "rev-parse", "main") == ground.before
        ground.assert_whole(settled)
        ground.again()
    assert kills >= 3
    ground.assert_whole(None)


def _interrupted(ground: Ground) -> None:
    """Files and index are new, the branch is old: killed before `update-ref`."""
    assert ground.killed("windlass.git.run:run_raw", "before", _calls_before_the_branch(ground))


def _calls_before_the_branch(ground: Ground) -> int:
    for number in range(1, 30):
        if not ground.killed("windlass.git.run:run_raw", "before", number):
            break
        new = (ground.root / "changed.txt").read_text() == NEW["changed.txt"]
        settle(user_repo.discover(ground.root))
        ground.again()
        if new:
            return number
    raise AssertionError("no git runs between the files and the branch")


def test_a_file_that_somebody_changed_meanwhile_is_never_overwritten(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    _interrupted(ground)
    write(ground.root, {"changed.txt": "mine\n", "added/own.txt": "mine\n"})
    (ground.root / "folder" / "own.txt").write_text("mine\n")
    settled = settle(user_repo.discover(ground.root))
    assert settled is not None
    assert settled.how == "taken back"
    assert settled.untouched == ("changed.txt", "folder")
    assert (ground.root / "changed.txt").read_text() == "mine\n"
    assert (ground.root / "added" / "own.txt").read_text() == "mine\n"
    assert (ground.root / "folder" / "own.txt").read_text() == "mine\n"
    assert (ground.root / "gone.txt").read_text() == "gone\n"
    assert not (ground.root / "added" / "one.txt").exists()
    assert "changed.txt" in settled.text


def test_the_torn_beginning_of_a_file_is_taken_back(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    _interrupted(ground)
    (ground.root / "changed.txt").write_text(NEW["changed.txt"][:100])
    (ground.root / "added" / "one.txt").write_text("")
    settled = settle(user_repo.discover(ground.root))
    ground.assert_whole(settled)
    assert sh(ground.root, "rev-parse", "main") == ground.before


def test_a_person_who_removed_the_lock_and_went_on_keeps_what_they_have(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    _interrupted(ground)
    (ground.root / ".git" / "index.lock").unlink()
    sh(ground.root, "commit", "-qam", "took it as it was")
    here = footprint(ground.root)
    settled = settle(user_repo.discover(ground.root))
    assert settled is not None
    assert settled.how == "left"
    assert footprint(ground.root) == here


def test_a_lock_of_another_git_is_respected_and_named(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    lock = ground.root / ".git" / "index.lock"
    lock.write_text("")
    with pytest.raises(Exception, match=r"index\.lock"):
        advance(ground.user, CheckoutMove(FOLLOW, "r1", "main", ground.before, ground.after))
    assert lock.exists()
    lock.unlink()
    ground.assert_whole(None)
    assert settle(ground.user) is None


def test_an_ignored_file_in_the_way_is_not_overwritten(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    write(ground.root / ".git" / "info", {"exclude": "added/\n"})
    write(ground.root, {"added/one.txt": "precious\n"})
    with pytest.raises(Exception, match="overwritten"):
        advance(ground.user, CheckoutMove(FOLLOW, "r1", "main", ground.before, ground.after))
    assert (ground.root / "added" / "one.txt").read_text() == "precious\n"
    assert sh(ground.root, "rev-parse", "main") == ground.before


def test_a_further_worktree_has_its_own_intent(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    sh(ground.root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"), ground.before)
    side = user_repo.discover(tmp_path / "side")
    advance(side, CheckoutMove(FOLLOW, "r1", "side", ground.before, ground.after))
    assert sh(tmp_path / "side", "status", "--porcelain") == ""
    assert sh(tmp_path / "side", "rev-parse", "HEAD") == ground.after
    assert sh(ground.root, "rev-parse", "main") == ground.before
