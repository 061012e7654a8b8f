"""report: the run's record, rendered by a template and put where people look."""

from __future__ import annotations

from typing import Literal

from windlass.kinds.base import Context, Kind, Outcome, PhaseSpec

OUTCOMES = ("ok",)


class ReportSpec(PhaseSpec):
    kind: Literal["report"]
    template: str
    """Which report: plan | task | brainstorm"""
    to: tuple[str, ...] = ("terminal", "store")
    """terminal | store | progress (the page in its final form, on the run's branch) | the name of an artifact"""

    def artifacts_out(self) -> set[str]:
        return set(self.to) - {"terminal", "store", "progress"}


async def run(spec: ReportSpec, ctx: Context) -> Outcome:
    await ctx.report(spec.template, spec.to)
    return Outcome("ok")


KIND = Kind("report", ReportSpec, OUTCOMES, run)
