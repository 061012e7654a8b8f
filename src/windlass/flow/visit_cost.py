"""What one visit of a phase can cost: dispatches and questions, fewest and most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from windlass.flow.outcomes import AnyPhase, values
from windlass.flow.schema import Flow
from windlass.kinds import ask, command, dialogue, elicit, produce, publish, report, review, tasks
from windlass.kinds.base import CallSpec, When, holds


class VisitCost(Struct, frozen=True):
    """Infinite minima mean: there is no way to the end from here."""

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


class TaskCounts(Struct, frozen=True):
    """A flow with as many tasks and with the settings that are given; the others keep their defaults."""

    flow: Flow
    tasks: int
    settings: Mapping[str, str]

    def pinned(self, name: str) -> str | None:
        """A setting's value, None while a person may still choose it."""
        if name in self.settings:
            return self.settings[name]
        return None if name in self._asked() or name not in self.flow.settings else self.flow.settings[name].default

    def _asked(self) -> set[str]:
        return {name for phase in self.flow.all_phases() if isinstance(phase, ask.AskSpec) for name in phase.settings}

    def number(self, value: int | str | None) -> int:
        if not isinstance(value, str):
            return value or 0
        setting = self.flow.settings.get(value[1:])
        text = self.settings.get(value[1:], setting.default if setting else "0")
        return int(text) if text.isdecimal() else 0

    def words(self, word: str) -> tuple[str, ...]:
        pinned = self.pinned(word[1:]) if word.startswith("$") else None
        return (pinned,) if pinned is not None else values(self.flow, word)

    def known(self, when: When) -> bool | None:
        """Whether a condition holds: no as soon as one part does not, None while a part is open."""
        verdicts = [self._known({name: wanted}) for name, wanted in when.items()]
        return False if False in verdicts else None if None in verdicts else True

    def _known(self, when: When) -> bool | None:
        value = self.pinned(next(iter(when)))
        return None if value is None else holds(when, lambda _name: value)

    def mode(self) -> str:
        if not self.flow.modes:
            return ""
        chosen = self.pinned("mode")
        return chosen if chosen in self.flow.modes else next(iter(self.flow.modes))

    def count(self, calls: Sequence[CallSpec]) -> tuple[int, int]:
        """How many dispatches these calls are, at least and at most."""
        there = [(call, self.known(call.when)) for call in calls]
        fewest = sum(self.number(call.times) for call, holds in there if holds and not call.optional)
        return fewest, sum(self.number(call.times) for call, holds in there if holds is not False)


def load_of(sizes: TaskCounts, phase: AnyPhase) -> VisitCost:
    """A tasks phase costs what its tasks cost, which is not known here; the questions of routes are counted there."""
    match phase:
        case produce.ProduceSpec():
            return _produce(sizes, phase)
        case review.ReviewSpec():
            return _review(sizes, phase)
        case command.CommandSpec():
            return VisitCost(max_dispatches=sizes.number(phase.max) if phase.fixer else 0)
        case elicit.ElicitSpec():
            return _elicit(phase)
        case dialogue.DialogueSpec():
            rounds = max(1, sizes.number(phase.max))
            return VisitCost(1, rounds, 1, rounds)
        case ask.AskSpec():
            return _ask(sizes, phase)
        case publish.PublishSpec() | report.ReportSpec() | tasks.TasksSpec():
            return VisitCost()
        case _:
            assert_never(phase)


def landing_load(sizes: TaskCounts, spec: tasks.TasksSpec) -> VisitCost:
    return VisitCost(max_dispatches=sizes.number(spec.land.max) if spec.land.fixer else 0)


def _produce(sizes: TaskCounts, spec: produce.ProduceSpec) -> VisitCost:
    fewest, _ = sizes.count(spec.calls)
    merges = 1 if isinstance(spec.merge, produce.Merge) else 0
    most = sum(sizes.count([call])[1] * (spec.empty.retry + 1 if call.out else 1) for call in spec.calls)
    # a fallback stands in for a role that is not available, so nothing has to be dispatched
    return VisitCost(0 if spec.fallback else fewest + merges, most + merges)


def _review(sizes: TaskCounts, spec: review.ReviewSpec) -> VisitCost:
    fewest, most = sizes.count(spec.reviewers)
    cycles = sizes.number(spec.max) if spec.fixer and "iterative" in sizes.words(spec.mode) else 0
    return VisitCost(fewest, most * (cycles + 1) + cycles)


def _elicit(spec: elicit.ElicitSpec) -> VisitCost:
    if spec.item == "approaches":
        return VisitCost(1, 1, 1, 2 if spec.other else 1)
    return VisitCost(1, 1, spec.min, spec.max)


def _ask(sizes: TaskCounts, spec: ask.AskSpec) -> VisitCost:
    open_ones = [name for name in spec.settings if name not in sizes.settings and name in sizes.flow.settings]
    verdicts = [sizes.known(sizes.flow.settings[name].when) for name in open_ones]
    return VisitCost(0, 0, sum(v is True for v in verdicts), sum(v is not False for v in verdicts))
