"""What the contexts of a run share, and one place in the run."""

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
    """The performers of a run's verbs, and what its contexts have learned so far."""

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
    """Made when the first task is proved: it loads the grammars of several languages."""
    lander: Lander
    publisher: Publisher
    artifacts: EngineArtifacts
    slots: int | None = None
    """Tasks at work at the same time, whatever the flow says."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    completed: list[Task] = field(default_factory=list)
    implemented: dict[str, list[Task]] = field(default_factory=dict)
    """Tasks that have landed and that a later review completes, by their phase."""
    first_base: tuple[int, str] = (0, "")
    """Where the first task began, and when: the final review looks at everything since."""

    def workspace(self, head: str) -> Workspace:
        return Workspace(self.engine, self.values.facts.id, head, self.site.checkout)


class Reentry(Struct, frozen=True):
    """How and why a place is entered another time."""

    visit: int = 1
    """Of a step inside a task; a phase and a task have theirs in the key."""
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
    """The step of a task, '' elsewhere."""
    again: Reentry = FIRST
    befores: tuple[Key, ...] = ()
    """Visits that this one goes on from, newest first: what has a good result there is not done again."""

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
