"""What the plain display prints for each event, one class for each group of events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias, assert_never

from windlass import events as e
from windlass.events import Recorded
from windlass.interfaces.terminal import event_lines
from windlass.interfaces.terminal.question import render_question
from windlass.interfaces.terminal.text import Paint, Printer
from windlass.model import RunState
from windlass.text import clean, elapsed, hhmm, money, plural, short_sha, spoken
from windlass.views.build import OutputEvent, RunEvent, TaskEvent, ViewBuilder
from windlass.views.outlook import (
    add_repository,
    add_repository_to_report,
    code_place,
    diff_command,
    land_command,
    resume_command,
)
from windlass.views.stages import reason_text, restart_text, stage_line
from windlass.views.state import (
    COMPLETE,
    ENDED,
    IMPLEMENTED,
    UNCHANGED,
    QuestionView,
    Running,
    TaskView,
    View,
    costed_text,
    publish_label,
)

PhaseEvent: TypeAlias = e.PhaseEntered | e.PhaseFinished | e.PhaseSkipped | e.ScheduleMade | e.StageRestarted
DispatchEvent: TypeAlias = e.DispatchStarted | e.DispatchCosted | e.DispatchFinished
NoticeEvent: TypeAlias = e.BudgetChanged | e.WaitStarted | e.Warned | e.CommandFinished
#: phases of these kinds print no heading: their questions and their report are their output
SILENT = frozenset({"ask", "report"})


class LineState:
    """The view of the run, and what the printed lines have shown of it so far."""

    def __init__(self, place: str) -> None:
        self._builder = ViewBuilder("", place)
        self._headed: set[tuple[str, int]] = set()
        """Visits of tasks that have a heading."""
        self._unlisted = False
        """Whether the list of tasks changed since it was last printed."""
        self._active: set[str] = set()
        """Tasks at work."""

    @property
    def view(self) -> View:
        return self._builder.live

    def catch_up(self, records: Iterable[Recorded]) -> None:
        for recorded in records:
            self.feed(recorded)
        self._unlisted = False
        self._headed |= {(task.id, task.visit) for task in self.view.tasks if task.state != "pending"}

    def feed(self, recorded: Recorded) -> None:
        if not self.view.run:
            self.view.run = recorded.run
        if isinstance(recorded.event, e.Activity):
            self._builder.feed(recorded)
            return
        # A plan may have thousands of tasks, so titles are compared only for the event that can change them.
        listed = isinstance(recorded.event, e.TasksListed)
        before = [task.title for task in self.view.tasks] if listed else []
        known = len(self.view.tasks)
        self._builder.feed(recorded)
        if isinstance(recorded.event, e.StageRestarted):
            self._headed.clear()
        if listed:
            self._unlisted = self._unlisted or before != [task.title for task in self.view.tasks]
            self._active = {task.id for task in self.view.tasks if task.active}
        elif task := self.view.task(getattr(recorded.event, "task", "")):
            self._unlisted = self._unlisted or known != len(self.view.tasks)
            (self._active.add if task.active else self._active.discard)(task.id)

    def prefix(self, task: str) -> str:
        """The task's number, when several tasks are at work and their lines mix."""
        view = self.view.task(task)
        return f"[{view.index}] " if view and len(self._active) > 1 else ""

    def take_unlisted(self) -> bool:
        """Whether the list of tasks is new. False until it changes again."""
        unlisted, self._unlisted = self._unlisted, False
        return unlisted

    def needs_heading(self, task: TaskView) -> bool:
        """True once for each visit of a task."""
        visit = (task.id, task.visit)
        if visit in self._headed:
            return False
        self._headed.add(visit)
        return True


class EventPrinter:
    def __init__(self, out: Printer, state: LineState) -> None:
        self._out = out
        self._state = state

    @property
    def _view(self) -> View:
        return self._state.view

    def _good(self, text: str, task: str = "") -> None:
        self._out.line(f"{self._state.prefix(task)}✓ {text}", indent=2, paint=Paint.GREEN)

    def _bad(self, text: str, task: str = "") -> None:
        self._out.line(f"{self._state.prefix(task)}✗ {text}", indent=2, paint=Paint.RED)


