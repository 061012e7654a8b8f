"""A task that could not land goes on from the run's tip: what has landed is joined into its own work, once."""

from __future__ import annotations

import asyncio

from windlass.dispatch.workspace import Workspace
from windlass.engine.services import RunServices
from windlass.git import merge as landing
from windlass.git.merge import CONTENTS, Conflict, Joined, OpenConflicts, carried, in_tree, paths_of
from windlass.model import Json, Key, Task


async def catch_up(parts: RunServices, key: Key, task: Task, desk: Workspace) -> None:
    """From here on `base` is the tip it was joined with, so what counts as changed is the task's own again."""
    engine = parts.engine

    async def join(previous: Json) -> Json:
        tip, date = parts.tip.now, float(int(parts.machine.clock()))
        left = await desk.unresolved()
        joined = await asyncio.to_thread(landing.join, engine, desk.head, tip, task.id, date)
        desk.hold(f"{key}/@1", joined.commit)
        now_open = _now_open(desk, left, joined, tip)
        paths: list[Json] = [*paths_of(joined.conflicts)]
        return {"head": joined.commit, "tip": tip, "conflicts": paths, "open": now_open.to_json()}

    found = await parts.journal.step(key, {"tree": desk.tree}, join)
    assert isinstance(found, dict)
    head, tip = str(found["head"]), str(found["tip"])
    if "open" in found:
        desk.conflicts = OpenConflicts.from_json(found["open"])
    else:
        desk.conflicts = _from_paths(desk, await desk.unresolved(), found["conflicts"], head, tip)
    desk.base, desk.said_resolved = tip, frozenset()
    desk.move(head)
    desk.changed = await desk.files_since_base()


def _now_open(desk: Workspace, left: tuple[Conflict, ...], joined: Joined, tip: str) -> OpenConflicts:
    """What nobody has resolved so far stays open, from the joined tree on; what this join brought comes on top."""
    labels = (desk.head, tip) if joined.conflicts else ()
    kept = carried(desk.engine.objects, desk.engine.objects.tree_of(joined.commit), left)
    conflicts = dict.fromkeys((*kept, *joined.conflicts))
    return OpenConflicts(tuple(conflicts), tuple(dict.fromkeys((*desk.conflicts.labels, *labels))))


def _from_paths(desk: Workspace, left: tuple[Conflict, ...], paths: Json, head: str, tip: str) -> OpenConflicts:
    """A join that an earlier version recorded: it named the files only."""
    assert isinstance(paths, list)
    named = [Conflict((CONTENTS,), (str(path),)) for path in paths]
    brought = in_tree(desk.engine.objects, desk.engine.objects.tree_of(head), named)
    return _now_open(desk, left, Joined(head, brought), tip)
