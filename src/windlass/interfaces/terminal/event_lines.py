"""The text of single lines: an event in, a line out."""

from __future__ import annotations

from collections.abc import Mapping

from windlass import events as e
from windlass.model import ErrorClass, Verdict
from windlass.text import clean, elapsed, money, plural, spoken
from windlass.views.show import finding_line, verdict_mark
from windlass.views.state import PASSED, ReviewView, ended_cost, finding_from

PAUSE_WORDS = {"paused": "Paused", "waiting": "Waiting for an answer"}
BAD_OUTCOMES = frozenset({
    "failed", "failed.test", "failed.source", "failed.unknown", "empty", "invalid", "exhausted", "blocking", "stopped",
    "hard_stop",
})  # fmt: skip
BY_ROLE = {
    "scout": "Scouting codebase",
    "swe-tester": "Running the tests",
    "explorer": "Exploring",
    "plan-merger": "Merging the proposals",
    "simplifier": "Simplifying",
    "test-analyst": "Analyzing the failures",
    "docs-writer": "Writing documentation",
}
ROLE_DONE = {
    "scout": "Scouted",
    "swe-tester": "Tests run",
    "explorer": "Explored",
    "plan-merger": "Merged",
    "simplifier": "Simplified",
    "test-analyst": "Analyzed",
    "docs-writer": "Documentation written",
}
BY_PURPOSE = {
    "draft": "Drafting",
    "revise": "Revising",
    "implement": "Implementing",
    "review-run": "Reviewing the whole run",
    "questions": "Generating questions",
    "approaches": "Proposing approaches",
    "sections": "Writing design",
    "revise-section": "Revising the section",
    "fix-run": "Fixing what the review found",
    "propose": "Proposing",
}
DONE = {
    "implement": "Implemented",
    "draft": "Drafted",
    "revise": "Revised",
    "fix": "Fixed",
    "fix-run": "Fixed",
    "propose": "Proposed",
    "questions": "Questions written",
    "approaches": "Approaches weighed",
    "sections": "Design written",
    "revise-section": "Section revised",
}
AGAIN = frozenset({ErrorClass.RATE_LIMITED.value, ErrorClass.OVERLOADED.value, ErrorClass.KILLED.value})
WORDS = {
    Verdict.PASS.value: "passed",
    Verdict.PASS_WITH_NOTES.value: "passed with notes",
    Verdict.FAIL.value: "failed",
    Verdict.NEEDS_DECISION.value: "needs a decision",
    Verdict.HARD_STOP.value: "says stop",
    Verdict.INCONCLUSIVE.value: "inconclusive (counts as no verdict)",
}


def review_name(role: str) -> str:
    """`spec-reviewer` -> `Spec review`."""
    return f"{spoken(role.removesuffix('-reviewer'))} review"


def is_review(purpose: str) -> bool:
    """Whether the dispatch is a review. A separate event has its verdict, so its end needs no line."""
    return purpose.startswith(("review", "rereview"))


def _activity_name(purpose: str) -> str:
    """`rereview-plan` -> `Reviewing plan again`."""
    if purpose in BY_PURPOSE or not is_review(purpose):
        return BY_PURPOSE.get(purpose) or spoken(purpose or "working")
    what = purpose.partition("review-")[2]
    again = " again" if purpose.startswith("rereview") else ""
    return f"Reviewing{f' {what}' if what else ''}{again}"


def start_line(event: e.DispatchStarted) -> str:
    who = f"{event.role} on {event.agent}" + (f" {event.model}" if event.model else "")
    tries = f", try {event.attempt}" if event.attempt > 1 else ""
    if event.purpose == "fix" and event.cycle:
        most = f"/{event.cycles}" if event.cycles else ""
        return f"↻ Fix attempt {event.cycle}{most}... ({who}{tries})"
    what = BY_ROLE.get(event.role) or _activity_name(event.purpose)
    plan = " plan" if event.role == "planner" else ""
    return f"{what}{plan}... ({who}{tries})"


def proposal_line(event: e.ItemsProposed) -> str:
    word = event.item.removesuffix("es" if event.item == "approaches" else "s")
    count = len(event.items)
    return f"{count} {event.item if count != 1 else word} proposed"


def end_line(event: e.DispatchFinished, purpose: str) -> str:
    what = ROLE_DONE.get(event.role) or DONE.get(purpose) or f"{event.role} done"
    cost = ended_cost(event).text
    return f"{what} ({elapsed(event.seconds)}, {cost})"


def failure(event: e.DispatchFinished) -> str:
    reason = f": {clean(event.reason, 400)}" if event.reason else ""
    ahead = "; Windlass will try again" if event.error in AGAIN else ""
    return f"{event.role} ({event.agent}) {event.error.replace('_', ' ')}{reason}{ahead} [{event.key}@{event.attempt}]"


def verdict(event: e.ReviewFinished) -> tuple[bool, str]:
    name = review_name(event.role)
    word = WORDS.get(event.verdict, event.verdict)
    if event.verdict in PASSED:
        notes = f", {plural(len(event.findings), 'note')}" if event.findings else ""
        return True, f"{name} {word}{notes}"
    cause = event.summary or (finding_from(event.findings[0], event.role).message if event.findings else "")
    if event.verdict == Verdict.FAIL and cause:
        return False, f"{name}: {clean(cause, 200)}"
    return False, f"{name} {word}" + (f": {clean(cause, 200)}" if cause else "")


def finding_lines(event: e.ReviewFinished, most: int = 8) -> list[str]:
    lines = [finding_line(finding_from(raw, event.role)) for raw in event.findings[:most]]
    left = len(event.findings) - most
    return [*lines, f"and {left} more"] if left > 0 else lines


def verdicts(by_role: Mapping[str, ReviewView]) -> str:
    return ", ".join(f"{role} {verdict_mark(review)}" for role, review in by_role.items())


def activity(event: e.Activity) -> str:
    text = clean(event.text, 300)
    if event.kind == "tool.updated":
        # A tool's last output line is replaced by the next one, which plain lines cannot do.
        return ""
    if event.kind == "tool.finished":
        return f"{'✓' if event.ok else '✗'} {text}" if text else ""
    if event.kind == "usage" and not text and event.cost_usd is not None:
        return f"· {money(event.cost_usd)} so far"
    return f"· {text}" if text else ""
