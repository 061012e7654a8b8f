"""What a driver that died left behind: processes ended, work kept, attempts closed."""

from __future__ import annotations

from pathlib import Path

from windlass.agents.processes import end_leftover
from windlass.errors import StoppedError
from windlass.store.rows import AttemptRow
from windlass.store.sqlite import Store
from windlass.workspace import Attempt, Slots


def recover(store: Store, run: str, slots: Slots, folder: Path, *, host: str, boot: str) -> int:
    """The number of attempts that had begun and never ended. Their slots are not used again."""
    lost = store.open_attempts(run)
    for row in lost:
        _end_processes(row, run, slots, folder, host, boot)
    _leave_slots(store, run, slots, lost)
    with store.tx():
        for row in lost:
            store.interrupt(run, row.intent.key, row.intent.n)
    return len(lost)


def _end_processes(row: AttemptRow, run: str, slots: Slots, folder: Path, host: str, boot: str) -> None:
    intent = row.intent
    if intent.host != host:
        raise StoppedError(
            f"'{intent.key}' was begun on '{intent.host}', which may still be at work on it",
            hint=f"resume there, or make sure that nothing of run {run} runs on it",
        )
    slot = slots.slot(int(intent.slot)).path if intent.slot else None
    own = folder / intent.folder / "proc.json"
    # A landing's checks have folders of their own beside the attempt's.
    for proc in [own, *own.parent.parent.glob("check*/proc.json")]:
        gone = end_leftover(proc, host=host, boot_id=boot, marker=f"{run}:{intent.key}@{intent.n}", slot=slot)
        if not gone:
            raise StoppedError(
                f"processes of '{intent.key}' cannot be ended", hint=f"see {proc}, then: windlass resume"
            )


def _leave_slots(store: Store, run: str, slots: Slots, lost: list[AttemptRow]) -> None:
    at_work = {row.intent.slot: row for row in lost if row.intent.slot}
    for lease in slots.held(run):
        slot, row = slots.slot(lease.n), at_work.get(str(lease.n))
        if row is None:
            slots.release(slot, Attempt(run, lease.key, 0), store.clock())
        else:
            slots.retire(slot, Attempt(run, row.intent.key, row.intent.n), store.clock())
