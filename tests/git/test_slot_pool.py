"""The pool under load and under kill -9: sixteen slots, two drivers, every moment of making and cleaning."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gitrepo import DATE, commit, footprint, make_engine, make_repo, reachable, sh, write
from windlass.errors import StoppedError
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.disk import space_problem
from windlass.git.engine_repo import EngineRepo
from windlass.git.gc import gc
from windlass.git.keep import Attempt
from windlass.git.slots import Lease, Slots, SlotUse, write_lease
from windlass.git.trees import status
from windlass.git.user_repo import checkout_bytes
from windlass.model import GcKept, GcRemoved

ONE = Attempt("r1", "execute/t1/implement#1", 1)


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {f"d{n}/f{m}.txt": "1\n" for n in range(6) for m in range(10)})


def _slots(engine: EngineRepo) -> Slots:
    """As another process sees the pool."""
    return Slots(EngineRepo.open(engine.user, engine.home.parent.parent))


# -- many at once


@pytest.mark.long
@pytest.mark.req("S2-27", "S2-42")
def test_sixteen_tasks_at_once_each_have_a_worktree_of_their_own_and_nothing_is_lost(engine: EngineRepo) -> None:
    slots, base = Slots(engine), engine.user.head
    before = footprint(engine.user.root)

    async def task(n: int) -> list[str]:
        made = []
        for turn in range(2):
            slot = await asyncio.to_thread(slots.take, "r1", f"t{n}", base)
            assert status(engine, slot).dirty == ()
            made.append(await asyncio.to_thread(commit, slot.path, {f"t{n}-{turn}.txt": "x"}))
            write(slot.path, {"half.txt": f"{n} {turn}"})
            await asyncio.to_thread(slots.release, slot, Attempt("r1", f"t{n}+{turn + 1}", 1), DATE)
        return made

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*(task(n) for n in range(16)))

    made = [sha for shas in asyncio.run(all_of_them()) for sha in shas]
    assert [sha for sha in made if not reachable(engine.user.root, sha)] == []
    assert {lease.use for lease in slots.leases()} == {SlotUse.FREE}
    assert len(slots.leases()) <= 16
    assert len(git.read_refs(engine.user.root, "refs/windlass/keep")) == 32
    assert footprint(engine.user.root) == before


DRIVER = """
import sys; from concurrent.futures import ThreadPoolExecutor; from pathlib import Path
from windlass.git import user_repo; from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt; from windlass.git.slots import Slots
user = user_repo.discover(Path(sys.argv[1])); run = sys.argv[3]
engine = EngineRepo.open(user, Path(sys.argv[2]))
slots = Slots(engine)
def work(n):
    for turn in range(3):
        slot = slots.take(run, f"t{n}", user.head)
        mine = slot.path / "mine"
        assert not mine.exists(), mine.read_text()
        mine.write_text(run)
        assert mine.read_text() == run
        slots.release(slot, Attempt(run, f"t{n}", turn), 1.0)
with ThreadPoolExecutor(8) as pool: list(pool.map(work, range(8)))
"""


@pytest.mark.long
def test_two_drivers_share_the_pool_and_never_a_slot(tmp_path: Path, engine: EngineRepo) -> None:
    command = [sys.executable, "-c", DRIVER, str(engine.user.root), str(tmp_path / "state")]
    children = [subprocess.Popen([*command, run], stderr=subprocess.PIPE, text=True) for run in ("r1", "r2")]
    assert [child.communicate()[1] for child in children] == ["", ""]
    assert {lease.use for lease in Slots(engine).leases()} == {SlotUse.FREE}
    assert len(git.read_refs(engine.user.root, "refs/windlass/keep")) == 48


# -- killed half way

KILLED = """
import os, signal, sys; from pathlib import Path
from windlass.git import run as git, user_repo; from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt; from windlass.git.slots import Slots
engine = EngineRepo.open(user_repo.discover(Path(sys.argv[1])), Path(sys.argv[2]))
slots, deed, left = Slots(engine), sys.argv[3], int(sys.argv[4])
real = git.run_raw
def counted(args, cwd, **more):
    global left
    left -= 1
    if left < 0: os.kill(os.getpid(), signal.SIGKILL)
    return real(args, cwd, **more)
