"""publish: the run's branch leaves this machine: push, pull request, tag."""

from __future__ import annotations

from typing import Literal

from windlass.phases.base import PhaseSpec

OUTCOMES = ("ok", "failed")


class Spec(PhaseSpec):
    kind: Literal["publish"]
    do: tuple[Literal["push", "pr", "tag"], ...]
    """In order: push the branch, open a pull request, set a tag."""
