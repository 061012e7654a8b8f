"""The stages of a run: their part of the view, and one line about them for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from msgspec.structs import replace

from windlass import events as e
from windlass.model import Json
from windlass.text import clean, plural
from windlass.views.state import (
    BLOCKED,
    COMPLETED,
    IN_PROGRESS,
    PENDING,
    RESTARTING,
    SKIPPED,
    LogEntry,
    PhaseFailure,
    PhaseRecord,
    RestartView,
    StageView,
    View,
)

GOOD = frozenset({"ok", "pass", "noted", "done", "nothing"})
"""Outcomes with which a phase is completed."""
MARKS = {IN_PROGRESS: "▸", COMPLETED: "✓", SKIPPED: "–", BLOCKED: "✗", RESTARTING: "↻"}


def note_schedule(view: View, at: float, event: e.ScheduleMade | e.StageRestarted) -> None:
    match event:
        case e.ScheduleMade():
            view.max_restarts = event.max_restarts
            for raw in event.stages:
                if isinstance(raw, dict):
                    stage = _stage(raw)
                    view.stages.setdefault(stage.id, stage)
        case e.StageRestarted():
            _restart(view, at, event)
        case _:
            assert_never(event)


def _stage(raw: Mapping[str, Json]) -> StageView:
    listed, enabled = raw.get("phases"), raw.get("enabled") is True
    phases = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    records = tuple(PhaseRecord(str(one.get("id")), str(one.get("kind"))) for one in phases)
    return StageView(str(raw.get("id")), enabled, records, PENDING if enabled else SKIPPED)


def _restart(view: View, at: float, event: e.StageRestarted) -> None:
    view.restarts.append(RestartView(event.stage, event.source, event.reason, event.by, event.count, event.kept, at))
    for stage in view.stages.values():
        pending = [phase for phase in stage.phases if phase.id in event.phases]
        if not pending or not stage.enabled:
            continue
        fresh = replace(stage, phases=tuple(PhaseRecord(phase.id, phase.kind) for phase in stage.phases), reason="")
        if stage.id == event.stage:
            status = IN_PROGRESS if event.source == event.stage else RESTARTING
            view.stages[stage.id] = replace(fresh, status=status, restarts=event.count)
        elif stage.id == event.source:
            view.stages[stage.id] = replace(fresh, status=BLOCKED, reason=event.reason)
        else:
            view.stages[stage.id] = replace(fresh, status=PENDING)
    for phase in event.phases:
        view.outcomes.pop(phase, None)
        view.reviews.pop(phase, None)
    kinds = {phase.kind for stage in view.stages.values() for phase in stage.phases if phase.id in event.phases}
    if "tasks" in kinds:
        fresh_tasks = [replace(task, state=PENDING, step="", reason="", ended_at=None) for task in view.tasks]
        if event.kept:
            # The code was reset, so its files are no longer changed.
            fresh_tasks, view.fixed = [replace(task, changed=()) for task in fresh_tasks], ()
        view.tasks, view.current = fresh_tasks, ""
    view.stage = event.stage
    view.log.append(LogEntry(at, restart_text(view.restarts[-1])))


def note_phase(view: View, at: float, event: e.PhaseEntered | e.PhaseFinished | e.PhaseSkipped) -> None:
    """Keep the record of a phase of the schedule, and the status of its stage."""
    stage = next((one for one in view.stages.values() if any(p.id == event.phase for p in one.phases)), None)
    if stage is None:
        return
    phases = tuple(_after(phase, at, event) if phase.id == event.phase else phase for phase in stage.phases)
    stage = replace(stage, phases=phases)
    if stage.enabled:
        stage = replace(stage, status=COMPLETED if stage.is_done else IN_PROGRESS, reason="")
    view.stages[stage.id] = stage
    if isinstance(event, e.PhaseFinished) and event.outcome not in GOOD:
        view.failures.append(PhaseFailure(event.phase, event.outcome, event.detail, at))


def _after(phase: PhaseRecord, at: float, event: e.PhaseEntered | e.PhaseFinished | e.PhaseSkipped) -> PhaseRecord:
    match event:
        case e.PhaseEntered():
            return PhaseRecord(phase.id, phase.kind, IN_PROGRESS, started_at=at)
        case e.PhaseFinished():
            status = COMPLETED if event.outcome in GOOD else "failed"
            return phase._replace(status=status, outcome=event.outcome, ended_at=at)
        case e.PhaseSkipped():
            return phase._replace(status=SKIPPED, outcome="waived" if event.waived else "", ended_at=at)
        case _:
            assert_never(event)


def stage_line(view: View, width: int = 0) -> str:
    """All stages in one line: `✓ EXPLORE  ▸ PLAN (restart 1 of 3)  ○ IMPLEMENT`. If that is longer than `width`, the
    restarts are short: `▸ PLAN ↻1`."""
    stages = list(view.stages.values())
    names = [f"{MARKS.get(stage.status, '○')} {stage.id}" for stage in stages]
    words = [f" (restart {s.restarts} of {max(view.max_restarts, s.restarts)})" if s.restarts else "" for s in stages]
    marks = [f" ↻{stage.restarts}" if stage.restarts else "" for stage in stages]
    long, short = ("  ".join(map("".join, zip(names, ends, strict=True))) for ends in (words, marks))
    return short if width and len(long) > width else long


def restart_text(restart: RestartView) -> str:
    """`IMPLEMENT restarted from TEST, 1 restart so far: reason`."""
    where = f" from {restart.source}" if restart.source != restart.stage else ""
    by = f" by {restart.by}" if restart.by != "windlass" else ""
    count = f"{plural(restart.number, 'restart')} so far"
    kept = f" (the code before it is kept under {restart.kept})" if restart.kept else ""
    reason = clean(reason_text(restart.reason, restart.by), 500)
    return f"{restart.stage} restarted{where}{by}, {count}{f': {reason}' if reason else ''}{kept}"


def reason_text(reason: str, by: str) -> str:
    """The reason without who decided, for a line that names the person already."""
    for start in (f"restarted by {by}", f"skipped by {by}"):
        if reason.startswith(start):
            return reason.removeprefix(start).removeprefix(": ")
    return reason