git.run_raw = counted
one = Attempt("r1", "execute/t1/implement#1", 1)
if deed == "take": slots.take("r1", "t2", engine.user.head)
if deed == "place": slots.place(slots.slot(1), engine.user.head, one, 1.0)
if deed == "release": slots.release(slots.slot(1), one, 1.0)
print("whole")
"""


def _killed_after(engine: EngineRepo, deed: str, calls: int) -> bool:
    state = str(engine.home.parent.parent)
    command = [sys.executable, "-c", KILLED, str(engine.user.root), state, deed, str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    assert done.stderr == ""
    return done.stdout == ""


@pytest.mark.long
@pytest.mark.parametrize("deed", ["place", "release"])
def test_killed_while_work_is_kept_or_the_slot_cleaned_nothing_is_lost(tmp_path: Path, deed: str) -> None:
    for calls in range(30):
        engine = make_engine(tmp_path / str(calls), {"a.txt": "1\n"})
        slot = Slots(engine).take("r1", "t1", engine.user.head)
        made = commit(slot.path, {"b.txt": "1"})
        sh(slot.path, "reset", "-q", "--hard", engine.user.head)
        write(slot.path, {"half.txt": "precious"})
        killed = _killed_after(engine, deed, calls)
        again = _slots(engine)
        for lease in again.leases_of("r1"):
            again.release(again.slot(lease.n), ONE, DATE)
        kept = git.read_refs(engine.user.root, "refs/windlass/keep")
        assert reachable(engine.user.root, made)
        assert "precious" in [sh(engine.user.root, "show", f"{ref}:half.txt", check=False) for ref in kept]
        fresh = again.take("r2", "t", engine.user.head)
        assert (status(again.engine, fresh).dirty, (fresh.path / "a.txt").read_text()) == ((), "1\n")
        if not killed:
            assert calls > 3
            return
    raise AssertionError("it never came to its end")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used before"])
def test_killed_while_a_slot_is_made_nothing_of_it_is_taken_for_work(tmp_path: Path, used: bool) -> None:
    for calls in range(30):
        engine = make_engine(tmp_path / str(calls), {"a.txt": "1\n"})
        if used:
            slot = Slots(engine).take("r0", "t", engine.user.head)
            write(slot.path, {"a.txt": "old"})
            Slots(engine).release(slot, Attempt("r0", "t", 1), DATE)
        before = git.read_refs(engine.user.root, "refs/windlass/keep")
        killed = _killed_after(engine, "take", calls)
        again = _slots(engine)
        for lease in again.leases_of("r1"):
            again.release(again.slot(lease.n), ONE, DATE)
        assert git.read_refs(engine.user.root, "refs/windlass/keep") == before
        fresh = again.take("r2", "t", engine.user.head)
        assert (fresh.n, status(again.engine, fresh).dirty) == (1, ())
        if not killed:
            return
    raise AssertionError("it never came to its end")


@pytest.mark.parametrize("deed", ["take", "place"])
def test_killed_together_with_git_in_the_middle_of_a_checkout_the_next_use_is_right(tmp_path: Path, deed: str) -> None:
    bomb = tmp_path / "bomb"
    files = {f"f{n:02}.txt": "1\n" for n in range(20)}
    root = make_repo(tmp_path / "user", {**files, ".gitattributes": "f10.txt filter=bomb\n"})
    sh(root, "config", "filter.bomb.smudge", f"if rm '{bomb}' 2>/dev/null; then kill -9 0; fi; cat")
    engine = EngineRepo.open(user_repo.discover(root), tmp_path / "state")
    engine.user_refs.pin_base("r1", engine.user.head)
    slot = Slots(engine).slot(1)
    if deed == "place":
        Slots(engine).take("r1", "t1", engine.user.head)
        write(slot.path, dict.fromkeys(files, "work\n"))
    bomb.touch()
    assert _killed_after(engine, deed, 1000)
    assert not bomb.exists()
    assert (slot.git_dir / "index.lock").exists()
    again = _slots(engine)
    again.release(slot, ONE, DATE)
    kept = git.read_refs(root, "refs/windlass/keep")
    texts = [sh(root, "show", f"{ref}:f19.txt") for ref in kept]
    assert texts == ([] if deed == "take" else ["work"])
    fresh = again.take("r2", "t", engine.user.head)
    assert (fresh, status(again.engine, fresh).dirty) == (slot, ())


def test_half_a_checkout_is_nobodys_work(engine: EngineRepo) -> None:
    slots, base = Slots(engine), engine.user.head
    slot = slots.take("r1", "t1", base)
    (slots.folder / f"{slot.n}.changing").touch()
    (slot.git_dir / "index").unlink()
    (slot.git_dir / "index.lock").touch()
    (slot.path / "d1" / "f1.txt").unlink()
    assert slots.release(slot, ONE, DATE) == ()
    again = slots.take("r1", "t1", base)
    assert (again.n, status(engine, again).dirty) == (slot.n, ())
    write(again.path, {"d1/f1.txt": "work"})
    assert slots.release(again, ONE, DATE) != ()


# -- room


def test_slots_that_are_being_made_count_when_room_is_measured(
    engine: EngineRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = checkout_bytes(engine.user)
    assert size == 60 * 2
    slots = Slots(engine, min_free_bytes=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000 + size})())
    slots.take("r1", "t1", engine.user.head)
    (slots.folder / "7.changing").touch()
    with pytest.raises(StoppedError, match="left on the disk") as caught:
        slots.take("r1", "t2", engine.user.head)
    assert "windlass gc" in caught.value.hint
    assert [lease.n for lease in slots.leases()] == [1]


def test_asking_for_room_makes_no_folder(tmp_path: Path) -> None:
    assert space_problem(tmp_path / "a" / "b", 1) == ""
    assert "MiB are needed" in space_problem(tmp_path / "a" / "b", 2**80)
    assert list(tmp_path.iterdir()) == []


# -- keeping and collecting


def test_kept_slots_serve_only_their_own_run_and_go_when_it_is_named(engine: EngineRepo) -> None:
    base, keeping = engine.user.head, Slots(engine, keep_slots=True)
    slot = keeping.take("r1", "t1", base)
    write(slot.path, {"half.txt": "look at me"})
    keeping.release(slot, ONE, DATE)
    assert (slot.path / "half.txt").read_text() == "look at me"
    other = Slots(engine).take("r2", "t1", base)
    assert other.n != slot.n
    assert keeping.take("r1", "t2", base).n == slot.n
    keeping.release(slot, ONE, DATE)
    (entry,) = [found for found in gc(engine, {"r1"}, dry=False, date=DATE) if found.what == f"slot {slot.n}"]
    assert isinstance(entry, GcKept)
    assert "windlass gc r1" in entry.reason
    assert GcRemoved(f"slot {slot.n}") in gc(engine, {"r1"}, dry=False, date=DATE, chosen={"r1"})
    assert not slot.path.exists()


@pytest.mark.req("S2-44")
def test_a_collection_that_was_killed_is_finished_by_the_next_one(engine: EngineRepo) -> None:
    slots, base = Slots(engine), engine.user.head
    taken, free = slots.take("r1", "t1", base), slots.take("r1", "t2", base)
    made = commit(taken.path, {"b.txt": "1"})
    slots.release(free, Attempt("r1", "t2", 1), DATE)
    for lease in slots.leases():
        write_lease(slots.folder, replace(lease, use=SlotUse.GOING))
    assert slots.take("r2", "t", base).n == 3
    done = gc(engine, {"r1"}, dry=False, date=DATE)
    assert {GcRemoved("slot 1"), GcRemoved("slot 2")} <= set(done)
    assert slots.leases() == [Lease(3, SlotUse.TAKEN, "r2", "t")]
    assert reachable(engine.user.root, made)
    assert not taken.path.exists()
    assert not taken.git_dir.exists()


def test_read_only_folders_in_a_slot_can_be_cleaned_and_collected(engine: EngineRepo) -> None:
    slots, base = Slots(engine), engine.user.head
    slot = slots.take("r1", "t1", base)
    write(slot.path, {"cache/a/b": "1"})
    (slot.path / "cache" / "a").chmod(0o555)
    (slot.path / "d1").chmod(0o555)
    slots.place(slot, base, ONE, DATE)
    assert not (slot.path / "cache").exists()
    (slot.path / "d1").chmod(0o555)
    slots.release(slot, ONE, DATE)
    assert GcRemoved("slot 1") in gc(engine, set(), dry=False, date=DATE)
    assert not slot.path.exists()
