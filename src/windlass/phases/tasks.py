"""tasks: a plan's tasks, each through its own steps, each landed on the run's tip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from windlass.events import StepEntered, TaskChanged
from windlass.model import Json, Task
from windlass.phases import command, produce, review
from windlass.phases.base import (
    CallSpec,
    Context,
    Count,
    EndRunError,
    Label,
    Landed,
    Outcome,
    PhaseSpec,
    Routes,
    Strict,
    TaskContext,
    TasksContext,
    _label,
    holds,
)
from windlass.phases.calls import make_call
from windlass.phases.routes import Route, Target, To

OUTCOMES = ("done", "stopped", "escape")
LAND_OUTCOMES = ("conflict", "red", "unproved")

Step: TypeAlias = Annotated[produce.Spec | review.Spec | command.Spec, Field(discriminator="kind")]


class Land(Strict):
    checks: Literal["all", "none"] = "all"
    """Whether the configured checks must pass on the joined tree."""
    fixer: CallSpec | None = None
    """Who mends a conflict or red checks."""
    max: Count = 1
    """How often the fixer may try."""
    label: Annotated[Label, BeforeValidator(_label)] = Label()
    on: Routes
    """conflict, red and unproved -> target."""


class Spec(PhaseSpec):
    kind: Literal["tasks"]
    source: Annotated[str, Field(alias="from")]
    """The artifact that lists the tasks."""
    order: Literal["list", "deps", "waves"] = "list"
    """`list`: as the plan has them, dependencies first."""
    slots: Count = 1
    """Tasks at work at the same time."""
    pause: str = ""
    """auto | checkpoint | batch | $setting"""
    pause_every: Count = 3
    """Tasks between pauses, with `batch`."""
    failure: str = "stop"
    """retry (once, then without it) | continue (without it) | stop | $setting: what `fail` means."""
    steps: tuple[Step, ...]
    """What each task goes through: phases of the kinds produce, review and command."""
    land: Land = Land(on={})
    """How a task's commits join the run's tip."""
    batch: Count = 1
    done_label: str = ""
    """The name of the state of a finished task."""
    out: str = ""
    """The artifact that holds the results."""

    def artifacts_in(self) -> set[str]:
        return {self.source} | {name for step in self.steps for name in step.artifacts_in()}

    def artifacts_out(self) -> set[str]:
        own = {self.out} if self.out else set()
        return own | {name for step in self.steps for name in step.artifacts_out()}

    def roles(self) -> set[str]:
        fixer = {self.land.fixer.role} if self.land.fixer else set()
        return fixer | {name for step in self.steps for name in step.roles()}


# -- running


@dataclass(frozen=True)
class Ending:
    """How a task ended."""

    state: str
    reason: str = ""


COMPLETE, SKIPPED, FAILED, ESCAPED = "complete", "skipped", "failed", "escaped"


async def run(spec: Spec, ctx: TasksContext) -> Outcome:
    tasks = await ctx.task_list(spec.source)
    ended: dict[str, Ending] = {}
    fresh = 0
    for task in in_order(tasks):
        ending = await _settle(spec, ctx, task, ended)
        ended[task.id] = ending
        if ending.state == ESCAPED:
            return Outcome("escape", ending.reason)
        if ending.state == FAILED and ctx.setting(spec.failure) == "stop":
            return Outcome("stopped", f"{task.title}: {ending.reason}")
        fresh += ending.state == COMPLETE and ctx.lived(task.id)
        pause = f"pause.{task.id}"
        # Only live tasks count for a batch, so a replay must not count to know where it rested.
        rests = ctx.halted(pause) or (ending.state == COMPLETE and _rest(spec, ctx, fresh) and len(ended) < len(tasks))
        if rests:
            await ctx.halt(pause, f"checkpoint after task {len(ended)} of {len(tasks)}")
            fresh = 0
    return Outcome("done", _counts(ended))


def _stops(spec: Spec, ctx: Context) -> bool:
    """The failure stops the run where it is, so that a retry takes up this task alone."""
    route = spec.on.get("stopped")
    return ctx.setting(spec.failure) == "stop" and (route is None or route.target.to is To.STOP)


def in_order(tasks: Sequence[Task]) -> list[Task]:
    """The plan's order, but never before what a task depends on."""
    done: set[str] = set()
    rest, ordered = list(tasks), []
    while rest:
        ready = next((task for task in rest if set(task.depends_on) <= done), rest[0])
        rest.remove(ready)
        done.add(ready.id)
        ordered.append(ready)
    return ordered


async def _settle(spec: Spec, ctx: TasksContext, task: Task, ended: dict[str, Ending]) -> Ending:
    lacking = [id for id in task.depends_on if id in ended and ended[id].state != COMPLETE]
    if lacking:
        reason = f"needs {', '.join(lacking)}, which did not complete"
        ctx.emit(TaskChanged(task.id, SKIPPED, reason), at=task.id)
        return Ending(SKIPPED, reason)
    visit = task.visit
    while True:
        ending = await _visit(spec, ctx, task, visit)
        if ending is not None and ending.state == FAILED and _stops(spec, ctx):
            ctx.emit(TaskChanged(task.id, FAILED, ending.reason, visit=visit), at=f"{task.id}+{visit}")
            await ctx.halt(f"stop.{task.id}.{visit}", f"{task.title}: {ending.reason}", stop=True)
        elif ending is not None:
            ctx.emit(TaskChanged(task.id, ending.state, ending.reason, visit=visit), at=f"{task.id}+{visit}")
            return ending
        visit += 1


