"""What a driver that died left on this machine: end its processes, keep its work, close its attempts, find the
sessions that can go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from windlass.agents.process.supervise import end_leftover, is_at_work
from windlass.dispatch.site import InterruptedAttempt
from windlass.errors import GitError, StoppedError
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt
from windlass.git.repair import repair_slot
from windlass.git.slots import Lease, Slots
from windlass.store.port import Store
from windlass.store.rows import AttemptRow


class Recovered(Struct, frozen=True):
    lost: int
    """Attempts that had begun and never ended."""
    left: dict[str, InterruptedAttempt]
    """By key."""


def recover(
    store: Store,
    run: str,
    slots: Slots,
    folder: Path,
    *,
    host: str,
    boot: str,
    resumes: Callable[[str], bool],
    close: Callable[[Sequence[AttemptRow]], None],
    before_may_live: bool = False,
) -> Recovered:
    """`resumes`: whether that agent can continue a session of its own. `close`: records the end of attempts, when all
    their processes have ended.

    `before_may_live`: the driver before this one is not known to be dead, only to have been replaced. It cannot write
    any more, but a git or a check of its own may be at work in any of its slots: none of them is used again.
    """
    lost = store.attempts.running(run)
    if before_may_live:
        end_checks(slots.engine, folder, host, boot)
    end_attempts(lost, run, slots, folder, host, boot)
    _clear_ref_locks(slots, run)
    going_on = [row for row in (*lost, *_reserved(store, run, slots)) if row.session and row.intent.slot]
    going_on = [row for row in going_on if resumes(row.intent.agent)]
    intact = [row for row in going_on if _is_intact(row, slots) and not before_may_live]
    for row in intact:
        # This driver may be stopped before it goes on with them.
        slots.reserve(slots.slot(int(row.intent.slot)), Attempt(run, row.intent.key, row.intent.n))
    left = {row.intent.key: _left(row) for row in intact}
    _leave_slots(store, run, slots, lost, {int(row.intent.slot) for row in intact}, retire=before_may_live)
    close(lost)
    return Recovered(len(lost), left)


def _reserved(store: Store, run: str, slots: Slots) -> list[AttemptRow]:
    """Attempts that ended without a result, the last of their step, whose slot waits for their session to go on."""
    waiting = {lease.attempt: lease for lease in slots.leases_of(run) if lease.attempt}
    if not waiting:
        return []
    done = {step.key for step in store.steps.all(run)}
    last = {row.intent.key: row for row in store.attempts.all(run) if row.intent.key not in done}
    ended = [row for row in last.values() if row.state in ("failed", "interrupted")]
    return [row for row in ended if _holds(waiting.get(f"{row.intent.key}@{row.intent.n}"), row)]


def _holds(lease: Lease | None, row: AttemptRow) -> bool:
    return lease is not None and str(lease.n) == row.intent.slot


def _is_copied(row: AttemptRow, engine: EngineRepo) -> bool:
    return engine.about is not None and row.started_at < engine.about.copied_at


def _clear_ref_locks(slots: Slots, run: str) -> None:
    """A git that was killed leaves its lock. This driver is the run's only one, and nothing of it is at work."""
    for lock in (slots.engine.path / "refs" / "windlass" / run).rglob("*.lock"):
        lock.unlink(missing_ok=True)


def _left(row: AttemptRow) -> InterruptedAttempt:
    why = row.reason if row.state == "failed" else ""
    return InterruptedAttempt(row.session, row.intent.slot, row.intent.folder, row.intent.agent, why)


def _is_intact(row: AttemptRow, slots: Slots) -> bool:
    slot = slots.slot(int(row.intent.slot))
    if _is_copied(row, slots.engine):
        return False
    return slot.path.is_dir() and (slot.git_dir / "HEAD").is_file()


def end_attempts(rows: Sequence[AttemptRow], run: str, slots: Slots, folder: Path, host: str, boot: str) -> None:
    """Whatever of them still runs. In a copied repository they are those of the original, which goes on with them."""
    for row in rows:
        if not _is_copied(row, slots.engine):
            _end_processes(row, run, slots, folder, host, boot)


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


def end_checks(engine: EngineRepo, folder: Path, host: str, boot: str) -> None:
    """Of set-up, checks and proofs, which have no attempt of their own: whatever is on record and still runs."""
    copied_at = engine.about.copied_at if engine.about else 0.0
    for proc in (path for part in ("attempts", "setup") for path in (folder / part).rglob("proc.json")):
        if proc.stat().st_mtime <= copied_at:
            continue  # copied with the repository: the process is the original's
        if is_at_work(proc) and not end_leftover(proc, host=host, boot_id=boot, marker=""):
            raise StoppedError("processes of a check cannot be ended", hint=f"see {proc}, then: windlass resume")


def _leave_slots(store: Store, run: str, slots: Slots, lost: list[AttemptRow], kept: set[int], *, retire: bool) -> None:
    """A slot with an open attempt is never used again, unless the agent's own session goes on in it."""
    at_work = {row.intent.slot: row for row in lost if row.intent.slot}
    for lease in slots.leases_of(run):
        slot, row = slots.slot(lease.n), at_work.get(str(lease.n))
        if lease.n in kept:
            continue
        whose = Attempt(run, row.intent.key, row.intent.n) if row else Attempt(run, lease.key, 0)
        leave = slots.retire if row or retire else slots.release
        try:
            repair_slot(slot, row.intent.base if row else store.runs.get(run).base, slots.engine.user.object_format)
            leave(slot, whose, store.clock())
        except GitError:
            # Nobody can say what is in it: the files stay where they are, and the slot is not used again. After a
            # GitUnansweredError the slot stays leased, and the next driver keeps what is in it.
            slots.abandon(slot, whose)