class TaskPrinter(EventPrinter):
    """Tasks: their list, their headings, their landings."""

    def task(self, event: TaskEvent) -> None:
        match event:
            case e.StepEntered():
                self.head(event.task)
            case e.TasksListed():
                # Printed after the plan's review, or with the question about it.
                pass
            case e.TaskChanged():
                self._print_change(event)
            case e.TaskLanded():
                task = self._view.task(event.task)
                nothing = task is not None and event.commit == task.base
                what = "Nothing to land" if nothing else f"Landed as {short_sha(event.commit)}"
                self._good(f"{what}, checks: {event.checks or 'unchecked'}", event.task)
            case e.TaskProved():
                # A refused proof is printed by the refused landing. A proof without a command ran nothing.
                if event.ok and event.command:
                    self._good(f"TDD {event.proof}: {event.reason}", event.task)
            case e.LandingRefused():
                self._bad(f"Not landed, {event.why}: {event.detail}", event.task)
                for name in event.files[:10]:
                    self._out.line(f"- {name}", indent=6, limit=200)
            case _:
                assert_never(event)

    def head(self, id: str) -> None:
        """Print the task's heading, once for each visit."""
        task = self._view.task(id)
        if task is None or not self._state.needs_heading(task):
            return
        again = f" (visit {task.visit})" if task.visit > 1 else ""
        self._out.line()
        self._out.line(f"▸ Task {task.index}/{len(self._view.tasks)}: {task.title}{again}", paint=Paint.BOLD, limit=300)

    def list_new_tasks(self) -> None:
        if not self._state.take_unlisted():
            return
        self._out.line(f"{plural(len(self._view.tasks), 'task')} found:", indent=2)
        for task in self._view.tasks:
            self._out.line(f"{task.index}. {task.title}", indent=2, limit=300)

    def _print_change(self, event: e.TaskChanged) -> None:
        task = self._view.task(event.task)
        if task is None or event.state == "pending":
            return
        if event.state not in ENDED:
            self.head(event.task)
            return
        reason = f": {event.reason}" if event.reason else ""
        took = f", {elapsed(task.ended_at - task.started_at)}" if task.started_at and task.ended_at else ""
        cost = f"{task.cost.cost.text}{took}; run so far {self._view.cost.text}"
        line = f"Task {task.index} {event.state}{reason} ({cost})"
        self._good(line) if event.state in (COMPLETE, IMPLEMENTED) else self._bad(line)


