"""`.superteam-workflow.json`: the state of a run, under the names that other tools read."""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct, field

from windlass.model import Json, RunState
from windlass.views.brainstorm import STEPS, brainstorm_state
from windlass.views.state import COMPLETE, SKIPPED, QuestionView, TaskView, View

FILE = ".superteam-workflow.json"
PHASES = {"plan-approval": "plan-review", "report": "finalize"}
BRAINSTORM = "brainstorm"
DONE = frozenset({COMPLETE, SKIPPED})
FAILED = frozenset({RunState.STOPPED, RunState.BLOCKED, RunState.ABORTED})


class SuperteamFacts(Struct, frozen=True):
    """The values of the file that are not in events."""

    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings in force: from options, answers or defaults."""
    plan_path: str = ""
    plan_content: str = ""
    design_path: str = ""
    design_content: str = ""
    scout: str = ""


def render(view: View, facts: SuperteamFacts) -> str:
    design: dict[str, Json] = {}
    interaction: dict[str, Json] = {}
    if view.flow == BRAINSTORM:
        design = {
            BRAINSTORM: brainstorm_state(view, facts.scout),
            "designPath": facts.design_path or None,
            "designContent": facts.design_content or None,
        }
    else:
        # The open question, for a host that asks it through a model.
        question = next(iter(view.questions.values()), None)
        interaction = {"pendingInteraction": _question_json(question) if question else None}
    state: dict[str, Json] = {
        "phase": _phase(view),
        **design,
        "config": _config(view, facts.settings),
        "userDescription": view.request,
        "planPath": facts.plan_path or None,
        "planContent": facts.plan_content or None,
        "tasks": [_task(task) for task in view.tasks],
        "currentTaskIndex": next((i for i, task in enumerate(view.tasks) if task.state not in DONE), len(view.tasks)),
        "planReviewCycles": view.plan_revisions,
        "totalCostUsd": round(view.spent.usd, 6),
        "assumedCostUsd": round(view.spent.assumed_usd, 6),
        "unknownCosts": view.spent.unknown,
        "startedAt": round(view.started_at * 1000),
        **interaction,
        "error": (view.state_reason or view.state.value) if view.state in FAILED else None,
    }
    return json.dumps(state, indent=2, ensure_ascii=True) + "\n"


def _phase(view: View) -> str:
    if view.state.final:
        return "done"
    if view.phase is None:
        return BRAINSTORM if view.flow == BRAINSTORM else "plan-draft"
    if view.flow == BRAINSTORM and view.phase.id in STEPS:
        return BRAINSTORM
    return PHASES.get(view.phase.id, view.phase.id)


def _config(view: View, settings: Mapping[str, str]) -> dict[str, Json]:
    def word(name: str) -> str | None:
        return settings.get(name) or view.setting(name) or None

    return {
        "tddMode": "tdd",
        "reviewMode": word("review_mode"),
        "executionMode": word("execution_mode"),
        "batchSize": _number(word("batch_size")),
        "maxPlanReviewCycles": _number(word("max_plan_review_cycles")),
        "maxTaskReviewCycles": _number(word("max_task_review_cycles")),
    }


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _task(task: TaskView) -> dict[str, Json]:
    reviews: list[Json] = [
        {
            "reviewer": review.role,
            "passed": review.passed,
            "verdict": review.verdict,
            "summary": review.summary,
            "findings": [finding.to_json() for finding in review.findings],
        }
        for review in task.reviews.values()
    ]
    return {
        "id": task.id,
        "title": task.title,
        "description": task.description,
        "files": list(task.files),
        "status": task.state,
        "reviews": reviews,
        "fixAttempts": task.fixes,
        "gitShaBeforeImpl": task.base or None,
        "commit": task.landed or None,
        "error": task.reason or None,
        "costUsd": round(task.cost.usd, 6),
    }


def _question_json(question: QuestionView) -> dict[str, Json]:
    return {
        "id": question.id,
        "key": question.key,
        "type": "choice" if question.options else "input",
        "question": question.text,
        "options": [{"key": option.key, "label": option.label} for option in question.options],
        "default": question.default or None,
    }
