"""elicit: an agent proposes items by contract, a person handles them one at a time.

The person answers questions, chooses one approach, and approves or sends back design sections one by one. An approved
item stays approved: a revision changes only its section, and a crash or a retry does not ask again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import ClassVar, Literal

from msgspec import field
from msgspec.structs import replace

from windlass.conversion import Path
from windlass.events import ItemsProposed, Warned
from windlass.kinds import proposals
from windlass.kinds.base import Call, Context, Kind, Outcome, Reply
from windlass.kinds.calls import failed_call_outcome, make_call
from windlass.kinds.spec import CallSpec, FlowView, Names, Number, PhaseSpec, Reference
from windlass.kinds.visit_cost import Sizes, VisitCost
from windlass.model import ErrorClass, Json

#: no usable answer after the reminders; unrouted, it counts as failed
EXTRA_OUTCOMES = ("invalid",)
LEAST = {"questions": 1, "approaches": 2, "sections": 1}
"""Fewer items leave nothing to handle. Another wrong count that an agent insists on is accepted with a warning."""


class ElicitSpec(PhaseSpec, frozen=True, kw_only=True, tag="elicit"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok", "failed")

    role: str
    """The role that proposes."""
    item: Literal["questions", "approaches", "sections"]
    """The kind of item."""
    min: Number = 1
    """The least number of items."""
    max: Number
    """The greatest number of items."""
    other: bool = False
    """The person may answer in their own words."""
    revise: bool = False
    """The person may send an item back."""
    ins: Names = field(default=(), name="in")
    out: Names = ()

    def artifacts_in(self) -> set[str]:
        return set(self.ins)

    def artifacts_out(self) -> set[str]:
        return set(self.out)

    def roles(self) -> set[str]:
        return {self.role}

    def optional_outcomes(self, flow: FlowView) -> tuple[str, ...]:
        return EXTRA_OUTCOMES

    def role_names(self) -> Iterator[tuple[Path, str]]:
        yield ("role",), self.role

    def references(self) -> Iterator[Reference]:
        yield from (Reference("output", ("out",), name) for name in self.out)
        yield from (Reference("input", ("in",), name) for name in self.ins)

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if not 1 <= self.min <= self.max:
            yield f"`min` {self.min} and `max` {self.max} leave nothing to ask"

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        if self.item == "approaches":
            return VisitCost(1, 1, 1, 2 if self.other else 1)
        return VisitCost(1, 1, self.min, self.max)

    def loops_with_person(self) -> bool:
        return self.revise

    def answer_names(self) -> set[str]:
        return set(proposals.ids(self.item))


class NoProposalError(Exception):
    """The agent proposed nothing to ask a person about."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail)
        self.outcome = outcome


async def run(spec: ElicitSpec, ctx: Context) -> Outcome:
    try:
        data = await _propose(spec, ctx)
        content = await HANDLE[spec.item](spec, ctx, data)
    except NoProposalError as nothing:
        return nothing.outcome if nothing.outcome.name in spec.on else replace(nothing.outcome, name="failed")
    for name in spec.out:
        await ctx.make(name, content)
    return Outcome("ok")


# -- the proposal


async def _propose(spec: ElicitSpec, ctx: Context) -> Json:
    call = replace(_call(spec, ctx, spec.item), fits=lambda data: _count_problem(spec, data))
    id = ctx.place.id(spec.role)
    earlier = _earlier(ctx, id, call)
    reply = earlier or await ctx.dispatch(id, call)
    data = reply.data
    if not reply.ok:
        # A wrong number of items is accepted from an agent that insists on it, unless there are too few to handle.
        enough = len(proposals.entries(data, spec.item)) >= LEAST[spec.item]
        if reply.error != ErrorClass.BAD_OUTPUT or not enough:
            raise NoProposalError(failed_call_outcome(spec.role, reply))
        text = f"{spec.role}: {_count_problem(spec, data)}; accepted anyway"
        ctx.emit(Warned("elicit", text, ctx.place.key.text))
    if earlier is None:
        best = proposals.approaches(data).recommendation if spec.item == "approaches" else ""
        why = str(data.get("reasoning") or "") if isinstance(data, dict) else ""
        ctx.emit(ItemsProposed(ctx.place.key.text, spec.item, proposals.item_list(spec.item, data), best, why))
    return data


