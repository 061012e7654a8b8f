"""tasks: takes each task of a plan through its steps and lands it on the run's tip."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import ClassVar, Literal, Protocol, TypeAlias

from msgspec import field

from windlass.conversion import Path
from windlass.kinds import command, produce, review
from windlass.kinds.base import Context, Kind, Outcome
from windlass.kinds.routes import To
from windlass.kinds.spec import (
    CallSpec,
    Count,
    FlowView,
    Land,
    PhaseSpec,
    Reference,
    routes_of,
    targets_of,
    words_of,
)
from windlass.kinds.visit_cost import Sizes

Order: TypeAlias = Literal["list", "deps", "waves"]


FAILURES = ("retry", "continue", "stop")
PAUSES = ("auto", "checkpoint", "batch")

Step: TypeAlias = produce.ProduceSpec | review.ReviewSpec | command.CommandSpec


class TasksSpec(PhaseSpec, frozen=True, kw_only=True, tag="tasks"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("done", "stopped", "escape")
    OWN_SLOTS: ClassVar[bool] = True

    source: str = field(name="from")
    """The artifact that lists the tasks."""
    order: Order = "list"
    """`list`: in the order of the plan; `deps`: first the task that most others wait for; `waves`: layer by layer, each
    landed as a whole. A task never starts before its dependencies have landed."""
    slots: Count = 1
    """Tasks that run at the same time, unless the command line or the config sets the number."""
    pause: str = ""
    """auto | checkpoint | batch | $setting"""
    pause_every: Count = 3
    """Tasks between pauses, with `batch`."""
    failure: str = "stop"
    """The meaning of `fail`: retry (once, then without it) | continue (without it) | stop | $setting."""
    steps: tuple[Step, ...]
    """The steps of each task: phases of the kinds produce, review and command."""
    land: Land = Land()
    """How a task's commits join the run's tip."""
    done_label: str = ""
    """The name of the state of a finished task."""
    out: str = ""
    """The artifact for the results of the tasks."""

    def artifacts_in(self) -> set[str]:
        return {self.source} | {name for step in self.steps for name in step.artifacts_in()}

    def artifacts_out(self) -> set[str]:
        return {name for step in self.steps for name in step.artifacts_out()} | ({self.out} if self.out else set())

    def roles(self) -> set[str]:
        fixer = {self.land.fixer.role} if self.land.fixer else set()
        return fixer | {name for step in self.steps for name in step.roles()}

    def parts(self) -> set[tuple[str, str]]:
        fixer = {(self.land.fixer.role, self.land.fixer.profile)} if self.land.fixer else set()
        return fixer | {part for step in self.steps for part in step.parts()}

    def outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """`stopped` when a route says `fail` and the failure policy can be `stop`, `escape` when a route says so."""
        ends = self._ends(flow)
        stopped = To.FAIL in ends and "stop" in words_of(flow, self.failure)
        return ("done", *(("stopped",) if stopped else ()), *(("escape",) if To.ESCAPE in ends else ()))

    def optional_outcomes(self, flow: FlowView) -> tuple[str, ...]:
        """`stopped` with another failure policy: tasks failed and none landed."""
        return ("stopped",) if To.FAIL in self._ends(flow) else ()

    def _ends(self, flow: FlowView) -> set[To]:
        routes = [route for step in self.steps for route in routes_of(flow, step).values()]
        return {target.to for route in (*routes, *self.land.on.values()) for target in targets_of(flow, route)}

    def agent_calls(self) -> Iterator[tuple[Path, CallSpec]]:
        if self.land.fixer:
            yield ("land", "fixer"), self.land.fixer

    def references(self) -> Iterator[Reference]:
        yield from super().references()
        yield Reference("artifact", ("from",), self.source)
        if self.out:
            yield Reference("output", ("out",), self.out)

    def word_fields(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "failure", FAILURES
        yield "pause", ("", *PAUSES)

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if not self.steps:
            yield "there are no steps"

    def summary(self) -> str:
        return f"  each task of {self.source}"

    def task_steps(self) -> tuple[PhaseSpec, ...]:
        return self.steps

    def task_list(self) -> str:
        return self.source

    def landing(self) -> Land:
        return self.land

    def retries_tasks(self, sizes: Sizes) -> bool:
        return To.FAIL in self._ends(sizes.flow) and "retry" in sizes.words(self.failure)


class RunsTasks(Context, Protocol):
    """The verbs of every kind, and the one of this kind."""

    def run_tasks(self, spec: TasksSpec) -> Awaitable[Outcome]:
        """Start the plan's tasks as the schedule allows, take each through its steps, and land it."""
        ...


def run(spec: TasksSpec, ctx: RunsTasks) -> Awaitable[Outcome]:
    return ctx.run_tasks(spec)


KIND = Kind(TasksSpec, run)
