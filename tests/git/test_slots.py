from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from msgspec.structs import replace

from gitrepo import DATE, commit, footprint, make_engine, sh, write
from windlass.errors import StoppedError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt
from windlass.git.slot import Slot
from windlass.git.slots import Lease, Slots, SlotUse, write_lease
from windlass.git.trees import SlotStatus, commit_tree, status

ONE = Attempt("r1", "execute/t1/implement#1", 1)


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n", ".gitignore": "node_modules\n"})


@pytest.fixture
def slots(engine: EngineRepo) -> Slots:
    return Slots(engine)


def test_a_slot_is_a_clean_detached_checkout_of_the_commit_asked_for(engine: EngineRepo, slots: Slots) -> None:
    slot = slots.take("r1", "t1", engine.user.head)
    assert (slot.path / "a.txt").read_text() == "1\n"
    seen = status(engine, slot)
    assert (seen.head, seen.dirty, seen.detached) == (engine.user.head, (), True)


def test_two_takers_never_get_one_slot(slots: Slots) -> None:
    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(lambda n: slots.take(f"r{n}", "t", slots.engine.user.head), range(6)))
    assert len({slot.n for slot in taken}) == 6
    assert {lease.run for lease in slots.leases()} == {f"r{n}" for n in range(6)}


def test_agents_can_use_git_while_slots_are_made(slots: Slots) -> None:
    slot = slots.take("r1", "t0", slots.engine.user.head)
    with ThreadPoolExecutor(2) as pool:
        made = pool.submit(lambda: [slots.take("r1", f"t{n}", slots.engine.user.head) for n in range(1, 12)])
        while not made.done():
            sh(slot.path, "commit", "-q", "--allow-empty", "-m", "work")
    assert len({slot.n, *(one.n for one in made.result())}) == 12


TAKE = """
import sys; from pathlib import Path
from windlass.git import user_repo; from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots
user = user_repo.discover(Path(sys.argv[1]))
engine = EngineRepo.open(user, Path(sys.argv[2]))
print(*(Slots(engine).take(sys.argv[3], f"t{n}", user.head).n for n in range(3)))
"""


def test_two_processes_never_get_one_slot(tmp_path: Path, engine: EngineRepo) -> None:
    command = [sys.executable, "-c", TAKE, str(engine.user.root), str(tmp_path / "state")]
    children = [subprocess.Popen([*command, run], stdout=subprocess.PIPE, text=True) for run in ("r1", "r2")]
    numbers = [int(n) for child in children for n in child.communicate()[0].split()]
    assert sorted(numbers) == [1, 2, 3, 4, 5, 6]


def test_a_released_slot_is_used_again_clean_but_with_its_ignored_files(slots: Slots) -> None:
    first = slots.take("r1", "t1", slots.engine.user.head)
    write(first.path, {"a.txt": "changed", "new.txt": "x", "node_modules/m.js": "cached"})
    slots.release(first, ONE, DATE)
    again = slots.take("r2", "t9", slots.engine.user.head)
    assert again == first
    assert (again.path / "a.txt").read_text() == "1\n"
    assert not (again.path / "new.txt").exists()
    assert (again.path / "node_modules" / "m.js").exists()


def test_a_slot_with_an_open_intent_is_never_reused(slots: Slots) -> None:
    slot = slots.take("r1", "t1", slots.engine.user.head)
    fresh = Slots(EngineRepo.open(slots.engine.user, slots.engine.home.parent.parent))
    assert fresh.leases_of("r1") == [Lease(slot.n, SlotUse.TAKEN, "r1", "t1")]
    assert fresh.take("r1", "t1", slots.engine.user.head).n != slot.n
    slots.retire(slot, ONE, DATE)
    assert fresh.take("r1", "t1", slots.engine.user.head).n not in (slot.n, slot.n + 1)
    assert slot.n not in [lease.n for lease in fresh.leases_of("r1")]


