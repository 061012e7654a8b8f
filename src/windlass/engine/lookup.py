"""What a kind may read: settings, artifacts, questions rendered for its place in the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windlass.engine.services import Assignments
from windlass.engine.values import RunValues
from windlass.flow.route_graph import back_options
from windlass.flow.schema import QuestionSpec
from windlass.kinds.base import NOBODY_REVIEWED, Outcome, PlanView
from windlass.kinds.routes import Target, To
from windlass.kinds.spec import PhaseSpec
from windlass.model import Choice, Finding, Json, Question, RunFacts, Severity, Task


class StepValues(Struct, frozen=True):
    """What a kind may read at its place in the run. Contract: the same answer on every replay; nothing is changed."""

    _run: RunValues
    _assignments: Assignments
    _phase: PhaseSpec
    _outcomes: Mapping[str, Outcome]
    """Of the phases, and inside a task of its steps, that have ended."""
    _task: Task | None = None
    _step: str = ""
    """The step of a task, '' elsewhere."""

    @property
    def facts(self) -> RunFacts:
        return self._run.facts

    def has_role(self, role: str) -> bool:
        return self._assignments.assignment(role).is_filled

    def setting(self, value: int | str) -> str:
        return self._run.resolve(value)

    def artifact(self, name: str) -> str | None:
        if name == "reason":
            return self._outcomes[self._phase.id].detail if self._phase.id in self._outcomes else None
        phase, _, what = name.partition(".")
        if what == "findings":
            return _list(self._outcomes[phase].findings) if phase in self._outcomes else None
        return self._run.content(name, self._task_id)

    def unmet(self, name: str, content: str) -> str:
        return self._run.unensured(name, content)

    def problem(self, name: str) -> str:
        return self._run.problem(name, self._task_id)

    @property
    def _task_id(self) -> str:
        return self._task.id if self._task else ""

    def plan(self, name: str) -> PlanView:
        return self._run.plan(name, self._run.content(name) or "")

    def parse_plan(self, name: str, content: str) -> PlanView:
        return self._run.plan(name, content)

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
        setting = self._run.asked(name)
        if setting is None:
            return None
        choices = tuple(
            Choice(key, key.replace("-", " ").capitalize(), about) for key, about in setting.options.items()
        )
        return Question(
            id=name,
            title=spoken(name),
            text=setting.ask or f"{name}?",
            options=choices,
            type="choice" if choices else "input",
            default=setting.default,
            yes=setting.default,
            check="int" if setting.type == "int" else "",
        )

    def question(self, id: str, reason: str = "", findings: Sequence[Finding] = ()) -> Question:
        spec = self._run.flow.questions[id]
        choices = tuple(Choice(key, spec.labels.get(key, _label(key))) for key in spec.options)
        return Question(
            id=spec.id or id,
            title=self._text(spec.title, ""),
            text=self._text(spec.text, reason),
            options=choices,
            default=spec.default,
            detail=self._detail(spec, reason, findings),
            aliases=spec.aliases,
            comment=spec.comment,
            yes=spec.yes,
            mandatory=spec.mandatory,
            back=back_options(self._run.flow, id),
            task=self._task.id if self._task else "",
            objection=self._objection(spec),
        )

    # -- inside

    def _objection(self, spec: QuestionSpec) -> str:
        """What is open in the reviews that the question shows, where its `yes` would pass over it."""
        if not spec.yes or spec.options[spec.yes].to not in (To.NEXT, To.WAIVE):
            return ""
        shown = (item.partition(".") for item in spec.show)
        outcomes = [self._outcomes.get(name) for name, _, what in shown if what == "findings"]
        return "; ".join(filter(None, (_open_words(outcome) for outcome in outcomes if outcome)))

    def _text(self, template: str, reason: str) -> str:
        known = {
            "{task.title}": self._task.title if self._task else "",
            "{task.id}": self._task.id if self._task else "",
            "{reason}": reason,
            "{phase}": self._phase.id,
            "{step}": self._step,
            "{role}": ", ".join(sorted(self._phase.roles())),
        }
        for name, value in known.items():
            template = template.replace(name, value)
        return template

    def _detail(self, spec: QuestionSpec, reason: str, findings: Sequence[Finding]) -> str:
        return "\n".join(filter(None, (self._shown(item, reason, findings) for item in spec.show)))

    def _shown(self, item: str, reason: str, findings: Sequence[Finding]) -> str:
        name, _, what = item.partition(".")
        if item == "reason":
            return reason
        if item == "findings":
            return _list(findings)
        if what == "titles":
            tasks = self.plan(name).tasks
            count = f"{len(tasks)} task{'s' if len(tasks) != 1 else ''}:"
            return "\n".join([count, *(f"  {i}. {_titled(task)}" for i, task in enumerate(tasks, 1))])
        if what == "findings":
            return self._review_result(name)
        return self._run.content(name) or ""

    def _review_result(self, phase: str) -> str:
        outcome = self._outcomes.get(phase)
        if outcome is None:
            return ""
        if outcome.detail == NOBODY_REVIEWED:
            return f"It was not reviewed: {NOBODY_REVIEWED}."
        words = {
            "pass": "The reviews passed.",
            "noted": "The reviews have findings:",
            "inconclusive": "A review gave no verdict:",
        }
        said = words.get(outcome.name, "The reviews did not pass:")
        if outcome.name == "inconclusive" and outcome.findings:
            return f"The reviews have findings that were not mended ({outcome.detail}):\n{_list(outcome.findings)}"
        body = _list(outcome.findings) or outcome.detail
        return f"{said}\n{body}" if body and outcome.name != "pass" else said


def _open_words(outcome: Outcome) -> str:
    """'' when nothing in it holds an approval back. A single pass blocks nothing, but a grave finding still counts."""
    grave = [finding.message for finding in outcome.findings if finding.severity >= Severity.HIGH]
    if outcome.name in ("pass", "noted"):
        return "; ".join(grave)
    return "; ".join(finding.message for finding in outcome.findings) or outcome.detail


def _titled(task: Task) -> str:
    """What the plan declares of its proof is approved with it, so it is shown with it."""
    return f"{task.title} (tdd: {task.tdd})" if task.tdd else task.title


def spoken(name: str) -> str:
    """`execution_mode` -> `Execution Mode`."""
    return name.replace("_", " ").replace("-", " ").title()


def _label(key: str) -> str:
    return key.replace("-", " ").capitalize()


def _list(findings: Sequence[Finding]) -> str:
    return "\n".join(
        f"  - [{f.severity.word}] {f.role + ': ' if f.role else ''}{f.message}{_place(f)}" for f in findings
    )


def _place(finding: Finding) -> str:
    return f" ({finding.file}{f':{finding.line}' if finding.line else ''})" if finding.file else ""
