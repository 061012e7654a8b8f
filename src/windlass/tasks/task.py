"""One visit to a task: it walks its steps by their routes, then lands on the run's tip."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from windlass.events import TaskChanged
from windlass.kinds import KINDS
from windlass.kinds.base import Context, Outcome, Reply
from windlass.kinds.calls import format_finding, make_call, record_label
from windlass.kinds.routes import Target, To
from windlass.kinds.visit_cost import holds
from windlass.kinds.walker import LAND, UNCHANGED, Move, WalkState, next_step, take, task_table
from windlass.model import Finding, Json
from windlass.tasks.context import Landed, TaskContext

if TYPE_CHECKING:
    from windlass.kinds.tasks import Step, TasksSpec

GO_ON = (To.NEXT, To.WAIVE)
BACK_TO_WORK = (To.REDO, To.AGAIN, To.FIX, To.GOTO)
IN_THE_TASK = (*GO_ON, To.AGAIN, To.FIX, To.GOTO)
"""Targets that do not leave this visit."""
CONFLICT = "conflict"
RESOLUTION = "resolution"
"""The contract of a fixer's answer to a conflict."""
PROMPT_NAMES = {CONFLICT: "conflict", "red": "checks_output", "unproved": "proof"}
"""The names of the facts in the fixer's prompt, by the outcome of the landing."""


class TaskTurns(Protocol):
    """When a task may use a slot, and when it may land."""

    async def to_land(self) -> None:
        """Its steps are done. It needs no slot until it is sent back."""
        ...

    async def to_work(self) -> None:
        """It was sent back, and needs a slot again."""
        ...

    async def to_land_again(self) -> None:
        """It was fixed without losing its turn to land."""
        ...


class _StepFacts(Struct, frozen=True):
    """The walker's view of a task's settings and facts."""

    ctx: TaskContext

    def fact(self, name: str) -> Json:
        return self.ctx.values.fact(name)

    def number(self, value: int | str) -> int:
        return int(self.ctx.values.setting(value))


