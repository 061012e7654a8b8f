"""The text of `windlass show`: the whole run, task by task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windlass.model import Finding, RunState
from windlass.text import Page, clean, elapsed, reckoned, short_sha, spoken, utc
from windlass.views.outlook import code_place, diff_command, headline, landed_line, outlook, program, shell_word
from windlass.views.stages import reason_text, restart_text, stage_line
from windlass.views.state import COMPLETE, ProofView, ReviewView, TaskView, View

MARKS = {COMPLETE: "✓", "skipped": "–", "escalated": "✗", "failed": "✗", "pending": "○"}


def mark(task: TaskView) -> str:
    return MARKS.get(task.state, "▸")


def tdd_words(view: View) -> str:
    """The number of tasks for each verdict of the TDD proof; '' while no task has one."""
    counts = Counter(task.proof.proof for task in view.tasks_in(COMPLETE) if task.proof)
    if set(counts) == {"unchecked"}:
        return "unchecked (`tests.run_files` is not configured)"
    return ", ".join(f"{number} {clean(name, 40)}" for name, number in counts.items())


def verdict_mark(review: ReviewView) -> str:
    return "✓" if review.passed else "✗"


TREES = {"b": "base", "h": "head", "o": "without the code", "w": "with the old tests", "x": "hollow"}
SHOWN_TESTS = 5


def evidence(proof: ProofView) -> list[str]:
    """The compared trees and the decisive tests, so that a person can repeat the proof."""
    if not proof.trees:
        return []
    trees = ", ".join(f"{TREES[name]} {short_sha(sha)}" for name, sha in proof.trees.items() if name in TREES)
    lines = [f"trees: {trees}"]
    for name, ids in proof.tests.items():
        more = f" and {len(ids) - SHOWN_TESTS} more" if len(ids) > SHOWN_TESTS else ""
        lines.append(f"{name}: {', '.join(ids[:SHOWN_TESTS])}{more}")
    return lines


def finding_line(finding: Finding) -> str:
    line = f":{finding.line}" if finding.line is not None else ""
    where = f"{finding.file}{line} " if finding.file else ""
    return f"{finding.severity.word}: {where}{finding.message}"


def render_show(
    view: View,
    now: float,
    *,
    width: int = 80,
    driver_alive: bool | None = None,
    unicode: bool = True,
    work: Sequence[tuple[str, str, str]] = (),
) -> str:
    """`work`: task, ref and commit of the work that has not landed."""
    page = Page(width, unicode=unicode)
    page.line(f"{view.run}: {view.request}")
    page.field("Flow", view.flow)
    page.field("State", view.state.value + (f": {view.state_reason}" if view.state_reason else ""))
    if view.stages:
        page.field("Stages", stage_line(view))
    page.field("Phase", headline(view))
    page.field("Started", utc(view.started_at))
    page.field("Elapsed", elapsed((view.ended_at or now) - view.started_at))
    for artifact in view.artifacts.values():
        if artifact.path:
            page.field(spoken(artifact.name), artifact.path)
    if view.tasks:
        page.line()
        page.line("Tasks")
    for task in view.tasks:
        _task(page, task)
    if view.restarts:
        page.line()
        page.line("Restarts")
    for restart in view.restarts:
        page.line(f"- {restart_text(restart)}", indent=2)
    waived = [one for one in view.skipped if one.waived]
    if waived:
        page.line()
        page.line("Waivers")
    for one in waived:
        page.line(f"- {one.phase}: {reason_text(one.reason, one.by) or 'skipped'} (by {one.by})", indent=2)
    _reviews_and_decisions(page, view)
    if work:
        _unlanded_work(page, view, work)
    page.line()
    page.field("Cost", view.cost.line + reckoned(view.spent.prices))
    phases = {f"phase {name}": cost for name, cost in view.by_phase.items()}
    for name, cost in {**view.by_role, **phases}.items():
        page.line(f"{name}: {cost.cost.text} in {cost.dispatches}", indent=2)
    _code_and_command(page, view, outlook(view, now, driver_alive).command)
    return page.text()


def _task(page: Page, task: TaskView) -> None:
    visit = f", visit {task.visit}" if task.visit > 1 else ""
    cost = f", {task.cost.cost.text}" if task.cost.dispatches else ""
    page.line(f"{mark(task)} {task.index}. {task.title} ({task.state}{visit}{cost})", indent=2, hang=5)
    if task.reason:
        page.line(f"reason: {task.reason}", indent=7)
    if task.reviews:
        page.line(" ".join(f"{role} {verdict_mark(review)}" for role, review in task.reviews.items()), indent=7)
    for review in task.reviews.values():
        for finding in review.findings:
            page.line(f"- {finding_line(finding)}", indent=7, limit=300)
    if task.proof:
        page.line(f"TDD {task.proof.proof}: {task.proof.reason}", indent=7, limit=600)
        for line in (f"run with: {task.proof.command}", *evidence(task.proof)) if task.proof.trees else ():
            page.line(f"- {line}", indent=7, limit=400)
    if task.landed:
        page.line(f"landed as {short_sha(task.landed)}, checks: {task.checks or 'unchecked'}", indent=7)


def _reviews_and_decisions(page: Page, view: View) -> None:
    for phase, by_role in view.reviews.items():
        page.line()
        page.line(f"{spoken(phase)}: " + ", ".join(f"{r.role} {verdict_mark(r)}" for r in by_role.values()))
        for review in by_role.values():
            if review.summary:
                page.line(review.summary, indent=2)
            for finding in review.findings:
                page.line(f"- {finding_line(finding)}", indent=2, limit=300)
    if view.noted:
        page.line()
        page.line("Noted, not fixed")
    for noted in view.noted.values():
        page.line(f"- {finding_line(noted.finding)}", indent=2, limit=300)
    if view.warnings:
        page.line()
        page.line("Warnings")
    for warning in view.warnings:
        page.line(f"- {warning.text}", indent=2)
    if view.answers:
        page.line()
        page.line("Decisions")
    for answer in view.answers:
        comment = f": {answer.comment}" if answer.comment else ""
        page.line(f"- {answer.id or answer.key}: {answer.answer} (by {answer.by}){comment}", indent=2)


def _unlanded_work(page: Page, view: View, work: Sequence[tuple[str, str, str]]) -> None:
    """Commits of refused, skipped and failed tasks, which Windlass keeps."""
    page.line()
    page.line("Work that has not landed")
    for task, ref, commit in work:
        page.line(f"- {task}: {short_sha(commit)}", indent=2)
        page.command(ref, indent=6)
    run, first = shell_word(view.run), shell_word(work[0][0])
    page.line("See it, and put it on a branch:", indent=2)
    page.command(f"{program(view.place)} show {run} --diff {first}", indent=4)
    page.command(f"{program(view.place)} take {run} {first}", indent=4)


def _code_and_command(page: Page, view: View, command: str) -> None:
    page.line()
    if view.published or view.branch:
        page.field("Branch", code_place(view) if view.tip else view.published or view.branch)
    if view.landed:
        page.field("Landed", landed_line(view))
    if diff_command(view):
        page.line("See the changes:")
        page.command(diff_command(view))
    page.line("Take them:" if view.state is RunState.FINISHED and view.has_code and not view.is_landed else "Next:")
    page.command(command)
