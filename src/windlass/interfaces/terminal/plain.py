"""The run as it happens, line by line: fit for a pipe, a log of a build server, a narrow terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TextIO, assert_never

from windlass import events as e
from windlass.events import Recorded
from windlass.interfaces.terminal import event_lines
from windlass.interfaces.terminal.question import render_question
from windlass.interfaces.terminal.text import Paint, Printer
from windlass.model import RunState
from windlass.text import clean, elapsed, hhmm, money, plural, short_sha, spoken
from windlass.views.build import OutputEvent, RunEvent, ViewBuilder
from windlass.views.outlook import addressed, addressed_report, code_place, diff_command, land_command, resume_command
from windlass.views.state import (
    COMPLETE,
    ENDED,
    UNCHANGED,
    QuestionView,
    Running,
    TaskView,
    View,
    costed_text,
    published,
)

TaskEvent = e.StepEntered | e.TasksListed | e.TaskChanged | e.TaskLanded | e.TaskProved | e.LandingRefused
#: phases of these kinds speak through their questions and their report
SILENT = frozenset({"ask", "report"})


class PlainFace:
    """Contract: `on_event` never raises for what an event holds, and asks for nothing."""

    def __init__(
        self,
        out: TextIO,
        *,
        width: int = 80,
        color: bool = False,
        unicode: bool = True,
        clock: Callable[[], float],
        place: str = "",
    ) -> None:
        self._out = Printer(out, max(width, 40), color, unicode)
        self._clock = clock
        self._folder = ViewBuilder("", place)
        self._headed: set[tuple[str, int]] = set()
        self._unlisted = False
        self._active: set[str] = set()
        """Tasks at work."""
        """A list of tasks came that the person has not been shown."""

    def catch_up(self, records: Iterable[Recorded]) -> None:
        """Take in what happened before this face was there, silently."""
        for recorded in records:
            self._feed(recorded)
        self._unlisted = False
        self._headed |= {(task.id, task.visit) for task in self._view.tasks if task.state != "pending"}

    def on_event(self, recorded: Recorded) -> None:
        event = recorded.event
        before = self._view.running.get(event.key) if isinstance(event, e.DispatchFinished) else None
        self._feed(recorded)
        match event:
            case e.RunStarted() | e.RunResumed() | e.RunTold() | e.RunSaid() | e.RunEnded():
                self._run(event)
            case e.PhaseEntered() | e.PhaseFinished() | e.PhaseSkipped():
                self._phase(event)
            case (
                e.StepEntered()
                | e.TasksListed()
                | e.TaskChanged()
                | e.TaskLanded()
                | e.TaskProved()
                | e.LandingRefused()
            ):
                self._task(event)
            case e.DispatchStarted() | e.DispatchCosted():
                self._dispatch_started(event)
            case e.DispatchFinished():
                self._dispatch_finished(event, before)
            case e.ReviewFinished():
                self._review(event)
            case e.Activity():
                self._activity(event)
            case e.QuestionAsked() | e.QuestionAnswered():
                self._question(event)
            case e.ItemsProposed():
                self._out.line(event_lines.proposed(event), indent=2)
            case (
                e.ArtifactStored()
                | e.PlanAdopted()
                | e.ReportWritten()
                | e.FixLanded()
                | e.BranchPublished()
                | e.PublishFinished()
                | e.RunLanded()
            ):
                self._output(event)
            case e.BudgetChanged() | e.WaitStarted() | e.Warned() | e.CommandFinished():
                self._notice(event)
            case _:
                assert_never(event)

    @property
    def view(self) -> View:
        """As it is now; only this face's events change it."""
        return self._folder.live

    @property
    def _view(self) -> View:
        return self._folder.live

    def _feed(self, recorded: Recorded) -> None:
        if not self._view.run:
            self._view.run = recorded.run
        if isinstance(recorded.event, e.Activity):
            self._folder.feed(recorded)
            return
        # Only these change the list; a plan may have thousands of tasks, and every event comes by here.
        listed = isinstance(recorded.event, e.TasksListed)
        before = [task.title for task in self._view.tasks] if listed else []
        known = len(self._view.tasks)
        self._folder.feed(recorded)
        if listed:
            self._unlisted = self._unlisted or before != [task.title for task in self._view.tasks]
            self._active = {task.id for task in self._view.tasks if task.active}
        elif task := self._view.task(getattr(recorded.event, "task", "")):
            self._unlisted = self._unlisted or known != len(self._view.tasks)
            (self._active.add if task.active else self._active.discard)(task.id)

    def _good(self, text: str, task: str = "") -> None:
        self._out.line(f"{self._whose(task)}✓ {text}", indent=2, paint=Paint.GREEN)

    def _bad(self, text: str, task: str = "") -> None:
        self._out.line(f"{self._whose(task)}✗ {text}", indent=2, paint=Paint.RED)

    def _whose(self, task: str) -> str:
        """With several tasks at work their lines mix, so each says whose it is."""
        view = self._view.task(task)
        if not view:
            return ""
        return f"[{view.index}] " if len(self._active) > 1 else ""

    def _run(self, event: RunEvent) -> None:
        match event:
            case e.RunStarted():
                limit = "no limit" if event.budget_usd is None else f"limit {money(event.budget_usd)}"
                self._out.line(f"Run {self._view.run}: {event.request}", paint=Paint.BOLD)
                self._out.line(f"flow {event.flow}, from {short_sha(event.base)}, {limit}", indent=2)
                self._out.line(f"branch {event.branch}", indent=2)
                if event.dirty:
                    self._out.line("your uncommitted changes are not part of this run", indent=2, paint=Paint.YELLOW)
            case e.RunResumed():
                reason = f": {event.reason}" if event.reason else ""
                self._out.line(f"Run {self._view.run} resumed{reason}", paint=Paint.BOLD)
            case e.RunTold():
                self._out.line(f"told by {event.by}: {event.text}", indent=2)
            case e.RunSaid():
                self._out.line(event.text, indent=2)
            case e.RunEnded():
                self._ended(event)
            case _:
                assert_never(event)

    def _ended(self, event: e.RunEnded) -> None:
        view = self._view
        self._out.line()
        reason = f": {event.reason}" if event.reason else ""
        match view.state:
            case RunState.FINISHED:
                if view.shortfall:
                    self._out.line(f"Finished in part: {view.shortfall}. {self._sum()}", paint=Paint.YELLOW)
                else:
                    self._out.line(f"Complete. {self._sum()}", paint=Paint.GREEN)
                self._where()
            case RunState.ABORTED:
                self._out.line(f"Aborted{reason}. {self._sum()}", paint=Paint.RED)
                self._where()
            case RunState.PAUSED | RunState.WAITING | RunState.RUNNING:
                self._out.line(f"‖ {event_lines.PAUSE_WORDS.get(event.state, 'Paused')}{reason}. {self._sum()}")
                self._go_on(event.hint)
            case RunState.STOPPED | RunState.BLOCKED:
                self._out.line(f"✗ {spoken(event.state)}{reason}. {self._sum()}", paint=Paint.RED)
                self._go_on(event.hint)
            case _:
                assert_never(view.state)

    def _sum(self) -> str:
        view = self._view
        tasks = f"{len(view.tasks_in(COMPLETE))}/{len(view.tasks)} tasks, " if view.tasks else ""
        return f"{tasks}{view.cost.line}, in {elapsed(view.updated_at - view.started_at)}."

    def _go_on(self, hint: str) -> None:
        if hint:
            self._out.line(f"hint: {addressed(hint, self._view.place)}", indent=2)
        self._out.line("Continue with:", indent=2)
        self._out.verbatim(resume_command(self._view), indent=4)

    def _where(self) -> None:
        view = self._view
        if not view.has_code:
            self._out.line(UNCHANGED, indent=2)
            return
        shown = not view.published or view.shown_at == view.tip
        place = f"on branch {view.published or view.branch} at {short_sha(view.tip)}" if shown else code_place(view)
        self._out.line(f"The code is {place}.", indent=2)
        self._out.verbatim(diff_command(view), indent=4)
        self._out.verbatim(land_command(view), indent=4)

    def _phase(self, event: e.PhaseEntered | e.PhaseFinished | e.PhaseSkipped) -> None:
        match event:
            case e.PhaseEntered():
                if event.kind not in SILENT:
                    self._out.line()
                    self._out.line(f"▸ {self._name(event.phase, event.label)}", paint=Paint.BOLD)
            case e.PhaseFinished():
                self._phase_finished(event)
            case e.PhaseSkipped():
                how = "waived" if event.waived else "skipped"
                self._out.line(f"– {spoken(event.phase)} {how}: {event.reason}", paint=Paint.DIM)
            case _:
                assert_never(event)

    def _name(self, phase: str, label: str = "") -> str:
        return "Final review" if phase == self._view.final_phase else spoken(label or phase)

    def _phase_finished(self, event: e.PhaseFinished) -> None:
        verdicts = self._view.reviews.get(event.phase)
        if verdicts:
            self._out.line(f"{self._name(event.phase)}: {event_lines.verdicts(verdicts)} ({event.outcome})", indent=2)
            self._list_tasks()
        elif event.outcome in event_lines.BAD_OUTCOMES:
            self._bad(f"{spoken(event.phase)}: {event.outcome}" + (f": {event.detail}" if event.detail else ""))

    def _list_tasks(self) -> None:
        if not self._unlisted:
            return
        self._unlisted = False
        self._out.line(f"{plural(len(self._view.tasks), 'task')} found:", indent=2)
        for task in self._view.tasks:
            self._out.line(f"{task.index}. {task.title}", indent=2, limit=300)

    def _head(self, id: str) -> None:
        task = self._view.task(id)
        if task is None or (id, task.visit) in self._headed:
            return
        self._headed.add((id, task.visit))
        again = f" (visit {task.visit})" if task.visit > 1 else ""
        self._out.line()
        self._out.line(f"▸ Task {task.index}/{len(self._view.tasks)}: {task.title}{again}", paint=Paint.BOLD, limit=300)

    def _task(self, event: TaskEvent) -> None:
        match event:
            case e.StepEntered():
                self._head(event.task)
            case e.TasksListed():
                # Shown when somebody has judged it, or when a person is asked.
                pass
            case e.TaskChanged():
                self._task_changed(event)
            case e.TaskLanded():
                self._landed(event)
            case e.TaskProved():
                # What was refused is said by the landing, and nothing is said of what nobody ran.
                if event.ok and event.command:
                    self._good(f"TDD {event.proof}: {event.reason}", event.task)
            case e.LandingRefused():
                self._bad(f"Not landed, {event.why}: {event.detail}", event.task)
                for name in event.files[:10]:
                    self._out.line(f"- {name}", indent=6, limit=200)
            case _:
                assert_never(event)

    def _landed(self, event: e.TaskLanded) -> None:
        task = self._view.task(event.task)
        nothing = task is not None and event.commit == task.base
        what = "Nothing to land" if nothing else f"Landed as {short_sha(event.commit)}"
        self._good(f"{what}, checks: {event.checks or 'unchecked'}", event.task)

    def _task_changed(self, event: e.TaskChanged) -> None:
        task = self._view.task(event.task)
        if task is None or event.state == "pending":
            return
        if event.state not in ENDED:
            self._head(event.task)
            return
        reason = f": {event.reason}" if event.reason else ""
        line = f"Task {task.index} {event.state}{reason} ({self._price(task)})"
        self._good(line) if event.state == COMPLETE else self._bad(line)

    def _price(self, task: TaskView) -> str:
        took = f", {elapsed(task.ended_at - task.started_at)}" if task.started_at and task.ended_at else ""
        return f"{task.cost.cost.text}{took}; run so far {self._view.cost.text}"

    def _dispatch_started(self, event: e.DispatchStarted | e.DispatchCosted) -> None:
        if isinstance(event, e.DispatchCosted):
            self._out.line(self._whose(event.task) + costed_text(event), indent=2)
            return
        self._head(event.task)
        self._out.line(self._whose(event.task) + event_lines.beginning(event), indent=2)
        for text in event.told:
            self._out.line(f"{event.role} is told: {text}", indent=2)

    def _dispatch_finished(self, event: e.DispatchFinished, before: Running | None) -> None:
        purpose = before.purpose if before else ""
        if event.error:
            self._bad(event_lines.failure(event), event.task)
        elif not event_lines.is_review(purpose):
            self._good(event_lines.ending(event, purpose), event.task)

    def _review(self, event: e.ReviewFinished) -> None:
        if not event.role:
            return
        passed, line = event_lines.verdict(event)
        self._good(line, event.task) if passed else self._bad(line, event.task)
        if passed and event.summary:
            self._out.line(event.summary, indent=6)
        for text in event_lines.finding_lines(event):
            self._out.line(f"- {text}", indent=6, limit=300)

    def _activity(self, event: e.Activity) -> None:
        text = event_lines.activity(event)
        if text:
            self._out.cut(self._whose(event.task) + text, indent=4, paint=Paint.DIM if event.ok else Paint.RED)

    def _question(self, event: e.QuestionAsked | e.QuestionAnswered) -> None:
        match event:
            case e.QuestionAsked():
                self._list_tasks()
                self._out.line()
                self._out.block(self._asking(event))
            case e.QuestionAnswered():
                comment = f": {event.comment}" if event.comment else ""
                self._good(f"{event.id or event.key}: {clean(event.answer, 200)} (by {event.by}){comment}")

    def _asking(self, asked: e.QuestionAsked | QuestionView) -> str:
        view, out = self._view, self._out
        return render_question(asked, run=view.run, place=view.place, width=out.width, unicode=out.unicode)

    def _output(self, event: OutputEvent) -> None:
        match event:
            case e.ArtifactStored():
                note = f" ({event.note})" if event.note else ""
                if event.path or note:
                    self._out.line(f"{event.name} → {event.path or 'stored'}{note}", indent=2)
            case e.PlanAdopted():
                again = plural(len(event.again), "step")
                self._out.line(f"edited {event.name} adopted by {event.by}; {again} will run again", indent=2)
            case e.ReportWritten():
                self._out.line()
                self._out.block(addressed_report(event.text, self._view.place) or f"Report: {event.path}")
            case e.FixLanded():
                self._good(f"Fix landed as {short_sha(event.tip)}, checks: {event.checks}")
            case e.BranchPublished():
                note = f" ({event.note})" if event.note else ""
                self._out.line(f"branch {event.branch} is at {short_sha(event.commit)}{note}", indent=2)
            case e.PublishFinished():
                self._published(event)
            case e.RunLanded():
                self._good(f"landed on {event.branch} at {short_sha(event.commit)}, checks: {event.checks}")
            case _:
                assert_never(event)

    def _published(self, event: e.PublishFinished) -> None:
        line = f"{published(event.what)} {event.state}: {event.url or event.detail}"
        self._bad(line) if event.state in ("failed", "left") else self._good(line)
        for command in event.commands:
            self._out.verbatim(command, indent=6)

    def _notice(self, event: e.BudgetChanged | e.WaitStarted | e.Warned | e.CommandFinished) -> None:
        match event:
            case e.BudgetChanged():
                limit = "none" if event.limit_usd is None else money(event.limit_usd)
                self._out.line(f"budget limit: {limit} (set by {event.by})", indent=2)
            case e.WaitStarted():
                end = f"{hhmm(event.until)} UTC (in {elapsed(event.until - self._clock())})"
                self._out.line(f"‖ waiting for {event.credential} until {end}: {event.reason}", indent=2)
            case e.Warned():
                self._out.line(f"{self._whose(event.task)}! {event.text}", indent=2, paint=Paint.YELLOW)
            case e.CommandFinished():
                self._command(event)
            case _:
                assert_never(event)

    def _command(self, event: e.CommandFinished) -> None:
        took = "cached" if event.cached else elapsed(event.seconds)
        if event.ok:
            self._good(f"{clean(event.command, 120)} ({took})")
            return
        self._bad(f"{clean(event.command, 120)} failed, exit {event.code} ({took})")
        self._out.block("\n".join(event.tail.splitlines()[-10:]), indent=6, limit=2000)
