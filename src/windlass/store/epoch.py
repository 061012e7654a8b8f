"""The writers of the store: a driver with its epoch, or a person.

A run's epoch is the number of its driver. Each new driver raises it in a write transaction. A driver's write compares
the epoch inside its transaction, so no other driver can take over between the comparison and the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

from msgspec import Struct

from windlass.errors import TakenOverError
from windlass.model import RunState


class EpochClaim(Struct, frozen=True):
    """A driver's claim on a run: its epoch, and the lock that it holds.

    A claim without a run has epoch 0. `windlass check` fills the check cache under such a claim.
    """

    run: str
    epoch: int
    require_lock: Callable[[], None] = lambda: None
    """Raises TakenOverError when the lock is lost."""

    def require(self, epoch: int, state: str) -> None:
        """Raises TakenOverError unless the run's `epoch` in the store is the claim's, and the lock is held."""
        if epoch != self.epoch:
            self.refuse(epoch, state)
        self.require_lock()

    def refuse(self, epoch: int, state: str) -> NoReturn:
        now = f"; the run is {state}" if state in (RunState.FINISHED, RunState.ABORTED) else ""
        raise TakenOverError(
            f"another driver (epoch {epoch}) took over run {self.run}{now}",
            hint=f"this driver has changed nothing since then. To see the state of the run: windlass status {self.run}",
        )


class Person(Struct, frozen=True):
    """A person's command for a run. It has no epoch, because a person may answer, tell or land under any driver."""

    run: str


Writer: TypeAlias = EpochClaim | Person
