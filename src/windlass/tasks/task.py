"""One visit to a task: through its steps by their routes, then onto the run's tip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.events import TaskChanged
from windlass.kinds import KINDS
from windlass.kinds.base import Context, Outcome, Reply
from windlass.kinds.calls import format_finding, make_call, reached
from windlass.kinds.routes import Route, Target, To
from windlass.kinds.spec import CallSpec
from windlass.kinds.visit_cost import holds
from windlass.model import Answer, Finding, Json, Task
from windlass.tasks.context import UNCHANGED, Landed, TaskContext

if TYPE_CHECKING:
    from windlass.kinds.tasks import Step, TasksSpec

GO_ON = (To.NEXT, To.WAIVE)
BACK_TO_WORK = (To.REDO, To.AGAIN, To.FIX, To.GOTO)
CONFLICT = "conflict"
RESOLUTION = "resolution"
"""The contract of a fixer's answer to a conflict."""
TOLD_AS = {CONFLICT: "conflict", "red": "checks_output", "unproved": "proof"}
"""What the fixer's prompt calls the facts."""


class VisitCourse(Struct):
    """Where this visit has been: counted routes taken, steps entered, landings tried."""

    taken: Counter[str] = field(default_factory=Counter)
    entered: Counter[str] = field(default_factory=Counter)
    landings: int = 0
    joined: int = 0
    """The last refused landing after which the task was joined with what has landed."""
    unreviewed: str = ""
    """A commit: what fixers changed since then, no reviewer has judged."""


class TaskTurns(Protocol):
    """When a task may do what others do as well."""

    async def to_land(self) -> None:
        """Its steps are done; it needs no slot until it is sent back."""
        ...

    async def to_work(self) -> None:
        """It was sent back, and needs a slot again."""
        ...

    async def to_land_again(self) -> None:
        """It was mended where it stood in the row."""
        ...


async def through(spec: TasksSpec, ctx: TaskContext, turns: TaskTurns) -> tuple[Target, str]:
    """Until a target leaves the task; `next`: it has landed."""
    course, at = VisitCourse(), 0
    while True:
        target, reason = await _steps(spec, ctx, course, at)
        if target.to is not To.NEXT:
            return target, reason
        course.unreviewed = ""
        await turns.to_land()
        target, reason = await _land(spec, ctx, course, turns)
        if target.to is not To.GOTO:
            return target, reason
        await turns.to_work()
        at = _index(spec.steps, target)


def task_of(ctx: Context) -> Task:
    assert ctx.place.task is not None
    return ctx.place.task


# -- steps


async def _steps(spec: TasksSpec, ctx: TaskContext, course: VisitCourse, at: int) -> tuple[Target, str]:
    position: int | None = at
    to_fix: tuple[Finding, ...] = ()
    why = ""
    while position is not None:
        step = spec.steps[position]
        if not holds(step.when, ctx.values.fact):
            position = _following(spec.steps, position)
            continue
        target, outcome = await _enter(step, ctx, course, to_fix=to_fix, why=why)
        # A step that mended what another found says nothing itself: what it was for is still the reason.
        to_fix, why = (outcome.findings if target.to is To.FIX else ()), outcome.detail or why
        if target.to in GO_ON:
            position, why = _following(spec.steps, position), ""
        elif target.to is To.GOTO:
            position = _index(spec.steps, target)
        elif target.to not in (To.AGAIN, To.FIX):
            return target, why
    return Target(To.NEXT), ""


async def _enter(
    step: Step,
    ctx: TaskContext,
    course: VisitCourse,
    *,
    to_fix: tuple[Finding, ...] = (),
    since: str = "",
    why: str = "",
) -> tuple[Target, Outcome]:
    """The step's outcome and where it leads; a question's answer is part of the outcome's detail."""
    course.entered[step.id] += 1
    here = ctx.step_scope(step.id, visit=course.entered[step.id], to_fix=to_fix, since=since, why=why)
    if not step.ANNOUNCES_ITSELF:
        reached(here, step.label.enter, step.id)
    outcome = await KINDS[step.kind].run(step, here)
    ctx.ended(step.id, outcome)
    route = step.on.get(outcome.name) or Route(Target(To.NEXT if outcome.name in ("ok", "pass") else To.FAIL))
    return await _asked(here, _counted(route, f"{step.id}.{outcome.name}", ctx, course.taken), outcome)


