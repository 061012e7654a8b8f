"""produce: agents make content: text, a contract's data, or declared files that the engine reads back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from msgspec import Struct
from msgspec.structs import replace

from windlass.conversion import Path
from windlass.events import Warned
from windlass.kinds.base import Context, Kind, Outcome, Reply
from windlass.kinds.calls import (
    ensure_check,
    failed_call_outcome,
    failure_text,
    gather_replies,
    make_call,
    record_label,
)
from windlass.kinds.spec import CallSpec, FlowStruct, FlowView, Number, PhaseSpec, Reference, comma_list
from windlass.kinds.visit_cost import Sizes, VisitCost, holds
from windlass.model import Json, content_id

#: outcomes that the status of a contract's block may add; unrouted, they count as failed
EXTRA_OUTCOMES = ("rejected", "too_complex", "needs_decision")
#: no call was needed; unrouted, it counts as ok
NOTHING = "nothing"


#: characters of an invalid file that a person sees
MAX_SHOWN = 2_000


class Empty(FlowStruct, frozen=True, kw_only=True):
    retry: Number = 0
    """How often the calls are repeated, with the problem as feedback, before the outcome is `empty`."""


class LandedChange(FlowStruct, frozen=True, kw_only=True):
    retry: Number = 0
    """How often the calls are repeated, with the failing checks as feedback, before the change is dropped."""


class ProduceSpec(PhaseSpec, frozen=True, kw_only=True, tag="produce"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok", NOTHING, "failed", "empty", "invalid")

    calls: tuple[CallSpec, ...]
    """In order; each may use the artifacts of those before it."""
    order: Literal["sequence", "parallel"] = "sequence"
    """One after the other, or at the same time. Parallel calls answer with text, for `join` or `merge`."""
    join: str = ""
    """The artifact that holds the answers of all calls, each under a heading."""
    merge: CallSpec | None = None
    """The call that makes one artifact of the answers of all calls. A single answer needs no merge."""
    fallback: Literal["", "first"] = ""
    """`first`: the first answer is used when no agent plays the role of `merge`."""
    empty: Empty = Empty()
    """The retries for a plan without tasks."""
    harvest: str = ""
    """The label of the engine's commit of the agent's uncommitted changes."""
    land: LandedChange | None = None
    """The calls change the code of the whole run. The change joins the run's tip after the checks."""

    def artifacts_in(self) -> set[str]:
        return {name for call in self._all_calls() for name in call.ins}

    def artifacts_out(self) -> set[str]:
        return {name for call in self._all_calls() for name in call.out} | ({self.join} if self.join else set())

    def roles(self) -> set[str]:
        calls = self._all_calls()
        lenders = {name for call in calls for name in call.profiles() if name and not name.startswith("$")}
        return {call.role for call in calls} | lenders

    def parts(self) -> set[tuple[str, str]]:
        return {(call.role, profile) for call in self._all_calls() for profile in _used_profiles(call)}

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """`empty` with `empty:`, or when an `out` lists tasks. `invalid` when an `out` has rules, or is
        a file with a contract that is no task list."""
        lists = {phase.task_list() for phase in flow.all_phases()}
        outs = {name for call in self._all_calls() for name in call.out}
        empty = self.empty.retry > 0 or bool(outs & lists)
        known = {name: flow.artifacts[name] for name in outs if name in flow.artifacts}
        invalid = any(
            bool(one.ensure) or (one.kind == "file" and bool(one.contract) and name not in lists)
            for name, one in known.items()
        )
        return ("ok", "failed", *(("empty",) if empty else ()), *(("invalid",) if invalid else ()))

    def optional_outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """`nothing` when every call has a condition."""
        return (*EXTRA_OUTCOMES, *((NOTHING,) if all(call.when for call in self.calls) else ()))

    def agent_calls(self) -> Iterator[tuple[Path, CallSpec]]:
        yield from ((("calls", index), call) for index, call in enumerate(self.calls))
        if self.merge:
            yield ("merge",), self.merge

    def references(self) -> Iterator[Reference]:
        yield from super().references()
        if self.join:
            yield Reference("output", ("join",), self.join)

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if not self.calls:
            yield "there are no calls"
        if self.join and self.merge:
            yield "`join` and `merge` exclude each other"
        if self._collects and any(call.out for call in self.calls):
            yield "with `join` or `merge` the calls answer with text: they have no `out`"
        if self.order == "parallel" and not self._collects:
            yield "parallel calls need `join` or `merge`"
        if self.merge and len(self.merge.out) != 1:
            yield "`merge` needs one `out`"
        if self.fallback and not self.merge:
            yield "`fallback` needs `merge`"

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        fewest, _ = sizes.count(self.calls)
        most = sum(sizes.count([call])[1] * (self.empty.retry + 1 if call.out else 1) for call in self.calls)
        if self.merge and most > 1:
            most += self.empty.retry + 1
            fewest += fewest > 1 and not self.fallback
        return VisitCost(fewest, most * (self.land.retry + 1 if self.land else 1))

    def summary(self) -> str:
        calls = self._all_calls()
        return comma_list(call.role if call.times == 1 else f"{call.role} (times {call.times})" for call in calls)

    def _all_calls(self) -> tuple[CallSpec, ...]:
        return (*self.calls, *([self.merge] if self.merge else []))

    @property
    def _collects(self) -> bool:
        return bool(self.join or self.merge)


