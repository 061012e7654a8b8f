"""The services and state that the contexts of a run share, and a place in the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from windlass.dispatch.dispatcher import Dispatcher
from windlass.dispatch.site import Site
from windlass.dispatch.workspace import Workspace
from windlass.driver.artifacts import EngineArtifacts
from windlass.driver.publisher import Publisher
from windlass.engine.journal import Journal
from windlass.engine.questions import Questions
from windlass.engine.services import Assignments, StopRequests
from windlass.engine.tip import Tip
from windlass.engine.values import RunValues
from windlass.git.engine_repo import EngineRepo
from windlass.kinds.base import Outcome
from windlass.kinds.spec import PhaseSpec
from windlass.model import Finding, Key, Task
from windlass.tasks.checker import Checker
from windlass.tasks.lander import Lander

if TYPE_CHECKING:
    from windlass.tasks.proof import Prover


class RunScope(Struct):
    """The services that perform a run's verbs, and the state that its contexts share."""

    site: Site
    engine: EngineRepo
    journal: Journal
    tip: Tip
    values: RunValues
    assignments: Assignments
    questions: Questions
    requests: StopRequests
    dispatcher: Dispatcher
    checker: Checker
    prover: Callable[[], Prover]
    """Called for the first proof of a task, because it loads the grammars of several languages."""
    lander: Lander
    publisher: Publisher
    artifacts: EngineArtifacts
    slots: int | None = None
    """The number of tasks that run at the same time. It replaces the number of the flow."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    completed: list[Task] = field(default_factory=list)
    implemented: dict[str, list[Task]] = field(default_factory=dict)
    """Landed tasks that a later review will complete, by phase."""
    first_base: tuple[int, str] = (0, "")
    """The number and the base of the first task's start. The final review covers all changes since."""

    def workspace(self, head: str) -> Workspace:
        return Workspace(self.engine, self.values.facts.id, head, self.site.checkout)

    def note_bases(self, phase: Key) -> None:
        """Find the base of the first task among those that a phase recorded."""
        start = f"{phase}/"
        for row in self.journal.recorded_keys():
            if row.key.startswith(start) and row.key.endswith("/base"):
                self.note_base(row.seq, str(row.result))

    def note_base(self, seq: int, base: str) -> None:
        if not self.first_base[0] or seq < self.first_base[0]:
            self.first_base = (seq, base)

    def snapshot(self) -> Callable[[], None]:
        """Returns a function that restores what the contexts share. A phase that is left has changed nothing."""
        values = self.values
        held, of_tasks = dict(values.artifacts.held), dict(values.artifacts.of_tasks)
        settings, answers, roles_ran = dict(values.settings), dict(values.answers), set(values.roles_ran)
        outcomes, completed, first_base = dict(self.outcomes), list(self.completed), self.first_base
        implemented = {phase: list(tasks) for phase, tasks in self.implemented.items()}

        def restore() -> None:
            values.artifacts.held, values.artifacts.of_tasks = held, of_tasks
            values.settings, values.answers, values.roles_ran = settings, answers, roles_ran
            # Other objects hold these, so they stay the same objects.
            self.outcomes.clear()
            self.outcomes.update(outcomes)
            self.completed[:] = completed
            self.implemented.clear()
            self.implemented.update(implemented)
            self.first_base = first_base

        return restore


class Reentry(Struct, frozen=True):
    """How and why a place is entered again."""

    visit: int = 1
    """The visit of a step inside a task. The visits of a phase and of a task are in the key."""
    to_fix: tuple[Finding, ...] = ()
    since: str = ""
    why: str = ""


FIRST = Reentry()


class StepPlace(Struct, frozen=True):
    """A phase, a task or a step of a task, with the workspace of its scope."""

    key: Key
    phase: PhaseSpec
    workspace: Workspace
    task: Task | None = None
    step: str = ""
    """The step of a task; '' outside tasks."""
    again: Reentry = FIRST
    earlier_visits: tuple[Key, ...] = ()
    """The visits that this one continues, newest first. Their good results are not made again."""

    @property
    def to_fix(self) -> tuple[Finding, ...]:
        return self.again.to_fix

    @property
    def since(self) -> str:
        return self.again.since

    @property
    def why(self) -> str:
        return self.again.why

    @property
    def tree(self) -> str:
        return self.workspace.tree

    @property
    def head(self) -> str:
        return self.workspace.head

    @property
    def changed(self) -> tuple[str, ...]:
        return self.workspace.changed

    def id(self, name: str = "") -> str:
        if not self.step:
            return name or "main"
        return f"{self.step}.{name}" if name else self.step

    def at(self, id: str, cycle: int | None = None) -> Key:
        """The key of a step below this place."""
        return self.key.child(id, visit=self.again.visit, cycle=cycle)
