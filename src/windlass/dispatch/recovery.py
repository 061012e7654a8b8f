"""Cleans up after a dead driver on this machine: ends its processes, keeps its work, closes its attempts, and finds
the sessions that can continue."""

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
from windlass.git.slots import Slots
from windlass.store.port import Store
from windlass.store.rows import AttemptRow


class Recovery(Struct, frozen=True):
    lost: int
    """The number of attempts without a recorded end."""
    left: dict[str, InterruptedAttempt]
    """The attempts that can continue, by key."""


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
    predecessor_may_run: bool = False,
) -> Recovery:
    """`resumes`: whether the agent can continue its sessions. `close`: records the end of attempts, after all their
    processes have ended.

    `predecessor_may_run`: the last driver was replaced, and may still be alive. It cannot write to the store, but its
    gits and checks may still run in its slots, so no slot is used again.
    """
    lost = store.attempts.running(run)
    if predecessor_may_run:
        end_checks(slots.engine, folder, host, boot)
    end_attempts(lost, run, slots, folder, host, boot)
    for lock in (slots.engine.path / "refs" / "windlass" / run).rglob("*.lock"):
        # A killed git left it. This is the only driver, and it has not started a git yet.
        lock.unlink(missing_ok=True)
    resumable = [row for row in (*lost, *_reserved_attempts(store, run, slots)) if row.session and row.intent.slot]
    resumable = [row for row in resumable if resumes(row.intent.agent)]
    intact = [row for row in resumable if _is_intact(row, slots) and not predecessor_may_run]
    left: dict[str, InterruptedAttempt] = {}
    for row in intact:
        intent, why = row.intent, row.reason if row.state == "failed" else ""
        # This driver may stop before it continues them.
        slots.reserve(slots.slot(int(intent.slot)), Attempt(run, intent.key, intent.n))
        left[intent.key] = InterruptedAttempt(row.session, intent.slot, intent.folder, intent.agent, why)
    _leave_slots(store, run, slots, lost, {int(row.intent.slot) for row in intact}, retire=predecessor_may_run)
    close(lost)
    return Recovery(len(lost), left)


def _reserved_attempts(store: Store, run: str, slots: Slots) -> list[AttemptRow]:
    """Attempts without a result, the last of their steps, with a slot that is reserved for their session."""
    waiting = {(lease.attempt, str(lease.n)) for lease in slots.leases_of(run) if lease.attempt}
    if not waiting:
        return []
    done = {step.key for step in store.steps.all(run)}
    last = {row.intent.key: row for row in store.attempts.all(run) if row.intent.key not in done}
    ended = [row for row in last.values() if row.state in ("failed", "interrupted")]
    return [row for row in ended if (f"{row.intent.key}@{row.intent.n}", row.intent.slot) in waiting]


def _is_copied(row: AttemptRow, engine: EngineRepo) -> bool:
    return engine.about is not None and row.started_at < engine.about.copied_at


def _is_intact(row: AttemptRow, slots: Slots) -> bool:
    slot = slots.slot(int(row.intent.slot))
    if _is_copied(row, slots.engine):
        return False
    return slot.path.is_dir() and (slot.git_dir / "HEAD").is_file()


def end_attempts(rows: Sequence[AttemptRow], run: str, slots: Slots, folder: Path, host: str, boot: str) -> None:
    """End the processes of these attempts. A copied repository skips the attempts of the original, which still owns
    them."""
    for row in rows:
        if _is_copied(row, slots.engine):
            continue
        intent = row.intent
        if intent.host != host:
            raise StoppedError(
                f"'{intent.key}' was started on '{intent.host}', and may still run there",
                hint=f"resume on that host, or make sure that no process of run {run} is left on it",
            )
        slot = slots.slot(int(intent.slot)).path if intent.slot else None
        own = folder / intent.folder / "proc.json"
        # The checks of a landing have their own folders next to the attempt's folder.
        for proc in [own, *own.parent.parent.glob("check*/proc.json")]:
            gone = end_leftover(proc, host=host, boot_id=boot, marker=f"{run}:{intent.key}@{intent.n}", slot=slot)
            if not gone:
                hint = f"see {proc}, then: windlass resume"
                raise StoppedError(f"cannot end the processes of '{intent.key}'", hint=hint)


def end_checks(engine: EngineRepo, folder: Path, host: str, boot: str) -> None:
    """End the recorded processes of set-up, checks and proofs, which have no attempts."""
    copied_at = engine.about.copied_at if engine.about else 0.0
    for proc in (path for part in ("attempts", "setup") for path in (folder / part).rglob("proc.json")):
        if proc.stat().st_mtime <= copied_at:
            continue  # copied with the repository: the process belongs to the original
        if is_at_work(proc) and not end_leftover(proc, host=host, boot_id=boot, marker=""):
            raise StoppedError("cannot end the processes of a check", hint=f"see {proc}, then: windlass resume")


def _leave_slots(
    store: Store, run: str, slots: Slots, lost: list[AttemptRow], reserved: set[int], *, retire: bool
) -> None:
    """A slot with an open attempt is not used again, unless the agent's session continues in it."""
    open_attempts = {row.intent.slot: row for row in lost if row.intent.slot}
    for lease in slots.leases_of(run):
        slot, row = slots.slot(lease.n), open_attempts.get(str(lease.n))
        if lease.n in reserved:
            continue
        attempt = Attempt(run, row.intent.key, row.intent.n) if row else Attempt(run, lease.key, 0)
        leave = slots.retire if row or retire else slots.release
        try:
            repair_slot(slot, row.intent.base if row else store.runs.get(run).base, slots.engine.user.object_format)
            leave(slot, attempt, store.clock())
        except GitError:
            # The content of the slot is unknown, so the files stay and the slot is not used again. After a
            # GitUnansweredError the slot stays leased, and the next driver keeps its work.
            slots.abandon(slot, attempt)