def _counted(route: Route, name: str, ctx: TaskContext, taken: Counter[str]) -> Target:
    if route.max is None or route.then is None:
        return route.target
    taken[name] += 1
    return route.target if taken[name] <= int(ctx.values.setting(route.max)) else route.then


async def _asked(ctx: Context, target: Target, outcome: Outcome) -> tuple[Target, Outcome]:
    """A route that asks: the task shows as escalated until a person has chosen."""
    if target.to is not To.ASK:
        return target, outcome
    task = task_of(ctx)
    ctx.emit(TaskChanged(task.id, "escalated", outcome.detail, visit=task.visit), at=f"{ctx.place.id()}.ask")
    answer = await ctx.ask(ctx.values.question(target.arg, outcome.detail, outcome.findings))
    chosen = ctx.values.option(target.arg, answer.value)
    if chosen.to in BACK_TO_WORK:
        return chosen, replace(outcome, detail=_advice(outcome, answer))
    told = f"{answer.by} answered '{answer.value}'" + (f": {answer.comment}" if answer.comment else "")
    return chosen, replace(outcome, detail=f"{outcome.detail}; {told}" if outcome.detail else told)


def _advice(outcome: Outcome, answer: Answer) -> str:
    """For whoever does it again: what was found and where, and what the person says to it."""
    found = "\n".join(format_finding(finding) for finding in outcome.findings) or outcome.detail
    return "\n".join(filter(None, (found, answer.comment and f"The person who decided adds: {answer.comment}")))


def _following(steps: Sequence[Step], at: int) -> int | None:
    """The next step that is not reserved for a route."""
    return next((i for i in range(at + 1, len(steps)) if not steps[i].via), None)


def _index(steps: Sequence[Step], target: Target) -> int:
    return [step.id for step in steps].index(target.arg)


# -- landing


async def _land(spec: TasksSpec, ctx: TaskContext, course: VisitCourse, turns: TaskTurns) -> tuple[Target, str]:
    """`next`: it has landed. A step's id: there it goes on, on what has landed meanwhile."""
    left = int(ctx.values.setting(spec.land.max)) if spec.land.fixer else 0
    while True:
        landed = await _try(spec, ctx, course)
        if landed.kind == "landed":
            return Target(To.NEXT), ""
        found = await _mended(spec, ctx, course, landed, turns) if left else None
        left -= 1
        target, reason = found or await _refused(spec, ctx, course, landed)
        if target.to is To.FIX:
            target, reason = await _mended(spec, ctx, course, landed, turns) or (Target(To.FAIL), landed.detail)
        if target.to is To.WAIVE:
            return await _accepted(ctx, course, landed, reason)
        if target.to not in (To.NEXT, To.AGAIN):
            return target, reason


async def _try(spec: TasksSpec, ctx: TaskContext, course: VisitCourse) -> Landed:
    course.landings += 1
    reached(ctx.step_scope("land"), spec.land.label.enter, f"land#{course.landings}")
    return await ctx.land(course.landings, checked=spec.land.checks == "all")


async def _refused(spec: TasksSpec, ctx: TaskContext, course: VisitCourse, landed: Landed) -> tuple[Target, str]:
    outcome = Outcome(landed.kind, f"landing refused ({landed.kind}): {landed.detail}")
    # A task that changed nothing and that nobody confirmed is as little shown to be done as one without a proof.
    kinds = (landed.kind, "unproved") if landed.kind == UNCHANGED else (landed.kind,)
    route = next((spec.land.on[kind] for kind in kinds if kind in spec.land.on), Route(Target(To.FAIL)))
    # The last landing is part of the place: the same refusal may be asked about again.
    here = ctx.step_scope("land", visit=course.taken["land?"] + 1)
    course.taken["land?"] += 1
    target, outcome = await _asked(here, _counted(route, f"land.{landed.kind}", ctx, course.taken), outcome)
    if target.to is To.GOTO:
        await _catch_up(ctx, course)
    # After a landing there is no next step: going on means that a person takes it as it is.
    return (Target(To.WAIVE) if target.to is To.NEXT else target), outcome.detail


