"""The slots in which trees are proved: nothing of one run is there for the next, and nobody sets up twice in vain."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitrepo import make_engine
from windlass.git.engine_repo import EngineRepo
from windlass.git.gc import gc
from windlass.git.proof_slot import ProofSlot

DATE = 1_700_000_000.0


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineRepo]:
    taken: list[ProofSlot] = []
    take = ProofSlot.take

    def noted(engine: EngineRepo) -> ProofSlot:
        taken.append(take(engine))
        return taken[-1]

    monkeypatch.setattr(ProofSlot, "take", noted)
    yield make_engine(tmp_path, {"a.py": "x = 1\n", ".gitignore": ".venv/\n*.log\n"})
    for slot in taken:
        slot.release()


def standing(engine: EngineRepo) -> ProofSlot:
    """A slot that was set up, with one installed file."""
    slot = ProofSlot.take(engine)
    slot.check_out(tree(engine))
    (slot.slot.path / ".venv").mkdir()
    (slot.slot.path / ".venv" / "tool").write_text("installed")
    slot.remember("hash", DATE)
    return slot


def tree(engine: EngineRepo) -> str:
    return engine.objects.tree_of(engine.user.head)


def names(slot: ProofSlot) -> set[str]:
    files = (path.relative_to(slot.slot.path) for path in slot.slot.path.rglob("*") if path.is_file())
    return {str(path) for path in files if path.parts[0] != ".git"}


def test_what_a_run_left_is_gone_and_what_was_installed_stays(engine: EngineRepo) -> None:
    slot = standing(engine)
    for name in ("b.py", "x.log", ".venv/plugin.py", "deep/er/c.log"):
        path = slot.slot.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left")
    (slot.slot.path / "a.py").write_text("x = 2\n")
    (slot.slot.path / "locked").mkdir(mode=0o500)
    assert slot.check_out(tree(engine))
    assert names(slot) == {"a.py", ".gitignore", ".venv/tool"}
    assert not (slot.slot.path / "deep").exists()
    assert (slot.slot.path / "a.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("how", ["write", "remove", "same size and time"])
def test_a_run_that_changes_what_was_installed_is_noticed(engine: EngineRepo, how: str) -> None:
    slot = standing(engine)
    tool = slot.slot.path / ".venv" / "tool"
    was = tool.stat()
    if how == "remove":
        tool.unlink()
    else:
        tool.write_text("INSTALLED" if how == "same size and time" else "other")
    if how == "same size and time":
        os.utime(tool, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert not slot.check_out(tree(engine))


def test_a_tree_has_one_commit_and_no_refs_and_is_clean(engine: EngineRepo) -> None:
    slot = standing(engine)
    slot.check_out(tree(engine))

    def git(*args: str) -> str:
        return subprocess.check_output(["git", *args], cwd=slot.slot.path, text=True)

    assert git("rev-list", "--all", "HEAD").count("\n") == 1
    assert git("for-each-ref") == git("status", "--porcelain") == git("stash", "list") == ""


def test_a_repository_that_a_test_changed_is_made_anew(engine: EngineRepo) -> None:
    slot = standing(engine)
    hook = slot.slot.git_dir / "hooks" / "post-checkout"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    (slot.slot.git_dir / "config").write_text("[core]\n\tworktree = /nowhere\n")
    subprocess.check_call(["git", "config", "-f", ".git/config", "filter.x.smudge", "false"], cwd=slot.slot.path)
    assert slot.check_out(tree(engine))
    assert names(slot) == {"a.py", ".gitignore", ".venv/tool"}
    assert not hook.exists()


def test_two_proofs_at_once_have_a_slot_each_and_the_first_is_used_again(engine: EngineRepo) -> None:
    one, two = standing(engine), ProofSlot.take(engine)
    assert (one.n, two.n) == (1, 2)
    one.release()
    again = ProofSlot.take(engine)
    assert (again.n, again.set_up_for) == (1, "hash")


def test_a_slot_whose_holder_was_killed_is_made_anew(engine: EngineRepo) -> None:
    slot = standing(engine)
    slot._lock.close()
    again = ProofSlot.take(engine)
    assert (again.n, again.set_up_for, names(again)) == (1, None, set())


def test_files_that_the_user_copies_into_slots_are_there_on_every_tree(engine: EngineRepo) -> None:
    (engine.user.root / "secret.log").write_text("s")
    slot = ProofSlot.take(engine)
    slot.check_out(tree(engine), (), ["*.log"])
    slot.remember("", DATE)
    (slot.slot.path / "secret.log").write_text("changed")
    assert slot.check_out(tree(engine), (), ["*.log"])
    assert (slot.slot.path / "secret.log").read_text() == "s"


def test_gc_removes_slots_that_no_proof_holds(engine: EngineRepo) -> None:
    slot = standing(engine)
    assert "proof slot 1" not in [getattr(one, "what", "") for one in gc(engine, [], dry=False, date=DATE)]
    slot.release()
    assert "proof slot 1" in [one.what for one in gc(engine, [], dry=True, date=DATE)]
    assert slot.home.exists()
    gc(engine, [], dry=False, date=DATE)
    assert not slot.home.exists()
