"""review: reviewers judge, a fixer repairs, the loop ends with a pass or at its cap.

Role, file and message identify a finding. A re-review gets the fix and the open findings, not everything again. The
loop ends on a pass, at the cap, or when a cycle closes no finding.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from windlass.conversion import Path
from windlass.events import ReviewFinished, Warned
from windlass.kinds.base import NOBODY_REVIEWED, Call, Context, Kind, Outcome, Reply
from windlass.kinds.calls import ensure_check, format_finding, gather_replies, make_call, record_label
from windlass.kinds.spec import CallSpec, Count, FlowView, PhaseSpec, Reference, comma_list, fixer_text, words_of
from windlass.kinds.visit_cost import Sizes, VisitCost, holds
from windlass.model import Choice, Finding, Json, Question, Severity, Task, Verdict, content_id

NEVER = Severity.CRITICAL + 1
PASSES = (Verdict.PASS, Verdict.PASS_WITH_NOTES)
USER = "user"
MODES = ("iterative", "single-pass")
MOST_FIXES = 10
"""Dispatches of a fixer with `per: finding` in one round."""
MOST_NAMED = 10
"""Findings in the reason of an outcome. A question can show all of them."""
STATUS = {
    Verdict.PASS: "approved",
    Verdict.PASS_WITH_NOTES: "approved",
    Verdict.FAIL: "needs_revision",
    Verdict.HARD_STOP: "blocked",
    Verdict.NEEDS_DECISION: "needs_decision",
}
"""The status in the artifact of a review."""
DROPPED = "dropped-tasks"
"""The question about tasks that a revision of a plan left out."""


class ReviewSpec(PhaseSpec, frozen=True, kw_only=True, tag="review"):
    OUTCOMES: ClassVar[tuple[str, ...]] = (
        "pass",
        "noted",
        "blocking",
        "exhausted",
        "inconclusive",
        "hard_stop",
        "needs_decision",
    )
    HAS_FINDINGS: ClassVar[bool] = True
    ANNOUNCES_ITSELF: ClassVar[bool] = True

    of: str
    """The artifact to judge."""
    subject: str = ""
    """What the reviewers are told that they judge, as `tests`."""
    contract: str = ""
    """The contract of the reviewers' answers. It replaces the contract in the role's file."""
    blocks: Literal["status", "findings"] = "status"
    """What blocks: findings at or above the threshold of a review that did not pass, or of any review."""
    out: str = ""
    """The artifact for the result. A review without a verdict has none."""
    scope: Literal["task", "run"] = "task"
    """The scope of `changes`: the task, or the whole run."""
    reviewers: tuple[CallSpec, ...]
    """The roles that judge; optional ones may be missing."""
    order: Literal["sequence", "parallel"] = "sequence"
    """One after the other, or at the same time."""
    fixer: CallSpec | None = None
    """The role that repairs blocking findings before the next review."""
    mode: str = "iterative"
    """iterative | single-pass | $setting"""
    max: Count = 3
    """How often the fixer may try."""
    threshold: str = ""
    """Findings below it are only noted: low | medium | high | critical | $setting. Default: everything blocks in an
    iterative review, nothing in a single pass."""
    feedback: str = ""
    """A question; its comment becomes a finding of the next visit."""
    completes: str = ""
    """A tasks phase without a review of each task: a pass of this review completes its tasks."""

    def artifacts_in(self) -> set[str]:
        calls = [*self.reviewers, *([self.fixer] if self.fixer else [])]
        return {self.of} | {name for call in calls for name in call.ins}

    def artifacts_out(self) -> set[str]:
        return (set(self.fixer.out) if self.fixer else set()) | ({self.out} if self.out else set())

    def roles(self) -> set[str]:
        calls = [*self.reviewers, *([self.fixer] if self.fixer else [])]
        names = {name for call in calls for name in (call.role, call.profile, call.otherwise)}
        return {name for name in names if name and not name.startswith("$")}

    def parts(self) -> set[tuple[str, str]]:
        calls = [*self.reviewers, *([self.fixer] if self.fixer else [])]
        return {(call.role, call.profile) for call in calls} | {(c.otherwise, "") for c in calls if c.otherwise}

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """`blocking` when the mode can be single-pass with a threshold, `exhausted` when it can be iterative."""
        modes = words_of(flow, self.mode)
        blocking = ("blocking",) if "single-pass" in modes and self.threshold else ()
        exhausted = ("exhausted",) if "iterative" in modes else ()
        return ("pass", "noted", *blocking, *exhausted, "inconclusive")

    def optional_outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """Outcomes of the reviewer's contract. Unrouted, they never pass."""
        return ("hard_stop", "needs_decision")

    def agent_calls(self) -> Iterator[tuple[Path, CallSpec]]:
        yield from ((("reviewers", index), call) for index, call in enumerate(self.reviewers))
        if self.fixer:
            yield ("fixer",), self.fixer

    def references(self) -> Iterator[Reference]:
        yield from super().references()
        yield Reference("artifact", ("of",), self.of)
        if self.out:
            yield Reference("output", ("out",), self.out)
        if self.feedback:
            yield Reference("question", ("feedback",), self.feedback)
        if self.completes:
            yield Reference("tasks phase", ("completes",), self.completes)

    def word_fields(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "mode", MODES
        yield "threshold", ("", *(one.word for one in Severity))

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if not self.reviewers:
            yield "there are no reviewers"
        if self.fixer is None and "iterative" in words_of(flow, self.mode):
            yield "an iterative review needs a fixer; without one say `mode: single-pass`"

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        fewest, most = sizes.count(self.reviewers)
        cycles = sizes.number(self.max) if self.fixer and "iterative" in sizes.words(self.mode) else 0
        fixes = MOST_FIXES if self.fixer and self.fixer.per == "finding" else 1
        return VisitCost(fewest, most * (cycles + 1) + cycles * fixes)

    def summary(self) -> str:
        by = comma_list(call.role for call in self.reviewers)[1:]
        return f"  {self.of} by{by}{fixer_text(self.fixer, self.max)}"

    def can_fix(self) -> bool:
        return self.fixer is not None

    def judges_changes(self) -> bool:
        return self.of == "changes"

    def completes_tasks_of(self) -> str:
        return self.completes

    def answer_names(self) -> set[str]:
        return {DROPPED} if self.fixer and self.of in self.fixer.out else set()


class Round(Struct, frozen=True):
    """The joined verdicts of one cycle."""

    verdict: Verdict
    blocking: tuple[Finding, ...] = ()
    noted: tuple[Finding, ...] = ()
    summary: str = ""
    cycle: int = 1


async def run(spec: ReviewSpec, ctx: Context) -> Outcome:
    if spec.scope == "task":
        return await _run(spec, ctx)
    async with ctx.whole_run() as whole:
        return await _run(spec, whole)


async def _report(spec: ReviewSpec, ctx: Context, round: Round, outcome: Outcome) -> Outcome:
    """Put the result in force as an artifact. Without a verdict there is none, and an older one does not count."""
    if not spec.out:
        return outcome
    if round.verdict is Verdict.INCONCLUSIVE:
        ctx.withdraw(spec.out, f"{spec.id} gave no verdict")
        return outcome
    # The final review of the staged flow knows no `needs_revision`: it approves, and lists what is still to fix.
    words = {**STATUS, Verdict.FAIL: STATUS[Verdict.PASS]} if spec.blocks == "findings" else STATUS
    result: dict[str, Json] = {
        "status": words[round.verdict],
        "outcome": outcome.name,
        "issues": [finding.to_json() for finding in (*round.blocking, *round.noted)],
        "blocking": len(round.blocking),
        "summary": round.summary,
        "reviews": round.cycle,
    }
    await ctx.make(spec.out, json.dumps(result, indent=2, ensure_ascii=False) + "\n", id="result")
    return outcome


async def _run(spec: ReviewSpec, ctx: Context) -> Outcome:
    available = [r for r in spec.reviewers if not r.optional or ctx.values.has_role(r.role)]
    reviewers = [r for r in available if holds(r.when, ctx.values.fact)]
    requests = ctx.place.to_fix if spec.fixer and ctx.place.to_fix else _wish(spec, ctx)
    if requests:
        failed = await _fix(spec, ctx, requests, 0, int(ctx.values.setting(spec.max)))
        if failed:
            return failed
        # When the checks refuse a fix for the whole run, the findings stay open.
        refusal = await ctx.land_fix(ctx.place.id("land")) if spec.scope == "run" else ""
        if refusal:
            why = Finding(f"the fix was not taken: {refusal}", Severity.HIGH, role="windlass")
            return Outcome("noted", why.message, (why, *requests))
    if not reviewers:
        # Reviewers are optional where only critical findings count. Elsewhere their absence is a warning.
        if ctx.place.task and not spec.threshold:
            roles = ", ".join(reviewer.role for reviewer in spec.reviewers)
            text = f"'{ctx.place.task.title}' continues without its {spec.id} review: no agent plays {roles}"
            ctx.emit(Warned("unreviewed", text, ctx.place.key.text, ctx.place.task.id), at=f"{ctx.place.id()}.nobody")
        return Outcome("pass", NOBODY_REVIEWED)
    return await _cycles(spec, ctx, reviewers)


async def _cycles(spec: ReviewSpec, ctx: Context, reviewers: Sequence[CallSpec]) -> Outcome:
    iterative = ctx.values.setting(spec.mode) == "iterative" and spec.fixer is not None
    cap = int(ctx.values.setting(spec.max)) if iterative else 0
    since = ctx.place.since
    open_findings: tuple[Finding, ...] = ()
    if since:
        # A change after the review has the reviewers judge the task again.
        text = f"It was changed after your review ({ctx.place.why}): does it still meet the requirements?"
        open_findings = (Finding(text, Severity.MEDIUM, role="windlass"),)
    round, refused = Round(Verdict.INCONCLUSIVE), ""
    for cycle in range(1, cap + 2):
        stuck = False
        if not refused:
            # After a refused fix the code is the same, so only the fixer tries again.
            round = await _review(spec, ctx, reviewers, cycle, cap, open_findings, since)
            if not (iterative and round.blocking) or round.verdict is Verdict.HARD_STOP:
                return await _report(spec, ctx, round, _outcome(round))
            stuck = cycle > 1 and {f.identity for f in open_findings} <= {f.identity for f in round.blocking}
            open_findings, since = round.blocking, ctx.place.head
        if cycle > cap or stuck:
            why = "the last fix closed no finding" if stuck else f"no more than {cap} fixes"
            why = f"the last fix was not taken: {refused}" if refused else why
            return await _report(spec, ctx, round, _exhausted(round, cycle, why))
        failed = await _fix(spec, ctx, open_findings, cycle, cap, refused)
        if failed:
            return await _report(spec, ctx, round, failed)
        if spec.scope == "run" and spec.of == "changes":
            refused = await ctx.land_fix(ctx.place.id("land"), cycle=cycle)
    raise AssertionError("the last cycle returns")


def _exhausted(round: Round, cycle: int, why: str) -> Outcome:
    tried = f"{cycle} attempts" if cycle > 1 else "1 attempt"
    text = f"{_words(round.blocking)} (failed after {tried}: {why})"
    found = "\n".join(format_finding(finding) for finding in round.blocking)
    return Outcome("exhausted", text, round.blocking, evidence=f"A review found:\n{found}\n\n({why})")


# -- one cycle


async def _review(
    spec: ReviewSpec,
    ctx: Context,
    reviewers: Sequence[CallSpec],
    cycle: int,
    cap: int,
    open_findings: tuple[Finding, ...],
    since: str,
) -> Round:
    record_label(ctx, spec.label.enter, f"{ctx.place.id()}#{cycle}")
    jobs = [_call(spec, ctx, r, cap, open_findings, since) for r in reviewers]
    alone = len(reviewers) == 1 and ctx.place.task
    ids = [ctx.place.id() if alone else ctx.place.id(r.role) for r in reviewers]
    calls = [ctx.dispatch(id, job, cycle=cycle) for id, job in zip(ids, jobs, strict=True)]
    replies = await gather_replies(calls) if spec.order == "parallel" else [await call for call in calls]
    rounds = [_judge(spec, ctx, r.role, reply) for r, reply in zip(reviewers, replies, strict=True)]
    for reviewer, round in zip(reviewers, rounds, strict=True):
        id, task = ctx.place.id(reviewer.role), ctx.place.task.id if ctx.place.task else ""
        findings: list[Json] = [f.to_json() for f in round.blocking + round.noted]
        ctx.emit(
            ReviewFinished(
                f"{ctx.place.key}/{id}", reviewer.role, round.verdict.value, findings, round.summary, task, cycle
            ),
            at=f"{id}#{cycle}",
        )
    order = (Verdict.HARD_STOP, Verdict.NEEDS_DECISION, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS_WITH_NOTES)
    verdicts = {round.verdict for round in rounds}
    return Round(
        next((verdict for verdict in order if verdict in verdicts), Verdict.PASS),
        tuple(f for round in rounds for f in round.blocking),
        tuple(f for round in rounds for f in round.noted),
        " ".join(round.summary for round in rounds if round.summary),
        cycle,
    )


def _call(
    spec: ReviewSpec, ctx: Context, reviewer: CallSpec, cap: int, open_findings: tuple[Finding, ...], since: str
) -> Call:
    again = "re" if open_findings else ""
    kind = "-run" if spec.scope == "run" else "" if spec.of == "changes" else f"-{spec.of}"
    content = ctx.values.artifact(spec.of)
    # A replay compares the judged content.
    judged: dict[str, Json] = {"tree": ctx.place.tree} if spec.of == "changes" else {spec.of: content_id(content or "")}
    call = make_call(ctx, reviewer, f"{again}review{kind}", inputs=judged, findings=open_findings)
    told: dict[str, Json] = {"subject": spec.subject, "criteria": ctx.values.criteria(reviewer.criteria)}
    context = {**call.context, **told, **({spec.of: content} if content else {})}
    # The least severity that a pass cannot contain: the flow's threshold, otherwise the one in the role files.
    fits = _consistency_check(Severity.of(ctx.values.setting(spec.threshold)) if spec.threshold else Severity.MEDIUM)
    fits = fits if spec.blocks == "status" else call.fits
    since = since if spec.of == "changes" else ""
    return replace(call, cycles=cap, since=since, context=context, fits=fits, contract=spec.contract)


def _consistency_check(least: Severity) -> Callable[[Json], str]:
    """For `Call.fits`: refuses a pass with a finding that should fail it. Such a verdict contradicts itself."""

    def fits(data: Json) -> str:
        if not isinstance(data, dict) or data.get("verdict") not in [verdict.value for verdict in PASSES]:
            return ""
        worst = [f for f in _findings(data.get("findings"), "") if f.severity >= least]
        if not worst:
            return ""
        example = f"[{worst[0].severity.word}] {worst[0].message[:200]}"
        return f"the status passes it, but a finding is {least.word} or worse: {example}; a finding like that fails it"

    return fits


def _judge(spec: ReviewSpec, ctx: Context, role: str, reply: Reply) -> Round:
    if not reply.ok or not isinstance(reply.data, dict):
        return Round(Verdict.INCONCLUSIVE, summary=f"{role}: {reply.reason or 'gave no verdict'}")
    verdict = Verdict(str(reply.data["verdict"]))
    items = reply.data.get("findings")
    findings = _findings(items, role)
    summary = str(reply.data.get("summary") or "")
    if verdict is not Verdict.PASS and not findings and verdict is not Verdict.INCONCLUSIVE:
        findings = [Finding(summary or f"{role} did not pass it and did not say why", Severity.MEDIUM, role=role)]
    if verdict in PASSES and spec.threshold and any(f.severity is Severity.CRITICAL for f in findings):
        # An older version recorded such an answer. Today the agent is asked again.
        verdict = Verdict.FAIL
    if spec.threshold:
        least: int = Severity.of(ctx.values.setting(spec.threshold))
    else:
        least = Severity.LOW if ctx.values.setting(spec.mode) == "iterative" else NEVER
    if verdict in PASSES and spec.blocks == "findings" and any(f.severity >= least for f in findings):
        verdict = Verdict.FAIL
    if verdict not in (Verdict.FAIL, Verdict.HARD_STOP):
        return Round(verdict, noted=tuple(findings), summary=summary)
    blocking = tuple(f for f in findings if f.severity >= least)
    return Round(verdict, blocking, tuple(f for f in findings if f.severity < least), summary)


def _findings(items: Json, role: str) -> list[Finding]:
    if not isinstance(items, list):
        return []
    return [Finding.from_json(item).by(role) for item in items if isinstance(item, dict)]


def _outcome(round: Round) -> Outcome:
    findings = round.blocking + round.noted
    words = _words(findings) or round.summary
    if round.verdict is Verdict.HARD_STOP:
        return Outcome("hard_stop", words, findings)
    if round.verdict is Verdict.NEEDS_DECISION:
        return Outcome("needs_decision", words, findings)
    if round.blocking:
        return Outcome("blocking", words, findings)
    if round.verdict is Verdict.INCONCLUSIVE:
        return Outcome("inconclusive", round.summary)
    if round.verdict is Verdict.PASS:
        return Outcome("pass", round.summary, findings)
    return Outcome("noted", words, findings)


# -- the fixer


async def _fix(
    spec: ReviewSpec, ctx: Context, findings: tuple[Finding, ...], cycle: int, cap: int, refused: str = ""
) -> Outcome | None:
    """None: fixed, judge it again. `refused`: why the fix before did not land."""
    record_label(ctx, spec.label.fix, f"{ctx.place.id('fix')}#{cycle}")
    before = _tasks_of(spec, ctx)
    name, number = (ctx.place.id("fix"), cycle) if cycle else (ctx.place.id("wish"), None)
    assert spec.fixer is not None
    if spec.fixer.per != "finding":
        failed = await _revise(spec, ctx, findings, name, number, cap, refused)
        return failed or await _settle_drops(spec, ctx, findings, before, cycle, cap)
    for nth, share in enumerate(share_findings(findings), 1):
        failed = await _revise(spec, ctx, share, f"{name}.{nth}", number, cap, refused)
        if failed:
            return failed
    return None


def share_findings(findings: Sequence[Finding]) -> list[tuple[Finding, ...]]:
    """The findings of each fix: one, or as many as it takes for `MOST_FIXES`. Those of a file stay together."""
    count = min(len(findings), MOST_FIXES)
    if count == len(findings):
        return [(finding,) for finding in findings]
    ordered = sorted(findings, key=lambda finding: finding.file)
    ends = [len(ordered) * nth // count for nth in range(count + 1)]
    return [tuple(ordered[begin:end]) for begin, end in itertools.pairwise(ends)]


async def _revise(
    spec: ReviewSpec,
    ctx: Context,
    findings: tuple[Finding, ...],
    name: str,
    cycle: int | None,
    cap: int,
    refused: str = "",
) -> Outcome | None:
    assert spec.fixer is not None
    purpose = "revise" if spec.of != "changes" else "fix-run" if spec.scope == "run" else "fix"
    # In the prompt, not compared: the findings and the task are the inputs of a fix.
    content = ctx.values.artifact(spec.of)
    context: dict[str, Json] = {"review_type": spec.id, **({spec.of: content} if content else {})}
    inputs: dict[str, Json] = {"checks_output": refused} if refused else {}
    call = make_call(ctx, spec.fixer, purpose, inputs=inputs, findings=findings, context=context)
    was_plan, form = bool(_tasks_of(spec, ctx)), ensure_check(ctx)

    def accept(outs: Mapping[str, str]) -> str:
        """A revised plan can still be carried out, and keeps the `ensure` rules of the flow."""
        problem = ctx.values.parse_plan(spec.of, outs.get(spec.of, "")).problem if was_plan else ""
        return f"the revised plan cannot be carried out: {problem}" if problem else form(outs)

    call = replace(call, cycles=cap, label=spec.label.fix, accept=accept)
    reply = await ctx.dispatch(name, call, cycle=cycle)
    if reply.ok:
        return None
    return Outcome("inconclusive", f"{spec.fixer.role} could not mend it: {reply.reason}", findings)


def _tasks_of(spec: ReviewSpec, ctx: Context) -> tuple[Task, ...]:
    """The tasks of the plan that the fixer revises; empty for anything else."""
    return ctx.values.plan(spec.of).tasks if spec.fixer and spec.of in spec.fixer.out else ()


async def _settle_drops(
    spec: ReviewSpec, ctx: Context, findings: tuple[Finding, ...], before: tuple[Task, ...], cycle: int, cap: int
) -> Outcome | None:
    """A revision may drop a task that a finding is about. A person decides about any other dropped task."""
    for nth in itertools.count(1):
        lost = dropped_tasks(before, _tasks_of(spec, ctx), findings)
        if not lost:
            return None
        name = "dropped" if nth == 1 else f"dropped.{nth}"
        answer = await ctx.ask(_drop_question(lost, findings), id=name, cycle=cycle)
        if answer.value == "accept":
            return None
        titles = "; ".join(task.title for task in lost)
        own = f" {answer.comment}" if answer.comment else ""
        wish = Finding(f"Put these tasks back into the plan as they were: {titles}.{own}", Severity.HIGH, role=USER)
        name = "restore" if nth == 1 else f"restore.{nth}"
        failed = await _revise(spec, ctx, (wish, *findings), ctx.place.id(name), cycle, cap)
        if failed:
            return failed
    raise AssertionError("a person answers each time")


def _drop_question(lost: Sequence[Task], findings: Sequence[Finding]) -> Question:
    titles = ", ".join(f"'{task.title}'" for task in lost)
    findings_text = "\n".join(format_finding(finding) for finding in findings)
    return Question(
        id=DROPPED,
        title="Dropped tasks",
        text=f"The revised plan drops {titles}, which no finding is about. Is that right?",
        options=(
            Choice("accept", "Yes", "go on with the revised plan"),
            Choice("restore", "No", "have them put back"),
        ),
        detail=f"The findings that the plan was revised for:\n{findings_text}",
        comment="optional",
        back=("restore",),
    )


_NUMBERS = re.compile(r"(?:\btasks?|#)\s*((?:#?\d+(?:\s*(?:,|;|/|&|and|or|to|through|-|–)\s*)*)+)")
_RANGE = re.compile(r"(\d+)(?:\s*(?:-|–|to|through)\s*#?(\d+))?")
_STRUCTURE = re.compile(
    r"\b(structure|restructur\w*|decompos\w*|granular\w*|reorgani[sz]\w*|merge[ds]?|combin\w*|split\w*|collapse[ds]?"
    r"|(too many|fewer|all|these|several) tasks|tasks (are|is) too)\b"
)


def dropped_tasks(before: Sequence[Task], after: Sequence[Task], findings: Sequence[Finding]) -> list[Task]:
    """The dropped tasks, unless a finding is about them or about the plan's structure, or a person asked for a
    revision."""
    if any(finding.role == USER for finding in findings):
        # The person who sent the plan back sees it again, with its list of tasks.
        return []
    kept = {_title(task.title) for task in after}
    lost = [(n, task) for n, task in enumerate(before, 1) if _title(task.title) not in kept]
    return [task for n, task in lost if not any(_is_about(finding, n, task) for finding in findings)]


def _title(text: str) -> str:
    return " ".join(text.casefold().split())


def _is_about(finding: Finding, number: int, task: Task) -> bool:
    names = {_title(one).removeprefix("task ").lstrip("#") for one in finding.tasks}
    if names & {"plan", "all", str(number), task.id.casefold(), _title(task.title)}:
        return True
    text = _title(f"{finding.message} {finding.suggestion}")
    if _title(task.title) in text or re.search(rf"\b{re.escape(task.id.casefold())}\b", text):
        return True
    return _STRUCTURE.search(text) is not None or number in _numbers(text)


def _numbers(text: str) -> set[int]:
    """The numbers of the tasks in a text: `task 2`, `tasks 1, 3 and 5-7`, `#4`."""
    pairs = [pair for list_text in _NUMBERS.findall(text) for pair in _RANGE.findall(list_text)]
    numbers: set[int] = set()
    for first, last in pairs:
        numbers |= set(range(int(first), min(int(last), int(first) + 1000) + 1)) if last else {int(first)}
    return numbers


def _wish(spec: ReviewSpec, ctx: Context) -> tuple[Finding, ...]:
    """The comment of the person who sent it back comes before the reviewers."""
    text = ctx.values.feedback(spec.feedback) if spec.fixer and spec.feedback else None
    if text is None:
        return ()
    return (Finding(text or "The user wants it revised: mend its weakest points.", Severity.HIGH, role=USER),)


def _words(findings: Sequence[Finding]) -> str:
    more = len(findings) - MOST_NAMED
    return "; ".join([*(f.message for f in findings[:MOST_NAMED]), *([f"and {more} more"] if more > 0 else [])])


KIND = Kind(ReviewSpec, run)
