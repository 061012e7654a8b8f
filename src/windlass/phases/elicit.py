"""elicit: an agent proposes items by contract, a person handles them one at a time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windlass.phases.base import Names, PhaseSpec

OUTCOMES = ("ok", "failed")


class Spec(PhaseSpec):
    kind: Literal["elicit"]
    role: str
    """Who proposes."""
    item: Literal["questions", "approaches", "sections"]
    """What is proposed."""
    min: int = 1
    """The fewest items."""
    max: int
    """The most items."""
    other: bool = False
    """The person may answer in their own words."""
    revise: bool = False
    """The person may send an item back."""
    ins: Annotated[Names, Field(alias="in")] = ()
    out: Names = ()

    def artifacts_in(self) -> set[str]:
        return set(self.ins)

    def artifacts_out(self) -> set[str]:
        return set(self.out)

    def roles(self) -> set[str]:
        return {self.role}
