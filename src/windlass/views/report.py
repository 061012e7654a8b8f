"""The report of a run as markdown: what it did, what it did not do, its cost, and where the code is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from windlass.errors import UserError, near
from windlass.model import RunState
from windlass.text import clean, clean_block, elapsed, plural, reckoned, short_sha, spoken
from windlass.views.outlook import diff_command, land_command, message_line
from windlass.views.show import evidence, finding_line, tdd_words
from windlass.views.stages import reason_text, restart_text
from windlass.views.state import (
    COMPLETE,
    ESCALATED,
    SKIPPED,
    UNCHANGED,
    Totals,
    View,
    publish_label,
)

#: characters of a report; no normal run comes near
MOST = 1_000_000
OUT = ("done", "already")
MARKS = {COMPLETE: "✅", SKIPPED: "⏭", ESCALATED: "⚠", "failed": "⚠"}


def render_report(view: View, template: str, *, now: float) -> str:
    """Contract: the same view and the same time give the same text."""
    if template not in TEMPLATES:
        raise UserError(f"there is no report template '{template}'", hint=near(template, TEMPLATES))
    sections = [lines for lines in TEMPLATES[template](view, now) if lines]
    return clean_block("\n\n".join("\n".join(lines) for lines in sections) + "\n", MOST)


def _plan(view: View, now: float) -> list[list[str]]:
    return [
        [f"# {title(view)}"],
        _request(view),
        _tasks(view),
        _stats(view, now),
        _proofs(view),
        *_judgement(view),
        *_decisions(view),
        _files(view),
        _where(view),
    ]


def _staged(view: View, now: float) -> list[list[str]]:
    return [
        [f"# {title(view)}"],
        _request(view),
        _stages(view),
        _section("Restarts", (f"- {clean(restart_text(one), 1000)}" for one in view.restarts)),
        *_publish_sections(view),
        _tasks(view),
        _stats(view, now),
        *_judgement(view),
        *_decisions(view),
        _files(view),
        _where(view),
    ]


def _stages(view: View) -> list[str]:
    """Each stage with its phases. The report itself is written in the last one."""
    lines = []
    for stage in view.stages.values():
        again = f", {plural(stage.restarts, 'restart')}" if stage.restarts else ""
        lines.append(f"- {clean(stage.id, 60)}: {stage.status}{again}")
        if stage.enabled:
            phases = (f"{clean(phase.id, 60)} {phase.status}" for phase in stage.phases)
            lines.append(f"  - {', '.join(phases)}")
    return _section("Stages", lines)


def _task(view: View, now: float) -> list[list[str]]:
    """A single task repeats the request, so the report lists it only if something went wrong."""
    troubled = any(task.state != COMPLETE for task in view.tasks)
    return [
        [f"# {title(view)}"],
        _request(view),
        _tasks(view) if troubled or len(view.tasks) > 1 else [],
        _stats(view, now),
        _proofs(view),
        *_judgement(view),
        *_decisions(view),
        _files(view),
        _where(view),
    ]


def _pull_request(view: View, now: float) -> list[list[str]]:
    return [
        [f"# {title(view)}"],
        *_publish_sections(view),
        _request(view),
        _tasks(view),
        _stats(view, now),
        *_judgement(view),
        *_decisions(view),
        _where(view),
    ]


def _failure(view: View, now: float) -> list[list[str]]:
    error: list[str] = []
    if view.outcomes:
        # The phase that failed is the one that ended last.
        phase, end = max(view.outcomes.items(), key=lambda one: one[1].at)
        detail = f": {clean(end.detail, 2000)}" if end.detail else ""
        error = [f"{spoken(clean(phase, 80))} {clean(end.outcome, 40)}{detail}"]
    return [
        ["# Workflow Failed"],
        _section("Error", error),
        *_publish_sections(view),
        _request(view),
        _tasks(view),
        _stats(view, now),
        *_decisions(view),
        _where(view),
        _section("What Next", ["Mend the cause, then:", "", f"    windlass retry {view.run}"]),
    ]


def _pull_request_body(view: View, now: float) -> list[list[str]]:
    """The text for a reviewer, without costs, machines and agents."""
    noted = (f"- {_note(one.finding.role, finding_line(one.finding))}" for one in view.noted.values())
    return [
        _section("Request", [clean(view.request, 2000)]),
        _tasks(view),
        _section("Checks", [_checks(view)]),
        _section("Accepted Issues", accepted_findings(view)),
        _section("Noted Findings", noted),
    ]


TEMPLATES: dict[str, Callable[[View, float], list[list[str]]]] = {
    "plan": _plan,
    "task": _task,
    "brainstorm": _plan,
    "staged": _staged,
    "pull-request": _pull_request,
    "failure": _failure,
    "pull-request-body": _pull_request_body,
}


def _publish_sections(view: View) -> list[list[str]]:
    """Links to the published parts, and commands to publish the others."""
    present = [done for done in view.publishing.values() if done.state in OUT]
    missing = [done for done in view.publishing.values() if done.state not in OUT]
    commands = dict.fromkeys(line for done in missing for line in done.commands)
    by_hand = ["", *(f"    {clean(line, 2000)}" for line in commands)] if commands else []
    links = (f"{publish_label(done.what)}: {clean(done.url or done.detail)}" for done in present)
    reasons = [f"{publish_label(done.what)}: {clean(done.detail, 1000)}" for done in missing]
    return [_section("Published", links), _section("Not Published", [*reasons, *by_hand])]


def title(view: View) -> str:
    match view.state:
        case RunState.ABORTED:
            return "Workflow Aborted"
        case RunState.STOPPED | RunState.BLOCKED:
            return "Workflow Stopped"
        case RunState.FINISHED:
            return _finish_title(view)
        case _:
            reporting = view.phase is not None and view.phase.kind == "report"
            all_ended = bool(view.tasks) and all(task.ended for task in view.tasks)
            return _finish_title(view) if reporting or all_ended else "Workflow In Progress"


def _finish_title(view: View) -> str:
    return f"Workflow Finished in Part: {view.shortfall}" if view.shortfall else "Workflow Complete"


def _section(name: str, lines: Iterable[str]) -> list[str]:
    """Empty without lines, so that no heading has an empty section."""
    body = list(lines)
    return [f"## {name}", *body] if body else []


def _request(view: View) -> list[str]:
    reason = [f"Reason: {clean(view.state_reason)}"] if view.state_reason else []
    return [clean(view.request, 1000), *reason] if view.request else reason


def _tasks(view: View) -> list[str]:
    lines = []
    for task in view.tasks:
        note = f" ({clean(task.state, 40)}" + (f": {clean(task.reason)})" if task.reason else ")")
        if task.state == COMPLETE:
            note = " (unchecked)" if task.checks in ("", "unchecked") else ""
        lines.append(f"- {MARKS.get(task.state, '○')} {clean(task.title)}{note}")
    return _section("Tasks", lines)


def _stats(view: View, now: float) -> list[str]:
    open_tasks = [task for task in view.tasks if not task.ended]
    counts = [f"- {len(view.tasks_in(state))} {word}" for state, word in COUNTED] if view.tasks else []
    failed = view.tasks_in("failed")
    end = view.ended_at or now
    paid = [task for task in view.tasks if task.cost.dispatches]
    return _section(
        "Stats",
        [
            *counts,
            *([f"- {len(failed)} failed"] if failed else []),
            *([f"- {len(open_tasks)} not finished"] if open_tasks else []),
            f"- Total cost: {view.cost.line}{reckoned(view.spent.prices)}",
            *_shares(view.by_role),
            *(["- Cost by phase:", *_shares(view.by_phase)] if view.by_phase else []),
            *(
                ["- Cost by task:", *_shares({f"{task.index}. {task.title}": task.cost for task in paid})]
                if paid
                else []
            ),
            f"- Elapsed: {elapsed(end - view.started_at)}",
            f"- Checks: {_checks(view)}",
            *([f"- TDD: {tdd}"] if (tdd := tdd_words(view)) else []),
        ],
    )


def _shares(costs: Mapping[str, Totals]) -> list[str]:
    return [f"  - {clean(name, 60)}: {cost.cost.text}" for name, cost in costs.items()]


COUNTED = ((COMPLETE, "completed"), (SKIPPED, "skipped"), (ESCALATED, "escalated"))


def _checks(view: View) -> str:
    done = view.tasks_in(COMPLETE)
    if not done:
        return "nothing landed" if not view.tip else "unchecked"
    bare = [task for task in done if task.checks in ("", "unchecked")]
    if not bare:
        return ", ".join(sorted({clean(task.checks, 60) for task in done}))
    return "unchecked" if len(bare) == len(done) else f"{plural(len(bare), 'task')} of {len(done)} unchecked"


def _proofs(view: View) -> list[str]:
    ran = [(task, task.proof) for task in view.tasks if task.proof and task.proof.command]
    lines = []
    for task, proof in ran:
        lines.append(f"- {clean(task.title)}: {clean(proof.proof, 40)}. {clean(proof.reason, 500)}")
        lines += [f"  - {clean(line, 1000)}" for line in evidence(proof)]
    commands = dict.fromkeys(proof.command for _, proof in ran if proof.trees)
    return _section("TDD", [*lines, *(f"- Run with: `{clean(command, 500)}`" for command in commands)])


def _judgement(view: View) -> list[list[str]]:
    final: list[str] = []
    for role, review in view.final_reviews.items():
        final.append(clean(review.summary, 2000) if review.summary else clean(f"{role}: {review.verdict}"))
        final += [f"- {_note('', finding_line(finding))}" for finding in review.findings]
    noted = (f"- {_note(one.finding.role, finding_line(one.finding))}" for one in view.noted.values())
    return [
        _section("Final Review", final),
        _section("Accepted Issues", accepted_findings(view)),
        _section("Noted Findings", noted),
    ]


def _note(role: str, line: str) -> str:
    return clean(f"{line} ({role})" if role else line, 500)


def accepted_findings(view: View) -> list[str]:
    """Findings of failed reviews, if the plan or the task was carried out in spite of them."""
    phases = [(spoken(id), reviews) for id, reviews in view.reviews.items() if id != view.final_phase]
    tasks = [(task.title, task.reviews) for task in view.tasks_in(COMPLETE)]
    return [
        f"- {clean(what)}: {_note(role, finding_line(finding))}"
        for what, reviews in (*(phases if view.executing else ()), *tasks)
        for role, review in reviews.items()
        if not review.passed
        for finding in review.findings
    ]


def _decisions(view: View) -> list[list[str]]:
    waived = (
        f"- {spoken(clean(one.phase, 80))}: {clean(reason_text(one.reason, one.by)) or 'skipped'}"
        + (f" (by {clean(one.by, 60)})" if one.by else "")
        for one in view.skipped
        if one.waived
    )
    decisions = (
        f"- {clean(one.id or one.key, 120)}: {clean(one.answer)} (by {clean(one.by, 60)})"
        + (f": {clean(one.comment)}" if one.comment else "")
        for one in view.answers
    )
    warnings = (f"- {clean(warning.text, 500)}" for warning in view.warnings)
    messages = (f"- {clean(message_line(message), 500)}" for message in view.messages)
    sections = [("Waivers", waived), ("Warnings", warnings), ("Decisions", decisions), ("Messages To Agents", messages)]
    return [_section(title, lines) for title, lines in sections]


def _files(view: View) -> list[str]:
    names = dict.fromkeys([*(name for task in view.tasks for name in task.changed), *view.fixed])
    # Backticks, because markdown reads `__main__.py` as emphasis.
    return _section("Changed Files", (f"- `{clean(name, 300)}`" for name in names))


def _where(view: View) -> list[str]:
    branch = view.published or view.branch
    if not branch or not view.tip:
        return []
    if not view.has_code:
        return _section("Where The Code Is", [UNCHANGED])
    return _section(
        "Where The Code Is",
        [
            (
                f"Branch `{clean(branch)}` at `{short_sha(clean(view.tip))}`."
                if not view.published or view.shown_at == view.tip
                else f"Commit `{short_sha(clean(view.tip))}`; branch `{clean(branch)}` could not be moved there."
            ),
            "",
            *([f"    {diff_command(view)}"] if diff_command(view) else []),
            f"    {land_command(view)}",
        ],
    )
