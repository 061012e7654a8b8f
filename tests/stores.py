"""A store with one run in it, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from windlass.engine.journal import Journal
from windlass.events import RunStarted
from windlass.model import RunState
from windlass.store.epoch import EpochClaim
from windlass.store.port import Store
from windlass.store.rows import Intent, RunRow
from windlass.store.sqlite.store import SqliteStore

RUN = RunRow(
    *("r1", "Add sub", "plan", "flow: plan", "add-sub", "2026-01-02", "0" * 40, "windlass/add-sub", {}),
    options={},
    state=RunState.RUNNING,
    started_at=1.0,
    updated_at=1.0,
)


#: of the driver that `stored` leaves
CLAIM = EpochClaim(RUN.id, 1)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def put_run(store: Store, row: RunRow = RUN) -> None:
    with store.transaction():
        claim = store.runs.add(row)
        store.events.add(claim, RunStarted(row.request, row.flow, row.base, row.branch, row.budget_usd, row.warn_usd))
        store.runs.take(row.id)


@contextmanager
def stored(folder: Path, clock: Clock | None = None, *, budget: float | None = None) -> Iterator[SqliteStore]:
    store = SqliteStore.open(folder / "windlass.db", clock or Clock(), create=True)
    try:
        put_run(store, replace(RUN, budget_usd=budget, warn_usd=budget and budget / 2))
        yield store
    finally:
        store.close()


def intent(key: str, n: int = 1, role: str = "scout", host: str = "here", slot: str = "") -> Intent:
    return Intent(key, n, f"attempts/{key}/@{n}", host, "boot", slot=slot, role=role)


def journal(store: Store, epoch: int = 1, **more: object) -> Journal:
    """The journal of the driver with this epoch; one that does not drive yet takes the run."""
    while store.runs.get(RUN.id).epoch < epoch:
        store.runs.take(RUN.id)
    return Journal(store, EpochClaim(RUN.id, epoch), **more)  # type: ignore[arg-type]
