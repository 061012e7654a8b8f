"""ask: fixed questions; an answer is a route or a setting."""

from __future__ import annotations

from typing import Literal

from windlass.kinds.base import Context, Kind, Outcome, PhaseSpec

OUTCOMES = ("ok",)
"""With `question`, the outcomes are that question's option keys."""


class AskSpec(PhaseSpec):
    kind: Literal["ask"]
    question: str = ""
    """A question of the flow; the answer is the route."""
    settings: tuple[str, ...] = ()
    """Settings to ask for, one at a time; those given beforehand are not asked."""
    bound: Literal["", "person"] = ""
    """`person`: a loop through this question is bounded by the person who answers it."""


async def run(spec: AskSpec, ctx: Context) -> Outcome:
    for name in spec.settings:
        question = ctx.setting_question(name)
        if question is not None:
            answer = await ctx.ask(question)
            ctx.set_setting(name, answer.value)
    if not spec.question:
        return Outcome("ok")
    answer = await ctx.ask(ctx.question(spec.question))
    said = f": {answer.comment}" if answer.comment else ""
    return Outcome(answer.value, f"'{answer.value}' was answered to '{spec.question}'{said}")


KIND = Kind("ask", AskSpec, OUTCOMES, run)
