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
from windlass.store.database import Store
from windlass.store.rows import Intent, RunRow

RUN = RunRow(
    *("r1", "Add sub", "plan", "flow: plan", "add-sub", "2026-01-02", "0" * 40, "windlass/add-sub", {}),
    options={},
    state=RunState.RUNNING,
    started_at=1.0,
    updated_at=1.0,
)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


def put_run(store: Store, row: RunRow = RUN) -> Store:
    with store.tx():
        store.add_run(row)
        store.add_event(row.id, RunStarted(row.request, row.flow, row.base, row.branch, row.budget_usd, row.warn_usd))
        store.next_epoch(row.id)
    return store


@contextmanager
def stored(folder: Path, clock: Clock | None = None, *, budget: float | None = None) -> Iterator[Store]:
    store = Store.open(folder / "windlass.db", clock or Clock(), create=True)
    try:
        yield put_run(store, replace(RUN, budget_usd=budget, warn_usd=budget and budget / 2))
    finally:
        store.close()


def intent(key: str, n: int = 1, role: str = "scout", host: str = "here", slot: str = "") -> Intent:
    return Intent(key, n, f"attempts/{key}/@{n}", host, "boot", slot=slot, role=role)


def journal(store: Store, epoch: int = 1, **more: object) -> Journal:
    return Journal(store, RUN.id, epoch, **more)  # type: ignore[arg-type]