def _used_profiles(call: CallSpec) -> tuple[str, ...]:
    """The profiles of a call: those of `by`, otherwise its own."""
    return call.profiles()[1:] or (call.profile,)


async def run(spec: ProduceSpec, ctx: Context) -> Outcome:
    if not any(holds(call.when, ctx.values.fact) for call in spec.calls):
        return Outcome(NOTHING if NOTHING in spec.on else "ok")
    if spec.land is None:
        return await _run(spec, ctx)
    async with ctx.whole_run() as whole:
        return await _run_and_land(spec, whole, spec.land.retry + 1)


async def _run_and_land(spec: ProduceSpec, ctx: Context, tries: int) -> Outcome:
    refused = ""
    for cycle in range(1, tries + 1):
        outcome = await _run(spec, ctx, feedback=refused, cycle=cycle if tries > 1 else None)
        if outcome.name != "ok":
            return outcome
        refused = await ctx.land_fix(ctx.place.id("land"), cycle=cycle)
        if not refused:
            return outcome
    text = f"the change of {spec.id} was not taken, and the run continues without it: {refused}"
    ctx.emit(Warned("land", text[:MAX_SHOWN], ctx.place.key.text), at="not-taken")
    return Outcome("ok", text)


async def _run(spec: ProduceSpec, ctx: Context, *, feedback: str = "", cycle: int | None = None) -> Outcome:
    if spec.join or spec.merge:
        return await _collect(spec, ctx)
    roles = [call.role for call in spec.calls]
    for index, call in enumerate(spec.calls):
        if not holds(call.when, ctx.values.fact):
            continue
        name = call.role if roles.count(call.role) == 1 else f"{call.role}.{index + 1}"
        alone = len(roles) == 1 and ctx.place.task
        where = CallPlace(ctx.place.id() if alone else ctx.place.id(name), cycle)
        outcome = await _call(spec, call, ctx, where, feedback=feedback)
        if outcome is not None:
            return outcome
    return Outcome("ok")


class CallPlace(Struct, frozen=True):
    """The step of a call: its name, and the round of the phase if there can be several."""

    id: str
    cycle: int | None = None


# -- answers that are collected


class Proposal(Struct, frozen=True):
    """The answer of one call."""

    heading: str
    text: str
    tasks: Json = None
    """The task list of a plan."""


async def _collect(spec: ProduceSpec, ctx: Context) -> Outcome:
    wanted = list(_wanted(spec, ctx))
    purpose = "propose" if spec.merge else "draft"
    jobs = [(id, call, focus, make_call(ctx, call, purpose, focus=focus)) for id, call, focus in wanted]
    earlier = [ctx.earlier(id, job) for id, _, _, job in jobs]
    new = [ctx.dispatch(id, job) for (id, _, _, job), old in zip(jobs, earlier, strict=True) if not (old and old.ok)]
    made = iter(await gather_replies(new) if spec.order == "parallel" else [await call for call in new])
    replies = [old if old and old.ok else next(made) for old in earlier]
    found = [_proposal(call, focus, reply) for (_, call, focus, _), reply in zip(jobs, replies, strict=True)]
    good = [one for one, reply in zip(found, replies, strict=True) if reply.ok]
    bad = [(one.heading, reply) for one, reply in zip(found, replies, strict=True) if not reply.ok]
    if not good:
        return Outcome("failed", "\n".join(failure_text(heading, reply) for heading, reply in bad))
    for heading, reply in bad:
        text = f"{spec.id}: {heading} gave no result ({reply.reason}); the others are used"
        ctx.emit(Warned("proposal", text, ctx.place.key.text), at=heading)
    if spec.join:
        await ctx.make(spec.join, _under_headings(good), id="result")
        return Outcome("ok")
    return await _merge(spec, ctx, good)


def _wanted(spec: ProduceSpec, ctx: Context) -> Iterator[tuple[str, CallSpec, str]]:
    """The name, the call and the focus of each dispatch."""
    roles = [call.role for call in spec.calls]
    for index, call in enumerate(spec.calls):
        if not holds(call.when, ctx.values.fact):
            continue
        times = int(ctx.values.setting(call.times))
        base = call.role if roles.count(call.role) == 1 else f"{call.role}.{index + 1}"
        for nth in range(times):
            focus = call.focus[nth] if nth < len(call.focus) else ""
            yield ctx.place.id(f"{base}.{nth + 1}" if times > 1 else base), call, focus


