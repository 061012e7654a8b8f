"""The facts of a run, as a test wants them."""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.flow.schema import Flow
from windlass.model import Json


@dataclass
class FakeFacts:
    """Facts by name. Every gate is open unless it is in `shut`."""

    facts: dict[str, Json] = field(default_factory=dict)
    shut: frozenset[str] = frozenset()
    flow: Flow | None = None

    def fact(self, name: str) -> Json:
        return self.facts.get(name)

    def number(self, value: int | str) -> int:
        if isinstance(value, int) or not value.startswith("$"):
            return int(value)
        assert self.flow
        return int(self.flow.settings[value[1:]].default or 1)

    def unmet_needs(self, needs: tuple[str, ...]) -> list[str]:
        return [need for need in needs if need in self.shut]
