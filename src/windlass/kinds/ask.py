"""ask: asks fixed questions; an answer is an outcome or a setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from windlass.kinds.base import Context, Kind, Outcome
from windlass.kinds.routes import Route
from windlass.kinds.spec import FlowView, PhaseSpec, Reference
from windlass.kinds.visit_cost import Sizes, VisitCost

"""With `question`, the outcomes are that question's option keys."""


class AskSpec(PhaseSpec, frozen=True, kw_only=True, tag="ask"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok",)
    ASKS: ClassVar[bool] = True

    question: str = ""
    """A question of the flow; its answer is the outcome."""
    settings: tuple[str, ...] = ()
    """Settings to ask for, one at a time; settings with a given value are not asked."""
    bound: Literal["", "person"] = ""
    """`person`: the person who answers this question ends the loop through it."""

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """The keys of its question's options; `ok` when it asks for settings."""
        question = flow.questions.get(self.question)
        return tuple(question.options) if question else self.OUTCOMES

    def own_routes(self, flow: FlowView) -> dict[str, Route] | None:
        if not self.question:
            return None
        question = flow.questions.get(self.question)
        return {key: Route(target) for key, target in question.options.items()} if question else {}

    def references(self) -> Iterator[Reference]:
        if self.question:
            yield Reference("question", ("question",), self.question)
        yield from (Reference("setting", ("settings", n), name) for n, name in enumerate(self.settings))

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if bool(self.question) == bool(self.settings):
            yield "an ask phase has either a question or settings"
        if self.question and self.on:
            yield "a question's options are its routes; take `on` away"
        silent = [name for name in self.settings if name in flow.settings and not flow.settings[name].ask]
        yield from (f"the setting '{name}' has no `ask` text" for name in silent)

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        questions = [sizes.is_asked(name) for name in self.settings]
        return VisitCost(0, 0, sum(one is True for one in questions), sum(one is not False for one in questions))

    def summary(self) -> str:
        return f"  {self.question or ', '.join(self.settings)}"

    def asked_question(self) -> str:
        return self.question

    def asked_settings(self) -> tuple[str, ...]:
        return self.settings

    def bounded_by_person(self) -> bool:
        return self.bound == "person"


async def run(spec: AskSpec, ctx: Context) -> Outcome:
    for name in spec.settings:
        question = ctx.values.setting_question(name)
        if question is not None:
            answer = await ctx.ask(question)
            ctx.set_setting(name, answer.value)
    if not spec.question:
        return Outcome("ok")
    answer = await ctx.ask(ctx.values.question(spec.question))
    comment = f": {answer.comment}" if answer.comment else ""
    return Outcome(answer.value, f"'{answer.value}' was answered to '{spec.question}'{comment}")


KIND = Kind(AskSpec, run)
