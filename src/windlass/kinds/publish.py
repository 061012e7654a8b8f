"""publish: the run's branch leaves this machine: push, pull request, tag. Never by force, never twice."""

from __future__ import annotations

from typing import ClassVar, Literal

from windlass.kinds.base import Context, Kind, Outcome
from windlass.kinds.spec import PhaseSpec


class PublishSpec(PhaseSpec, frozen=True, kw_only=True, tag="publish"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok", "failed")
    RUN_TEMPLATES: ClassVar[tuple[str, ...]] = ("tag",)

    do: tuple[Literal["push", "pr", "tag"], ...]
    """In order: push the branch, open a pull request, set a tag. What the machine has no means for is left out, and
    the commands that do it are shown."""
    remote: str = ""
    """Where to; a name or a $setting. Not given: what git would push to."""
    base: str = ""
    """The branch that the pull request is for; a name or a $setting. Not given: what was checked out at the start."""
    tag: str = "{slug}-{id8}"
    """The tag's name; {slug}, {id8} and {date} are filled in."""


async def run(spec: PublishSpec, ctx: Context) -> Outcome:
    for what in spec.do:
        done = await ctx.publish(
            what, remote=ctx.values.setting(spec.remote), base=ctx.values.setting(spec.base), tag=spec.tag
        )
        if done.state == "failed":
            return Outcome("failed", done.detail)
    return Outcome("ok")


KIND = Kind(PublishSpec, run)
