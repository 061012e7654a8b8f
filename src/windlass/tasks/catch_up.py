"""A task that could not land goes on from the run's tip: what has landed is joined into its own work, once."""

from __future__ import annotations

import asyncio

from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.git import merge
from windlass.git.conflicts import CONTENTS, Conflict, OpenConflicts, carried, in_tree, paths_of
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import Joined
from windlass.model import Json, Key, Task


async def catch_up(journal: Journal, engine: EngineRepo, key: Key, task: Task, workspace: Workspace) -> None:
    """From here on `base` is the tip it was joined with, so what counts as changed is the task's own again."""

    async def join(previous: Json) -> Json:
        tip, date = journal.tip, float(int(journal.store.clock()))
        left = await workspace.unresolved()
        joined = await asyncio.to_thread(merge.join, engine, workspace.head, tip, task.id, date)
        workspace.hold(f"{key}/@1", joined.commit)
        now_open = _now_open(engine, workspace, left, joined, tip)
        paths: list[Json] = [*paths_of(joined.conflicts)]
        return {"head": joined.commit, "tip": tip, "conflicts": paths, "open": now_open.to_json()}

    found = await journal.step(key, {"tree": workspace.tree}, join)
    assert isinstance(found, dict)
    head, tip = str(found["head"]), str(found["tip"])
    if "open" in found:
        workspace.conflicts = OpenConflicts.from_json(found["open"])
    else:
        workspace.conflicts = _from_paths(
            engine, workspace, await workspace.unresolved(), found["conflicts"], head, tip
        )
    workspace.base, workspace.said_resolved = tip, frozenset()
    workspace.move(head)
    workspace.changed = await workspace.files_since_base()


def _now_open(
    engine: EngineRepo, workspace: Workspace, left: tuple[Conflict, ...], joined: Joined, tip: str
) -> OpenConflicts:
    """What nobody has resolved so far stays open, from the joined tree on; what this join brought comes on top."""
    labels = (workspace.head, tip) if joined.conflicts else ()
    kept = carried(engine.objects, engine.tree_of(joined.commit), left)
    conflicts = dict.fromkeys((*kept, *joined.conflicts))
    return OpenConflicts(tuple(conflicts), tuple(dict.fromkeys((*workspace.conflicts.labels, *labels))))


def _from_paths(
    engine: EngineRepo, workspace: Workspace, left: tuple[Conflict, ...], paths: Json, head: str, tip: str
) -> OpenConflicts:
    """A join that an earlier version recorded: it named the files only."""
    assert isinstance(paths, list)
    named = [Conflict((CONTENTS,), (str(path),)) for path in paths]
    brought = in_tree(engine.objects, engine.tree_of(head), named)
    return _now_open(engine, workspace, left, Joined(head, brought), tip)
