"""publish: pushes the run's branch, opens a pull request, sets a tag. Never by force, never twice."""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from msgspec import field

from windlass.kinds.base import Context, Kind, Outcome, PublishResult
from windlass.kinds.spec import PhaseSpec
from windlass.kinds.visit_cost import When, holds


class PublishSpec(PhaseSpec, frozen=True, kw_only=True, tag="publish"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok", "failed")
    RUN_TEMPLATES: ClassVar[tuple[str, ...]] = ("tag",)

    do: tuple[Literal["push", "pr", "tag"], ...]
    """In order: push the branch, open a pull request, set a tag. A step that this machine cannot do is left out, and
    its commands are shown."""
    condition: When = field(default_factory=dict, name="if")
    """Publish only if these facts hold. Otherwise the phase ends without doing anything."""
    remote: str = ""
    """The remote: a name or a $setting. Default: the remote that git would push to."""
    base: str = ""
    """The base of the pull request: a name or a $setting. Default: the branch checked out at the start."""
    tag: str = "{slug}-{id8}"
    """The tag's name, with the placeholders {slug}, {id8} and {date}."""


class PublishesRun(Context, Protocol):
    """The verbs of every kind, and the one of this kind."""

    async def publish(self, what: str, *, remote: str, base: str, tag: str) -> PublishResult:
        """push | pr | tag of the run's branch, once."""
        ...


async def run(spec: PublishSpec, ctx: PublishesRun) -> Outcome:
    if not holds(spec.condition, ctx.values.fact):
        return Outcome("ok", "nothing to publish")
    for what in spec.do:
        done = await ctx.publish(
            what, remote=ctx.values.setting(spec.remote), base=ctx.values.setting(spec.base), tag=spec.tag
        )
        if done.state == "failed":
            return Outcome("failed", done.detail)
    return Outcome("ok")


KIND = Kind(PublishSpec, run)
