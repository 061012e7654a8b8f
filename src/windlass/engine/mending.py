"""What a fixer mended for the whole run joins the tip: as a task's work does, candidate, checks, swap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass import landing
from windlass.errors import StoppedError
from windlass.landing import Landing
from windlass.model import Json, Key

if TYPE_CHECKING:
    from windlass.engine.context import Here

TRAILER, TITLE = "final-review", "Mend what the final review found"
MAX_OUTPUT = 1_500


async def join(ctx: Here, id: str) -> tuple[str, str]:
    """The tip to go on from, and why the fix is not in it; '' when it is."""
    key, tip = ctx.key.child(id), ctx.parts.engine.own_tip(ctx.facts.id)

    async def try_it(previous: Json) -> Json:
        return await _joined(ctx, key)

    result = await ctx.parts.journal.step(key, {"tree": ctx.desk.tree}, try_it)
    assert isinstance(result, dict)
    return str(result["tip"] or tip), str(result["refused"])


async def _joined(ctx: Here, key: Key) -> Json:
    """Repeated after a crash it finds its own commit in the tip and changes nothing."""
    desk, run, engine = ctx.desk, ctx.facts.id, ctx.parts.engine
    date = float(int(ctx.parts.machine.clock()))
    candidate = await landing.candidate(engine, run, TRAILER, TITLE, desk.head, date, engine.own_tip(run))
    if candidate.kind is Landing.CONFLICT:
        return _refused(candidate.tip, f"it conflicts with what has landed: {', '.join(candidate.files)}")
    if candidate.kind is Landing.ALREADY:
        return {"tip": candidate.tip, "refused": ""}
    verdict = await ctx.shared.checker.check(key, desk, candidate.commit, candidate.tree)
    ctx.emit(*verdict.events, at=key.text)
    if not verdict.ok:
        return _refused(candidate.tip, f"the checks fail: {verdict.output.strip()[-MAX_OUTPUT:]}")
    if not await landing.swap(engine, run, candidate):
        raise StoppedError("the run's tip was moved by somebody else", hint="windlass resume; windlass doctor")
    return {"tip": candidate.commit, "refused": ""}


def _refused(tip: str, why: str) -> Json:
    return {"tip": tip, "refused": why}
