"""`.agents/tmp/state.json`: the state of a run with stages, under the names of its document."""

from __future__ import annotations

import json

from msgspec import Struct, to_builtins

from windlass.model import RunState
from windlass.views.state import COMPLETED, IN_PROGRESS, PENDING, SKIPPED, StageView, View

FILE = ".agents/tmp/state.json"
SUMMARY = "summary-"
STATUS = {RunState.RUNNING: IN_PROGRESS, RunState.FINISHED: COMPLETED}


class PhaseState(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    status: str
    outcome: str = ""
    started_at: float | None = None
    ended_at: float | None = None


class StageState(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    status: str
    enabled: bool
    restart_count: int
    reason: str
    phases: dict[str, PhaseState]


class ScheduleEntry(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    phase: str
    stage: str
    type: str


class FailureState(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    phase: str
    outcome: str
    reason: str
    at: float


class WaiverState(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    phase: str
    reason: str
    by: str
    at: float


class StateFile(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`.agents/tmp/state.json`. Windlass writes it and never reads it."""

    version: int = 1
    run: str
    request: str
    status: str
    """in_progress | waiting | paused | stopped | blocked | completed | aborted"""
    reason: str
    current_stage: str
    current_phase: str
    schedule: list[ScheduleEntry]
    stages: dict[str, StageState]
    files: dict[str, str]
    """Artifact -> its path."""
    summaries: dict[str, str]
    """Stage or phase -> the path of its summary."""
    restart_count: int
    """Restarts of all stages."""
    failures: list[FailureState]
    waivers: list[WaiverState]
    updated_at: float


def render_state(view: View) -> str:
    stages = list(view.stages.values())
    made = {name: artifact.path for name, artifact in view.artifacts.items() if artifact.path}
    current = next((p.id for s in stages if s.id == view.stage for p in s.phases if p.status == PENDING), "")
    entered = view.phase.id if view.phase else ""
    in_stage = any(entered == phase.id for stage in stages if stage.id == view.stage for phase in stage.phases)
    restarted = any(stage.id == view.stage and _is_fresh(stage) for stage in stages)
    state = StateFile(
        run=view.run,
        request=view.request,
        status=STATUS.get(view.state, view.state.value),
        reason=view.state_reason,
        current_stage=view.stage,
        current_phase=entered if in_stage and not restarted else current or _last(stages, view.stage),
        schedule=[
            ScheduleEntry(phase=phase.id, stage=stage.id, type=phase.kind) for stage in stages for phase in stage.phases
        ],
        stages={stage.id: _stage_state(stage) for stage in stages},
        files={name: path for name, path in made.items() if not name.startswith(SUMMARY)},
        summaries={name.removeprefix(SUMMARY): path for name, path in made.items() if name.startswith(SUMMARY)},
        restart_count=len(view.restarts),
        failures=[FailureState(phase=f.phase, outcome=f.outcome, reason=f.detail, at=f.at) for f in view.failures],
        waivers=[
            WaiverState(phase=one.phase, reason=one.reason, by=one.by, at=one.at) for one in view.skipped if one.waived
        ],
        updated_at=view.updated_at,
    )
    return json.dumps(to_builtins(state), indent=2, ensure_ascii=False) + "\n"


def _is_fresh(stage: StageView) -> bool:
    """No phase of it has begun since its restart."""
    return all(phase.status == PENDING for phase in stage.phases)


def _last(stages: list[StageView], id: str) -> str:
    return next((stage.phases[-1].id for stage in stages if stage.id == id and stage.phases), "")


def _stage_state(stage: StageView) -> StageState:
    phases = {
        phase.id: PhaseState(
            status=SKIPPED if not stage.enabled else phase.status,
            outcome=phase.outcome,
            started_at=phase.started_at,
            ended_at=phase.ended_at,
        )
        for phase in stage.phases
    }
    return StageState(
        status=stage.status,
        enabled=stage.enabled,
        restart_count=stage.restarts,
        reason=stage.reason,
        phases=phases,
    )
