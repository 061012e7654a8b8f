"""dialogue: agent and person alternate in free text until the agent is ready and the person confirms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windlass.phases.base import Count, Names, PhaseSpec

OUTCOMES = ("ok", "limit", "failed")


class Spec(PhaseSpec):
    kind: Literal["dialogue"]
    role: str
    """Who talks with the person."""
    max: Count = 10
    """The most rounds."""
    ins: Annotated[Names, Field(alias="in")] = ()
    out: Names = ()
    """What the talk makes."""
    replaces: Literal["", "request"] = ""
    """`request`: the refined text stands for the request from then on."""

    def artifacts_in(self) -> set[str]:
        return set(self.ins)

    def artifacts_out(self) -> set[str]:
        return set(self.out)

    def roles(self) -> set[str]:
        return {self.role}
