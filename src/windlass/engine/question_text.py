"""Renders a flow's questions for the place at which they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windlass.engine.values import RunValues
from windlass.flow.route_graph import back_options
from windlass.flow.schema import QuestionSpec
from windlass.kinds.base import NOBODY_REVIEWED, Outcome
from windlass.kinds.routes import To
from windlass.kinds.spec import PhaseSpec
from windlass.model import Choice, Finding, Question, Severity, Task

REVIEW_RESULTS = {
    "pass": "The reviews passed.",
    "noted": "The reviews have findings:",
    "inconclusive": "A review gave no verdict:",
}


class QuestionRenderer(Struct, frozen=True):
    values: RunValues
    outcomes: Mapping[str, Outcome]
    phase: PhaseSpec
    step: str
    """The step of a task; '' elsewhere."""
    task: Task | None

    def render(self, id: str, reason: str, findings: Sequence[Finding]) -> Question:
        spec = self.values.flow.questions[id]
        choices = tuple(Choice(key, spec.labels.get(key, key.replace("-", " ").capitalize())) for key in spec.options)
        shown = (self._detail_text(item, reason, findings) for item in spec.show)
        return Question(
            id=spec.id or id,
            title=self._text(spec.title, ""),
            text=self._text(spec.text, reason),
            options=choices,
            default=spec.default,
            detail="\n".join(filter(None, shown)),
            aliases=spec.aliases,
            comment=spec.comment,
            yes=spec.yes,
            mandatory=spec.mandatory,
            back=back_options(self.values.flow, id),
            task=self.task.id if self.task else "",
            objection=self._objection(spec),
        )

    def _objection(self, spec: QuestionSpec) -> str:
        """Open findings of the reviews that the question shows, if its `yes` would skip them."""
        if not spec.yes or spec.options[spec.yes].to not in (To.NEXT, To.WAIVE):
            return ""
        shown = (item.partition(".") for item in spec.show)
        outcomes = [self.outcomes.get(name) for name, _, what in shown if what == "findings"]
        return "; ".join(filter(None, (_open_findings(outcome) for outcome in outcomes if outcome)))

    def _text(self, template: str, reason: str) -> str:
        known = {
            "{task.title}": self.task.title if self.task else "",
            "{task.id}": self.task.id if self.task else "",
            "{reason}": reason,
            "{phase}": self.phase.id,
            "{stage}": stage.id if (stage := self.values.flow.stage_of(self.phase.id)) else "",
            "{step}": self.step,
            "{role}": ", ".join(sorted(self.phase.roles())),
        }
        for name, value in known.items():
            template = template.replace(name, value)
        return template

    def _detail_text(self, item: str, reason: str, findings: Sequence[Finding]) -> str:
        name, _, what = item.partition(".")
        if item == "reason":
            return reason
        if item == "findings":
            return findings_text(findings)
        if what == "titles":
            tasks = self.values.artifacts.plan(name, self.values.content(name) or "").tasks
            count = f"{len(tasks)} task{'s' if len(tasks) != 1 else ''}:"
            # The person approves the declared proof of a task together with the plan.
            titles = (f"{task.title} (tdd: {task.tdd})" if task.tdd else task.title for task in tasks)
            return "\n".join([count, *(f"  {i}. {title}" for i, title in enumerate(titles, 1))])
        if what == "findings":
            return self._review_result(name)
        return self.values.content(name) or ""

    def _review_result(self, phase: str) -> str:
        outcome = self.outcomes.get(phase)
        if outcome is None:
            return ""
        if outcome.detail == NOBODY_REVIEWED:
            return f"It was not reviewed: {NOBODY_REVIEWED}."
        if outcome.name == "inconclusive" and outcome.findings:
            found = findings_text(outcome.findings)
            return f"The reviews have findings that were not mended ({outcome.detail}):\n{found}"
        headline = REVIEW_RESULTS.get(outcome.name, "The reviews did not pass:")
        body = findings_text(outcome.findings) or outcome.detail
        return f"{headline}\n{body}" if body and outcome.name != "pass" else headline


def setting_question(values: RunValues, name: str) -> Question | None:
    """None: the setting has a value, or its `when` does not hold."""
    setting = values.setting_to_ask(name)
    if setting is None:
        return None
    choices = tuple(Choice(key, key.replace("-", " ").capitalize(), about) for key, about in setting.options.items())
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


def spoken(name: str) -> str:
    """`execution_mode` -> `Execution Mode`."""
    return name.replace("_", " ").replace("-", " ").title()


def findings_text(findings: Sequence[Finding]) -> str:
    """One line each."""
    lines = []
    for finding in findings:
        line = f":{finding.line}" if finding.line else ""
        place = f" ({finding.file}{line})" if finding.file else ""
        role = f"{finding.role}: " if finding.role else ""
        lines.append(f"  - [{finding.severity.word}] {role}{finding.message}{place}")
    return "\n".join(lines)


def _open_findings(outcome: Outcome) -> str:
    """'' when nothing prevents an approval. One passed review blocks nothing, but a severe finding still counts."""
    grave = [finding.message for finding in outcome.findings if finding.severity >= Severity.HIGH]
    if outcome.name in ("pass", "noted"):
        return "; ".join(grave)
    return "; ".join(finding.message for finding in outcome.findings) or outcome.detail
