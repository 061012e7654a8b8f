"""The cost of one visit of a phase: dispatches and questions, fewest and most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from windlass.model import Json

When: TypeAlias = dict[str, bool | str | tuple[str, ...]]
"""{fact: value | [any of]}; all must hold."""


class VisitCost(Struct, frozen=True):
    """Infinite minima mean that no route leads to the end from here."""

    min_dispatches: float = 0
    max_dispatches: float = 0
    min_questions: float = 0
    max_questions: float = 0

    def plus(self, other: VisitCost) -> VisitCost:
        return VisitCost(*(mine + theirs for mine, theirs in zip(self.numbers(), other.numbers(), strict=True)))

    def times(self, fewest: int, most: int) -> VisitCost:
        return VisitCost(
            self.min_dispatches * fewest if fewest else 0,
            self.max_dispatches * most,
            self.min_questions * fewest if fewest else 0,
            self.max_questions * most,
        )

    def either(self, other: VisitCost) -> VisitCost:
        return VisitCost(
            min(self.min_dispatches, other.min_dispatches),
            max(self.max_dispatches, other.max_dispatches),
            min(self.min_questions, other.min_questions),
            max(self.max_questions, other.max_questions),
        )

    def numbers(self) -> tuple[float, float, float, float]:
        return self.min_dispatches, self.max_dispatches, self.min_questions, self.max_questions


class Sizes(Protocol):
    """A flow with a number of tasks and some settings; the other settings have their defaults."""

    @property
    def flow(self) -> Any: ...

    @property
    def settings(self) -> Mapping[str, str]: ...

    def number(self, value: int | str | None) -> int: ...

    def words(self, word: str) -> tuple[str, ...]: ...

    def count(self, calls: Sequence[Any]) -> tuple[int, int]:
        """The least and the greatest number of dispatches of these calls."""
        ...

    def is_asked(self, name: str) -> bool | None:
        """Whether the run asks for this setting; None when only the run decides."""
        ...


def holds(when: When, fact: Callable[[str], Json]) -> bool:
    return all(_equal(fact(name), expected) for name, expected in when.items())


def _equal(value: Json, expected: bool | str | Sequence[str]) -> bool:
    if isinstance(expected, tuple | list):
        return any(_equal(value, one) for one in expected)
    return _word(value) == _word(expected)


def _word(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
