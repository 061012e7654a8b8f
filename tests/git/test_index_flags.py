from __future__ import annotations

from pathlib import Path

import pytest

from gitrepo import DATE, commit, make_engine, sh, write
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt
from windlass.git.slots import Slots
from windlass.git.trees import status

ONE = Attempt("r1", "t1", 1)
LONG = "d/" + "n" * 200 + "/" + "m" * 200


@pytest.mark.parametrize("name", ["a.txt", LONG, "-x", 'q"uote\n'])
@pytest.mark.parametrize("form", [["--index-version", "4"], ["--split-index"]], ids=["compressed", "shared"])
def test_hidden_work_is_seen_in_every_form_of_an_index(tmp_path: Path, form: list[str], name: str) -> None:
    engine = make_engine(tmp_path, {name: "1\n", "b.txt": "1\n"})
    slot = Slots(engine).take("r1", "t1", engine.user.head)
    sh(slot.path, "update-index", *form)
    sh(slot.path, "update-index", "--assume-unchanged", "--", name)
    write(slot.path, {name: "hidden\n"})
    assert status(engine, slot).dirty == (name,)


@pytest.mark.parametrize("format", ["sha1", "sha256"])
@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_hidden_work_is_seen_kept_and_gone_from_the_next_use(tmp_path: Path, mark: str, format: str) -> None:

    sh(tmp_path, "init", "-q", "-b", "main", f"--object-format={format}", "user")
    commit(tmp_path / "user", {"a.txt": "1\n", "b.txt": "1\n"})
    engine = EngineRepo.open(user_repo.discover(tmp_path / "user"), tmp_path / "state")
    slots, base = Slots(engine), engine.user.head
    slot = slots.take("r1", "t1", base)
    sh(slot.path, "update-index", mark, "a.txt")
    write(slot.path, {"a.txt": "hidden\n"})
    assert status(engine, slot).dirty == ("a.txt",)
    (ref,) = slots.place(slot, base, ONE, DATE)
    assert sh(engine.user.root, "show", f"{ref}:a.txt") == "hidden"
    assert (slot.path / "a.txt").read_text() == "1\n"


def test_files_left_out_of_a_partial_checkout_are_no_deletions_and_are_back_for_the_next_use(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, {"a.txt": "1\n", "b.txt": "1\n"})
    slots, base = Slots(engine), engine.user.head
    slot = slots.take("r1", "t1", base)
    sh(slot.path, "update-index", "--skip-worktree", "a.txt")
    (slot.path / "a.txt").unlink()
    seen = status(engine, slot)
    assert (seen.dirty, seen.partial) == ((), True)
    assert slots.place(slot, base, ONE, DATE, seen) == ()
    assert (slot.path / "a.txt").read_text() == "1\n"
