"""A flow with the numbers for a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from windlass.flow.schema import Flow
from windlass.kinds.spec import CallSpec, words_of
from windlass.kinds.visit_cost import When, holds


class FlowSizes(Struct, frozen=True):
    """A flow with a number of tasks and some settings; the other settings have their defaults."""

    flow: Flow
    tasks: int
    settings: Mapping[str, str]

    def fixed_value(self, name: str) -> str | None:
        """A setting's value; None while a person may still choose it."""
        if name in self.settings:
            return self.settings[name]
        asked = {one for phase in self.flow.all_phases() for one in phase.asked_settings()}
        return None if name in asked or name not in self.flow.settings else self.flow.settings[name].default

    def is_asked(self, name: str) -> bool | None:
        if name in self.settings or name not in self.flow.settings:
            return False
        return self.known(self.flow.settings[name].when)

    def number(self, value: int | str | None) -> int:
        if not isinstance(value, str):
            return value or 0
        setting = self.flow.settings.get(value[1:])
        text = self.settings.get(value[1:], setting.default if setting else "0")
        return int(text) if text.isdecimal() else 0

    def words(self, word: str) -> tuple[str, ...]:
        fixed_value = self.fixed_value(word[1:]) if word.startswith("$") else None
        return (fixed_value,) if fixed_value is not None else words_of(self.flow, word)

    def known(self, when: When) -> bool | None:
        """Whether a condition holds: no as soon as one part does not, None while a part is open."""
        verdicts: list[bool | None] = []
        for name, wanted in when.items():
            value = self.fixed_value(name)
            verdicts.append(None if value is None else holds({name: wanted}, {name: value}.get))
        return False if False in verdicts else None if None in verdicts else True

    def mode(self) -> str:
        if not self.flow.modes:
            return ""
        chosen = self.fixed_value("mode")
        return chosen if chosen in self.flow.modes else next(iter(self.flow.modes))

    def count(self, calls: Sequence[CallSpec]) -> tuple[int, int]:
        """The least and the greatest number of dispatches of these calls."""
        there = [(call, self.known(call.when), self.number(call.times)) for call in calls]
        fewest = sum(times for call, holds, times in there if holds and not call.optional)
        return fewest, sum(times for _, holds, times in there if holds is not False)
