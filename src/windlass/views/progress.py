"""The progress file: a page that shows the state of a run to a person without Windlass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.model import RunState
from windlass.text import clean, clean_block, hhmm, plural, spoken, utc
from windlass.views.show import tdd_words, verdict_mark
from windlass.views.state import COMPLETE, ENDED, TaskView, View, phase_of

FINAL = {RunState.FINISHED: "Complete", RunState.ABORTED: "Aborted", RunState.STOPPED: "Stopped"}
SCOUT, QUESTIONS, APPROACHES, DESIGN = "scout", "questions", "approaches", "design"
MOST = 1_000_000
YES = frozenset({"yes", "approve", "accept", "ok"})


def render_progress(view: View, settings: Mapping[str, str] | None = None) -> str:
    """Contract: the same view gives the same text. The current time has no influence."""
    status, started = status_words(view), utc(view.started_at)
    sections = [
        [f"# Workflow: {clean(view.request, 200)}"],
        [f"**Status:** {status} | **Cost:** {view.cost.line} | **Started:** {started}"],
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


def status_words(view: View) -> str:
    if view.state is RunState.FINISHED and view.shortfall:
        return f"Finished in part, {view.shortfall}"
    if view.state in FINAL:
        return FINAL[view.state]
    if view.phase is None:
        doing = "Starting"
    elif view.phase.kind != "tasks":
        doing = spoken(clean(view.phase.name, 60))
    else:
        done = sum(task.ended for task in view.tasks)
        task = view.current_task
        number = task.index if task else min(done + 1, len(view.tasks))
        doing = f"Executing (task {number}/{len(view.tasks)})"
    return doing if view.state is RunState.RUNNING else f"{spoken(view.state)}: {doing}"


def _box(done: bool, text: str) -> str:
    return f"- [{'x' if done else ' '}] {text}"


def _brainstorm(view: View) -> list[str]:
    phases = {*view.outcomes, *([view.phase.id] if view.phase else [])}
    done = {phase for phase, end in view.outcomes.items() if end.outcome == "ok"}
    seen = {QUESTIONS, APPROACHES, DESIGN} & phases
    lines = [_box(SCOUT in view.artifacts, "Scout codebase")] if seen or SCOUT in phases else []
    if not seen:
        return lines
    # Only answers to the last proposal count, and no answers to other questions of the phase, as about an error.
    since = view.proposed[APPROACHES].since if APPROACHES in view.proposed else 0
    chosen = [
        answer.label or answer.answer
        for answer in view.answers[since:]
        if answer.id in ("approach", "own-approach") and phase_of(answer.key) == APPROACHES
    ]
    sections = view.proposed["sections"].items if "sections" in view.proposed else ()
    path = view.artifacts[DESIGN].path if DESIGN in view.artifacts else ""
    answered = plural(len(view.settled_answers("questions")), "question")
    approved = len(view.settled_answers("sections"))
    return [
        *lines,
        _box(QUESTIONS in done, f"Requirements ({answered} answered)"),
        _box(bool(chosen), f"Approach: {clean(chosen[-1])}" if chosen else "Approach"),
        _box(DESIGN in done, f"Design validated ({approved}/{len(sections)} sections)"),
        _box(bool(path), f"Design: {clean(path)}" if path else "Design"),
    ]


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
    line = f"{task.index}. {clean(task.title)}"
    marks = [f"{clean(role, 60).removesuffix('-reviewer')} {verdict_mark(one)}" for role, one in task.reviews.items()]
    if task.state in ENDED - {COMPLETE}:
        line += f" — {task.state}" + (f": {clean(task.reason)}" if task.reason else "")
    elif task.active:
        line += f" — {clean(task.step or task.state, 60)}..."
    elif marks:
        line += f" — {' '.join(marks)}"
    return _box(task.state == COMPLETE, line)
