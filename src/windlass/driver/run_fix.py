"""What a fixer mended for the whole run joins the tip: as a task's work does, candidate, checks, swap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.events import Event, FixLanded
from windlass.git import merge as landing
from windlass.git.merge import Landing
from windlass.model import Json, Key

if TYPE_CHECKING:
    from windlass.driver.context import StepContext

TRAILER, TITLE = "final-review", "Mend what the final review found"
MAX_OUTPUT = 1_500


async def join(ctx: StepContext, id: str) -> tuple[str, str]:
    """The tip to go on from, and why the fix is not in it; '' when it is."""
    key = ctx.key.child(id)

    async def try_it(previous: Json) -> Json:
        return await _joined(ctx, key)

    def tip_of(result: Json) -> str:
        assert isinstance(result, dict)
        return str(result["tip"])

    def landed(result: Json) -> list[Event]:
        assert isinstance(result, dict)
        files = result["files"]
        assert isinstance(files, list)
        paths = [str(path) for path in files]
        return [FixLanded(key.text, str(result["tip"]), str(result["checks"]), paths)] if paths else []

    result = await ctx.parts.journal.step(key, {"tree": ctx.desk.tree}, try_it, tip=tip_of, events=landed)
    assert isinstance(result, dict)
    await ctx.parts.tip.show()
    return str(result["tip"]), str(result["refused"])


async def _joined(ctx: StepContext, key: Key) -> Json:
    """Repeated after a crash it finds its own commit in the tip and changes nothing."""
    desk, engine, tip = ctx.desk, ctx.parts.engine, ctx.parts.tip.now
    date = float(int(ctx.parts.machine.clock()))
    candidate = await landing.candidate(engine, tip, TRAILER, TITLE, desk.head, date)
    if candidate.kind is Landing.CONFLICT:
        return _refused(candidate.tip, candidate.reason)
    if candidate.kind is Landing.ALREADY:
        return {"tip": candidate.tip, "refused": "", "checks": "", "files": []}
    verdict = await ctx.shared.checker.check(key, desk, candidate.commit, candidate.tree)
    ctx.emit(*verdict.events, at=key.text)
    if not verdict.ok:
        return _refused(candidate.tip, f"the checks fail: {verdict.output.strip()[-MAX_OUTPUT:]}")
    files: list[Json] = [*candidate.files]
    return {"tip": candidate.commit, "refused": "", "checks": verdict.label, "files": files}


def _refused(tip: str, why: str) -> Json:
    return {"tip": tip, "refused": why, "checks": "", "files": []}
