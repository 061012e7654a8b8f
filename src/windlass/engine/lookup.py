"""What a kind may look up: settings, artifacts, questions rendered for the place where it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.engine.question_text import QuestionRenderer, findings_text, setting_question
from windlass.engine.services import RunServices
from windlass.kinds.base import Outcome, PlanView
from windlass.kinds.routes import Target, To
from windlass.kinds.spec import PhaseSpec
from windlass.model import Finding, Json, Key, Question, RunFacts, Task


class Lookup:
    """Contract: the same answer on every replay; nothing here has an effect outside the run's values."""

    step_id: str = ""
    """The step of a task, '' elsewhere."""

    def __init__(
        self, parts: RunServices, key: Key, phase: PhaseSpec, outcomes: Mapping[str, Outcome], task: Task | None
    ) -> None:
        self.parts = parts
        self.key = key
        self.facts: RunFacts = parts.world.facts
        self.phase = phase
        self.task = task
        self._outcomes = outcomes
        self._world = parts.world

    def has_role(self, role: str) -> bool:
        return self.parts.assignment(role).is_filled

    def setting(self, value: int | str) -> str:
        return self._world.resolve(value)

    def set_setting(self, name: str, value: str) -> None:
        self._world.settings[name] = value

    def artifact(self, name: str) -> str | None:
        if name == "reason":
            return self._outcomes[self.phase.id].detail if self.phase.id in self._outcomes else None
        phase, _, what = name.partition(".")
        if what == "findings":
            return findings_text(self._outcomes[phase].findings) if phase in self._outcomes else None
        return self._world.content(name, self._task_id)

    def unmet(self, name: str, content: str) -> str:
        return self._world.artifacts.missing(name, content)

    def problem(self, name: str) -> str:
        return self._world.artifacts.problem(name, self._world.path(name), self._task_id)

    @property
    def _task_id(self) -> str:
        return self.task.id if self.task else ""

    def plan(self, name: str) -> PlanView:
        return self.parse_plan(name, self._world.content(name) or "")

    def parse_plan(self, name: str, content: str) -> PlanView:
        return self._world.artifacts.plan(name, content)

    def refine(self, request: str) -> None:
        self._world.refine(request)
        self.facts = self._world.facts

    def fact(self, name: str) -> Json:
        return self._world.fact(name, self.task)

    def option(self, question: str, key: str) -> Target:
        return self._world.flow.questions[question].options[key]

    def feedback(self, question: str) -> str | None:
        answer = self._world.answers.get(question)
        if answer is None or self.option(question, answer.value) != Target(To.GOTO, self.phase.id):
            return None
        return answer.comment

    def setting_question(self, name: str) -> Question | None:
        return setting_question(self._world, name)

    def question(self, id: str, reason: str = "", findings: Sequence[Finding] = ()) -> Question:
        place = QuestionRenderer(self._world, self._outcomes, self.phase, self.step_id, self.task)
        return place.render(id, reason, findings)
