"""Adds up the cost of a model's responses during a dispatch, and compares it with the CLI's own total."""

from __future__ import annotations

from msgspec import Struct, field

from windlass.agents.base import AgentEvent, Spent
from windlass.agents.cli.base import usage_sum
from windlass.model import Usage


class Tally(Struct):
    """Both are totals and never added to each other: the one with more tokens counts."""

    spent: Usage | None = None
    counted: set[str] = field(default_factory=set)
    """Counted responses: a CLI records one again when its tools have news."""
    final: Usage = Usage()

    def response(self, id: str, usage: Usage) -> list[AgentEvent]:
        if not id or id in self.counted or not _tokens(usage):
            return []
        self.counted.add(id)
        self.spent = usage_sum(self.spent, usage)
        return [Spent(self.spent, total=True)] if _tokens(self.spent) >= _tokens(self.final) else []

    def final_total(self, usage: Usage) -> list[AgentEvent]:
        """On equal tokens the sum of the responses stays: each is priced by its own size, and the total may fall into a
        more expensive tier."""
        if self.spent and _tokens(usage) <= _tokens(self.spent):
            return []
        self.final = usage
        return [Spent(usage, total=True)]


def _tokens(usage: Usage) -> int:
    return usage.input + usage.output
