"""Prints a run line by line: for pipes, build logs and simple terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TextIO, assert_never

from windlass import events as e
from windlass.events import Recorded
from windlass.interfaces.terminal.event_printers import (
    AgentPrinter,
    LineState,
    OutputPrinter,
    RunPrinter,
    TaskPrinter,
)
from windlass.interfaces.terminal.text import Printer
from windlass.views.state import View


class PlainDisplay:
    """Contract: `on_event` never raises because of an event's content, and never asks for input."""

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
        self.out = Printer(out, max(width, 40), color, unicode)
        self.state = LineState(place)
        self.tasks = TaskPrinter(self.out, self.state)
        self.output = OutputPrinter(self.out, self.state)
        self._run = RunPrinter(self.out, self.state, self.tasks, clock)
        self._agents = AgentPrinter(self.out, self.state, self.tasks)

    @property
    def view(self) -> View:
        """The live view. Only events passed to this object change it."""
        return self.state.view

    def catch_up(self, records: Iterable[Recorded]) -> None:
        """Take in earlier events without printing them."""
        self.state.catch_up(records)

    def on_event(self, recorded: Recorded) -> None:
        event = recorded.event
        before = self.view.running.get(event.key) if isinstance(event, e.DispatchFinished) else None
        self.state.feed(recorded)
        match event:
            case e.RunStarted() | e.RunResumed() | e.RunTold() | e.RunSaid() | e.RunEnded():
                self._run.run(event)
            case e.PhaseEntered() | e.PhaseFinished() | e.PhaseSkipped() | e.ScheduleMade() | e.StageRestarted():
                self._run.phase(event)
            case e.BudgetChanged() | e.WaitStarted() | e.Warned() | e.CommandFinished():
                self._run.notice(event)
            case (
                e.StepEntered()
                | e.TasksListed()
                | e.TaskChanged()
                | e.TaskLanded()
                | e.TaskProved()
                | e.LandingRefused()
            ):
                self.tasks.task(event)
            case e.DispatchStarted() | e.DispatchCosted() | e.DispatchFinished():
                self._agents.dispatch(event, before)
            case e.ReviewFinished():
                self._agents.review(event)
            case e.Activity():
                self._agents.activity(event)
            case e.ItemsProposed():
                self._agents.items(event)
            case e.QuestionAsked():
                self.tasks.list_new_tasks()
                self.output.question(event)
            case e.QuestionAnswered():
                self.output.answer(event)
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
                self.output.output(event)
            case _:
                assert_never(event)