def test_a_retired_slot_keeps_its_files_and_its_owner(slots: Slots) -> None:
    slot = slots.take("r1", "t1", slots.engine.user.head)
    write(slot.path, {"half.txt": "x"})
    refs = slots.retire(slot, ONE, DATE)
    assert refs == ("refs/windlass/keep/r1/execute/t1/implement#1/@1",)
    assert (slot.path / "half.txt").exists()
    assert slots.leases() == [Lease(slot.n, SlotUse.RETIRED, "r1", ONE.key)]


def test_a_branch_an_agent_made_is_kept_and_the_next_agent_finds_none(slots: Slots) -> None:
    base = slots.engine.user.head
    slot = slots.take("r1", "t1", base)
    sh(slot.path, "checkout", "-q", "-b", "mine")
    made = commit(slot.path, {"x": "1"})
    (ref,) = slots.place(slot, base, ONE, DATE)
    assert git.read_refs(slots.engine.user.root, ref) == {ref: made}
    assert sh(slot.path, "for-each-ref") == ""
    assert status(slots.engine, slot).detached


def test_branches_stashes_and_tags_of_one_slot_are_not_seen_in_another(slots: Slots) -> None:
    base = slots.engine.user.head
    one, two = slots.take("r1", "t1", base), slots.take("r1", "t2", base)
    write(one.path, {"a.txt": "stashed\n"})
    sh(one.path, "stash")
    sh(one.path, "branch", "mine")
    sh(one.path, "tag", "v1")
    assert (sh(two.path, "for-each-ref"), sh(two.path, "stash", "list")) == ("", "")
    assert sh(slots.engine.path, "for-each-ref", "refs/heads", "refs/tags", "refs/stash") == ""


def test_a_slot_that_an_earlier_version_made_as_a_worktree_keeps_its_work(slots: Slots) -> None:
    engine, base = slots.engine, slots.engine.user.head
    path = slots.folder / "1"
    slots.folder.mkdir(parents=True)
    sh(engine.path, "worktree", "add", "-q", "--detach", str(path), base)
    write_lease(slots.folder, Lease(1, SlotUse.TAKEN, "r1", "t1"))
    made = commit(path, {"b.txt": "1\n"})
    write(path, {"half.txt": "precious"})
    (ref,) = slots.place(slots.slot(1), base, ONE, DATE)
    assert sh(engine.user.root, "rev-parse", f"{ref}~1") == made
    assert sh(engine.user.root, "show", f"{ref}:half.txt") == "precious"
    assert not (engine.path / "worktrees" / "1").exists()
    assert status(engine, slots.slot(1)) == SlotStatus(base, engine.objects.tree_of(base), ())


def test_placing_at_the_commit_a_clean_slot_is_at_touches_no_file(slots: Slots) -> None:
    slot = slots.take("r1", "t1", slots.engine.user.head)
    before = (slot.path / "a.txt").stat()
    assert slots.place(slot, slots.engine.user.head, ONE, DATE) == ()
    assert (slot.path / "a.txt").stat() == before


def _merge_with_conflict(slot: Slot, base: str) -> None:
    one = commit(slot.path, {"a.txt": "one\n"})
    sh(slot.path, "checkout", "-q", "--detach", base)
    commit(slot.path, {"a.txt": "two\n"})
    sh(slot.path, "merge", one, check=False)


def _rebase_with_conflict(slot: Slot, base: str) -> None:
    one = commit(slot.path, {"a.txt": "one\n"})
    sh(slot.path, "checkout", "-q", "--detach", base)
    commit(slot.path, {"a.txt": "two\n"})
    sh(slot.path, "rebase", one, check=False)


def _killed_git(slot: Slot, base: str) -> None:
    (slot.git_dir / "index.lock").touch()
    (slot.git_dir / "HEAD.lock").touch()


def _own_git_folder(slot: Slot, base: str) -> None:
    (slot.path / ".git").unlink()
    sh(slot.path, "init", "-q")


def _no_git_file(slot: Slot, base: str) -> None:
    (slot.path / ".git").unlink()


def _nested_repository(slot: Slot, base: str) -> None:
    sh(slot.path, "init", "-q", "inner")
    commit(slot.path / "inner", {"deep.txt": "deep"})


