"""dialogue: agent and person alternate in free text until the agent is ready and the person confirms.

Only the agent's status decides whether another round follows; code decides what counts as a yes. Rounds are counted
from the record, so a restart adds none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from msgspec import field

from windlass.conversion import Path
from windlass.events import RunSaid
from windlass.kinds.base import Call, Context, Kind, Outcome
from windlass.kinds.calls import make_call
from windlass.kinds.spec import CallSpec, Count, Names, PhaseSpec, Reference
from windlass.kinds.visit_cost import Sizes, VisitCost
from windlass.model import Json, Question

READY = "ready"
SATISFIED = "Are you satisfied with the requirement? (yes to proceed; anything else goes back as your reply)"
YES = frozenset({"yes", "y", "ok", "okay", "sure", "approve", "approved", "proceed", "lgtm"})
YES_PHRASES = (("go", "ahead"), ("looks", "good"))
#: a reply with one of these words is not a plain yes
RESERVATIONS = frozenset({"but", "except", "however", "unless", "not", "no", "don't", "dont", "wait", "if"})


class DialogueSpec(PhaseSpec, frozen=True, kw_only=True, tag="dialogue"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok", "limit", "failed")

    role: str
    """The role that talks with the person."""
    max: Count = 10
    """The greatest number of rounds."""
    ins: Names = field(default=(), name="in")
    out: Names = ()
    """The result: the summary that the person confirmed, otherwise the unchanged request."""
    log: str = ""
    """The artifact with the conversation, saved after each round."""
    replaces: Literal["", "request"] = ""
    """`request`: the refined text replaces the request."""

    def artifacts_in(self) -> set[str]:
        return set(self.ins)

    def artifacts_out(self) -> set[str]:
        return set(self.out) | ({self.log} if self.log else set())

    def roles(self) -> set[str]:
        return {self.role}

    def role_names(self) -> Iterator[tuple[Path, str]]:
        yield ("role",), self.role

    def references(self) -> Iterator[Reference]:
        yield from (Reference("output", ("out",), name) for name in self.out)
        if self.log:
            yield Reference("output", ("log",), self.log)
        yield from (Reference("input", ("in",), name) for name in self.ins)

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        rounds = max(1, sizes.number(self.max))
        return VisitCost(1, rounds, 1, rounds)

    def answer_names(self) -> set[str]:
        return set(question_ids(self.id))


def question_ids(phase: str) -> tuple[str, str]:
    """The names under which answers may be given in advance."""
    return phase, f"{phase}-confirm"


async def run(spec: DialogueSpec, ctx: Context) -> Outcome:
    most = int(ctx.values.setting(spec.max))
    ctx.emit(
        RunSaid(f"Clarifying the request for '{ctx.values.fact('repository')}': the {spec.role} may ask you questions.")
    )
    caller = CallSpec(role=spec.role, ins=spec.ins)
    history: list[dict[str, Json]] = []
    for round in range(1, most + 1):
        transcript = "\n\n".join(f"{entry['role']}: {entry['text']}" for entry in history)
        inputs: dict[str, Json] = {"history": [*history]}
        call = make_call(ctx, caller, "clarify", inputs=inputs, context={"history": transcript})
        call = Call(call.role, call.purpose, call.inputs, call.context, cycles=most)
        reply = await ctx.dispatch("turn", call, cycle=round)
        if not reply.ok:
            return Outcome("failed", f"{spec.role}: {reply.reason}")
        assert isinstance(reply.data, dict)
        ready, message = reply.data["status"] == READY, str(reply.data["message"])
        answer = await ctx.ask(_question(spec, ready, message), id="round", cycle=round)
        if ready and is_affirmative(answer.value):
            return await _settle(spec, ctx, message, history, confirmed=True)
        history += [{"role": "assistant", "text": message}, {"role": "user", "text": answer.value}]
        await _save(spec, ctx, history, round, confirmed=False)
    ctx.emit(RunSaid(f"All {most} rounds were used without a confirmation: the request stays as it was."), at="limit")
    return await _settle(spec, ctx, ctx.values.facts.request, history, confirmed=False)


def _question(spec: DialogueSpec, ready: bool, message: str) -> Question:
    open, confirm = question_ids(spec.id)
    if ready:
        return Question(confirm, SATISFIED, type="input", detail=message, yes="yes")
    # The detail keeps its line breaks and its length; the text of a question is one line.
    return Question(open, f"The {spec.role} asks. What do you answer?", type="input", detail=message)


async def _settle(
    spec: DialogueSpec, ctx: Context, text: str, history: list[dict[str, Json]], *, confirmed: bool
) -> Outcome:
    await _save(spec, ctx, history, None, confirmed=confirmed)
    for name in spec.out:
        await ctx.make(name, text)
    if confirmed and spec.replaces == "request":
        ctx.refine(text)
    return Outcome("ok" if confirmed else "limit", "" if confirmed else "not confirmed")


async def _save(
    spec: DialogueSpec, ctx: Context, history: list[dict[str, Json]], round: int | None, *, confirmed: bool
) -> None:
    if spec.log:
        await ctx.make(spec.log, json.dumps({"confirmed": confirmed, "history": history}), cycle=round)


def is_affirmative(reply: str) -> bool:
    """A plain yes, as the whole reply or at its beginning. A reply that also asks or restricts something is not one."""
    words = re.findall(r"[a-z']+", reply.lower())
    if not words or "?" in reply or RESERVATIONS & set(words):
        return False
    return words[0] in YES or tuple(words[:2]) in YES_PHRASES


KIND = Kind(DialogueSpec, run)
