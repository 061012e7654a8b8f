"""Creates a run that reuses what another run recorded before a phase."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from windlass.errors import UserError, near
from windlass.events import (
    BranchPublished,
    BudgetChanged,
    DispatchCosted,
    DispatchFinished,
    DispatchStarted,
    PhaseEntered,
    PhaseSkipped,
    Recorded,
    RunEnded,
    RunResumed,
    RunStarted,
    WaitStarted,
)
from windlass.flow.load import FlowSource
from windlass.flow.schema import Flow
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.run_refs import name_held
from windlass.model import Json, RunState
from windlass.paths import state_dir
from windlass.runs.project import Project
from windlass.store.port import Store
from windlass.store.rows import RunRow, StepRow
from windlass.store.tips import tip_of_steps

#: events about the other run's own progress and cost
NOT_SHARED = (
    BranchPublished,
    BudgetChanged,
    DispatchCosted,
    DispatchFinished,
    DispatchStarted,
    RunEnded,
    RunResumed,
    RunStarted,
    WaitStarted,
)
BEFORE_ALL = frozenset({"baseline", "adopt"})
"""First parts of keys that belong to no phase and come before the first one."""


class Beginning(Struct, frozen=True):
    """What a run recorded before it first entered a phase."""

    events: tuple[Recorded, ...]
    heads: frozenset[str]
    """First parts of the keys that belong to it: `plan-draft`, `plan-review+2`."""
    steps: tuple[StepRow, ...]

    def has(self, key: str) -> bool:
        return head_of(key) in self.heads


def fork_run(project: Project, store: Store, row: RunRow, phase: str, new_id: str) -> str:
    """The id of the new run, which is at rest before `phase`."""
    where = project.host.place.root / f"{row.flow} (of run {row.id})"
    flow = project.parse(FlowSource(row.flow, where, row.flow_text, "run"), project.roles())
    beginning = find_beginning(store, row.id, flow, phase)
    engine = EngineRepo.open(user_repo.discover(project.host.cwd), state_dir(project.host.environ))
    # The commits of the copied steps stay reachable, even after `gc` removed the other run.
    engine.user_refs.pin_base(new_id, row.base)
    engine.refs.set_tip(new_id, tip_of_steps(beginning.steps, row.base), "")
    for ref, sha in engine.refs.all().items():
        name = name_held(ref, row.id)
        if name and beginning.has(name):
            engine.refs.hold(new_id, name, sha)
    engine.barrier.settle()
    branch = flow.branch.format_map({"slug": row.slug, "id8": new_id[:8], "date": row.date, "n": "1"})
    # Two runs never share a branch, even if the branch template does not contain the run's id.
    branch = f"{branch}-{new_id[:8]}" if branch == row.branch else branch
    options: dict[str, Json] = {**row.options, "in_place": False}
    now = project.host.clock()
    new = replace(
        row,
        id=new_id,
        branch=branch,
        options=options,
        state=RunState.PAUSED,
        epoch=0,
        wanted="",
        parent=row.id,
        started_at=now,
        updated_at=now,
    )
    _record(store, new, row, beginning, phase)
    return new_id


def find_beginning(store: Store, run: str, flow: Flow, phase: str) -> Beginning:
    known = [one.id for one in flow.all_phases()]
    if phase not in known:
        raise UserError(f"flow '{flow.flow}' has no phase '{phase}'", hint=near(phase, known))
    events = store.events.all(run)
    passed = [(one.seq, one.event) for one in events if isinstance(one.event, PhaseEntered | PhaseSkipped)]
    cut = next((seq for seq, event in passed if event.phase == phase), None)
    if cut is None:
        reached = dict.fromkeys(event.phase for _, event in passed)
        hint = f"it reached: {', '.join(reached)}" if reached else f"windlass resume {run}"
        raise UserError(f"run {run} never reached '{phase}'", hint=hint)
    heads = frozenset(head_of(event.key) for seq, event in passed if seq < cut) | BEFORE_ALL
    steps = store.steps.all(run)
    # A person's retries belong to no phase: those before the first omitted step are copied.
    omitted = (one.seq for one in steps if head_of(one.key) not in heads and not one.key.startswith("retry#"))
    end = min(omitted, default=None)
    copied = tuple(one for one in steps if head_of(one.key) in heads or end is None or one.seq < end)
    return Beginning(tuple(one for one in events if one.seq < cut), heads, copied)


def head_of(key: str) -> str:
    return key.split("/", 1)[0].split("!", 1)[0]


def _record(store: Store, new: RunRow, row: RunRow, beginning: Beginning, phase: str) -> None:
    reason, hint = f"forked from run {row.id} before '{phase}'", f"windlass resume {new.id}"
    answered = [q.key for q in store.questions.all(row.id) if q.state == "answered" and beginning.has(q.key)]
    adopted = [adoption.id for adoption in store.adoptions.all(row.id) if beginning.has(adoption.producer)]
    shared = [recorded.seq for recorded in beginning.events if not isinstance(recorded.event, NOT_SHARED)]
    with store.transaction():
        claim = store.runs.add(new)
        store.tips.add(claim, tip_of_steps(beginning.steps, row.base), "", "")
        store.events.add(claim, RunStarted(new.request, new.flow, new.base, new.branch, new.budget_usd, new.warn_usd))
        store.steps.copy(claim, row.id, [step.key for step in beginning.steps])
        store.questions.copy(claim, row.id, answered)
        store.adoptions.copy(claim, row.id, adopted)
        store.events.copy(claim, row.id, shared)
        store.events.add(claim, RunEnded(RunState.PAUSED, reason, hint))
        store.runs.set_state(claim, RunState.PAUSED, reason, hint)
