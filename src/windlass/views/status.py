"""The texts of `windlass status` and `windlass runs`. It imports no heavy package, so that both start fast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import asdict

from windlass.model import Json, RunState
from windlass.text import Page, elapsed, hhmm, reckoned, stamp, utc
from windlass.views.outlook import (
    add_repository,
    code_place,
    diff_command,
    headline,
    landed_line,
    message_line,
    outlook,
    running_line,
)
from windlass.views.stages import stage_line
from windlass.views.state import (
    COMPLETE,
    UNCHANGED,
    QuestionView,
    StageView,
    TaskView,
    Totals,
    View,
    publish_label,
)

NARROW = 72


def render_status(
    view: View, now: float, *, width: int = 80, driver_alive: bool | None = None, unicode: bool = True
) -> str:
    page = Page(width, unicode=unicode)
    page.field("Run", f"{view.run} ({view.flow})" if view.flow else view.run)
    page.field("Request", view.request)
    page.field("State", state_line(view, now, driver_alive))
    since = ""
    if view.phase and not view.state.final:
        since = f", since {hhmm(view.phase.since)} UTC ({elapsed(now - view.phase.since)})"
    if view.stages:
        page.field("Stages", stage_line(view))
    page.field("Phase", headline(view) + since)
    if view.tasks:
        page.field("Tasks", task_counts(view))
    page.field("Cost", cost_line(view))
    if view.spent.usd or view.spent.unknown:
        page.field("By phase", shares(view.by_phase))
        page.field("By role", shares(view.by_role))
    page.field("Elapsed", elapsed((view.ended_at or now) - view.started_at))
    if view.published or view.tip:
        page.field("Branch", branch_line(view))
    if view.landed:
        page.field("Landed", landed_line(view))
    for done in view.publishing.values():
        page.field(publish_label(done.what), done.url or f"{done.state}: {done.detail}")
    for running in view.running.values():
        page.field("Left over" if driver_alive is False else "At work", running_line(running, now))
    for message in view.messages:
        page.field("Told", message_line(message))
    _next_commands(page, view, now, driver_alive)
    return page.text()


def branch_line(view: View) -> str:
    if not view.has_code and not view.published:
        return UNCHANGED
    return code_place(view)


def _next_commands(page: Page, view: View, now: float, driver_alive: bool | None) -> None:
    ahead = outlook(view, now, driver_alive)
    for question in view.questions.values():
        page.field("Question", question_line(question, now))
    if view.warnings:
        more = f" (and {len(view.warnings) - 1} earlier)" if len(view.warnings) > 1 else ""
        page.field("Warning", view.warnings[-1].text + more)
    if ahead.waiting:
        page.field("Waits for", ahead.waiting)
    if view.hint:
        page.field("Hint", add_repository(view.hint, view.place))
    if view.state is RunState.FINISHED and diff_command(view):
        page.line("See:")
        page.command(diff_command(view))
    page.line("Next:")
    page.command(ahead.command)


def state_line(view: View, now: float, driver_alive: bool | None) -> str:
    lost = view.state is RunState.RUNNING and driver_alive is False
    word = "running, but no driver is alive" if lost else view.state.value
    reason = f": {view.state_reason}" if view.state_reason else ""
    if view.state is RunState.FINISHED and view.shortfall:
        word, reason = "finished in part", f": {view.shortfall}"
    at = view.updated_at if lost else view.state_since
    return f"{word}{reason}, since {utc(at)} ({elapsed(now - at)})"


def task_counts(view: View) -> str:
    counts = Counter(task.state for task in view.tasks)
    named = ", ".join(f"{count} {state}" for state, count in counts.items())
    unchecked = sum(task.checks == "unchecked" for task in view.tasks)
    return f"{counts[COMPLETE]}/{len(view.tasks)} done ({named})" + (f", {unchecked} unchecked" if unchecked else "")


def cost_line(view: View) -> str:
    limit = "" if view.limit_usd is not None else ", no limit"
    tokens = f", {view.spent.input + view.spent.output} tokens" if view.spent.input + view.spent.output else ""
    dispatches = "1 dispatch" if view.spent.dispatches == 1 else f"{view.spent.dispatches} dispatches"
    return f"{view.cost.line}{limit}{tokens}, {dispatches}{reckoned(view.spent.prices)}"


def shares(costs: Mapping[str, Totals]) -> str:
    return ", ".join(f"{name} {cost.cost.text}" for name, cost in costs.items())


def question_line(question: QuestionView, now: float) -> str:
    choices = "/".join(option.key for option in question.options)
    default = f", default {question.default}" if question.default else ""
    offered = f" [{choices}{default}]" if choices else (f" [{default[2:]}]" if default else "")
    return f"{question.text}{offered} {question.key}, asked {elapsed(now - question.since)} ago"


class RunSummary(NamedTuple):
    id: str
    flow: str
    state: str
    request: str
    started_at: float
    done: int
    total: int
    cost: Totals

    @classmethod
    def of(cls, view: View) -> RunSummary:
        done = len(view.tasks_in(COMPLETE))
        return cls(view.run, view.flow, view.state, view.request, view.started_at, done, len(view.tasks), view.spent)


def render_runs(rows: Sequence[RunSummary], *, width: int = 80, unicode: bool = True) -> str:
    if not rows:
        return "There are no runs here.\n"
    page = Page(width, unicode=unicode)
    table: list[tuple[str, ...]] = [("RUN", "STATE", "TASKS", "COST", "STARTED (UTC)", "REQUEST")]
    for row in rows:
        tasks = f"{row.done}/{row.total}" if row.total else "-"
        started = utc(row.started_at, "%Y-%m-%d %H:%M")
        table.append((row.id, row.state, tasks, row.cost.cost.text, started, row.request))
    # In a narrow window the request is more useful than the time.
    page.table(table if width >= NARROW else [(*cells[:4], cells[5]) for cells in table])
    return page.text()


def status_json(view: View, now: float | None = None, *, driver_alive: bool | None = None) -> dict[str, Json]:
    """Texts are as recorded. A caller that prints them must escape other characters than ASCII."""
    ahead = outlook(view, view.updated_at if now is None else now, driver_alive)
    return {
        "run": view.run,
        "request": view.request,
        "flow": view.flow,
        "base": view.base,
        "branch": view.published or view.branch,
        "branch_at": view.shown_at,
        "tip": view.tip,
        "landed": asdict(view.landed) if view.landed else None,
        "state": view.state.value,
        "active": not view.state.final,
        "in_part": view.state is RunState.FINISHED and bool(view.shortfall),
        "since": stamp(view.state_since),
        "reason": view.state_reason,
        "hint": add_repository(view.hint, view.place),
        "driver_alive": driver_alive,
        "phase": _json(view.phase),
        "stage": view.stage,
        "stages": [_stage_json(stage) for stage in view.stages.values()],
        "restarts": [_json(restart) for restart in view.restarts],
        "waivers": [_json(one) for one in view.skipped if one.waived],
        "step": view.step,
        "tasks": [task_json(task) for task in view.tasks],
        "current_task": view.current,
        "running": [_json(running) for running in view.running.values()],
        "questions": [_json(question) for question in view.questions.values()],
        "answers": [_json(answer) for answer in view.answers],
        "waits": [_json(wait) for wait in view.waits.values()],
        "cost": _json(view.spent),
        "cost_by_role": {role: _json(cost) for role, cost in view.by_role.items()},
        "cost_by_phase": {phase: _json(cost) for phase, cost in view.by_phase.items()},
        "limit_usd": view.limit_usd,
        "spent_usd": view.cost.spent,
        "known_usd": view.cost.known,
        "assumed_usd": view.cost.assumed,
        "assumed_dispatches": view.cost.unknown,
        "left_usd": view.cost.left,
        "warnings": [_json(warning) for warning in view.warnings],
        "messages": [_json(message) for message in view.messages],
        "artifacts": [_json(artifact) for artifact in view.artifacts.values()],
        "publishing": {what: asdict(done) for what, done in view.publishing.items()},
        "report": view.report_path,
        "started_at": view.started_at,
        "updated_at": view.updated_at,
        "ended_at": view.ended_at,
        "waiting_for": ahead.waiting,
        "next": ahead.command,
    }


def _stage_json(stage: StageView) -> dict[str, Json]:
    return {
        "id": stage.id,
        "enabled": stage.enabled,
        "status": stage.status,
        "restarts": stage.restarts,
        "reason": stage.reason,
        "phases": [_json(phase) for phase in stage.phases],
    }


def task_json(task: TaskView) -> dict[str, Json]:
    reviews: dict[str, Json] = {
        role: {"verdict": review.verdict, "cycle": review.cycle, "findings": [f.to_json() for f in review.findings]}
        for role, review in task.reviews.items()
    }
    return {
        "id": task.id,
        "index": task.index,
        "title": task.title,
        "state": task.state,
        "step": task.step,
        "group": task.group,
        "visit": task.visit,
        "reason": task.reason,
        "base": task.base,
        "landed": task.landed,
        "checks": task.checks,
        "proof": _json(task.proof),
        "files": list(task.changed or task.files),
        "cost": _json(task.cost),
        "reviews": reviews,
        "warnings": list(task.warnings),
    }


def _json(piece: object) -> Json:
    match piece:
        case None | bool() | int() | float() | str():
            return piece
        case tuple() if hasattr(piece, "_asdict"):
            return {name: _json(value) for name, value in piece._asdict().items()}
        case list() | tuple():
            return [_json(one) for one in piece]
        case Mapping():
            return {str(name): _json(value) for name, value in piece.items()}
        case _:
            return str(piece)
