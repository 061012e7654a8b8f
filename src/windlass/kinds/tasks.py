"""tasks: a plan's tasks, each through its own steps, each landed on the run's tip."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol, TypeAlias

from pydantic import BeforeValidator, Field

from windlass.kinds import command, produce, review
from windlass.kinds.base import CallSpec, Context, Count, Kind, Label, Outcome, PhaseSpec, Routes, Strict, _label

Order: TypeAlias = Literal["list", "deps", "waves"]

OUTCOMES = ("done", "stopped", "escape")
LAND_OUTCOMES = ("conflict", "red", "unproved")

Step: TypeAlias = Annotated[produce.ProduceSpec | review.ReviewSpec | command.CommandSpec, Field(discriminator="kind")]


class Land(Strict):
    checks: Literal["all", "none"] = "all"
    """Whether the configured checks must pass on the joined tree."""
    fixer: CallSpec | None = None
    """Who mends a conflict, red checks or a missing proof."""
    max: Count = 1
    """How often the fixer may try."""
    label: Annotated[Label, BeforeValidator(_label)] = Label()
    on: Routes
    """conflict, red and unproved -> target."""


class TasksSpec(PhaseSpec):
    kind: Literal["tasks"]
    source: Annotated[str, Field(alias="from")]
    """The artifact that lists the tasks."""
    order: Order = "list"
    """`list`: as the plan has them; `deps`: who has the most waiting for it first; `waves`: layer by layer, each landed
    as a whole. A task never starts before what it depends on has landed."""
    slots: Count = 1
    """Tasks at work at the same time, unless the command line or the config says how many."""
    pause: str = ""
    """auto | checkpoint | batch | $setting"""
    pause_every: Count = 3
    """Tasks between pauses, with `batch`."""
    failure: str = "stop"
    """retry (once, then without it) | continue (without it) | stop | $setting: what `fail` means."""
    steps: tuple[Step, ...]
    """What each task goes through: phases of the kinds produce, review and command."""
    land: Land = Land(on={})
    """How a task's commits join the run's tip."""
    done_label: str = ""
    """The name of the state of a finished task."""
    out: str = ""
    """The artifact that holds the results."""

    def artifacts_in(self) -> set[str]:
        return {self.source} | {name for step in self.steps for name in step.artifacts_in()}

    def artifacts_out(self) -> set[str]:
        own = {self.out} if self.out else set()
        return own | {name for step in self.steps for name in step.artifacts_out()}

    def roles(self) -> set[str]:
        fixer = {self.land.fixer.role} if self.land.fixer else set()
        return fixer | {name for step in self.steps for name in step.roles()}

    def parts(self) -> set[tuple[str, str]]:
        fixer = {(self.land.fixer.role, self.land.fixer.profile)} if self.land.fixer else set()
        return fixer | {part for step in self.steps for part in step.parts()}


class RunsTasks(Context, Protocol):
    """What this kind may do besides the verbs of every kind."""

    async def run_tasks(self, spec: TasksSpec) -> Outcome:
        """Start the plan's tasks as the schedule allows, take each through its steps, and land it."""
        ...


async def run(spec: TasksSpec, ctx: RunsTasks) -> Outcome:
    return await ctx.run_tasks(spec)


KIND = Kind("tasks", TasksSpec, OUTCOMES, run)
