"""The values that a kind may read: settings, artifacts, questions rendered for its place in the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windlass.engine.question_text import QuestionRenderer, findings_text, setting_question
from windlass.engine.services import Assignments
from windlass.engine.values import RunValues
from windlass.kinds.base import Outcome, PlanView
from windlass.kinds.routes import Target, To
from windlass.kinds.spec import PhaseSpec
from windlass.model import Finding, Json, Question, RunFacts, Task


class StepValues(Struct, frozen=True):
    """Implements `Values` for one place in the run."""

    _run: RunValues
    _assignments: Assignments
    _phase: PhaseSpec
    _outcomes: Mapping[str, Outcome]
    """The outcomes of ended phases and, inside a task, of its ended steps."""
    _task: Task | None = None
    _step: str = ""
    """The step of a task; '' elsewhere."""

    @property
    def facts(self) -> RunFacts:
        return self._run.facts

    def has_role(self, role: str) -> bool:
        return self._assignments.assignment(role).has_agent

    def setting(self, value: int | str) -> str:
        return self._run.resolve(value)

    def artifact(self, name: str) -> str | None:
        if name == "reason":
            return self._outcomes[self._phase.id].detail if self._phase.id in self._outcomes else None
        phase, _, what = name.partition(".")
        if what == "findings":
            return findings_text(self._outcomes[phase].findings) if phase in self._outcomes else None
        return self._run.content(name, self._task_id)

    def criteria(self, name: str) -> str:
        return self._assignments.criteria(name)

    def ensure_violation(self, name: str, content: str) -> str:
        return self._run.artifacts.missing(name, content)

    def problem(self, name: str) -> str:
        return self._run.artifacts.problem(name, self._run.path(name), self._task_id)

    @property
    def _task_id(self) -> str:
        return self._task.id if self._task else ""

    def plan(self, name: str) -> PlanView:
        return self.parse_plan(name, self._run.content(name) or "")

    def parse_plan(self, name: str, content: str) -> PlanView:
        return self._run.artifacts.plan(name, content)

    def fact(self, name: str) -> Json:
        return self._run.fact(name, self._task)

    def option(self, question: str, key: str) -> Target:
        return self._run.flow.questions[question].options[key]

    def feedback(self, question: str) -> str | None:
        answer = self._run.answers.get(question)
        if answer is None or self.option(question, answer.value) != Target(To.GOTO, self._phase.id):
            return None
        return answer.comment

    def setting_question(self, name: str) -> Question | None:
        return setting_question(self._run, name)

    def question(self, id: str, reason: str = "", findings: Sequence[Finding] = ()) -> Question:
        renderer = QuestionRenderer(self._run, self._outcomes, self._phase, self._step, self._task)
        return renderer.render(id, reason, findings)
