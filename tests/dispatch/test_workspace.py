from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gitrepo import DATE, commit, make_engine, sh, write
from windlass.dispatch.commands import CommandRunner
from windlass.dispatch.local_checkout import LocalCheckout, StateBefore
from windlass.dispatch.site import Leftovers
from windlass.dispatch.workspace import Workspace
from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.slot import Slot
from windlass.git.slots import Slots, SlotUse
from windlass.git.trees import commit_tree, status

OURS = ("windlass/x",)


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n"})


class NoSetup(CommandRunner):
    def __init__(self) -> None:
        """Nothing is run."""

    async def prepare(self, slot: Slot) -> None:
        """Nothing to set up."""


class Desk:
    """A workspace whose checkout is a slot."""

    def __init__(self, engine: EngineRepo, spare: list[tuple[Slot, str]] | None, head: str = "") -> None:
        self.place = LocalCheckout(Slots(engine), "r1", lambda: DATE, NoSetup(), spare)
        self.workspace = Workspace(engine, "r1", head or engine.user.head, lambda: self.place)

    async def ready(self, key: str, n: int) -> Slot:
        await self.workspace.ready(key, n)
        assert self.place.slot is not None
        return self.place.slot

    async def leftovers(self, before: StateBefore) -> Leftovers:
        return await self.place.leftovers(before, OURS, self.workspace.head, ("build/t1", 1))


def make_desk(engine: EngineRepo, spare: list[tuple[Slot, str]] | None, head: str = "") -> Desk:
    return Desk(engine, spare, head)


async def work(desk: Desk, files: dict[str, str]) -> str:
    """What a dispatch does to a desk: taken, worked at, looked at, held."""
    slot = await desk.ready("build/t1", 1)
    before = await desk.place.state_before(OURS)
    made = commit(slot.path, files)
    seen = await desk.leftovers(before)
    assert (seen.head, seen.trespasses, seen.noticed) == (made, (), ())
    desk.workspace.hold("build/t1/@1", made)
    desk.workspace.move(made)
    return made


def test_the_slot_of_a_finished_scope_serves_the_next_one(engine: EngineRepo) -> None:
    spare: list[tuple[Slot, str]] = []

    async def two_scopes() -> tuple[Slot | None, Slot]:
        first = make_desk(engine, spare)
        made = await work(first, {"b.txt": "1"})
        landed = commit_tree(engine, engine.objects.tree_of(made), [engine.user.head, made], "landed\n", DATE)
        used = first.place.slot
        await first.workspace.leave("build/t1")
        assert [lease.use for lease in Slots(engine).leases()] == [SlotUse.TAKEN]
        return used, await make_desk(engine, spare, landed).ready("build/t2", 1)

    used, slot = asyncio.run(two_scopes())
    assert slot == used
    assert status(engine, slot).dirty == ()
    assert sh(slot.path, "log", "-1", "--format=%s") == "landed"
    assert spare == []


def test_what_a_scope_left_uncommitted_is_kept_before_the_next_one_begins(engine: EngineRepo) -> None:
    spare: list[tuple[Slot, str]] = []

    async def scopes() -> Slot:
        first = make_desk(engine, spare)
        slot = await first.ready("build/t1", 1)
        write(slot.path, {"half.txt": "unfinished"})
        await first.workspace.leave("build/t1")
        return await make_desk(engine, spare).ready("build/t2", 1)

    slot = asyncio.run(scopes())
    assert not (slot.path / "half.txt").exists()
    ((ref, sha),) = git.read_refs(engine.user.root, "refs/windlass/keep/**").items()
    assert ref.startswith("refs/windlass/keep/r1/build/t1/")
    assert sh(engine.user.root, "show", f"{sha}:half.txt") == "unfinished"


def test_what_runs_in_a_slot_after_the_look_at_it_is_kept_too(engine: EngineRepo) -> None:
    """The look serves only until the slot is handed out again."""

    async def scope() -> None:
        desk = make_desk(engine, [])
        await work(desk, {"b.txt": "1"})
        slot = await desk.ready("build/t1/spec", 1)
        write(slot.path, {"later.txt": "1"})
        await desk.workspace.leave("build/t1")

    asyncio.run(scope())
    (sha,) = git.read_refs(engine.user.root, "refs/windlass/keep/**").values()
    assert sh(engine.user.root, "show", f"{sha}:later.txt") == "1"


def test_a_branch_an_agent_made_in_its_slot_is_no_trespass_and_its_commit_is_kept(engine: EngineRepo) -> None:
    async def scope() -> tuple[str, tuple[str, ...]]:
        desk = make_desk(engine, [])
        slot = await desk.ready("build/t1", 1)
        before = await desk.place.state_before(OURS)
        sh(slot.path, "checkout", "-q", "-b", "mine")
        made = commit(slot.path, {"b.txt": "1"})
        return made, (await desk.leftovers(before)).trespasses

    made, trespasses = asyncio.run(scope())
    assert trespasses == ()
    assert "refs/heads/mine" not in engine.refs.all()
    assert made in git.read_refs(engine.user.root, "refs/windlass/keep/**").values()


def test_without_a_place_for_spare_slots_a_desk_gives_its_own_back(engine: EngineRepo) -> None:
    async def scope() -> None:
        desk = make_desk(engine, None)
        await work(desk, {"b.txt": "1"})
        await desk.workspace.leave("build/t1")

    asyncio.run(scope())
    assert [lease.use for lease in Slots(engine).leases()] == [SlotUse.FREE]


def test_a_forged_object_does_not_say_what_a_commit_contains(engine: EngineRepo) -> None:
    slot = Slots(engine).take("r1", "t1", engine.user.head)
    made, other = commit(slot.path, {"b.txt": "1"}), commit(slot.path, {"c.txt": "1"})
    tree = sh(slot.path, "rev-parse", f"{made}^{{tree}}")
    status(engine, slot)
    engine = EngineRepo.open(engine.user, engine.home.parent.parent)
    objects = engine.path / "objects"
    place = objects / made[:2] / made[2:]
    genuine = place.read_bytes()
    place.chmod(0o644)
    place.write_bytes((objects / other[:2] / other[2:]).read_bytes())
    with pytest.raises(GitError, match=made[:12]):
        engine.objects.tree_of(made)
    place.write_bytes(genuine)
    assert engine.objects.tree_of(made) == tree
