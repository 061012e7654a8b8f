"""`windlass gc`: removes only work that a branch of the user contains, or that the user named."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from windlass.git import run as git
from windlass.git.disk import remove_tree
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import branch_tips, contained_commits
from windlass.git.proof_slot import remove_idle
from windlass.git.publish import checkout_folder
from windlass.git.run_refs import base_ref
from windlass.git.slots import Lease, Slots, SlotUse
from windlass.git.state_folder import owner_of
from windlass.locks import file_lock
from windlass.model import Collected, GcKept, GcRemoved

NO_BRANCH = "no branch contains it"


class OwnBranch(Struct, frozen=True):
    """A branch that Windlass made for a run, as recorded."""

    run: str
    name: str
    commit: str
    """The commit that Windlass put it at last. At another commit it belongs to the user."""
    base: str
    """The commit at which the run began. A branch that is still there has no new commits."""


def gc(
    engine: EngineRepo,
    runs_final: Collection[str],
    *,
    dry: bool,
    date: float,
    named: Collection[str] = (),
    chosen: Collection[str] = (),
    occupant: Callable[[Lease, Path], str] = lambda lease, path: "",
    branches: Collection[OwnBranch] = (),
) -> list[Collected]:
    """Collect what final runs left; other runs are not touched.

    `named`: refs to remove although no branch contains them. `chosen`: runs to remove although their slots are kept.
    `occupant`: the process that is still at work in a slot, for a person, '' for none; such a slot stays. `branches`:
    made by final runs, to remove when they are merged or empty.
    """
    # Two collectors must not remove the same slot.
    with file_lock(engine.home / "slots" / "gc.lock"):
        slots = list(_collect_slots(engine, runs_final, dry=dry, date=date, chosen=chosen, occupant=occupant))
    # Refs before branches: a commit that only the run's own branch contains counts as contained.
    refs = list(_collect_refs(engine, runs_final, dry=dry, named=named))
    merged = list(_collect_branches(engine, branches, dry=dry))
    slots += [GcRemoved(name) for name in remove_idle(engine, dry=dry)]
    aside = engine.home / "aside"
    lost = [GcKept(str(path), "set aside: its content is unknown") for path in sorted(aside.glob("*"))]
    return [*slots, *refs, *merged, *lost]


def _collect_slots(
    engine: EngineRepo,
    runs_final: Collection[str],
    *,
    dry: bool,
    date: float,
    chosen: Collection[str],
    occupant: Callable[[Lease, Path], str],
) -> Iterator[Collected]:
    slots = Slots(engine)
    for lease in slots.leases():
        if lease.use not in (SlotUse.FREE, SlotUse.GOING) and lease.run not in runs_final:
            continue
        if lease.use is SlotUse.KEPT and lease.run not in chosen:
            where = slots.slot(lease.n).path
            yield GcKept(f"slot {lease.n}", f"kept by --keep in {where}; `windlass gc {lease.run}` removes it")
        elif occupied_by := occupant(lease, slots.slot(lease.n).path):
            yield GcKept(f"slot {lease.n}", occupied_by)
        elif dry or slots.remove(lease, date):
            yield GcRemoved(f"slot {lease.n}")


def _collect_refs(
    engine: EngineRepo, runs: Collection[str], *, dry: bool, named: Collection[str]
) -> Iterator[Collected]:
    """Checks the refs of all runs at once: one git for each ref would take a minute instead of a second."""
    theirs = git.read_refs(engine.user.root, "refs/windlass/", "refs/heads/")
    tips = [sha for name, sha in theirs.items() if name.startswith("refs/heads/")]
    own = _by_run(engine.refs.all(), "refs/windlass/", runs)
    kept = _by_run(theirs, "refs/windlass/keep/", runs)
    found = [refs for run in runs for refs in (own[run], kept[run])]
    safe = contained_commits(engine, {sha for refs in found for sha in refs.values()}, tips)
    entries, gone, gone_theirs = list[Collected](), list[str](), list[str]()
    for run in sorted(runs):
        loose = {name for name, sha in {**own[run], **kept[run]}.items() if name not in named and sha not in safe}
        entries += [
            GcKept(name, NO_BRANCH) if name in loose else GcRemoved(name) for name in sorted({*own[run], *kept[run]})
        ]
        gone += [name for name in own[run] if name not in loose]
        gone_theirs += [name for name in kept[run] if name not in loose]
        base = base_ref(run)
        if base in theirs and not loose.isdisjoint(own[run]):
            entries.append(GcKept(base, "the run's commits need it"))
        elif base in theirs:
            entries.append(GcRemoved(base))
            gone_theirs.append(base)
    if not dry:
        if gone:
            engine.refs.drop(gone)
        if gone_theirs:
            drop_user_refs(engine, gone_theirs)
    yield from entries


def _by_run(refs: Mapping[str, str], prefix: str, runs: Collection[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {run: {} for run in runs}
    for name, sha in refs.items():
        run = name.removeprefix(prefix).split("/", 1)[0] if name.startswith(prefix) else ""
        if run in found:
            found[run][name] = sha
    return found


def _collect_branches(engine: EngineRepo, branches: Collection[OwnBranch], *, dry: bool) -> Iterator[Collected]:
    """Delete branches that are merged into another one or empty. Never one that is checked out or that the user
    moved."""
    present = branch_tips(engine)
    ours = {f"refs/heads/{branch.name}": branch for branch in branches}
    # Only a branch that stays counts as another one: of two branches of runs that contain each other, one remains.
    tips = [sha for name, sha in present.items() if name not in ours]
    safe = contained_commits(engine, {branch.commit for branch in branches if branch.commit}, tips)
    for ref, branch in sorted(ours.items()):
        now = present.get(ref, "")
        if not now or now != branch.commit:
            continue
        if now not in safe and now != branch.base:
            continue
        where = checkout_folder(engine.user, branch.name)
        if where:
            yield GcKept(f"branch {branch.name}", f"it is checked out in '{where}'")
            continue
        root = engine.user.root
        if not dry:
            if git.run(["update-ref", "-d", ref, now], root, check=False).code != 0:
                continue  # it was moved a moment ago
            git.run(["config", "--local", "--remove-section", f"branch.{branch.name}"], root, check=False)
        yield GcRemoved(f"branch {branch.name}")


def drop_user_refs(engine: EngineRepo, names: Collection[str]) -> None:
    if not all(name.startswith("refs/windlass/") for name in names):
        raise ValueError(f"not ours: {sorted(names)}")
    with engine.user_refs.intent(list(names)):
        git.run(["update-ref", "--stdin"], engine.user.root, input="".join(f"delete {name}\n" for name in names))


def collect_homes(state_dir: Path, *, gone: bool, dry: bool) -> list[Collected]:
    """Collect the state folders of repositories that no longer exist. Free slots are removed: they hold no work.

    `gone`: remove the rest too, as the person asked. A repository that was only moved may still need the work of its
    runs.
    """
    root = state_dir.resolve() / "windlass"
    homes = sorted(root.iterdir()) if root.is_dir() else []
    return [entry for home in homes for entry in _collect_home(home, gone=gone, dry=dry)]


def _collect_home(home: Path, *, gone: bool, dry: bool) -> Iterator[Collected]:
    owner = owner_of(home)
    if owner is None or owner.exists():
        return
    if not owner.parent.parent.exists():
        yield GcKept(str(home), f"of '{owner.parent}', which may be on a disk that is not there now")
    elif gone:
        if not dry:
            remove_tree(home)
        yield GcRemoved(f"{home} of '{owner.parent}', which does not exist any more")
    else:
        for file in sorted((home / "slots").glob("*.json")):
            if _is_free(file):
                if not dry:
                    remove_tree(file.with_suffix(""))
                    remove_tree(file.with_suffix(".git"))
                    file.unlink()
                yield GcRemoved(f"{file.with_suffix('')} of '{owner.parent}', which does not exist any more")
        yield GcKept(str(home), f"of '{owner.parent}', which does not exist any more; `windlass gc --gone` removes it")


def _is_free(lease: Path) -> bool:
    with suppress(OSError, ValueError):
        return bool(json.loads(lease.read_text())["use"] == SlotUse.FREE)
    return False
