from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gitrepo import DATE, commit, footprint, make_engine, reachable, sh, write
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.gc import drop_user_refs, gc
from windlass.git.keep import Attempt
from windlass.git.publish import publish
from windlass.git.slots import Slots, SlotUse
from windlass.git.trees import commit_artifacts
from windlass.model import GcKept, GcRemoved

KEPT = "refs/windlass/keep/r1/t1/@1"


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n"})


def _finished(engine: EngineRepo) -> str:
    tip = commit_artifacts(engine, engine.user.head, {"x": "1"}, "x\n", DATE)
    assert engine.refs.set_tip("r1", tip, engine.user.head)
    engine.refs.hold("r1", "t1", tip)
    publish(engine, "r1", "windlass/r1", tip, "")
    return tip


def test_what_a_branch_contains_goes_and_the_branch_stays(engine: EngineRepo) -> None:
    tip = _finished(engine)
    names = [f"refs/windlass/r1/hold/t1,@{tip}", "refs/windlass/r1/tip", "refs/windlass/base/r1"]
    wanted = [GcRemoved(name) for name in names]
    assert gc(engine, {"r1"}, dry=True, date=DATE) == wanted
    assert engine.refs.tip("r1") == tip
    assert gc(engine, {"r1"}, dry=False, date=DATE) == wanted
    assert engine.refs.all() == {}
    assert git.read_refs(engine.user.root, "refs/windlass") == {}
    assert sh(engine.user.root, "rev-parse", "windlass/r1") == tip
    assert gc(engine, {"r1"}, dry=False, date=DATE) == []


def test_what_no_branch_contains_remains_with_its_base(engine: EngineRepo) -> None:
    tip = _finished(engine)
    sh(engine.user.root, "branch", "-D", "windlass/r1")
    done = gc(engine, {"r1"}, dry=False, date=DATE)
    assert done == [
        GcKept(f"refs/windlass/r1/hold/t1,@{tip}", "no branch contains it"),
        GcKept("refs/windlass/r1/tip", "no branch contains it"),
        GcKept("refs/windlass/base/r1", "the run's commits need it"),
    ]
    assert set(engine.refs.all()) == {f"refs/windlass/r1/hold/t1,@{tip}", "refs/windlass/r1/tip"}


def test_uncommitted_work_of_a_finished_run_is_kept_when_its_slot_goes(engine: EngineRepo) -> None:
    _finished(engine)
    slots = Slots(engine)
    slot = slots.take("r1", "execute/t1", engine.user.head)
    lost = commit(slot.path, {"b": "1"})
    sh(slot.path, "reset", "-q", "--hard", engine.user.head)
    write(slot.path, {"half": "1"})
    done = gc(engine, {"r1"}, dry=False, date=DATE)
    assert GcRemoved("slot 1") in done
    assert not slot.path.exists()
    assert slots.leases() == []
    assert reachable(engine.user.root, lost)
    keeps = git.read_refs(engine.user.root, "refs/windlass/keep")
    assert {GcKept(name, "no branch contains it") for name in keeps} <= set(done)
    assert any("half" in sh(engine.user.root, "ls-tree", "--name-only", name) for name in keeps)


def test_a_keep_ref_goes_when_a_branch_contains_it_or_when_it_is_named(engine: EngineRepo) -> None:
    _finished(engine)
    slots = Slots(engine)
    slot = slots.take("r1", "t1", engine.user.head)
    commit(slot.path, {"b": "1"})
    assert slots.release(slot, Attempt("r1", "t1", 1), DATE) == (KEPT,)
    assert GcKept(KEPT, "no branch contains it") in gc(engine, {"r1"}, dry=False, date=DATE)
    sh(engine.user.root, "branch", "rescued", KEPT)
    assert GcRemoved(KEPT) in gc(engine, {"r1"}, dry=True, date=DATE)
    sh(engine.user.root, "branch", "-D", "rescued")
    assert GcRemoved(KEPT) in gc(engine, {"r1"}, dry=False, date=DATE, named={KEPT})
    assert git.read_refs(engine.user.root, KEPT) == {}


def test_runs_that_are_not_final_are_not_touched(engine: EngineRepo) -> None:
    _finished(engine)
    slots = Slots(engine)
    slot = slots.take("r1", "t1", engine.user.head)
    free = slots.take("r2", "t1", engine.user.head)
    slots.release(free, Attempt("r2", "t1", 1), DATE)
    before = engine.refs.all()
    assert gc(engine, set(), dry=False, date=DATE) == [GcRemoved(f"slot {free.n}")]
    assert engine.refs.all() == before
    assert [lease.use for lease in slots.leases()] == [SlotUse.TAKEN]
    assert slot.path.is_dir()


def test_collecting_leaves_the_users_checkout_as_it_was(engine: EngineRepo) -> None:
    _finished(engine)
    write(engine.user.root, {"a.txt": "dirty"})
    before = footprint(engine.user.root)
    gc(engine, {"r1"}, dry=False, date=DATE)
    assert footprint(engine.user.root) == before


def test_a_dry_run_changes_nothing(engine: EngineRepo) -> None:
    _finished(engine)
    slots = Slots(engine)
    write(slots.take("r1", "t1", engine.user.head).path, {"half": "1"})
    before = (engine.refs.all(), git.read_refs(engine.user.root), slots.leases())
    assert GcRemoved("slot 1") in gc(engine, {"r1"}, dry=True, date=DATE)
    assert (engine.refs.all(), git.read_refs(engine.user.root), slots.leases()) == before


def test_what_was_set_aside_is_listed_and_stays(engine: EngineRepo) -> None:
    write(engine.home / "aside", {"slots-1-5/precious": "1"})
    (entry,) = gc(engine, {"r1"}, dry=False, date=DATE)[-1:]
    assert isinstance(entry, GcKept)
    assert (engine.home / "aside" / "slots-1-5" / "precious").exists()


def test_a_users_branch_can_never_be_dropped(engine: EngineRepo) -> None:
    with pytest.raises(ValueError, match="refs/heads/main"):
        drop_user_refs(engine, ["refs/heads/main"])


def test_collecting_starts_no_more_gits_for_a_thousand_refs_than_for_one(
    engine: EngineRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    tip = _finished(engine)
    real, calls = git.run_raw, list[str]()

    def counted(args: Sequence[str], *more: Any, **named: Any) -> Any:
        calls.append(args[0])
        return real(args, *more, **named)

    monkeypatch.setattr(git, "run_raw", counted)
    gc(engine, {"r1"}, dry=True, date=DATE)
    few = len(calls)
    for n in range(300):
        engine.refs.hold("r1", f"execute/t{n}/implement/@1", tip)
    for n in range(5):
        sh(engine.user.root, "update-ref", f"refs/windlass/keep/r1/execute/t{n}/@1", tip)
    calls.clear()
    found = gc(engine, {"r1", "r2"}, dry=False, date=DATE)
    assert sum(isinstance(entry, GcRemoved) for entry in found) > 300
    # Two more: the refs of both repositories are removed now.
    assert len(calls) <= few + 2
