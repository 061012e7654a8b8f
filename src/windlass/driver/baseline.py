"""Checks before the first dispatch that the checks pass on the base, and that they test the slot."""

from __future__ import annotations

from msgspec.structs import replace

from windlass.dispatch.workspace import Workspace
from windlass.driver.context import StepContext
from windlass.driver.scopes import RunScope, StepPlace
from windlass.errors import AbortedError, StoppedError
from windlass.events import Warned
from windlass.kinds.base import Call
from windlass.kinds.spec import PhaseSpec
from windlass.model import Choice, Json, Key, Question

KEY = Key().child("baseline")
MAX_FIXES = 2
NEW_RUN_HINT = "make them pass, commit that, and start a new run"


async def establish(run: RunScope, workspace: Workspace) -> None:
    """The result is recorded, so a resume does not check again."""
    workspace.move(run.journal.tips.now if run.journal.recorded(KEY) else workspace.head)
    if not run.checker.configured:
        return
    ctx = StepContext(run, StepPlace(KEY, PhaseSpec(id="baseline"), workspace))
    verdict = await _observe(run, ctx, 1)
    if verdict["ok"] is not True:
        await _handle_failure(run, ctx, verdict)

    async def look() -> Json:
        return await run.checker.canary(KEY.child("canary"), workspace)

    warning = await ctx.observe("canary", look)
    if warning:
        ctx.emit(Warned("canary", str(warning)))


async def _observe(run: RunScope, ctx: StepContext, cycle: int) -> dict[str, Json]:
    workspace = ctx.place.workspace

    async def look(previous: Json) -> Json:
        found = await run.checker.check(KEY, workspace, workspace.head, workspace.tree)
        ctx.emit(*found.events, at=f"checks#{cycle}")
        failing: Json = [*found.failing]
        return {"ok": found.ok, "label": found.label, "output": found.output[-4000:], "failing": failing}

    result = await run.journal.step(KEY.child("checks", cycle=cycle), {"tree": workspace.tree}, look)
    assert isinstance(result, dict)
    return result


async def _handle_failure(run: RunScope, ctx: StepContext, verdict: dict[str, Json]) -> None:
    for cycle in range(1, MAX_FIXES + 1):
        answer = await ctx.ask(_question(verdict, cycle))
        if answer.value == "accept":
            failing = verdict["failing"]
            run.checker.known = frozenset(str(test) for test in failing) if isinstance(failing, list) else frozenset()
            ctx.emit(Warned("baseline", f"accepted as known to fail: {_names(verdict)}"))
            return
        if answer.value == "stop":
            raise AbortedError(f"the checks fail before any work: {_names(verdict)}", hint=NEW_RUN_HINT)
        await _fix(run, ctx, verdict, cycle)
        verdict = await _observe(run, ctx, cycle + 1)
        if verdict["ok"] is True:
            return
    raise StoppedError(
        f"the checks fail before any work: {_names(verdict)}", hint="make them pass, then start a new run"
    )


async def _fix(run: RunScope, ctx: StepContext, verdict: dict[str, Json], cycle: int) -> None:
    call = Call("implementer", "baseline-fix", inputs={"checks_output": verdict["output"]}, guard=False)
    reply = await ctx.dispatch("fix", replace(call, cycles=MAX_FIXES), cycle=cycle)
    if not (reply.ok and reply.head):
        return

    async def new_tip(previous: Json) -> Json:
        return reply.head

    # The fixed base becomes the run's tip, once.
    head = await run.journal.step(KEY.child(f"tip.{cycle}"), None, new_tip, tip=str)
    await run.tip.show()
    ctx.place.workspace.move(str(head))


def _question(verdict: dict[str, Json], cycle: int) -> Question:
    # Without the names of the failing tests, later failures of the work would look the same.
    accept = (Choice("accept", "Accept", "these failing tests count as known"),) if _failing(verdict) else ()
    return Question(
        id=f"baseline{cycle if cycle > 1 else ''}",
        text="The checks fail before the run has changed anything. What now?",
        options=(
            Choice("fix", "Fix first", "an agent fixes them before the work starts"),
            *accept,
            Choice("stop", "Stop", "I will fix it"),
        ),
        detail=str(verdict["output"])[-1500:],
    )


def _failing(verdict: dict[str, Json]) -> list[str]:
    failing = verdict["failing"]
    return [str(test) for test in failing] if isinstance(failing, list) else []


def _names(verdict: dict[str, Json]) -> str:
    return ", ".join(_failing(verdict)[:5]) or str(verdict["output"]).strip()[-200:] or "no output"
