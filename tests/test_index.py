from __future__ import annotations

from pathlib import Path

import pytest

from gitrepo import DATE, commit, make_engine, make_repo, sh, write
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.index_flags import may_hide
from windlass.git.keep import Attempt
from windlass.git.slots import Slots
from windlass.git.trees import status

ONE = Attempt("r1", "t1", 1)
LONG = "d/" + "n" * 200 + "/" + "m" * 200


def _index(root: Path) -> Path:
    return root / ".git" / "index"


@pytest.mark.parametrize(
    ("deed", "hides"),
    [
        (["status"], False),
        (["add", "-N", "new"], False),
        (["update-index", "--assume-unchanged", "a1"], True),
        (["update-index", "--skip-worktree", LONG], True),
        (["update-index", "--index-version", "4"], True),
        (["update-index", "--split-index"], True),
    ],
    ids=["plain", "intent to add", "assumed", "skipped", "compressed", "shared"],
)
def test_marks_are_found_whatever_the_names_are(tmp_path: Path, deed: list[str], hides: bool) -> None:
    files = {f"a{'x' * n}": "1" for n in range(17)}
    root = make_repo(tmp_path / "user", {**files, "a1": "1", LONG: "1"})
    write(root, {"new": "1"})
    sh(root, *deed)
    assert may_hide(_index(root)) is hides


def test_an_index_that_is_cut_off_or_not_there(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "user", {"a": "1", "b": "1"})
    whole = _index(root).read_bytes()
    (tmp_path / "cut").write_bytes(whole[:90])
    assert may_hide(tmp_path / "cut")
    assert not may_hide(tmp_path / "none")


@pytest.mark.parametrize("format", ["sha1", "sha256"])
@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
def test_hidden_work_is_seen_kept_and_gone_from_the_next_use(tmp_path: Path, mark: str, format: str) -> None:

    sh(tmp_path, "init", "-q", "-b", "main", f"--object-format={format}", "user")
    commit(tmp_path / "user", {"a.txt": "1\n", "b.txt": "1\n"})
    engine = EngineRepo.open(git.discover(tmp_path / "user"), tmp_path / "state")
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
    assert status(engine, slot).dirty == ()
    assert slots.place(slot, base, ONE, DATE) == ()
    assert (slot.path / "a.txt").read_text() == "1\n"