async def _accepted(ctx: TaskContext, course: VisitCourse, landed: Landed, reason: str) -> tuple[Target, str]:
    """With known issues: without checks. What conflicts cannot be joined by anybody's word."""
    if landed.kind == CONFLICT:
        return Target(To.SKIP), f"it cannot be accepted as it is: {reason}"
    course.landings += 1
    again = await ctx.land(course.landings, checked=False, waived=True)
    told = f"accepted with known issues: {reason}"
    return (Target(To.NEXT), told) if again.kind == "landed" else (Target(To.SKIP), f"{told}; {again.detail}")


async def _mended(
    spec: TasksSpec, ctx: TaskContext, course: VisitCourse, landed: Landed, turns: TaskTurns
) -> tuple[Target, str] | None:
    """`next`: try to land again. None: nobody could mend it."""
    if spec.land.fixer is None or landed.kind == UNCHANGED:
        return None
    await turns.to_work()
    before = await ctx.patch()
    await _catch_up(ctx, course)
    reached(ctx.step_scope("land"), spec.land.label.fix, f"land.fix#{course.landings}")
    reply = await _fix(
        spec.land.fixer, ctx.step_scope("land"), landed, course.landings, int(ctx.values.setting(spec.land.max))
    )
    if not reply.ok:
        return None
    resolved = resolved_paths(reply) if landed.kind == CONFLICT else ()
    ctx.say_resolved(resolved)
    found = Target(To.NEXT), ""
    if await _needs_review(ctx, landed, before):
        named = f"; named as resolved by the fixer: {', '.join(resolved)}" if resolved else ""
        found = await _relook(spec, ctx, course, f"landing refused: {landed.kind}{named}")
        course.unreviewed = ""
    await turns.to_land_again()
    return found


async def _catch_up(ctx: TaskContext, course: VisitCourse) -> None:
    """Once after a refused landing, whoever goes on from it."""
    if course.joined == course.landings:
        return
    course.joined = course.landings
    changed = course.unreviewed not in ("", ctx.place.head)
    await ctx.catch_up(course.landings)
    course.unreviewed = course.unreviewed if changed else ctx.place.head


async def _needs_review(ctx: TaskContext, landed: Landed, before: str) -> bool:
    """A resolved conflict always: only a reviewer can judge whose work it kept. An open one does not land anyway."""
    if landed.kind == CONFLICT:
        return not await ctx.has_open_conflicts()
    return await ctx.patch() != before


async def _fix(fixer: CallSpec, ctx: Context, landed: Landed, cycle: int, cap: int) -> Reply:
    facts: dict[str, Json] = {TOLD_AS[landed.kind]: landed.detail}
    sides: dict[str, Json] = {"your side": landed.ours, "what landed meanwhile": landed.theirs}
    call = make_call(ctx, fixer, "land-fix", inputs=facts, context=sides)
    call = replace(call, cycles=cap, contract=RESOLUTION if landed.kind == CONFLICT else "")
    return await ctx.dispatch(ctx.place.id("fix"), call, cycle=cycle)


def resolved_paths(reply: Reply) -> tuple[str, ...]:
    listed = reply.data.get("resolved") if isinstance(reply.data, dict) else None
    return tuple(str(path) for path in listed) if isinstance(listed, list) else ()


async def _relook(spec: TasksSpec, ctx: TaskContext, course: VisitCourse, why: str) -> tuple[Target, str]:
    """What was reviewed is no longer what would land: its reviewers judge what the fix changed."""
    since = course.unreviewed
    reviews = [step for step in spec.steps if step.judges_changes()]
    for step in (step for step in reviews if course.entered[step.id]):
        target, outcome = await _enter(step, ctx, course, since=since, why=why)
        while target.to in (To.AGAIN, To.FIX):
            to_fix = outcome.findings if target.to is To.FIX else ()
            target, outcome = await _enter(step, ctx, course, since=since, to_fix=to_fix, why=outcome.detail)
        if target.to not in GO_ON:
            return target, outcome.detail
    return Target(To.NEXT), ""
