from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitrepo import DATE, commit, make_engine, reachable, sh, write
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt
from windlass.git.slot import Slot
from windlass.git.slots import Slots
from windlass.git.trees import harvest
from windlass.model import Key, KeyPart, is_id

ONE = Attempt("r1", "execute/t1/spec.fix#1", 1)


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n", ".gitignore": "*.log\n"})


@pytest.fixture
def slots(engine: EngineRepo) -> Slots:
    return Slots(engine)


@pytest.fixture
def slot(slots: Slots) -> Slot:
    return slots.take("r1", "execute/t1", slots.engine.user.head)


def _kept(engine: EngineRepo) -> dict[str, str]:
    return git.read_refs(engine.user.root, "refs/windlass/keep")


def test_a_slot_in_which_nothing_happened_leaves_no_ref(slots: Slots, slot: Slot) -> None:
    slots.release(slot, ONE, DATE)
    assert _kept(slots.engine) == {}


def test_uncommitted_and_untracked_files_are_kept_but_not_ignored_ones(slots: Slots, slot: Slot) -> None:
    write(slot.path, {"a.txt": "half\n", "new file\n.txt": "new", "x.log": "noise"})
    refs = slots.place(slot, slots.engine.user.head, ONE, DATE)
    assert refs == ("refs/windlass/keep/r1/execute/t1/spec.fix#1/@1",)
    root = slots.engine.user.root
    assert sh(root, "show", f"{refs[0]}:a.txt") == "half"
    assert sh(root, "ls-tree", "-r", "-z", "--name-only", refs[0]).strip("\0").split("\0") == [
        ".gitignore",
        "a.txt",
        "new file\n.txt",
    ]
    assert sh(root, "rev-parse", f"{refs[0]}^") == slots.engine.user.head


def test_a_commit_that_was_reset_away_is_kept(slots: Slots, slot: Slot) -> None:
    base = slots.engine.user.head
    lost = commit(slot.path, {"b": "1"})
    sh(slot.path, "reset", "-q", "--hard", base)
    other = commit(slot.path, {"c": "1"})
    refs = slots.place(slot, base, ONE, DATE)
    assert [ref.rpartition("/")[2] for ref in refs] == ["@1", "@1.2"]
    assert set(_kept(slots.engine).values()) == {lost, other}


def test_of_a_line_of_commits_only_the_last_needs_a_ref(slots: Slots, slot: Slot) -> None:
    first = commit(slot.path, {"b": "1"})
    last = commit(slot.path, {"c": "1"})
    slots.place(slot, slots.engine.user.head, ONE, DATE)
    assert list(_kept(slots.engine).values()) == [last]
    assert reachable(slots.engine.user.root, first)


def test_what_the_journal_holds_needs_no_keep_ref(slots: Slots, slot: Slot) -> None:
    write(slot.path, {"b": "1"})
    head = harvest(slots.engine, slot, "work\n", DATE)
    slots.engine.refs.hold("r1", "execute/t1", head)
    assert slots.release(slot, ONE, DATE) == ()


def _stash(slot: Slot, base: str) -> list[str]:
    write(slot.path, {"a.txt": "stashed 1\n"})
    sh(slot.path, "stash")
    first = sh(slot.path, "rev-parse", "refs/stash")
    write(slot.path, {"a.txt": "stashed 2\n"})
    sh(slot.path, "stash")
    return [first, sh(slot.path, "rev-parse", "refs/stash")]


def _delete_branch(slot: Slot, base: str) -> list[str]:
    sh(slot.path, "checkout", "-q", "-b", "mine")
    made = commit(slot.path, {"b": "1"})
    sh(slot.path, "checkout", "-q", "--detach", base)
    sh(slot.path, "branch", "-q", "-D", "mine")
    return [made]


def _new_branch(slot: Slot, base: str) -> list[str]:
    sh(slot.path, "checkout", "-q", "-b", "mine")
    return [commit(slot.path, {"b": "1"})]


def _orphan(slot: Slot, base: str) -> list[str]:
    made = commit(slot.path, {"b": "1"})
    sh(slot.path, "checkout", "-q", "--orphan", "lone")
    return [made]


def _reset_away(slot: Slot, base: str) -> list[str]:
    made = commit(slot.path, {"b": "1"})
    sh(slot.path, "reset", "-q", "--hard", base)
    return [made]


def _amend(slot: Slot, base: str) -> list[str]:
    made = commit(slot.path, {"b": "1"})
    sh(slot.path, "commit", "-q", "--amend", "-m", "other")
    return [made, sh(slot.path, "rev-parse", "HEAD")]