def _removed_folder(slot: Slot, base: str) -> None:
    subprocess.run(["rm", "-rf", str(slot.path)], check=True)


def _redirected_link(slot: Slot, base: str) -> None:
    (slot.path / ".git").write_text("gitdir: /nowhere\n")


def _redirected_metadata(slot: Slot, base: str) -> None:
    (slot.git_dir / "commondir").write_text("/nowhere\n")
    (slot.git_dir / "config.worktree").write_text("[core]\nworktree = /nowhere\n")
    (slot.git_dir / "objects" / "info" / "alternates").write_text("/nowhere\n")


def _broken_config(slot: Slot, base: str) -> None:
    (slot.git_dir / "config").unlink()
    (slot.git_dir / "config").mkdir()


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "mess",
    [
        _merge_with_conflict,
        _rebase_with_conflict,
        _killed_git,
        _own_git_folder,
        _no_git_file,
        _nested_repository,
        _removed_folder,
        _redirected_link,
        _redirected_metadata,
        _broken_config,
    ],
)
def test_a_slot_left_in_any_mess_is_clean_after_placing(slots: Slots, mess: object) -> None:
    base = slots.engine.user.head
    slot = slots.take("r1", "t1", base)
    assert callable(mess)
    mess(slot, base)
    slots.place(slot, base, ONE, DATE)
    seen = status(slots.engine, slot)
    assert (seen.head, seen.dirty, seen.detached) == (base, (), True)
    assert (slot.path / "a.txt").read_text() == "1\n"
    assert "rebase" not in sh(slot.path, "status")
    commit(slot.path, {"works": "1"})


def test_a_slot_replaced_by_a_link_to_the_users_checkout_never_reaches_it(slots: Slots) -> None:
    root = slots.engine.user.root
    slot = slots.take("r1", "t1", slots.engine.user.head)
    subprocess.run(["rm", "-rf", str(slot.path)], check=True)
    slot.path.symlink_to(root)
    write(root, {"a.txt": "dirty", "untracked": "mine"})
    before = footprint(root)
    slots.place(slot, slots.engine.user.head, ONE, DATE)
    assert footprint(root) == before
    assert not slot.path.is_symlink()
    assert (slot.path / "a.txt").read_text() == "1\n"


def test_a_take_that_was_killed_half_way_can_be_placed_or_given_back(slots: Slots) -> None:
    lease = Lease(1, SlotUse.TAKEN, "r1", "t1")
    slots.folder.mkdir(parents=True)
    write_lease(slots.folder, lease)
    assert slots.leases_of("r1") == [lease]
    slots.place(slots.slot(1), slots.engine.user.head, ONE, DATE)
    assert (slots.slot(1).path / "a.txt").exists()
    write_lease(slots.folder, replace(lease, n=2))
    assert slots.release(slots.slot(2), ONE, DATE) == ()
    assert slots.take("r2", "t", slots.engine.user.head).n == 2


def test_a_folder_without_its_history_is_moved_aside_not_removed(slots: Slots) -> None:
    slot = slots.take("r1", "t1", slots.engine.user.head)
    write(slot.path, {"precious": "1"})
    subprocess.run(["rm", "-rf", str(slot.git_dir)], check=True)
    slots.place(slot, slots.engine.user.head, ONE, DATE)
    assert [path.read_text() for path in (slots.engine.home / "aside").glob("*/precious")] == ["1"]


def test_no_slot_is_made_on_a_full_disk(slots: Slots) -> None:
    with pytest.raises(StoppedError, match="MiB left") as caught:
        replace(slots, min_free_bytes=2**60).take("r1", "t1", slots.engine.user.head)
    assert "gc" in caught.value.hint
    assert slots.leases() == []


def test_placing_at_another_commit_with_the_same_files_moves_head_and_touches_no_file(slots: Slots) -> None:
    engine, base = slots.engine, slots.engine.user.head
    slot = slots.take("r1", "t1", base)
    made = commit(slot.path, {"b.txt": "1"})
    status(engine, slot)
    engine.refs.hold("r1", "t1", made)
    landed = commit_tree(engine, engine.objects.tree_of(made), [base, made], "landed\n", DATE)
    before = (slot.path / "a.txt").stat(), (slot.path / "b.txt").stat()
    assert slots.place(slot, landed, ONE, DATE) == ()
    assert ((slot.path / "a.txt").stat(), (slot.path / "b.txt").stat()) == before
    assert status(engine, slot) == SlotStatus(landed, engine.objects.tree_of(landed), ())


