"""What is on the disk when the journal names it, and what a resume makes of a repository that a power cut tore."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitrepo import commit, make_engine, sh
from stores import journal, stored
from windlass import private_files
from windlass.engine.lost_commits import lost_steps
from windlass.errors import StoppedError
from windlass.git import disk
from windlass.git.disk import Barrier
from windlass.git.keep import Attempt
from windlass.git.repair import RunRecord, repair, repair_slot
from windlass.git.slots import Slots, SlotUse
from windlass.model import Json, Key
from windlass.private_files import replace_file
from windlass.store.rows import StepRow
from windlass.store.tips import tips_of_steps


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file and folder that was written to the disk, in order."""
    found: list[Path] = []
    real = private_files.sync

    def noted(path: Path) -> None:
        real(path)
        found.append(path)

    monkeypatch.setattr(disk, "sync", noted)
    monkeypatch.setattr(private_files, "sync", noted)
    return found


def test_what_was_added_is_synced_with_its_folder_and_only_once(tmp_path: Path, synced: list[Path]) -> None:
    files = [tmp_path / name for name in "abc"]
    for file in files:
        file.write_text("x")
    barrier = Barrier()
    assert barrier.is_clear
    barrier.add(files)
    assert not barrier.is_clear
    barrier.settle()
    assert sorted(synced) == sorted([*files, tmp_path])
    assert synced[-1] == tmp_path
    barrier.settle()
    assert len(synced) == 4