class TaskVisit:
    def __init__(self, spec: TasksSpec, ctx: TaskContext, turns: TaskTurns) -> None:
        self._spec = spec
        self._ctx = ctx
        self._turns = turns
        self._facts = _StepFacts(ctx)
        self._table = task_table(spec)
        self._steps = {step.id: step for step in spec.steps}
        self._state = WalkState(self._table.first().id)
        self._entered: Counter[str] = Counter()
        """How often each step was entered: a part of its key."""
        self._landings = 0
        self._refusals = 0
        self._joined = 0
        """The last refused landing after which the task was joined with the landed work."""
        self._unreviewed = ""
        """A commit: no reviewer has judged the fixes since then."""

    async def run(self) -> tuple[Target, str]:
        """Until a target leaves the task; `next`: it has landed."""
        while True:
            target, reason = await self._walk_steps()
            if target.to is not To.NEXT:
                return target, reason
            self._unreviewed = ""
            await self._turns.to_land()
            target, reason = await self._land()
            if target.to is not To.GOTO:
                return target, reason
            await self._turns.to_work()

    # -- steps

    async def _walk_steps(self) -> tuple[Target, str]:
        to_fix: tuple[Finding, ...] = ()
        why = ""
        while self._state.at != LAND:
            step = self._steps[self._state.at]
            if not holds(step.when, self._ctx.values.fact):
                self._state, _ = take(self._table, self._state, Target(To.NEXT), self._facts)
                continue
            target, outcome = await self._enter(step, to_fix=to_fix, why=why)
            # A step that fixed another step's findings has no reason: the earlier one stays.
            to_fix, why = (outcome.findings if target.to is To.FIX else ()), outcome.detail or why
            if target.to not in IN_THE_TASK:
                return target, why
            why = "" if target.to in GO_ON else why
        return Target(To.NEXT), ""

    async def _enter(
        self, step: Step, *, to_fix: tuple[Finding, ...] = (), since: str = "", why: str = ""
    ) -> tuple[Target, Outcome]:
        """Run a step and follow its outcome; the answer to a question becomes part of the outcome's detail."""
        self._entered[step.id] += 1
        visit = self._entered[step.id]
        here = self._ctx.step_scope(step.id, visit=visit, to_fix=to_fix, since=since, why=why)
        if not step.ANNOUNCES_ITSELF:
            record_label(here, step.label.enter, step.id)
        outcome = await KINDS[step.kind].run(step, here)
        self._ctx.ended(step.id, outcome)
        return await self._follow(step.id, here, outcome)

    async def _follow(self, at: str, here: Context, outcome: Outcome) -> tuple[Target, Outcome]:
        self._state, move = next_step(self._table, replace(self._state, at=at), outcome.name, self._facts)
        if move.target.to is To.ASK:
            outcome, chosen = await _ask(here, move, outcome)
            self._state, move = take(self._table, self._state, chosen, self._facts)
        return move.target, outcome

    # -- landing

    async def _land(self) -> tuple[Target, str]:
        """`next`: it has landed. A step's id: the task continues there, joined with the landed work."""
        land = self._spec.land
        left = self._facts.number(land.max) if land.fixer else 0
        while True:
            self._landings += 1
            record_label(self._ctx.step_scope(LAND), land.label.enter, f"land#{self._landings}")
            landed = await self._ctx.land(self._landings, checked=land.checks == "all")
            if landed.kind == "landed":
                return Target(To.NEXT), ""
            found = await self._fix(landed) if left else None
            left -= 1
            target, reason = found or await self._route_refusal(landed)
            if target.to is To.FIX:
                target, reason = await self._fix(landed) or (Target(To.FAIL), landed.detail)
            if target.to is To.WAIVE:
                return await self._accept(landed, reason)
            if target.to not in (To.NEXT, To.AGAIN):
                return target, reason

    async def _route_refusal(self, landed: Landed) -> tuple[Target, str]:
        self._refusals += 1
        # The number is part of the question's key: the same refusal may lead to another question.
        here = self._ctx.step_scope(LAND, visit=self._refusals)
        outcome = Outcome(landed.kind, f"landing refused ({landed.kind}): {landed.detail}")
        target, outcome = await self._follow(LAND, here, outcome)
        if target.to is To.GOTO:
            await self._catch_up()
        # After a landing there is no next step: `next` means that a person accepts the task unchanged.
        return (Target(To.WAIVE) if target.to is To.NEXT else target), outcome.detail

    async def _accept(self, landed: Landed, reason: str) -> tuple[Target, str]:
        """Land with known issues, without checks. An acceptance cannot join conflicts."""
        if landed.kind == CONFLICT:
            return Target(To.SKIP), f"it cannot be accepted as it is: {reason}"
        self._landings += 1
        again = await self._ctx.land(self._landings, checked=False, waived=True)
        accepted = f"accepted with known issues: {reason}"
        if again.kind == "landed":
            return Target(To.NEXT), accepted
        return Target(To.SKIP), f"{accepted}; {again.detail}"

    async def _fix(self, landed: Landed) -> tuple[Target, str] | None:
        """Call the fixer. `next`: try to land again. None: it could not be fixed."""
        fixer, ctx = self._spec.land.fixer, self._ctx
        if fixer is None or landed.kind == UNCHANGED:
            return None
        await self._turns.to_work()
        before = await ctx.patch()
        await self._catch_up()
        here = ctx.step_scope(LAND)
        record_label(here, self._spec.land.label.fix, f"land.fix#{self._landings}")
        conflict = landed.kind == CONFLICT
        facts: dict[str, Json] = {PROMPT_NAMES[landed.kind]: landed.detail}
        sides: dict[str, Json] = {"your side": landed.ours, "what landed meanwhile": landed.theirs}
        call = make_call(here, fixer, "land-fix", inputs=facts, context=sides)
        cycles = self._facts.number(self._spec.land.max)
        call = replace(call, cycles=cycles, contract=RESOLUTION if conflict else "")
        reply = await here.dispatch(here.place.id("fix"), call, cycle=self._landings)
        if not reply.ok:
            return None
        resolved = resolved_paths(reply) if conflict else ()
        ctx.mark_resolved(resolved)
        # Only a reviewer can judge what a resolution kept. An open conflict does not land anyway.
        needs_review = not await ctx.has_open_conflicts() if conflict else await ctx.patch() != before
        found = Target(To.NEXT), ""
        if needs_review:
            named = f"; named as resolved by the fixer: {', '.join(resolved)}" if resolved else ""
            found = await self._review_fix(f"landing refused: {landed.kind}{named}")
            self._unreviewed = ""
        await self._turns.to_land_again()
        return found

    async def _review_fix(self, why: str) -> tuple[Target, str]:
        """The reviewers judge the fix: the code that would land differs from the code that they reviewed."""
        since = self._unreviewed
        reviews = [step for step in self._spec.steps if step.judges_changes() and self._entered[step.id]]
        for step in reviews:
            target, outcome = await self._enter(step, since=since, why=why)
            while target.to in (To.AGAIN, To.FIX):
                to_fix = outcome.findings if target.to is To.FIX else ()
                target, outcome = await self._enter(step, since=since, to_fix=to_fix, why=outcome.detail)
            if target.to not in GO_ON:
                return target, outcome.detail
        self._state = replace(self._state, at=LAND)
        return Target(To.NEXT), ""

    async def _catch_up(self) -> None:
        """Join the task with the landed work, once after each refused landing."""
        if self._joined == self._landings:
            return
        self._joined = self._landings
        changed = self._unreviewed not in ("", self._ctx.place.head)
        await self._ctx.catch_up(self._landings)
        self._unreviewed = self._unreviewed if changed else self._ctx.place.head


async def _ask(ctx: Context, move: Move, outcome: Outcome) -> tuple[Outcome, Target]:
    """A route asks: the task shows as escalated until a person has chosen."""
    task, question = ctx.place.task, move.target.arg
    assert task is not None
    ctx.emit(TaskChanged(task.id, "escalated", outcome.detail, visit=task.visit), at=f"{ctx.place.id()}.ask")
    answer = await ctx.ask(ctx.values.question(question, outcome.detail, outcome.findings))
    chosen = ctx.values.option(question, answer.value)
    if chosen.to in BACK_TO_WORK:
        # For the next visit: the findings with their places, and the person's comment.
        found = "\n".join(format_finding(finding) for finding in outcome.findings) or outcome.detail
        comment = f"The person who decided adds: {answer.comment}" if answer.comment else ""
        return replace(outcome, detail="\n".join(filter(None, (found, comment)))), chosen
    choice = f"{answer.by} answered '{answer.value}'" + (f": {answer.comment}" if answer.comment else "")
    return replace(outcome, detail=f"{outcome.detail}; {choice}" if outcome.detail else choice), chosen


def resolved_paths(reply: Reply) -> tuple[str, ...]:
    listed = reply.data.get("resolved") if isinstance(reply.data, dict) else None
    return tuple(str(path) for path in listed) if isinstance(listed, list) else ()