def _proposal(call: CallSpec, focus: str, reply: Reply) -> Proposal:
    return Proposal(focus[:1].upper() + focus[1:] or call.role.capitalize(), reply.text.strip(), reply.data)


def _under_headings(found: Sequence[Proposal]) -> str:
    if len(found) == 1:
        return found[0].text + "\n"
    return "\n\n".join(f"## {one.heading}\n\n{one.text}" for one in found) + "\n"


async def _merge(spec: ProduceSpec, ctx: Context, found: Sequence[Proposal]) -> Outcome:
    assert spec.merge is not None
    [out] = spec.merge.out
    nobody = spec.fallback == "first" and not ctx.values.has_role(spec.merge.role)
    if len(found) == 1 or nobody:
        await ctx.make(out, _as_plan(found[0]), id="result")
        if nobody and len(found) > 1:
            text = f"{spec.id}: no agent plays {spec.merge.role}; '{found[0].heading}' is used as it is"
            ctx.emit(Warned("merge", text, ctx.place.key.text), at="merge")
        problem = _problem(spec.merge, ctx)
        return Outcome("empty" if "empty" in spec.on else "failed", problem) if problem else Outcome("ok")
    texts: dict[str, Json] = {f"Proposal {n}: {one.heading}": one.text for n, one in enumerate(found, 1)}
    proposals: dict[str, Json] = {"proposals": content_id(_under_headings(found))}
    where = CallPlace(ctx.place.id(spec.merge.role))
    outcome = await _call(spec, spec.merge, ctx, where, inputs=proposals, context=texts)
    return outcome or Outcome("ok")


def _as_plan(one: Proposal) -> str:
    """The answer as a file. The block of its task list gets the tag of a file, not the tag of the dispatch."""
    if not isinstance(one.tasks, list):
        return one.text + "\n"
    return f"{one.text}\n\n```superteam-tasks\n{json.dumps(one.tasks, indent=2)}\n```\n"


# -- one call after the other


async def _call(
    spec: ProduceSpec,
    call: CallSpec,
    ctx: Context,
    where: CallPlace,
    *,
    feedback: str = "",
    inputs: dict[str, Json] | None = None,
    context: dict[str, Json] | None = None,
) -> Outcome | None:
    """None: continue with the next call."""
    contracts = {ctx.values.fact(f"artifact.{name}.contract") for name in call.out}
    makes_plan = not contracts.isdisjoint(("tasks", "subtasks", "contract-tasks"))
    tries = 1 + (spec.empty.retry if makes_plan else 0)
    purpose = "implement" if ctx.place.task else "draft"
    id, looped = where.id, tries > 1
    given = {**(inputs or {}), **({"feedback": feedback} if feedback else {})}
    earlier = ctx.earlier(id, make_call(ctx, call, purpose, inputs=given), cycle=1 if looped else where.cycle)
    if earlier and earlier.ok and not earlier.outcome and not _problem(call, ctx):
        return None
    for cycle in range(1, tries + 1):
        given |= {"feedback": feedback} if feedback else {}
        job = make_call(ctx, call, purpose, inputs=given, context=context)
        number = cycle if looped else where.cycle
        reply = await ctx.dispatch(id, replace(job, accept=ensure_check(ctx)), cycle=number)
        if not reply.ok:
            outcome = failed_call_outcome(call.role, reply)
            return outcome if outcome.name in spec.on else replace(outcome, name="failed")
        # The engine committed the agent's uncommitted changes before it recorded the reply.
        record_label(ctx, spec.harvest, f"{id}.harvest")
        ctx.flush()
        if reply.outcome:
            # The errors that a contract lists, otherwise the agent's text.
            errors = reply.data.get("errors") if isinstance(reply.data, dict) else None
            text = "; ".join(str(error) for error in errors) if isinstance(errors, list) and errors else reply.text
            return Outcome(reply.outcome if reply.outcome in spec.on else "failed", text)
        feedback = _problem(call, ctx)
        if not feedback:
            if any(not (ctx.values.artifact(name) or "").strip() for name in call.out):
                text = f"{call.role} wrote nothing; the run continues without it"
                ctx.emit(Warned("empty", text, ctx.place.key.text))
            return None
    # A plan without tasks is `empty`, any other violation `invalid`; an unrouted outcome is `failed`.
    name = "empty" if makes_plan else "invalid"
    words = failure_text(call.role, replace(reply, reason=feedback))
    shown = [f"{path}:\n{ctx.values.artifact(path)}"[:MAX_SHOWN] for path in call.out if ctx.values.artifact(path)]
    return Outcome(name if name in spec.on else "failed", "\n".join([words, *shown]))


def _problem(call: CallSpec, ctx: Context) -> str:
    problems = (ctx.values.problem(name) for name in call.out)
    return next((problem for problem in problems if problem), "")


KIND = Kind(ProduceSpec, run)
