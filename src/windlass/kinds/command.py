"""command: the engine runs commands, stores their output and classifies failures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from msgspec import field
from msgspec.structs import replace

from windlass.conversion import Path
from windlass.events import Warned
from windlass.kinds.base import CommandRun, Context, Kind, Outcome
from windlass.kinds.calls import make_call
from windlass.kinds.spec import CallSpec, Count, FlowView, Names, PhaseSpec, Reference, fixer_text
from windlass.kinds.visit_cost import Sizes, VisitCost


class CommandSpec(PhaseSpec, frozen=True, kw_only=True, tag="command"):
    OUTCOMES: ClassVar[tuple[str, ...]] = (
        "ok",
        "failed",
        "failed.test",
        "failed.source",
        "failed.unknown",
        "exhausted",
    )

    run: Names = ("checks",)
    """checks | acceptance | names under [commands] in the config; those of several that are not there are left out"""
    otherwise: str = field(default="", name="or")
    """The name to run when none of them is configured."""
    out: str = ""
    """The artifact for the results."""
    classify: Literal["", "first-file"] = ""
    """`first-file`: classifies a failure by the first project file in its output."""
    fixer: CallSpec | None = None
    """The role that repairs a failure before the commands run again."""
    max: Count = 0
    """How often the fixer may try."""

    def roles(self) -> set[str]:
        return {name for name in (self.fixer.role, self.fixer.otherwise) if name} if self.fixer else set()

    def artifacts_out(self) -> set[str]:
        return {self.out} if self.out else set()

    def references(self) -> Iterator[Reference]:
        yield from super().references()
        if self.out:
            yield Reference("output", ("out",), self.out)

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """With a fixer `exhausted`; with `classify` one outcome for each class; else `failed`."""
        if self.fixer:
            return ("ok", "exhausted")
        return ("ok", "failed.test", "failed.source", "failed.unknown") if self.classify else ("ok", "failed")

    def agent_calls(self) -> Iterator[tuple[Path, CallSpec]]:
        if self.fixer:
            yield ("fixer",), self.fixer

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if self.fixer and self.classify:
            yield "`fixer` and `classify` exclude each other"
        if self.fixer and not self.max:
            yield "a fixer needs `max`, at least 1"

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        return VisitCost(max_dispatches=sizes.number(self.max) if self.fixer else 0)

    def summary(self) -> str:
        return f"  {', '.join(self.run)}{fixer_text(self.fixer, self.max)}"


async def run(spec: CommandSpec, ctx: Context) -> Outcome:
    cap = int(ctx.values.setting(spec.max)) if spec.fixer else 0
    for cycle in range(1, cap + 2):
        ran = await ctx.command(ctx.place.id(), spec.run, otherwise=spec.otherwise, cycle=cycle if cap else None)
        if spec.out:
            await ctx.make(spec.out, _results(ran), id="result", cycle=cycle if cap else None)
        if ran.ok:
            if spec.otherwise and not ran.commands:
                text = f"{spec.id} tested nothing: no commands are configured for {', '.join(spec.run)}"
                ctx.emit(Warned("unchecked", text, ctx.place.key.text), at="unchecked")
            return Outcome("ok")
        if cycle > cap or spec.fixer is None:
            break
        fixer = spec.fixer
        if fixer.otherwise and not ctx.values.has_role(fixer.role):
            fixer = replace(fixer, role=fixer.otherwise)
        call = make_call(ctx, fixer, "fix-checks", inputs={"checks_output": ran.output})
        reply = await ctx.dispatch(ctx.place.id("fix"), replace(call, cycles=cap), cycle=cycle)
        if not reply.ok:
            return Outcome("exhausted", f"the fixer failed; {_first_lines(ran)}")
    if cap:
        return Outcome("exhausted", _first_lines(ran))
    if not spec.classify:
        return Outcome("failed", _first_lines(ran), evidence=_evidence(ran))
    where = f"failure in {ran.file}: " if ran.file else ""
    return Outcome(f"failed.{failure_class(ran)}", where + _first_lines(ran), evidence=_evidence(ran))


def _results(ran: CommandRun) -> str:
    """The results as a JSON file."""
    status = "failed" if not ran.ok else "passed" if ran.commands else "unchecked"
    known = {"class": "" if ran.ok else failure_class(ran), "file": "" if ran.ok else ran.file}
    return json.dumps({"status": status, "ok": ran.ok, **known, "commands": [*ran.commands]}, indent=2) + "\n"


def _evidence(ran: CommandRun) -> str:
    failed = [str(one.get("command")) for one in ran.commands if not one.get("ok")]
    return f"`{'`, `'.join(failed)}` failed. The end of the output:\n\n{ran.output.strip()}"


TEST_FILE = re.compile(r"(^|/)(tests?|__tests__)/|(^|/)test_[^/]*$|_test\.[^/.]+$|\.(test|spec)\.[^/]+$")


def failure_class(ran: CommandRun) -> str:
    """`test` or `source` by the first file of the project that the output names; `unknown` when it names none."""
    if not ran.file:
        return "unknown"
    return "test" if TEST_FILE.search(ran.file) else "source"


def _first_lines(ran: CommandRun) -> str:
    lines = [line for line in ran.output.strip().splitlines() if line.strip()]
    return " | ".join(lines[-3:])[:300] or "the command failed without a word"


KIND = Kind(CommandSpec, run)
