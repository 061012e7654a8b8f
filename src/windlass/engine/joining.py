"""A task that could not land goes on from the run's tip: what has landed is joined into its own work, once."""

from __future__ import annotations

import asyncio

from windlass import landing
from windlass.engine.desk import Desk
from windlass.engine.parts import Parts
from windlass.model import Json, Key, Task


async def catch_up(parts: Parts, key: Key, task: Task, desk: Desk) -> None:
    """From here on `base` is the tip it was joined with, so what counts as changed is the task's own again."""
    run, engine = parts.world.facts.id, parts.engine

    async def join(previous: Json) -> Json:
        tip, date = engine.own_tip(run), float(int(parts.machine.clock()))
        joined = await asyncio.to_thread(landing.join, engine, desk.head, tip, task.id, date)
        desk.hold(f"{key}/@1", joined.commit)
        return {"head": joined.commit, "tip": tip, "conflicts": list(joined.conflicts)}

    found = await parts.journal.step(key, {"tree": desk.tree}, join)
    assert isinstance(found, dict)
    conflicts = found["conflicts"]
    assert isinstance(conflicts, list)
    desk.base, desk.conflicts = str(found["tip"]), tuple(str(path) for path in conflicts)
    desk.move(str(found["head"]))
    desk.changed = await desk.files_since_base()
