"""produce: agents make content: text, a contract's data, or declared files that the engine reads back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from windlass.conversion import Path
from windlass.events import Warned
from windlass.kinds.base import Context, Kind, Outcome
from windlass.kinds.calls import ensure_check, failed_call_outcome, failure_text, make_call, record_label
from windlass.kinds.spec import CallSpec, FlowStruct, FlowView, Number, PhaseSpec, comma_list
from windlass.kinds.visit_cost import Sizes, VisitCost, holds

#: outcomes that the status of a contract's block may add; unrouted, they count as failed
EXTRA_OUTCOMES = ("rejected", "too_complex", "needs_decision")


#: characters of an invalid file that a person sees
MAX_SHOWN = 2_000


class Empty(FlowStruct, frozen=True, kw_only=True):
    retry: Number = 0
    """How often the calls are repeated, with the problem as feedback, before the outcome is `empty`."""


class ProduceSpec(PhaseSpec, frozen=True, kw_only=True, tag="produce"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok", "failed", "empty", "invalid")

    calls: tuple[CallSpec, ...]
    """One after the other; each may use the artifacts of those before it."""
    empty: Empty = Empty()
    """The retries for a plan without tasks."""
    harvest: str = ""
    """The label of the engine's commit of the agent's uncommitted changes."""

    def artifacts_in(self) -> set[str]:
        return {name for call in self.calls for name in call.ins}

    def artifacts_out(self) -> set[str]:
        return {name for call in self.calls for name in call.out}

    def roles(self) -> set[str]:
        return {call.role for call in self.calls} | {call.profile for call in self.calls if call.profile}

    def parts(self) -> set[tuple[str, str]]:
        return {(call.role, call.profile) for call in self.calls}

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """`empty` with `empty:`, or when an `out` lists tasks. `invalid` when an `out` has rules, or is
        a file with a contract that is no task list."""
        lists = {phase.task_list() for phase in flow.all_phases()}
        outs = self.artifacts_out()
        empty = self.empty.retry > 0 or bool(outs & lists)
        known = {name: flow.artifacts[name] for name in outs if name in flow.artifacts}
        invalid = any(
            bool(one.ensure) or (one.kind == "file" and bool(one.contract) and name not in lists)
            for name, one in known.items()
        )
        return ("ok", "failed", *(("empty",) if empty else ()), *(("invalid",) if invalid else ()))

    def optional_outcomes(self, flow: FlowView) -> tuple[str, ...]:
        return EXTRA_OUTCOMES

    def agent_calls(self) -> Iterator[tuple[Path, CallSpec]]:
        yield from ((("calls", index), call) for index, call in enumerate(self.calls))

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if not self.calls:
            yield "there are no calls"

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        fewest, _ = sizes.count(self.calls)
        most = sum(sizes.count([call])[1] * (self.empty.retry + 1 if call.out else 1) for call in self.calls)
        return VisitCost(fewest, most)

    def summary(self) -> str:
        return comma_list(call.role for call in self.calls)


async def run(spec: ProduceSpec, ctx: Context) -> Outcome:
    roles = [call.role for call in spec.calls]
    for index, call in enumerate(spec.calls):
        if not holds(call.when, ctx.values.fact):
            continue
        name = call.role if roles.count(call.role) == 1 else f"{call.role}.{index + 1}"
        alone = len(roles) == 1 and ctx.place.task
        outcome = await _call(spec, call, ctx, ctx.place.id() if alone else ctx.place.id(name))
        if outcome is not None:
            return outcome
    return Outcome("ok")


async def _call(spec: ProduceSpec, call: CallSpec, ctx: Context, id: str) -> Outcome | None:
    """None: continue with the next call."""
    contracts = {ctx.values.fact(f"artifact.{name}.contract") for name in call.out}
    makes_plan = not contracts.isdisjoint(("tasks", "subtasks", "contract-tasks"))
    tries = 1 + (spec.empty.retry if makes_plan else 0)
    purpose = "implement" if ctx.place.task else "draft"
    feedback, looped = "", tries > 1
    earlier = ctx.earlier(id, make_call(ctx, call, purpose), cycle=1 if looped else None)
    if earlier and earlier.ok and not earlier.outcome and not _problem(call, ctx):
        return None
    for cycle in range(1, tries + 1):
        job = make_call(ctx, call, purpose, inputs={"feedback": feedback} if feedback else None)
        reply = await ctx.dispatch(id, replace(job, accept=ensure_check(ctx)), cycle=cycle if looped else None)
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
