"""Repairs the engine's repository before a driver reads it, and finds the steps to repeat."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from windlass.engine.lost_commits import commits_of, lost_steps
from windlass.events import BranchPublished
from windlass.git.engine_repo import EngineRepo
from windlass.git.repair import RunRecord, repair
from windlass.store.port import Store
from windlass.store.rows import RunRow, StepRow
from windlass.store.tips import tips_of_steps


class RepositoryRepair(Struct, frozen=True):
    notes: tuple[str, ...] = ()
    """The repairs, for a person."""
    fallen: tuple[str, ...] = ()
    """Keys of the steps to repeat: their commits are lost."""
    commits: frozenset[str] = frozenset()
    """Those commits."""


def repair_repositories(store: Store, run: str, engine: EngineRepo, tasks: Collection[str]) -> RepositoryRepair:
    """Call it before reading the repositories: a power cut may have damaged unsettled files.

    `tasks`: ids of the phases with tasks.
    """
    steps = store.steps.all(run)
    unfinished = [row for row in store.runs.all() if row.id == run or not row.state.final]
    done = repair(engine, [record_of(store, row, row.id == run) for row in unfinished])
    phases = {key for step in steps if (key := step.key.split("/")[0]).split("+")[0] in tasks}
    fallen = lost_steps(steps, done.lost, phases)
    lost = [f"{len(done.lost)} commits are lost: what made them is done again"] if done.lost else []
    return RepositoryRepair((*done.notes, *lost), tuple(fallen), frozenset(done.lost))


def record_of(store: Store, row: RunRow, whole: bool = True) -> RunRecord:
    """The journal's record of a run. Not `whole`: only its base."""
    steps: Sequence[StepRow] = store.steps.all(row.id) if whole else ()
    last = store.events.last(row.id, BranchPublished) if steps else None
    branch, commit = (last.branch, last.commit) if last else (row.branch, "")
    heads = frozenset(sha for step in steps for sha in commits_of(step))
    # An older run has no recorded tips, only steps that put commits there.
    tips = store.tips.all(row.id)[::-1] or tips_of_steps(steps)
    return RunRecord(row.id, row.base, branch, commit, [*tips, row.base] if whole else [], heads)