def test_an_unfinished_merge_is_gone_although_the_files_are_right(slots: Slots) -> None:
    base = slots.engine.user.head
    slot = slots.take("r1", "t1", base)
    sh(slot.path, "checkout", "-q", "-b", "other")
    commit(slot.path, {"b.txt": "1"})
    sh(slot.path, "checkout", "-q", "--detach", base)
    sh(slot.path, "merge", "-q", "--no-ff", "--no-commit", "-s", "ours", "other")
    assert status(slots.engine, slot).dirty == ()
    slots.place(slot, base, ONE, DATE)
    assert not list(slot.git_dir.glob("MERGE*"))


def test_what_was_just_looked_at_is_not_looked_at_again(slots: Slots, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = slots.engine
    engine.refs.hold("r1", "base", engine.user.head)
    slot = slots.take("r1", "t1", engine.user.head)
    made = commit(slot.path, {"b.txt": "1"})
    seen = status(engine, slot)
    engine.refs.hold("r1", "t1", made)
    monkeypatch.setattr(git, "run_raw", lambda *args, **more: pytest.fail(f"git was called: {args}"))
    assert slots.place(slot, seen.head, ONE, DATE, seen) == ()


def test_a_reset_away_commit_is_kept_also_when_the_slot_was_just_looked_at(slots: Slots) -> None:
    base = slots.engine.user.head
    slots.engine.refs.hold("r1", "base", base)
    slot = slots.take("r1", "t1", base)
    lost = commit(slot.path, {"b.txt": "1"})
    sh(slot.path, "reset", "-q", "--hard", base)
    (ref,) = slots.place(slot, base, ONE, DATE, status(slots.engine, slot))
    assert git.read_refs(slots.engine.user.root, ref) == {ref: lost}


def test_copied_files_arrive_and_are_never_part_of_the_work(engine: EngineRepo, slots: Slots) -> None:
    write(engine.user.root, {".env": "SECRET=1\n", "conf/local [1].json": "{}", "other": "x"})
    slot = slots.take("r1", "t1", engine.user.head)
    assert slots.copy(slot, (".env", "conf/*.json")) == [".env", "conf/local [1].json"]
    assert (slot.path / ".env").read_text() == "SECRET=1\n"
    assert status(engine, slot).dirty == ()
    assert slots.place(slot, engine.user.head, ONE, DATE) == ()


def test_work_in_a_slot_leaves_the_users_checkout_as_it_was(engine: EngineRepo, slots: Slots) -> None:
    root = engine.user.root
    write(root, {"a.txt": "stashed"})
    sh(root, "stash")
    write(root, {"a.txt": "dirty", "untracked": "1"})
    before = footprint(root)
    slot = slots.take("r1", "t1", engine.user.head)
    write(slot.path, {"a.txt": "agent"})
    sh(slot.path, "stash")
    commit(slot.path, {"b": "1"})
    sh(slot.path, "branch", "-D", "main", check=False)
    sh(slot.path, "reset", "-q", "--hard", engine.user.head)
    slots.place(slot, engine.user.head, ONE, DATE)
    slots.release(slot, ONE, DATE)
    assert footprint(root) == before


def test_two_threads_can_seal_a_slot_at_once(engine: EngineRepo, slots: Slots) -> None:
    """A status looks at a slot with two gits side by side, and each of them seals it first."""
    slot, start = slots.take("r1", "t1", engine.user.head), Barrier(2)

    def seal() -> None:
        start.wait()
        slot.seal()

    with ThreadPoolExecutor(2) as pool:
        for _ in range(200):
            (slot.git_dir / "config.worktree").write_text("[core]\nsparseCheckout = true\n")
            for done in [pool.submit(seal), pool.submit(seal)]:
                done.result()
