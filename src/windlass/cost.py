"""The cost of a run: known, assumed, left. The only place that adds these up and formats them.

`status` loads this module, so it imports nothing heavy.
"""

from __future__ import annotations

from typing import NamedTuple

ASSUMED_USD = 0.5
"""For a dispatch of unknown cost, if its record has no assumed amount. Old records have none."""


def dollars(amount: float) -> str:
    return f"${amount:.{4 if 0 < amount < 0.005 else 2}f}"


class Cost(NamedTuple):
    known: float = 0.0
    """The cost that agents reported, or the price of the tokens that they reported."""
    assumed: float = 0.0
    """The amount assumed for unreported cost, until it is known."""
    unknown: int = 0
    """The number of dispatches with an assumed cost."""
    limit: float | None = None

    @property
    def spent(self) -> float:
        return self.known + self.assumed

    @property
    def left(self) -> float | None:
        return None if self.limit is None else max(self.limit - self.spent, 0.0)

    @property
    def text(self) -> str:
        """For a part of a run: `$0.16 + $0.50 assumed`."""
        if not self.unknown:
            return dollars(self.known)
        return f"{f'{dollars(self.known)} + ' if self.known else ''}{dollars(self.assumed)} assumed"

    @property
    def line(self) -> str:
        """For a whole run: `$0.66 of $20.00 ($0.50 of it assumed for 1 dispatch of unknown cost), $19.34 left`."""
        left = "" if self.left is None else f", {dollars(self.left)} left"
        return f"{self.spent_of_limit}{left}"

    @property
    def spent_of_limit(self) -> str:
        text = f"{dollars(self.spent)}{'' if self.limit is None else f' of {dollars(self.limit)}'}"
        if not self.unknown:
            return text
        dispatches = "1 dispatch" if self.unknown == 1 else f"{self.unknown} dispatches"
        return f"{text} ({dollars(self.assumed)} of it assumed for {dispatches} of unknown cost)"


def assumed_for(cost_usd: float | None, assumed_usd: float | None) -> float:
    """The amount to count in addition to a dispatch's known cost."""
    if assumed_usd is not None:
        return assumed_usd
    return ASSUMED_USD if cost_usd is None else 0.0
