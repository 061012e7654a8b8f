"""The progress file: a page that shows the state of a run to a person without Windlass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.model import RunState
from windlass.text import clean, clean_block, hhmm, plural, spoken, utc
from windlass.views.show import tdd_words, verdict_mark
from windlass.views.state import COMPLETE, ENDED, AnswerView, TaskView, View, phase_of

FINAL = {RunState.FINISHED: "Complete", RunState.ABORTED: "Aborted", RunState.STOPPED: "Stopped"}
SCOUT, QUESTIONS, APPROACHES, DESIGN = "scout", "questions", "approaches", "design"
MOST = 1_000_000
YES = frozenset({"yes", "approve", "accept", "ok"})


def render_progress(view: View, settings: Mapping[str, str] | None = None) -> str:
    """Contract: the same view gives the same text. The current time has no influence."""
    sections = [
        [f"# Workflow: {clean(view.request, 200)}"],
        [_summary(view)],
        _section("Brainstorm", _brainstorm(view)),
        _section("Plan", _plan(view)),
        _section("Config", _config(view, settings or {})),
        _section("Tasks", (_task(task) for task in view.tasks)),
        _section("Log", (f"- {hhmm(entry.at)} — {clean(entry.text, 200)}" for entry in view.log)),
    ]
    return clean_block("\n\n".join("\n".join(lines) for lines in sections if lines) + "\n", MOST)


def _section(name: str, lines: Iterable[str]) -> list[str]:
    body = list(lines)
    return [f"## {name}", *body] if body else []


def _summary(view: View) -> str:
    cost = view.cost.line
    return f"**Status:** {status_words(view)} | **Cost:** {cost} | **Started:** {utc(view.started_at)}"


def status_words(view: View) -> str:
    if view.state is RunState.FINISHED and view.shortfall:
        return f"Finished in part, {view.shortfall}"
    if view.state in FINAL:
        return FINAL[view.state]
    doing = _activity_text(view)
    return doing if view.state is RunState.RUNNING else f"{spoken(view.state)}: {doing}"


def _activity_text(view: View) -> str:
    if view.phase is None:
        return "Starting"
    if view.phase.kind != "tasks":
        return spoken(clean(view.phase.name, 60))
    done = sum(task.ended for task in view.tasks)
    task = view.current_task
    number = task.index if task else min(done + 1, len(view.tasks))
    return f"Executing (task {number}/{len(view.tasks)})"


def _box(done: bool, text: str) -> str:
    return f"- [{'x' if done else ' '}] {text}"


def _brainstorm(view: View) -> list[str]:
    seen = {QUESTIONS, APPROACHES, DESIGN} & _phases(view)
    lines = [_box(SCOUT in view.artifacts, "Scout codebase")] if seen or SCOUT in _phases(view) else []
    if not seen:
        return lines
    chosen = _answers(view, APPROACHES, "approach", "own-approach")
    sections = view.proposed["sections"].items if "sections" in view.proposed else ()
    path = view.artifacts[DESIGN].path if DESIGN in view.artifacts else ""
    answered = plural(len(view.settled_answers("questions")), "question")
    approved = len(view.settled_answers("sections"))
    return [
        *lines,
        _box(_done(view, QUESTIONS), f"Requirements ({answered} answered)"),
        _box(bool(chosen), f"Approach: {clean(chosen[-1].label or chosen[-1].answer)}" if chosen else "Approach"),
        _box(_done(view, DESIGN), f"Design validated ({approved}/{len(sections)} sections)"),
        _box(bool(path), f"Design: {clean(path)}" if path else "Design"),
    ]


def _done(view: View, phase: str) -> bool:
    return phase in view.outcomes and view.outcomes[phase].outcome == "ok"


def _phases(view: View) -> set[str]:
    return {*view.outcomes, *([view.phase.id] if view.phase else [])}


def _answers(view: View, item: str, *ids: str) -> list[AnswerView]:
    """Answers to the last proposal. Answers to other questions of the phase, as about an error, do not count."""
    since = view.proposed[item].since if item in view.proposed else 0
    return [answer for answer in view.answers[since:] if answer.id in ids and phase_of(answer.key) == item]


def _plan(view: View) -> list[str]:
    plan = view.artifacts.get("plan")
    if plan is None and not view.tasks:
        return []
    reviews = [
        _box(review.passed, f"{spoken(clean(role, 60).removesuffix('-reviewer'))} review: {verdict_mark(review)}")
        for phase, by_role in view.reviews.items()
        if phase != view.final_phase
        for role, review in by_role.items()
    ]
    path = f"Plan: {clean(plan.path)}" if plan and plan.path else "Plan"
    return [_box(plan is not None, path), *reviews, _box(view.setting("approve") in YES, "Approved by user")]


def _config(view: View, settings: Mapping[str, str]) -> list[str]:
    execution, review = (settings.get(name) or view.setting(name) for name in ("execution_mode", "review_mode"))
    if not execution and not review:
        return []
    tdd = tdd_words(view) or settings.get("tdd_mode", "enforced")
    return [f"- Execution: {clean(execution or 'auto')} | Review: {clean(review or 'iterative')} | TDD: {clean(tdd)}"]


def _task(task: TaskView) -> str:
    return _box(task.state == COMPLETE, f"{task.index}. {clean(task.title)}{_tail(task)}")


def _tail(task: TaskView) -> str:
    if task.state in ENDED - {COMPLETE}:
        return f" — {task.state}" + (f": {clean(task.reason)}" if task.reason else "")
    if task.active:
        return f" — {clean(task.step or task.state, 60)}..."
    marks = [f"{clean(role, 60).removesuffix('-reviewer')} {verdict_mark(one)}" for role, one in task.reviews.items()]
    return f" — {' '.join(marks)}" if marks else ""
