"""elicit: an agent proposes items by contract, a person handles them one at a time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from windlass.phases.base import Names, PhaseSpec

OUTCOMES = ("ok", "failed")


class Spec(PhaseSpec):
    kind: Literal["elicit"]
    role: str
    item: Literal["questions", "approaches", "sections"]
    min: int = 1
    max: int
    other: bool = False
    revise: bool = False
    ins: Annotated[Names, Field(alias="in")] = ()
    out: Names = ()

    def artifacts_in(self) -> set[str]:
        return set(self.ins)

    def artifacts_out(self) -> set[str]:
        return set(self.out)

    def roles(self) -> set[str]:
        return {self.role}