def _autostash(slot: Slot, base: str) -> list[str]:
    one = commit(slot.path, {"b": "one\n"})
    sh(slot.path, "checkout", "-q", "--detach", base)
    two = commit(slot.path, {"b": "two\n"})
    write(slot.path, {"a.txt": "uncommitted\n"})
    sh(slot.path, "rebase", "--autostash", one, check=False)
    return [one, two, (slot.git_dir / "rebase-merge" / "autostash").read_text().strip()]


def _tag(slot: Slot, base: str) -> list[str]:
    made = commit(slot.path, {"b": "1"})
    sh(slot.path, "tag", "-a", "v1", "-m", "tag")
    sh(slot.path, "reset", "-q", "--hard", base)
    return [made]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("deed", [_stash, _delete_branch, _new_branch, _orphan, _reset_away, _amend, _autostash, _tag])
def test_whatever_an_agent_does_all_it_made_is_reachable_in_the_users_repository(
    slots: Slots, slot: Slot, deed: object
) -> None:
    engine = slots.engine
    before = engine.refs.all()
    assert callable(deed)
    made = deed(slot, engine.user.head)
    changed = engine.audit.changes("r1", before, engine.refs.all())
    slots.keep(slot, ONE, DATE, undone=changed)
    engine.audit.undo(changed)
    slots.place(slot, engine.user.head, ONE, DATE)
    assert engine.refs.all() == before
    assert [sha for sha in made if not reachable(engine.user.root, sha)] == []
    sh(engine.user.root, "gc", "-q", "--prune=now")
    assert sh(engine.user.root, "fsck", "--connectivity-only") == ""


def test_files_of_a_repository_inside_the_slot_are_kept_as_files(slots: Slots, slot: Slot) -> None:
    sh(slot.path, "init", "-q", "inner")
    commit(slot.path / "inner", {"deep/file.txt": "deep\n"})
    (ref,) = slots.place(slot, slots.engine.user.head, ONE, DATE)
    assert sh(slots.engine.user.root, "show", f"{ref}:inner/deep/file.txt") == "deep"


def test_keeping_again_after_a_crash_makes_no_second_ref(slots: Slots, slot: Slot) -> None:
    lost = commit(slot.path, {"b": "1"})
    sh(slot.path, "reset", "-q", "--hard", slots.engine.user.head)
    slots.keep(slot, ONE, DATE)
    again = slots.keep(slot, ONE, DATE)
    assert again is not None
    assert again.refs == ()
    assert list(_kept(slots.engine).values()) == [lost]


def test_later_work_of_the_same_attempt_gets_the_next_name(slots: Slots, slot: Slot) -> None:
    for n in range(3):
        write(slot.path, {"a.txt": f"work {n}\n"})
        slots.place(slot, slots.engine.user.head, ONE, DATE)
    assert [name.rpartition("/")[2] for name in _kept(slots.engine)] == ["@1", "@1.2", "@1.3"]


def test_work_of_an_earlier_owner_of_a_slot_is_not_kept_a_second_time(slots: Slots, slot: Slot) -> None:
    _reset_away(slot, slots.engine.user.head)
    slots.release(slot, ONE, DATE)
    again = slots.take("r2", "execute/t9", slots.engine.user.head)
    assert again == slot
    assert slots.release(again, Attempt("r2", "execute/t9", 1), DATE) == ()
    assert len(_kept(slots.engine)) == 1


def test_names_of_a_key_and_of_one_below_it_do_not_collide(slots: Slots, slot: Slot) -> None:
    for key in ("execute", "execute/t1", "execute/t1/spec#1", "execute/t1+2/spec#1"):
        write(slot.path, {"a.txt": key})
        slots.place(slot, slots.engine.user.head, Attempt("r1", key, 1), DATE)
    assert len(_kept(slots.engine)) == 4


IDS = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=12).filter(is_id)
PARTS = st.builds(KeyPart, IDS, st.integers(1, 99), st.none() | st.integers(1, 99))
KEYS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: Key(tuple(parts)))


@given(run=IDS, key=KEYS, n=st.integers(1, 999), k=st.integers(2, 99))
def test_every_key_makes_a_valid_ref(run: str, key: Key, n: int, k: int) -> None:
    ref = Attempt(run, key.text, n).ref
    for name in (ref, f"{ref}.{k}", f"refs/windlass/{run}/hold/{key},@{'a' * 40}"):
        assert git.run(["check-ref-format", name], Path("/"), check=False).code == 0, name
