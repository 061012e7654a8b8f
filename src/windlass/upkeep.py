"""What a person does with runs that are done: take the result, and collect what nobody needs any more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from windlass import git
from windlass.agents.processes import AtWork, at_work
from windlass.errors import UserError
from windlass.locks import is_driven
from windlass.model import RunState
from windlass.place import state_dir
from windlass.rehearsing import RUN as CHECK
from windlass.service import Service, World
from windlass.store.rows import RunRow
from windlass.workspace import Collected, EngineRepo, LandResult, Lease, Removed, gc, land_on_checkout


def land(service: Service, row: RunRow, *, unfinished: bool) -> tuple[str, LandResult]:
    """The run's branch, and what became of the user's."""
    if row.state is not RunState.FINISHED and not unfinished:
        raise UserError(
            f"run {row.id} is {row.state}, not finished",
            hint=f"windlass resume {row.id} goes on; windlass land {row.id} --unfinished takes what has landed so far",
        )
    branch = service.view(row.id).published
    if not branch:
        raise UserError(f"run {row.id} has published nothing: there is nothing to land", hint=f"windlass show {row.id}")
    return branch, land_on_checkout(git.discover(service.world.cwd), branch)


def collect(
    service: Service,
    runs: Sequence[str],
    keep: Collection[str],
    refs: Collection[str],
    *,
    dry: bool,
    keep_transcripts: bool = False,
) -> list[Collected]:
    """`runs`: only these, with the slots that --keep kept (all, when there are none); `keep`: not these.

    `refs`: named, though no branch has them. `keep_transcripts`: what agents and checks wrote stays.
    """
    chosen = [service.run(id) for id in runs] or [row for row in service.runs() if row.state.final]
    for row in chosen:
        _require_final(row)
    spared = {service.run(id).id for id in keep}
    final = {row.id for row in chosen if row.id not in spared and not service.driven(row.id)}
    world = service.world
    engine = EngineRepo.open(git.discover(world.cwd), state_dir(world.environ))
    _require_known(engine, refs, final)
    by_name = final if runs else set()
    occupant = partial(_occupant, at_work())
    done = final | _checks(world)
    found = gc(engine, done, dry=dry, date=world.clock(), named=refs, chosen=by_name, occupant=occupant)
    freed = [] if keep_transcripts else [_free_transcripts(world, run, dry=dry) for run in sorted(final)]
    return [*found, *(one for one in freed if one)]


def _occupant(processes: Sequence[AtWork], lease: Lease, path: Path) -> str:
    """Somebody may be writing there, whatever is on record: a folder is never taken away under a process."""
    for process in processes:
        if process.cwd.is_relative_to(path) or (lease.run and process.marker.startswith(f"{lease.run}:")):
            return f"process {process.pid} is at work in it; `kill {process.pid}`, then `windlass gc`"
    return ""


def _free_transcripts(world: World, run: str, *, dry: bool) -> Removed | None:
    """The attempts' folders: prompts, streams, output of checks. Events, results and reports stay in the record."""
    folders = [world.place.run_folder(run) / name for name in ("attempts", "setup")]
    size = sum(_bytes_below(folder) for folder in folders)
    if not any(folder.is_dir() for folder in folders):
        return None
    for folder in () if dry else folders:
        if folder.is_dir():
            shutil.rmtree(folder)
    return Removed(f"transcripts of run {run}, {size / 2**20:.1f} MB")


def _bytes_below(folder: Path) -> int:
    """On the disk; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def _require_final(row: RunRow) -> None:
    if not row.state.final:
        raise UserError(
            f"run {row.id} is {row.state}: its work is still needed", hint=f"windlass abort {row.id} ends it"
        )


def _require_known(engine: EngineRepo, refs: Collection[str], final: Collection[str]) -> None:
    ours = [f"refs/windlass/{run}/" for run in final] + [f"refs/windlass/keep/{run}/" for run in final]
    present = {*engine.refs(), *git.read_refs(engine.user.root, "refs/windlass/")}
    for name in refs:
        if name not in present or not name.startswith(tuple(ours)):
            raise UserError(f"'{name}' is not a ref of a run that is done", hint="windlass gc --dry-run lists them")


def _checks(world: World) -> set[str]:
    """A `windlass check` that was killed leaves a slot too."""
    return set() if is_driven(world.place.lock(CHECK)) else {CHECK}