def test_a_file_that_is_gone_is_no_error_and_a_failure_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = Barrier()
    barrier.add([tmp_path / "gone"])
    barrier.settle()
    (tmp_path / "x").write_text("x")
    barrier.add([tmp_path / "x"])

    def broken(handle: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(StoppedError, match="Input/output error"):
            barrier.settle()
    assert not barrier.is_clear
    barrier.settle()
    assert barrier.is_clear


def test_who_settles_while_another_does_waits_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(path: Path) -> None:
        begun.set()
        assert go_on.wait(300)

    monkeypatch.setattr(disk, "sync", slow)
    barrier = Barrier()
    barrier.add([tmp_path / "a"])
    first = threading.Thread(target=barrier.settle)
    first.start()
    assert begun.wait(300)
    assert not barrier.is_clear, "what is being synced is not on the disk yet"
    second = threading.Thread(target=barrier.settle)
    second.start()
    second.join(0.05)
    assert second.is_alive()
    go_on.set()
    first.join()
    second.join()


def test_a_step_is_recorded_after_what_it_names_is_on_the_disk(tmp_path: Path, synced: list[Path]) -> None:
    engine = make_engine(tmp_path)
    engine.barrier.settle()
    synced.clear()
    with stored(tmp_path) as store:
        book = journal(store, barrier=engine.barrier, crash=lambda point: seen.append((point, list(synced))))
        seen: list[tuple[str, list[Path]]] = []

        async def make(previous: Json) -> Json:
            tree = engine.objects.tree_of(engine.refs.tip("r1"))
            made = engine.objects.write_commit(tree, [], "A <a@b> 0 +0000", "x\n")
            engine.refs.hold("r1", "x", made)
            return made

        made = str(asyncio.run(book.step(Key().child("x"), None, make)))
    before = dict(seen)["before x"]
    assert engine.path / "objects" / made[:2] / made[2:] in before
    assert engine.path / f"refs/windlass/r1/hold/x,@{made}" in before


def test_leases_and_the_base_are_on_the_disk_when_they_are_made(tmp_path: Path, synced: list[Path]) -> None:
    engine = make_engine(tmp_path)
    engine.barrier.settle()
    assert engine.user.common_dir / "refs" / "windlass" / "base" / "r1" in synced
    Slots(engine).take("r1", "x", engine.refs.tip("r1"))
    assert any(path.name.startswith("1.json") for path in synced)
    assert engine.home / "slots" in synced


def test_a_file_is_replaced_after_its_content_is_on_the_disk(tmp_path: Path, synced: list[Path]) -> None:
    path = tmp_path / "sub" / "x"
    replace_file(path, "one")
    assert synced == []
    replace_file(path, b"two", sync_to="content")
    assert [(one.parent, one.name == "x") for one in synced] == [(path.parent, False)]
    replace_file(path, [b"thr", b"ee"], sync_to="name")
    assert synced[-1] == path.parent
    assert path.read_text() == "three"
    assert [one.name for one in path.parent.iterdir()] == ["x"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_content_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    replace_file(path, "old")

    def half() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        replace_file(path, half())
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["x"]


def test_neither_the_file_nor_its_scratch_is_written_through_a_link(tmp_path: Path) -> None:
    victim, path, scratch = tmp_path / "victim", tmp_path / "x", tmp_path / "x.tmp"
    victim.write_text("precious")
    for link in (path, scratch):
        link.symlink_to(victim)
    replace_file(path, "ours", scratch=scratch)
    assert (victim.read_text(), path.read_text(), path.is_symlink()) == ("precious", "ours", False)


@pytest.mark.parametrize("text", ["", "{", '{"n": 1}', "[]", "\0\0\0"])
def test_a_slot_whose_lease_nobody_can_read_is_not_used_again(text: str, tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    slots = Slots(engine)
    slots.take("r1", "x", engine.refs.tip("r1"))
    (slots.folder / "1.json").write_text(text)
    assert [(lease.n, lease.use) for lease in slots.leases()] == [(1, SlotUse.RETIRED)]
    assert slots.take("r1", "y", engine.refs.tip("r1")).n == 2


# -- repair


def record(base: str, *tips: str, heads: frozenset[str] = frozenset()) -> RunRecord:
    return RunRecord("r1", base, "windlass/x", "", [*tips, base], heads)


def test_torn_refs_are_put_back_from_the_journal_or_removed(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base, user = engine.user.head, engine.user
    made = engine.objects.write_commit(engine.objects.tree_of(base), [base], "A <a@b> 0 +0000", "x\n")
    engine.refs.set_tip("r1", made, base)
    engine.refs.hold("r1", "x", made)
    theirs = user.common_dir / "refs" / "windlass"
    (theirs / "keep" / "r1").mkdir(parents=True)
    torn = [engine.path / "refs/windlass/r1/tip", engine.path / f"refs/windlass/r1/hold/x,@{made}"]
    torn += [engine.path / "refs/heads/agent", theirs / "base" / "r1", theirs / "keep" / "r1" / "@1"]
    own = user.common_dir / "refs" / "heads" / "windlass" / "x"
    own.parent.mkdir()
    for file in (*torn, own):
        file.write_text("")
    done = repair(engine, [record(base, made)])
    assert done.lost == set()
    assert engine.refs.tip("r1") == made
    assert engine.refs.all()[f"refs/windlass/r1/hold/x,@{made}"] == made
    assert "refs/heads/agent" not in engine.refs.all()
    assert sh(user.root, "rev-parse", "refs/windlass/base/r1") == base
    assert not (theirs / "keep" / "r1" / "@1").exists()
    assert not own.exists()
    assert sh(user.root, "fsck", "--no-dangling") == ""
    sh(user.root, "gc", "-q")


def test_torn_objects_are_removed_so_that_git_writes_them_again(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    blob = engine.git("hash-object", "-w", "--stdin", input=b"x\n").line
    file = engine.path / "objects" / blob[:2] / blob[2:]
    for damage in (b"", b"\0" * 20):
        file.chmod(0o644)
        file.write_bytes(damage)
        repair(engine, [record(base)])
        assert not file.exists()
        assert engine.git("hash-object", "-w", "--stdin", input=b"x\n").line == blob
        assert engine.git("cat-file", "blob", blob).out == "x\n"


def test_a_lost_tip_falls_back_to_the_last_one_that_is_there(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    first = engine.objects.write_commit(engine.objects.tree_of(base), [base], "A <a@b> 0 +0000", "1\n")
    gone = "a" * 40
    (engine.path / "refs/windlass/r1/tip").write_text(f"{gone}\n")
    done = repair(engine, [record(base, gone, first)])
    assert done.lost == {gone}
    assert engine.refs.tip("r1") == first


def test_a_tip_that_is_ahead_of_the_journal_is_a_landing_that_was_not_recorded(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    ahead = engine.objects.write_commit(engine.objects.tree_of(base), [base], "A <a@b> 0 +0000", "1\n")
    engine.refs.set_tip("r1", ahead, base)
    assert repair(engine, [record(base)]).notes == []
    assert engine.refs.tip("r1") == ahead


def test_a_torn_slot_can_be_looked_at_again(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    slots = Slots(engine)
    slot = slots.take("r1", "x", engine.refs.tip("r1"))
    (slot.path / "new.py").write_text("x = 1\n")
    (slot.git_dir / "HEAD").write_text("")
    (slot.git_dir / "index").write_bytes(b"")
    repair_slot(slot, engine.refs.tip("r1"), "sha1")
    assert sh(slot.path, "rev-parse", "HEAD") == engine.refs.tip("r1")
    assert "new.py" in sh(slot.path, "status", "--porcelain")


def test_a_free_slot_that_git_cannot_read_is_replaced(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    slots = Slots(engine)
    slot = slots.take("r1", "x", engine.refs.tip("r1"))
    (slot.git_dir / "HEAD").write_text("")
    (slots.folder / "1.json").write_text(json.dumps({"n": 1, "use": "free", "run": "", "key": ""}))
    again = slots.take("r1", "y", engine.refs.tip("r1"))
    assert again.n == 1
    assert sh(again.path, "status", "--porcelain") == ""


def test_a_retired_slot_that_git_cannot_read_is_set_aside_by_gc(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    slots = Slots(engine)
    slot = slots.take("r1", "x", engine.refs.tip("r1"))
    slots.abandon(slot, Attempt("r1", "x", 1))
    (slot.path / "new.py").write_text("x = 1\n")
    (slot.git_dir / "HEAD").write_text("")
    assert slots.remove(slots.leases()[0], 0.0)
    assert slots.leases() == []
    assert len(list((engine.home / "aside").rglob("new.py"))) == 1


# -- steps whose commits are lost

A, B, C, D = ("a" * 40, "b" * 40, "c" * 40, "d" * 40)


def steps() -> list[StepRow]:
    landed = {"kind": "landed", "detail": "passed", "files": []}
    rows: list[tuple[str, Json]] = [
        ("plan/planner", {"head": "", "tree": ""}),
        ("plan/commit", A),
        ("execute/tasks", []),
        ("execute/t1/base", A),
        ("execute/t2/base", A),
        ("execute/t1/implement", {"head": B}),
        ("execute/t2/implement", {"head": C}),
        ("execute/t1/land#1", {**landed, "tip": B}),
        ("execute/t2/spec#1", {"head": ""}),
        ("review/main", {"head": ""}),
        ("review/land", {"tip": D, "refused": ""}),
    ]
    return [StepRow(n, key, "f", "null", json.dumps(result)) for n, (key, result) in enumerate(rows, 1)]


def test_the_tips_of_a_run_are_those_that_steps_put_there() -> None:
    assert tips_of_steps(steps()) == [D, B, A]


def test_a_task_whose_commit_is_lost_is_done_again_and_others_are_not() -> None:
    fallen = lost_steps(steps(), {C}, {"execute"})
    assert fallen == ["execute/t2/implement", "execute/t2/spec#1", "review/main", "review/land"]


def test_nothing_falls_when_nothing_is_lost() -> None:
    assert lost_steps(steps(), set(), {"execute"}) == []


def test_a_commit_of_the_user_is_never_called_lost(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    later = commit(engine.user.root, {"later.txt": "x\n"})
    assert repair(engine, [record(engine.user.head, heads=frozenset({later}))]).lost == set()
