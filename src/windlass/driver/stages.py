"""Stages of a flow: their schedule, their restarts, and the summaries of what they made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from windlass.events import ArtifactsRemoved, Event, ScheduleMade, StageRestarted
from windlass.flow.schema import Flow
from windlass.git.keep import transfer
from windlass.kinds.visit_cost import holds
from windlass.kinds.walker import phase_table, restarted_phases
from windlass.model import Json, Key

if TYPE_CHECKING:
    from windlass.driver.context import StepContext
    from windlass.driver.scopes import RunScope

EXCERPT_LINES, EXCERPT_CHARS = 12, 1_200


def announce(run: RunScope) -> None:
    """Record the schedule: every stage and phase, in order."""
    flow, values = run.values.flow, run.values
    if not flow.stages:
        return
    listed: list[Json] = [
        {
            "id": stage.id,
            "enabled": holds(stage.when, values.fact),
            "phases": [{"id": phase.id, "kind": phase.kind} for phase in stage.phases if not phase.REPORTS_FAILURE],
        }
        for stage in flow.stages
    ]
    most = values.number(flow.restarts.max) if flow.restarts else 0
    run.journal.emit("schedule", ScheduleMade(listed, most))


# -- restarts


class Restart(Struct, frozen=True):
    stage: str
    at: str
    """The phase in which it was decided."""
    reason: str
    by: str
    counts: Mapping[str, int]
    """How often each stage was restarted, this time included."""


async def note_tip(run: RunScope, ctx: StepContext) -> None:
    """Record the run's tip at the beginning of a stage, for a reset of its code."""
    stage = run.values.flow.stage_of(ctx.place.phase.id)
    if stage is None or stage.phases[0].id != ctx.place.phase.id or not _resets(run):
        return

    async def tip() -> Json:
        return run.journal.tips.now

    await ctx.observe("tip", tip)


async def restart(run: RunScope, todo: Restart) -> str:
    """Begin a stage again: what its phases made is no longer in force. Returns the tip to continue from."""
    flow, journal = run.values.flow, run.journal
    phases = restarted_phases(phase_table(flow), todo.stage, todo.at)
    source = flow.stage_of(todo.at)
    key = Key().child("restart", cycle=sum(todo.counts.values()))
    removed = _outputs(flow, phases)
    in_force = [name for name in removed if name in run.values.artifacts.held]

    async def record(previous: Json) -> Json:
        tip = journal.tips.now
        target = _tip_of(run, todo.stage) if _resets(run) else tip
        kept = f"refs/windlass/keep/{journal.run}/{key}" if target != tip else ""
        if kept:
            await asyncio.to_thread(_keep, run, kept, tip)
        return {"stage": todo.stage, "tip": target, "kept": kept}

    def restart_events(result: Json) -> list[Event]:
        assert isinstance(result, dict)
        begun = StageRestarted(
            stage=todo.stage,
            phase=phases[0],
            source=source.id if source else todo.stage,
            reason=todo.reason[:2000],
            by=todo.by,
            count=todo.counts[todo.stage],
            phases=[*phases],
            kept=str(result["kept"]),
        )
        gone = ArtifactsRemoved(key.text, in_force, f"{todo.stage} was restarted")
        return [begun, *([gone] if in_force else [])]

    def tip_of(result: Json) -> str:
        assert isinstance(result, dict)
        return str(result["tip"])

    found = await journal.step(key, None, record, events=restart_events, tip=tip_of if _resets(run) else None)
    await run.tip.show()
    run.values.artifacts.drop(removed)
    for phase in phases:
        run.outcomes.pop(phase, None)
        run.implemented.pop(phase, None)
    if any(flow.phase(phase).OWN_SLOTS for phase in phases):
        run.completed.clear()
    return tip_of(found)


def _outputs(flow: Flow, phases: Sequence[str]) -> list[str]:
    """The artifacts that these phases make, and the summaries of them and of their stages."""
    made = {name for phase in phases for name in flow.phase(phase).artifacts_out()}
    if flow.compact:
        stages = {stage.id for phase in phases if (stage := flow.stage_of(phase))}
        made |= {flow.compact.artifact(of) for of in (*phases, *stages)}
    return sorted(made)


def _resets(run: RunScope) -> bool:
    restarts = run.values.flow.restarts
    return restarts is not None and run.values.resolve(restarts.code) == "reset"


def _tip_of(run: RunScope, stage: str) -> str:
    """The tip at the last beginning of a stage."""
    first = next(one.phases[0].id for one in run.values.flow.stages if one.id == stage)
    rows = [row for row in run.journal.recorded_keys() if row.key.split("/")[0].split("+")[0] == first]
    return next((str(row.result) for row in reversed(rows) if row.key.endswith("/tip")), run.journal.tips.now)


def _keep(run: RunScope, ref: str, commit: str) -> None:
    """Keep the code that a reset leaves behind in the user's repository."""
    engine = run.engine
    transfer(engine, [commit], [run.values.facts.base])
    with engine.fence():
        engine.user_refs.move({ref: commit})


# -- summaries


async def summarize(run: RunScope, place: Key, entered: str) -> None:
    """Sum up the phase of a visit that has ended, and its stage if it has ended too. `entered`: the next phase; ''
    for none."""
    flow, values, left = run.values.flow, run.values, place.parts[0].id
    if flow.compact is None or left not in run.outcomes or flow.phase(left).REPORTS_FAILURE:
        return
    # The report belongs to no stage of the schedule.
    ended = not entered or flow.phase(entered).REPORTS_FAILURE
    stage, after = flow.stage_of(left), None if ended else flow.stage_of(entered)
    if values.resolve(flow.compact.between_phases) == "true":
        await _sum_up(run, place, left, [left])
    if stage and stage is not after and values.resolve(flow.compact.between_stages) == "true":
        await _sum_up(run, place, stage.id, [phase.id for phase in stage.phases])


async def _sum_up(run: RunScope, place: Key, of: str, phases: Sequence[str]) -> None:
    flow, values = run.values.flow, run.values
    assert flow.compact is not None
    lines = [f"# Summary of {of}", ""]
    for phase in phases:
        outcome = run.outcomes.get(phase)
        if outcome is None:
            continue
        detail = " ".join(outcome.detail.split())[:300]
        lines += [f"## {phase}: {outcome.name}", *([detail] if detail else []), ""]
        for name in sorted(flow.phase(phase).artifacts_out()):
            content = values.artifacts.content(name)
            if content is not None:
                lines += [f"`{values.path(name) or name}`, {content.count(chr(10))} lines:", "", _excerpt(content), ""]
    key = Key((*Key().child("summary").child(of).parts, *place.parts))
    await run.artifacts.make(key, flow.compact.artifact(of), "\n".join(lines))


def _excerpt(content: str) -> str:
    lines = [line for line in content.splitlines() if line.strip()]
    cut = "\n".join(f"> {line}" for line in lines[:EXCERPT_LINES])[:EXCERPT_CHARS]
    return f"{cut}\n> …" if len(lines) > EXCERPT_LINES else cut
