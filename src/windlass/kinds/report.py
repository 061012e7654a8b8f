"""report: renders the record of the run with a template and writes it to each destination."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

from windlass.kinds.base import Context, Kind, Outcome
from windlass.kinds.spec import PhaseSpec, Reference


class ReportSpec(PhaseSpec, frozen=True, kw_only=True, tag="report"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok",)
    REPORTS_FAILURE: ClassVar[bool] = True

    template: str
    """Which report: plan | task | brainstorm"""
    to: tuple[str, ...] = ("terminal", "store")
    """terminal | store | progress (the page in its final form, on the run's branch) | the name of an artifact"""

    def artifacts_out(self) -> set[str]:
        return set(self.to) - {"terminal", "store", "progress"}

    def references(self) -> Iterator[Reference]:
        yield from (Reference("output", ("to",), name) for name in sorted(self.artifacts_out()))

    def summary(self) -> str:
        return f"  to {', '.join(self.to)}"


class WritesReport(Context, Protocol):
    """The verbs of every kind, and the one of this kind."""

    async def report(self, template: str, to: Sequence[str]) -> None:
        """Render the record of the run, and write it to each of these."""
        ...


async def run(spec: ReportSpec, ctx: WritesReport) -> Outcome:
    await ctx.report(spec.template, spec.to)
    return Outcome("ok")


KIND = Kind(ReportSpec, run)
