"""One line per event, with its time."""

from __future__ import annotations

from typing import assert_never

from windlass import events as e
from windlass.events import Event, Recorded
from windlass.text import clean, elapsed, hhmm, money, plural, short_sha, stamp, to_ascii
from windlass.views.build import OutputEvent, RunEvent, TaskEvent
from windlass.views.state import costed_text, ended_cost


def log_line(recorded: Recorded, *, unicode: bool = True) -> str:
    text = f"{stamp(recorded.at)} {recorded.event.type:<17} {clean(describe(recorded.event), 450)}"
    return text if unicode else to_ascii(text)


def describe(event: Event) -> str:
    match event:
        case e.RunStarted() | e.RunResumed() | e.RunTold() | e.RunSaid() | e.RunEnded():
            return _run(event)
        case e.PhaseEntered() | e.PhaseFinished() | e.PhaseSkipped() | e.ScheduleMade() | e.StageRestarted():
            return _phase(event)
        case e.StepEntered() | e.TasksListed() | e.TaskChanged() | e.TaskLanded() | e.TaskProved() | e.LandingRefused():
            return _task(event)
        case e.DispatchStarted() | e.DispatchFinished() | e.DispatchCosted() | e.ReviewFinished() | e.Activity():
            return _agent(event)
        case e.QuestionAsked():
            return f"{event.key}{_tail(event.text)}"
        case e.QuestionAnswered():
            return f"{event.key} {clean(event.answer, 200)} (by {event.by}){_tail(event.comment)}"
        case e.ItemsProposed():
            return f"{event.key}: {len(event.items)} {event.item}"
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
            return _output(event)
        case e.BudgetChanged() | e.WaitStarted() | e.Warned() | e.CommandFinished():
            return _notice(event)
        case _:
            assert_never(event)


def _tail(text: str) -> str:
    return f": {clean(text, 200)}" if text else ""


def _run(event: RunEvent) -> str:
    match event:
        case e.RunStarted():
            return f"{event.flow}: {clean(event.request, 200)} (from {short_sha(event.base)}, branch {event.branch})"
        case e.RunResumed():
            return f"driver {event.epoch}{_tail(event.reason)}"
        case e.RunTold():
            return f"{event.by} to {event.role or 'the next agent that writes code'}: {clean(event.text, 200)}"
        case e.RunSaid():
            return clean(event.text, 400)
        case e.RunEnded():
            return f"{event.state}{_tail(event.reason)}"
        case _:
            assert_never(event)


def _phase(event: e.PhaseEntered | e.PhaseFinished | e.PhaseSkipped | e.ScheduleMade | e.StageRestarted) -> str:
    match event:
        case e.PhaseEntered():
            return f"{event.key} ({event.kind}){_tail(event.label)}"
        case e.PhaseFinished():
            return f"{event.key} -> {event.outcome}{_tail(event.detail)}"
        case e.PhaseSkipped():
            by = f" by {event.by}" if event.by else ""
            return f"{event.key} {'waived' if event.waived else 'skipped'}{by}{_tail(event.reason)}"
        case e.ScheduleMade():
            return ", ".join(str(one.get("id")) for one in event.stages if isinstance(one, dict))
        case e.StageRestarted():
            where = f" from {event.source}" if event.source != event.stage else ""
            return f"{event.stage}{where} ({event.count}, by {event.by}){_tail(event.reason)}"
        case _:
            assert_never(event)


def _task(event: TaskEvent) -> str:
    match event:
        case e.StepEntered():
            return f"{event.key} {event.label}"
        case e.TasksListed():
            return plural(len(event.tasks), "task")
        case e.TaskChanged():
            visit = f" (visit {event.visit})" if event.visit > 1 else ""
            return f"{event.task} {event.state}{visit}{_tail(event.reason)}"
        case e.TaskLanded():
            files = plural(len(event.files), "file")
            return f"{event.task} as {short_sha(event.commit)}, checks {event.checks}, {files}"
        case e.TaskProved():
            return f"{event.task} {event.proof}{_tail(event.reason)}"
        case e.LandingRefused():
            return f"{event.task} {event.why}{_tail(event.detail)}"
        case _:
            assert_never(event)


AgentEvent = e.DispatchStarted | e.DispatchFinished | e.DispatchCosted | e.ReviewFinished | e.Activity


def _agent(event: AgentEvent) -> str:
    match event:
        case e.DispatchStarted():
            model = f" {event.model}" if event.model else ""
            messages = f", told: {clean('; '.join(map(str, event.told)), 200)}" if event.told else ""
            return f"{event.key}@{event.attempt} {event.role} on {event.agent}{model}{messages}"
        case e.DispatchFinished():
            cost = ended_cost(event).text
            end = f"{event.error}{_tail(event.reason)}" if event.error else "ok"
            return f"{event.key}@{event.attempt} {event.role} {end} ({elapsed(event.seconds)}, {cost})"
        case e.DispatchCosted():
            return f"{event.key}@{event.attempt} {costed_text(event)}"
        case e.ReviewFinished():
            role = event.role or "all"
            findings = plural(len(event.findings), "finding")
            return f"{event.key} {role}: {event.verdict}, {findings}{_tail(event.summary)}"
        case e.Activity():
            return f"{event.role} {event.kind}{'' if event.ok else ' (failed)'}{_tail(event.text)}"
        case _:
            assert_never(event)


def _output(event: OutputEvent) -> str:
    match event:
        case e.ArtifactStored():
            return f"{event.name} {event.path or event.sha[:12]}{_tail(event.note)}"
        case e.ArtifactsRemoved():
            return f"{', '.join(event.names)}{_tail(event.why)}"
        case e.PlanAdopted():
            return f"{event.name} by {event.by}, {plural(len(event.again), 'step')} again"
        case e.ReportWritten():
            return f"{event.template} {event.path}".strip()
        case e.FixLanded():
            return f"{event.key} at {short_sha(event.tip)}, checks {event.checks}"
        case e.BranchPublished():
            return f"{event.branch} at {short_sha(event.commit)}{_tail(event.note)}"
        case e.PublishFinished():
            return f"{event.what} {event.state}{_tail(event.url or event.detail)}"
        case e.RunLanded():
            return f"{short_sha(event.tip)} on {event.branch} at {short_sha(event.commit)}, checks {event.checks}"
        case _:
            assert_never(event)


def _notice(event: e.BudgetChanged | e.WaitStarted | e.Warned | e.CommandFinished) -> str:
    match event:
        case e.BudgetChanged():
            return f"limit {'none' if event.limit_usd is None else money(event.limit_usd)} (by {event.by})"
        case e.WaitStarted():
            return f"{event.credential} until {hhmm(event.until)} UTC{_tail(event.reason)}"
        case e.Warned():
            return f"{event.code}{_tail(event.text)}"
        case e.CommandFinished():
            end = "ok" if event.ok else f"failed (exit {event.code})"
            return f"{clean(event.command, 120)} {end}, {'cached' if event.cached else elapsed(event.seconds)}"
        case _:
            assert_never(event)
