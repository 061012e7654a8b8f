"""`windlass gc`: remove only what is provably contained in a branch of the user's, or what they named."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from windlass import git
from windlass.workspace.proof_slot import remove_idle
from windlass.workspace.repo import EngineRepo, locked
from windlass.workspace.slots import Slots, Use


@dataclass(frozen=True)
class Removed:
    what: str


@dataclass(frozen=True)
class Remains:
    what: str
    reason: str


Collected: TypeAlias = Removed | Remains


def gc(
    engine: EngineRepo,
    runs_final: Collection[str],
    *,
    dry: bool,
    date: float,
    named: Collection[str] = (),
    chosen: Collection[str] = (),
) -> list[Collected]:
    """Runs that are not final are not looked at.

    `named`: refs to remove although no branch contains them; `chosen`: runs to remove although their slots are kept.
    """
    # Another collector may be at work: what it has begun to remove is its own until it ends or dies.
    with locked(engine.home / "slots" / "gc.lock"):
        slots = list(_collect_slots(engine, runs_final, dry=dry, date=date, chosen=chosen))
    refs = [entry for run in sorted(runs_final) for entry in _collect_run(engine, run, dry=dry, named=named)]
    slots += [Removed(name) for name in remove_idle(engine, dry=dry)]
    aside = engine.home / "aside"
    lost = [Remains(str(path), "set aside: nobody knows what is in it") for path in sorted(aside.glob("*"))]
    return [*slots, *refs, *lost]


def _collect_slots(
    engine: EngineRepo, runs_final: Collection[str], *, dry: bool, date: float, chosen: Collection[str]
) -> Iterator[Collected]:
    slots = Slots(engine)
    for lease in slots.leases():
        if lease.use not in (Use.FREE, Use.GOING) and lease.run not in runs_final:
            continue
        if lease.use is Use.KEPT and lease.run not in chosen:
            where = slots.slot(lease.n).path
            yield Remains(f"slot {lease.n}", f"kept by --keep in {where}; `windlass gc {lease.run}` removes it")
        elif dry or slots.remove(lease, date):
            yield Removed(f"slot {lease.n}")


def _collect_run(engine: EngineRepo, run: str, *, dry: bool, named: Collection[str]) -> Iterator[Collected]:
    ours, theirs = f"refs/windlass/{run}/", f"refs/windlass/keep/{run}/"
    own = {name: sha for name, sha in engine.refs().items() if name.startswith(ours)}
    kept = git.read_refs(engine.user.root, theirs)
    loose = {name for name, sha in {**own, **kept}.items() if name not in named and not in_a_branch(engine, sha)}
    if not dry:
        engine.drop([name for name in own if name not in loose])
        drop_user_refs(engine, [name for name in kept if name not in loose])
    for name in sorted({*own, *kept}):
        yield Remains(name, "no branch contains it") if name in loose else Removed(name)
    yield from _collect_base(engine, run, dry=dry, needed=not loose.isdisjoint(own))


def _collect_base(engine: EngineRepo, run: str, *, dry: bool, needed: bool) -> Iterator[Collected]:
    base = f"refs/windlass/base/{run}"
    if base not in git.read_refs(engine.user.root, base):
        return
    if needed:
        yield Remains(base, "the run's commits need it")
        return
    if not dry:
        drop_user_refs(engine, [base])
    yield Removed(base)


def in_a_branch(engine: EngineRepo, sha: str) -> bool:
    """In the user's repository, with its own objects: what only the engine has is in no branch."""
    done = git.run(["rev-list", "-1", sha, "--not", "--branches"], engine.user.root, check=False)
    return done.code == 0 and not done.out


def drop_user_refs(engine: EngineRepo, names: Collection[str]) -> None:
    if not all(name.startswith("refs/windlass/") for name in names):
        raise ValueError(f"not ours: {sorted(names)}")
    git.run(["update-ref", "--stdin"], engine.user.root, input="".join(f"delete {name}\n" for name in names))