class RunPrinter(EventPrinter):
    """The run as a whole: its start and end, its phases, its notices."""

    def __init__(self, out: Printer, state: LineState, tasks: TaskPrinter, clock: Callable[[], float]) -> None:
        super().__init__(out, state)
        self._tasks = tasks
        self._clock = clock
        self._stage = ""
        """The stage that was printed last."""

    def run(self, event: RunEvent) -> None:
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
                self._out.line(f"message from {event.by}: {event.text}", indent=2)
            case e.RunSaid():
                self._out.line(event.text, indent=2)
            case e.RunEnded():
                self._print_end(event)
            case _:
                assert_never(event)

    def phase(self, event: PhaseEvent) -> None:
        match event:
            case e.PhaseEntered():
                if event.kind not in SILENT:
                    self._print_stages()
                    self._out.line()
                    self._out.line(f"▸ {self._phase_name(event.phase, event.label)}", paint=Paint.BOLD)
            case e.PhaseFinished():
                verdicts = self._view.reviews.get(event.phase)
                if verdicts:
                    name = self._phase_name(event.phase)
                    self._out.line(f"{name}: {event_lines.verdicts(verdicts)} ({event.outcome})", indent=2)
                    self._tasks.list_new_tasks()
                elif event.outcome == "nothing":
                    self._out.line("nothing to do", indent=2)
                elif event.outcome in event_lines.BAD_OUTCOMES:
                    self._bad(f"{spoken(event.phase)}: {event.outcome}" + (f": {event.detail}" if event.detail else ""))
            case e.PhaseSkipped():
                how = "waived" if event.waived else "skipped"
                by = f" by {event.by}" if event.by else ""
                reason = reason_text(event.reason, event.by)
                self._out.line(f"– {spoken(event.phase)} {how}{by}{f': {reason}' if reason else ''}", paint=Paint.DIM)
            case e.ScheduleMade():
                # Each stage prints the line of stages when it begins.
                pass
            case e.StageRestarted():
                self._stage = ""
                self._out.line()
                self._out.line(f"↻ {restart_text(self._view.restarts[-1])}", paint=Paint.YELLOW)
            case _:
                assert_never(event)

    def notice(self, event: NoticeEvent) -> None:
        match event:
            case e.BudgetChanged():
                limit = "none" if event.limit_usd is None else money(event.limit_usd)
                self._out.line(f"budget limit: {limit} (set by {event.by})", indent=2)
            case e.WaitStarted():
                end = f"{hhmm(event.until)} UTC (in {elapsed(event.until - self._clock())})"
                self._out.line(f"‖ waiting for {event.credential} until {end}: {event.reason}", indent=2)
            case e.Warned():
                self._out.line(f"{self._state.prefix(event.task)}! {event.text}", indent=2, paint=Paint.YELLOW)
            case e.CommandFinished():
                command, took = clean(event.command, 120), "cached" if event.cached else elapsed(event.seconds)
                if event.ok:
                    self._good(f"{command} ({took})")
                else:
                    self._bad(f"{command} failed, exit {event.code} ({took})")
                    self._out.block("\n".join(event.tail.splitlines()[-10:]), indent=6, limit=2000)
            case _:
                assert_never(event)

    def _print_stages(self) -> None:
        """Print the line of stages when another stage has begun."""
        if self._view.stages and self._view.stage != self._stage:
            self._stage = self._view.stage
            self._out.line()
            self._out.line(stage_line(self._view, self._out.width))

    def _print_end(self, event: e.RunEnded) -> None:
        view = self._view
        self._out.line()
        reason = f": {event.reason}" if event.reason else ""
        stop = "" if reason.endswith(("?", ".", "!")) else "."
        match view.state:
            case RunState.FINISHED:
                if view.shortfall:
                    self._out.line(f"Finished in part: {view.shortfall}. {self._totals()}", paint=Paint.YELLOW)
                else:
                    self._out.line(f"Complete. {self._totals()}", paint=Paint.GREEN)
                self._print_branch()
            case RunState.ABORTED:
                self._out.line(f"Aborted{reason}{stop} {self._totals()}", paint=Paint.RED)
                self._print_branch()
            case RunState.PAUSED | RunState.WAITING | RunState.RUNNING:
                self._out.line(f"‖ {event_lines.PAUSE_WORDS.get(event.state, 'Paused')}{reason}{stop} {self._totals()}")
                self._print_resume(event.hint)
            case RunState.STOPPED | RunState.BLOCKED:
                self._out.line(f"✗ {spoken(event.state)}{reason}{stop} {self._totals()}", paint=Paint.RED)
                self._print_resume(event.hint)
            case _:
                assert_never(view.state)

    def _totals(self) -> str:
        view = self._view
        tasks = f"{len(view.tasks_in(COMPLETE))}/{len(view.tasks)} tasks, " if view.tasks else ""
        return f"{tasks}{view.cost.line}, in {elapsed(view.updated_at - view.started_at)}."

    def _print_resume(self, hint: str) -> None:
        if hint:
            self._out.line(f"hint: {add_repository(hint, self._view.place)}", indent=2)
        self._out.line("Continue with:", indent=2)
        self._out.verbatim(resume_command(self._view), indent=4)

    def _print_branch(self) -> None:
        view = self._view
        if not view.has_code:
            self._out.line(UNCHANGED, indent=2)
            return
        shown = not view.published or view.shown_at == view.tip
        place = f"on branch {view.published or view.branch} at {short_sha(view.tip)}" if shown else code_place(view)
        self._out.line(f"The code is {place}.", indent=2)
        self._out.verbatim(diff_command(view), indent=4)
        self._out.verbatim(land_command(view), indent=4)

    def _phase_name(self, phase: str, label: str = "") -> str:
        if phase == self._view.final_phase and not self._view.stages:
            return "Final review"
        known = self._view.phase.label if self._view.phase and self._view.phase.id == phase else ""
        return spoken(label or known or phase)