async def _visit(spec: Spec, ctx: TasksContext, task: Task, visit: int) -> Ending | None:
    """None: the task is to be done again, as a new visit."""
    here = ctx.enter_task(task, visit)
    try:
        await here.begin()
        target, reason = await _steps(spec, here)
        while target.to is To.NEXT:
            target, reason = await _land(spec, here)
            if target.to is To.NEXT:
                return Ending(COMPLETE)
        return _ending(spec, here, target, reason, visit)
    finally:
        await here.leave()


def _ending(spec: Spec, ctx: TaskContext, target: Target, reason: str, visit: int) -> Ending | None:
    match target.to:
        case To.REDO | To.AGAIN:
            ctx.emit(TaskChanged(ctx_task(ctx).id, "pending", reason, visit=visit + 1), at="redo")
            return None
        case To.SKIP:
            return Ending(SKIPPED, reason)
        case To.WAIVE:
            return Ending(COMPLETE, f"accepted with known issues: {reason}")
        case To.ESCAPE:
            return Ending(ESCAPED, reason)
        case To.FAIL:
            retried = ctx.setting(spec.failure) == "retry" and visit == 1
            return None if retried else Ending(FAILED, reason)
        case _:
            raise EndRunError(target, reason)


def ctx_task(ctx: TaskContext) -> Task:
    assert ctx.task is not None
    return ctx.task


async def _steps(spec: Spec, ctx: TaskContext) -> tuple[Target, str]:
    """Through the steps by their routes, until a target leaves the task or the last step is done."""
    ids = [step.id for step in spec.steps]
    taken: Counter[str] = Counter()
    at: int | None = 0
    while at is not None and at < len(ids):
        step = spec.steps[at]
        here = ctx.step_scope(step.id)
        if not holds(step.when, here.fact):
            at = _following(spec.steps, at)
            continue
        target, reason = await _step(step, here, taken)
        if target.to is To.GOTO:
            at = ids.index(target.arg)
        elif target.to in (To.NEXT, To.WAIVE):
            at = _following(spec.steps, at)
        else:
            return target, reason
    return Target(To.NEXT), ""


async def _step(step: Step, ctx: Context, taken: Counter[str]) -> tuple[Target, str]:
    task = ctx.task
    assert task is not None
    if step.label.enter and step.kind != "review":
        ctx.emit(StepEntered(ctx.key.text, step.label.enter, task.id), at=step.id)
        ctx.emit(TaskChanged(task.id, step.label.enter, visit=task.visit), at=step.id)
    outcome = await RUN[step.kind](step, ctx)
    route = step.on.get(outcome.name) or Route(Target(To.NEXT if outcome.name in ("ok", "pass") else To.FAIL))
    target = _counted(route, f"{step.id}.{outcome.name}", ctx, taken)
    return await _asked(ctx, target, outcome)


def _counted(route: Route, name: str, ctx: Context, taken: Counter[str]) -> Target:
    if route.max is None or route.then is None:
        return route.target
    taken[name] += 1
    return route.target if taken[name] <= int(ctx.setting(route.max)) else route.then


async def _asked(ctx: Context, target: Target, outcome: Outcome) -> tuple[Target, str]:
    """A route that asks: the task shows as escalated until a person has chosen."""
    if target.to is not To.ASK:
        return target, outcome.detail
    assert ctx.task is not None
    ctx.emit(TaskChanged(ctx.task.id, "escalated", outcome.detail, visit=ctx.task.visit), at=f"{ctx.id()}.ask")
    answer = await ctx.ask(ctx.question(target.arg, outcome.detail, outcome.findings))
    chosen = ctx.option(target.arg, answer.value)
    told = f"{answer.by} answered '{answer.value}'" + (f": {answer.comment}" if answer.comment else "")
    return chosen, f"{outcome.detail}; {told}" if outcome.detail else told


async def _land(spec: Spec, ctx: TaskContext) -> tuple[Target, str]:
    land = spec.land
    cap = int(ctx.setting(land.max)) if land.fixer else 0
    here = ctx.step_scope("land")
    for cycle in range(1, cap + 2):
        landed = await ctx.land(cycle, checked=land.checks == "all")
        if landed.kind == "landed":
            return Target(To.NEXT), ""
        if land.fixer is None or cycle > cap:
            break
        if not await _mend(land.fixer, here, landed, cycle, cap):
            break
    route = land.on.get(landed.kind, Route(Target(To.FAIL)))
    return await _asked(here, route.target, Outcome(landed.kind, f"landing refused ({landed.kind}): {landed.detail}"))


async def _mend(fixer: CallSpec, ctx: Context, landed: Landed, cycle: int, cap: int) -> bool:
    facts: dict[str, Json] = {"conflict" if landed.kind == "conflict" else "checks_output": landed.detail}
    call = make_call(ctx, fixer, "land-fix", inputs=facts)
    reply = await ctx.dispatch(ctx.id("fix"), replace(call, cycles=cap), cycle=cycle)
    return reply.ok


def _following(steps: Sequence[Step], at: int) -> int | None:
    """The next step that is not reserved for a route."""
    return next((i for i in range(at + 1, len(steps)) if not steps[i].via), None)


def _rest(spec: Spec, ctx: Context, fresh: int) -> bool:
    mode = ctx.setting(spec.pause) if spec.pause else "auto"
    if mode == "checkpoint":
        return True
    return mode == "batch" and fresh >= int(ctx.setting(spec.pause_every))


def _counts(ended: dict[str, Ending]) -> str:
    counts = Counter(ending.state for ending in ended.values())
    return ", ".join(f"{number} {state}" for state, number in counts.items())


RUN: dict[str, Callable[[Any, Context], Awaitable[Outcome]]] = {
    "produce": produce.run,
    "review": review.run,
    "command": command.run,
}
