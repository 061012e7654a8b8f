"""Builds the view of a run from its events. It is fast enough to rebuild the view for every read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from msgspec.structs import replace

from windlass import events as e
from windlass.events import Event, Recorded
from windlass.model import Json, RunState
from windlass.text import money, plural, short_sha, spoken
from windlass.views import stages
from windlass.views import state as p
from windlass.views.brainstorm import propose
from windlass.views.state import View

#: purposes of a dispatch that fixes the findings of a review
FIX_PURPOSES = frozenset({"fix", "revise"})
REVIEWED = {"pass": "passed", "noted": "passed with findings noted"}
STATES = {state.value: state for state in RunState}


class ViewBuilder:
    """Feeds events into one view, each in constant time. It ignores an event that it has already seen."""

    def __init__(self, run_id: str, place: str = "") -> None:
        self._view = View(run_id, place)
        self._seq = 0

    def feed(self, recorded: Recorded) -> None:
        if not isinstance(recorded.event, e.Activity):
            if 0 < recorded.seq <= self._seq:
                return
            self._seq = max(self._seq, recorded.seq)
            self._view.updated_at = recorded.at
        _apply(self._view, recorded.at, recorded.event)

    @property
    def view(self) -> View:
        return self._view.copy()

    @property
    def live(self) -> View:
        """The view without a copy. Read it before you feed the next event."""
        return self._view


def fold(records: Iterable[Recorded], run_id: str = "") -> View:
    builder = ViewBuilder(run_id)
    for recorded in records:
        if not builder.live.run:
            builder.live.run = recorded.run
        builder.feed(recorded)
    return builder.live


def _apply(view: View, at: float, event: Event) -> None:
    match event:
        case e.Activity() | e.DispatchStarted() | e.DispatchFinished() | e.DispatchCosted():
            _dispatch(view, at, event)
        case e.RunStarted() | e.RunResumed() | e.RunTold() | e.RunSaid() | e.RunEnded():
            _run(view, at, event)
        case e.PhaseEntered() | e.PhaseFinished() | e.PhaseSkipped():
            _phase(view, at, event)
            stages.note_phase(view, at, event)
        case e.ScheduleMade() | e.StageRestarted():
            stages.note_schedule(view, at, event)
        case e.StepEntered() | e.TasksListed() | e.TaskChanged() | e.TaskLanded() | e.TaskProved() | e.LandingRefused():
            _task(view, at, event)
        case e.ReviewFinished():
            _review(view, at, event)
        case e.QuestionAsked() | e.QuestionAnswered():
            _question(view, at, event)
        case e.ItemsProposed():
            propose(view, event)
        case (
            e.ArtifactStored()
            | e.ArtifactsRemoved()
            | e.PlanAdopted()
            | e.ReportWritten()
            | e.FixLanded()
            | e.BranchPublished()
            | e.PublishFinished()
            | e.RunLanded()
        ):
            _output(view, at, event)
        case e.BudgetChanged() | e.WaitStarted() | e.Warned() | e.CommandFinished():
            _notice(view, at, event)
        case _:
            assert_never(event)


def _note(view: View, at: float, text: str) -> None:
    view.log.append(p.LogEntry(at, text))


def _enter(view: View, at: float, state: RunState, reason: str = "", hint: str = "") -> None:
    if view.state is not state or not view.state_since:
        view.state, view.state_since = state, at
    view.state_reason, view.hint = reason, hint


def _dispatch(
    view: View, at: float, event: e.Activity | e.DispatchStarted | e.DispatchFinished | e.DispatchCosted
) -> None:
    running = view.running.get(event.key)
    task, phase = view.task(event.task), p.phase_of(event.key)
    match event:
        case e.Activity():
            if running:
                doing = event.text if event.kind.startswith("tool.") or event.kind == "text" else running.doing
                cost = running.cost_usd if event.cost_usd is None else event.cost_usd
                view.running[event.key] = running._replace(doing=doing, seen_at=at, cost_usd=cost)
        case e.DispatchStarted():
            _start_dispatch(view, at, event)
            if task and event.purpose in FIX_PURPOSES and event.attempt == 1:
                _put(view, replace(task, fixes=task.fixes + 1))
        case e.DispatchFinished():
            if running and running.attempt <= event.attempt:
                del view.running[event.key]
            view.spent = view.spent.plus(event)
            view.by_role[event.role] = view.by_role.get(event.role, p.Totals()).plus(event)
            view.by_phase[phase] = view.by_phase.get(phase, p.Totals()).plus(event)
            if task:
                _put(view, replace(task, cost=task.cost.plus(event)))
            if (
                running
                and running.purpose in FIX_PURPOSES
                and not event.error
                and not event.task
                and not view.executing
            ):
                view.plan_revisions += 1
        case e.DispatchCosted():
            view.spent = view.spent.correct(event)
            view.by_role[event.role] = view.by_role.get(event.role, p.Totals()).correct(event)
            view.by_phase[phase] = view.by_phase.get(phase, p.Totals()).correct(event)
            if task:
                _put(view, replace(task, cost=task.cost.correct(event)))
        case _:
            assert_never(event)


def _start_dispatch(view: View, at: float, event: e.DispatchStarted) -> None:
    for credential, wait in list(view.waits.items()):
        if wait.key == event.key:
            del view.waits[credential]
    view.running[event.key] = p.Running(
        event.key, event.attempt, event.role, event.agent, event.model, event.purpose, event.task,
        event.cycle, event.cycles, at, event.reserved_usd, seen_at=at,
    )  # fmt: skip
    for text in map(str, event.told):
        waiting = (i for i, one in enumerate(view.messages) if one.text == text and not one.delivered_to)
        found = next((i for i in waiting if view.messages[i].role in ("", event.role)), None)
        if found is not None:
            place = f"{event.role} ({event.key}@{event.attempt})"
            view.messages[found] = view.messages[found]._replace(delivered_to=place, delivered_at=at)
        _note(view, at, f"Delivered to {event.role}: {text}")


RunEvent = e.RunStarted | e.RunResumed | e.RunTold | e.RunSaid | e.RunEnded


def _run(view: View, at: float, event: RunEvent) -> None:
    match event:
        case e.RunStarted():
            view.request, view.flow, view.base, view.branch = event.request, event.flow, event.base, event.branch
            view.limit_usd, view.warn_usd, view.dirty = event.budget_usd, event.warn_usd, event.dirty
            view.started_at = at
            _enter(view, at, RunState.RUNNING)
            _note(view, at, "Workflow started")
        case e.RunResumed():
            # The dispatches of the old driver have ended, or the new driver starts them again under the same keys.
            view.running.clear()
            view.ended_at = None
            _enter(view, at, RunState.WAITING if view.questions else RunState.RUNNING)
            _note(view, at, "Workflow resumed")
        case e.RunTold():
            view.messages.append(p.MessageView(event.text, event.by, event.role, at))
            _note(view, at, f"Told: {event.text}")
        case e.RunSaid():
            _note(view, at, event.text)
        case e.RunEnded():
            view.running.clear()
            _enter(view, at, STATES.get(event.state, RunState.STOPPED), event.reason, event.hint)
            view.ended_at = at if view.state.final else None
            if view.state.final:
                # A run that has ended takes no answers.
                view.questions.clear()
            _note(view, at, f"Workflow {event.state}" + (f": {event.reason}" if event.reason else ""))
        case _:
            assert_never(event)


def _phase(view: View, at: float, event: e.PhaseEntered | e.PhaseFinished | e.PhaseSkipped) -> None:
    match event:
        case e.PhaseEntered():
            view.phase = p.PhaseView(event.phase, event.key, event.kind, event.label, at)
            view.step = event.label
            view.stage = event.stage
            view.executing = view.executing or event.kind == "tasks"
            if event.kind == "review" and view.executing:
                view.final_phase = event.phase
        case e.PhaseFinished():
            view.outcomes[event.phase] = p.PhaseEnd(event.outcome, event.detail, at)
            view.step = event.label or view.step
            if event.phase in view.reviews:
                _note(view, at, f"{spoken(event.phase)} {REVIEWED.get(event.outcome, event.outcome)}")
        case e.PhaseSkipped():
            view.skipped.append(p.SkippedPhase(event.phase, event.reason, event.waived, event.by, at))
            if event.waived:
                _note(view, at, f"{spoken(event.phase)} waived: {event.reason}")
        case _:
            assert_never(event)


def _put(view: View, task: p.TaskView) -> None:
    view.tasks[task.index - 1] = task


def _ensure_task(view: View, id: str) -> p.TaskView:
    task = view.task(id)
    if task is None:
        task = p.TaskView(id, len(view.tasks) + 1, id)
        view.positions[id] = len(view.tasks)
        view.tasks.append(task)
    return task


TaskEvent = e.StepEntered | e.TasksListed | e.TaskChanged | e.TaskLanded | e.TaskProved | e.LandingRefused


def _task(view: View, at: float, event: TaskEvent) -> None:
    match event:
        case e.StepEntered():
            view.step = event.label
            if event.task:
                task = _ensure_task(view, event.task)
                state = event.label if event.label in p.WORKING else task.state
                started = task.started_at if task.started_at is not None else at
                if state in p.WORKING and not task.active:
                    _note(view, at, f"Task {task.index} started")
                _put(view, replace(task, step=event.label, state=state, started_at=started))
                view.current = task.id
        case e.TasksListed():
            _list_tasks(view, at, event.tasks)
        case e.TaskChanged():
            _change_task(view, at, event)
        case e.TaskLanded():
            task = _ensure_task(view, event.task)
            # After a restart of its stage a task lands again: what it changed before is still there.
            changed = tuple(dict.fromkeys((*task.changed, *event.files)))
            _put(view, replace(task, landed=event.commit, checks=event.checks, changed=changed))
            view.tip = event.tip or event.commit
        case e.TaskProved():
            _put(view, replace(_ensure_task(view, event.task), proof=p.proof_from(event)))
        case e.LandingRefused():
            task = _ensure_task(view, event.task)
            _put(view, replace(task, reason=f"{event.why}: {event.detail}" if event.detail else event.why))
            _note(view, at, f"Task {task.index} not landed: {event.why}")
        case _:
            assert_never(event)


def _list_tasks(view: View, at: float, listed: list[Json]) -> None:
    known, titles = {task.id: task for task in view.tasks}, [task.title for task in view.tasks]
    verb = "revised" if known else "written"
    view.tasks, view.positions = [], {}
    for raw in listed:
        if not isinstance(raw, dict) or not raw.get("id") or str(raw["id"]) in view.positions:
            continue
        id, files = str(raw["id"]), raw.get("files")
        view.positions[id] = len(view.tasks)
        view.tasks.append(
            replace(
                known.get(id) or p.TaskView(id, 0, id),
                index=len(view.tasks) + 1,
                title=str(raw.get("title") or id),
                description=str(raw.get("description") or ""),
                files=tuple(str(name) for name in files) if isinstance(files, list) else (),
                group=int(str(raw.get("group") or 0)),
            )
        )
    # The code of a task that the new plan does not have stays on the branch.
    gone = [task for id, task in known.items() if id not in view.positions]
    view.fixed = (*view.fixed, *(name for task in gone for name in task.changed))
    if [task.title for task in view.tasks] != titles:
        _note(view, at, f"Plan {verb} ({plural(len(view.tasks), 'task')})")


def _change_task(view: View, at: float, event: e.TaskChanged) -> None:
    task = _ensure_task(view, event.task)
    if event.visit > task.visit:
        task = replace(task, visit=event.visit, reviews={}, fixes=0, step="", ended_at=None, landed="", checks="")
        task = replace(task, proof=None)
    before = task.state
    task = replace(task, state=event.state, reason=event.reason, base=event.base or task.base)
    if task.active:
        fresh = task.started_at is None
        task = replace(task, started_at=at if fresh else task.started_at, ended_at=None)
        view.current = task.id
        if fresh or before in p.ENDED | {p.PENDING}:
            _note(view, at, f"Task {task.index} started")
    else:
        task = replace(task, step="", ended_at=at if task.ended else None)
        view.current = "" if view.current == task.id else view.current
        if task.ended:
            reason = f": {task.reason}" if task.reason and task.state != p.COMPLETE else ""
            _note(view, at, f"Task {task.index} {task.state} ({task.cost.cost.text}){reason}")
        if view.stages and view.phase and task.state == "failed" != before:
            view.failures.append(p.PhaseFailure(view.phase.id, task.state, f"{task.title}: {task.reason}", at))
    _put(view, task)


def _review(view: View, at: float, event: e.ReviewFinished) -> None:
    if not event.role:
        return
    findings = tuple(p.finding_from(raw, event.role) for raw in event.findings)
    review = p.ReviewView(event.role, event.verdict, event.cycle, at, event.summary, findings)
    phase = p.phase_of(event.key)
    task = view.task(event.task)
    if task:
        _put(view, replace(task, reviews={**task.reviews, event.role: review}))
    else:
        view.reviews.setdefault(phase, {})[event.role] = review
    if review.passed:
        for finding in findings:
            view.noted.setdefault(finding.identity, p.NotedView(finding, event.task, phase))


def _question(view: View, at: float, event: e.QuestionAsked | e.QuestionAnswered) -> None:
    match event:
        case e.QuestionAsked():
            before = view.questions.get(event.key)
            view.questions[event.key] = p.question_from(event, before.since if before else at)
            if before is None:
                phase = p.phase_of(event.key)
                view.asked[phase] = view.asked.get(phase, 0) + 1
            if view.state is RunState.RUNNING:
                _enter(view, at, RunState.WAITING)
        case e.QuestionAnswered():
            asked = view.questions.pop(event.key, None)
            options = {option.key: option.label for option in asked.options} if asked else {}
            label = options.get(event.answer, event.answer)
            view.answers.append(p.AnswerView(event.key, event.id, event.answer, event.by, event.comment, at, label))
            if asked and _in_elicit(view):
                _note(view, at, f"{asked.title}: {label}")
            elif event.id == event.answer == "approve":
                _note(view, at, f"Plan approved (by {event.by})")
            else:
                _note(view, at, f"{event.id or event.key}: {event.answer} (by {event.by})")
            if view.state is RunState.WAITING and not view.questions:
                _enter(view, at, RunState.RUNNING)
        case _:
            assert_never(event)


def _in_elicit(view: View) -> bool:
    return view.phase is not None and view.phase.kind == "elicit"


OutputEvent = (
    e.ArtifactStored
    | e.ArtifactsRemoved
    | e.PlanAdopted
    | e.ReportWritten
    | e.FixLanded
    | e.BranchPublished
    | e.PublishFinished
    | e.RunLanded
)


def _output(view: View, at: float, event: OutputEvent) -> None:
    match event:
        case e.ArtifactStored():
            view.artifacts[event.name] = p.ArtifactView(event.name, event.path, event.sha)
            elicit = _in_elicit(view)
            # The events of a plan and of an answer write their own lines.
            if event.name != "plan" and (event.path or not elicit):
                done = "approved" if elicit else "completed" if event.name == "scout" else "written"
                _note(view, at, f"{spoken(event.name)} {done}" + (f" ({event.note})" if event.note else ""))
        case e.ArtifactsRemoved():
            for name in event.names:
                view.artifacts.pop(name, None)
        case e.PlanAdopted():
            path = view.artifacts[event.name].path if event.name in view.artifacts else ""
            view.artifacts[event.name] = p.ArtifactView(event.name, path, event.sha)
            _note(view, at, f"Edited {event.name} adopted by {event.by} ({plural(len(event.again), 'step')} again)")
        case e.ReportWritten():
            view.report_path = event.path
        case e.FixLanded():
            view.tip, view.fixed = event.tip, (*view.fixed, *event.files)
            what = f"Changes of {p.phase_of(event.key)}" if view.stages else "Fixes after the final review"
            _note(view, at, f"{what} landed at {short_sha(event.tip)}")
        case e.BranchPublished():
            view.published, view.shown_at, view.tip = event.branch, event.commit, event.tip or event.commit
        case e.PublishFinished():
            view.publishing[event.what] = event
            detail = f": {event.detail}" if event.detail else ""
            _note(view, at, f"{p.publish_label(event.what)} {event.state}{detail}")
        case e.RunLanded():
            view.landed = event
            _note(view, at, f"Landed on {event.branch} at {short_sha(event.commit)}")
        case _:
            assert_never(event)


def _notice(view: View, at: float, event: e.BudgetChanged | e.WaitStarted | e.Warned | e.CommandFinished) -> None:
    match event:
        case e.BudgetChanged():
            view.limit_usd = event.limit_usd
            limit = "none" if event.limit_usd is None else money(event.limit_usd)
            _note(view, at, f"Budget limit set to {limit} by {event.by}")
        case e.WaitStarted():
            view.waits[event.credential] = p.WaitView(event.key, event.credential, event.until, event.reason, at)
        case e.Warned():
            view.warnings.append(p.WarningView(event.code, event.text, event.task, at))
            task = view.task(event.task)
            if task:
                _put(view, replace(task, warnings=(*task.warnings, event.text)))
        case e.CommandFinished():
            pass
        case _:
            assert_never(event)