def _call(spec: ElicitSpec, ctx: Context, purpose: str, **inputs: str) -> Call:
    context: dict[str, Json] = {"count": f"{spec.min} to {spec.max}"}
    return make_call(ctx, CallSpec(role=spec.role, ins=spec.ins), purpose, inputs={**inputs}, context=context)


def _earlier(ctx: Context, id: str, call: Call, cycle: int | None = None) -> Reply | None:
    """A reply that a person's retry need not pay for again."""
    earlier = ctx.earlier(id, call, cycle=cycle)
    return earlier if earlier and earlier.ok else None


def _count_problem(spec: ElicitSpec, data: Json) -> str:
    count = len(proposals.entries(data, spec.item))
    limits = f"{spec.min} to {spec.max}" if spec.min < spec.max else str(spec.min)
    return "" if spec.min <= count <= spec.max else f"there are {count} {spec.item}, {limits} are wanted"


# -- the handling of each item


async def _questions(spec: ElicitSpec, ctx: Context, data: Json) -> str:
    queries = proposals.queries(data)
    answers: list[tuple[proposals.ProposedQuestion, str]] = []
    for number, query in enumerate(queries, 1):
        answer = await ctx.ask(proposals.item_question(query, number, len(queries)))
        answers.append((query, query.answer_text(answer)))
    return proposals.answers_text(answers)


async def _approaches(spec: ElicitSpec, ctx: Context, data: Json) -> str:
    proposal = proposals.approaches(data)
    answer = await ctx.ask(proposals.approach_question(proposal, other=spec.other))
    choice = proposal.choice(answer)
    own = await ctx.ask(proposals.own_approach_question()) if choice is None else None
    return proposals.approach_text(choice, own.value if own else "")


async def _sections(spec: ElicitSpec, ctx: Context, data: Json) -> str:
    drafts = list(proposals.sections(data))
    for place in range(len(drafts)):
        others = [one for one in drafts if one is not drafts[place]]
        drafts[place] = await _approve_section(spec, ctx, drafts[place], others)
    return proposals.design_text(ctx.values.facts.request, drafts)


async def _approve_section(
    spec: ElicitSpec, ctx: Context, section: proposals.Section, others: list[proposals.Section]
) -> proposals.Section:
    """Shows the section until the person approves it; each revision changes only this section."""
    cycle = 1
    while True:
        answer = await ctx.ask(proposals.section_question(section, revise=spec.revise), id=section.id, cycle=cycle)
        if answer.value == proposals.YES:
            return section
        section = await _revise_section(spec, ctx, section, others, answer.comment, cycle)
        cycle += 1


async def _revise_section(
    spec: ElicitSpec, ctx: Context, section: proposals.Section, others: list[proposals.Section], wish: str, cycle: int
) -> proposals.Section:
    call = _call(spec, ctx, "revise-section", feedback=wish, section=section.text)
    around = "\n\n".join(one.text for one in others)
    context = {**call.context, "design": section.text, "the other sections": around}
    call = replace(call, context=context, fits=_one_section)
    id = f"{section.id}.revise"
    earlier = _earlier(ctx, id, call, cycle)
    reply = earlier or await ctx.dispatch(id, call, cycle=cycle)
    if not reply.ok:
        raise NoProposalError(failed_call_outcome(spec.role, reply))
    new = proposals.replace_section(section, reply.data)
    if earlier is None:
        ctx.emit(ItemsProposed(ctx.place.key.text, spec.item, [new.to_json()]), at=f"{id}#{cycle}")
    return new


def _one_section(data: Json) -> str:
    count = len(proposals.entries(data, "sections"))
    return "" if count == 1 else f"there are {count} sections, only the one that was asked for is wanted"


HANDLE: dict[str, Callable[[ElicitSpec, Context, Json], Awaitable[str]]] = {
    "questions": _questions,
    "approaches": _approaches,
    "sections": _sections,
}


KIND = Kind(ElicitSpec, run)