class AgentPrinter(EventPrinter):
    """Dispatches, and what their agents do, review and propose."""

    def __init__(self, out: Printer, state: LineState, tasks: TaskPrinter) -> None:
        super().__init__(out, state)
        self._tasks = tasks

    def dispatch(self, event: DispatchEvent, before: Running | None) -> None:
        """`before`: the dispatch as it ran, for the event that ends it."""
        match event:
            case e.DispatchStarted():
                self._tasks.head(event.task)
                self._out.line(self._state.prefix(event.task) + event_lines.start_line(event), indent=2)
                for text in event.told:
                    self._out.line(f"{event.role} receives: {text}", indent=2)
            case e.DispatchCosted():
                self._out.line(self._state.prefix(event.task) + costed_text(event), indent=2)
            case e.DispatchFinished():
                purpose = before.purpose if before else ""
                if event.error:
                    self._bad(event_lines.failure(event), event.task)
                elif not event_lines.is_review(purpose):
                    self._good(event_lines.end_line(event, purpose), event.task)
            case _:
                assert_never(event)

    def review(self, event: e.ReviewFinished) -> None:
        if not event.role:
            return
        passed, line = event_lines.verdict(event)
        self._good(line, event.task) if passed else self._bad(line, event.task)
        if passed and event.summary:
            self._out.line(event.summary, indent=6)
        for text in event_lines.finding_lines(event):
            self._out.line(f"- {text}", indent=6, limit=300)

    def activity(self, event: e.Activity) -> None:
        text = event_lines.activity(event)
        if text:
            self._out.cut(self._state.prefix(event.task) + text, indent=4, paint=Paint.DIM if event.ok else Paint.RED)

    def items(self, event: e.ItemsProposed) -> None:
        self._out.line(event_lines.proposal_line(event), indent=2)


class OutputPrinter(EventPrinter):
    """Questions and answers, artifacts, reports, branches."""

    def question(self, asked: e.QuestionAsked | QuestionView) -> None:
        view, out = self._view, self._out
        out.line()
        out.block(render_question(asked, run=view.run, place=view.place, width=out.width, unicode=out.unicode))

    def answer(self, event: e.QuestionAnswered) -> None:
        comment = f": {event.comment}" if event.comment else ""
        self._good(f"{event.id or event.key}: {clean(event.answer, 200)} (by {event.by}){comment}")

    def output(self, event: OutputEvent) -> None:
        match event:
            case e.ArtifactStored():
                note = f" ({event.note})" if event.note else ""
                if event.path or note:
                    self._out.line(f"{event.name} → {event.path or 'stored'}{note}", indent=2)
            case e.ArtifactsRemoved():
                self._out.line(f"removed: {', '.join(event.names)}", indent=2, paint=Paint.DIM)
            case e.PlanAdopted():
                again = plural(len(event.again), "step")
                self._out.line(f"edited {event.name} adopted by {event.by}; {again} will run again", indent=2)
            case e.ReportWritten():
                self._out.line()
                self._out.block(add_repository_to_report(event.text, self._view.place) or f"Report: {event.path}")
            case e.FixLanded():
                self._good(f"Landed as {short_sha(event.tip)}, checks: {event.checks}")
            case e.BranchPublished():
                note = f" ({event.note})" if event.note else ""
                self._out.line(f"branch {event.branch} is at {short_sha(event.commit)}{note}", indent=2)
            case e.PublishFinished():
                line = f"{publish_label(event.what)} {event.state}: {event.url or event.detail}"
                self._bad(line) if event.state in ("failed", "left") else self._good(line)
                for command in event.commands:
                    self._out.verbatim(command, indent=6)
            case e.RunLanded():
                self._good(f"landed on {event.branch} at {short_sha(event.commit)}, checks: {event.checks}")
            case _:
                assert_never(event)
