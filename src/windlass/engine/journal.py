"""Keyed steps: a step with a result never runs again.

A step's key is its name, and the fingerprint of its inputs its identity. A replay from the top visits the same keys:
those with a result return it, the first without one runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from types import TracebackType

from windlass.engine.attempts import AttemptLog
from windlass.engine.event_log import EventLog
from windlass.errors import JournalMismatchError, StoppedError
from windlass.events import Event, Recorded, Warned
from windlass.git.disk import Barrier
from windlass.model import Json, Key, canonical, compact, digest, text_digest
from windlass.store.epoch import EpochClaim
from windlass.store.port import Store
from windlass.store.rows import AdoptionRow, StepRow
from windlass.store.tips import tips_of_steps


class Journal:
    """The record of one run, as its driver reads and writes it."""

    def __init__(
        self,
        store: Store,
        claim: EpochClaim,
        *,
        publish: Callable[[Recorded], None] = lambda recorded: None,
        crash: Callable[[str], None] = lambda point: None,
        barrier: Barrier | None = None,
    ) -> None:
        """`barrier`: files that a record may name. It is settled before such a record."""
        self._barrier = barrier or Barrier()
        self.store = store
        self.claim = claim
        self.run = claim.run
        self._crash = crash
        self._steps: dict[str, StepRow] = {row.key: row for row in store.steps.all(self.run)}
        self._replaced: dict[str, StepRow] = {row.key: row for row in store.steps.superseded(self.run)}
        self._visited: set[str] = set()
        self.adoptions: Sequence[AdoptionRow] = store.adoptions.all(self.run)
        self.events = EventLog(store, claim, publish)
        self.tips = TipLog(store, claim)
        self.attempts = AttemptLog(self)

    # -- steps

    def find(self, key: Key, inputs: Json) -> StepRow | None:
        """The recorded step with these inputs. Other inputs stop the run, unless an adoption covers the key."""
        self._visited.add(key.text)
        row = self._steps.get(key.text)
        if row is None or row.fingerprint == digest(inputs):
            return row
        adoption = self._adoption_of(key.text)
        if adoption is None:
            raise JournalMismatchError(
                f"step '{key}' was recorded with other inputs: {_difference(row.inputs, inputs)}",
                hint="something it depends on changed without being adopted; see windlass show",
            )
        self.store.steps.supersede(self.claim, row.key, adoption.id)
        self._replaced[row.key] = self._steps.pop(row.key)
        return None

    def previous(self, key: Key) -> Json:
        """The result that an adoption replaced; None if there is none."""
        row = self._replaced.get(key.text)
        return row.result if row else None

    async def step(
        self,
        key: Key,
        inputs: Json,
        fn: Callable[[Json], Awaitable[Json]],
        *,
        context: Json = None,
        events: Callable[[Json], Iterable[Event]] = lambda result: (),
        tip: Callable[[Json], str] | None = None,
        synced: bool = True,
    ) -> Json:
        """Record fn's result once, in one transaction with its events. `tip`: the commit that it puts on the run's tip.
        `synced`: as in `Store.transaction`."""
        row = self.find(key, inputs)
        if row is not None:
            return row.result
        result = await fn(self.previous(key))
        await self.settle()
        with self.writing(key.text, synced=synced):
            self.add(key, inputs, context, result)
            if tip is not None:
                self.tips.put(key.text, tip(result))
            self.events.add(*events(result))
        return result

    def add(self, key: Key, inputs: Json, context: Json, result: Json) -> None:
        """Inside `writing`: the step's result."""
        given, value = canonical(inputs), compact(result)
        fingerprint = text_digest(given)
        seq = self.store.steps.add(self.claim, key.text, fingerprint, given, compact(context), value)
        # A step must return the same value now and on replay: no tuples, no int keys.
        self._steps[key.text] = StepRow(seq, key.text, fingerprint, given, value)
        self._visited.add(key.text)

    def give_up(self, keys: Sequence[str], lost: Collection[str], why: str) -> None:
        """Treat steps with lost results as never done. Their results stay on record.

        `lost`: the missing commits. The tip goes back to the last one of the other steps.
        """
        with self.writing("repair", *[Warned("recovery", why)] if why else []):
            for key in keys:
                self.store.steps.supersede(self.claim, key, 0)
                self._replaced[key] = self._steps.pop(key)
            self.events.forget(keys)
            if keys and self.tips.now:
                left = [tip for tip in tips_of_steps(self._steps.values()) if tip not in lost]
                self.tips.put("", left[0] if left else self.store.runs.get(self.run).base)

    def recorded(self, key: Key) -> StepRow | None:
        return self._steps.get(key.text)

    def recorded_keys(self) -> Sequence[StepRow]:
        return sorted(self._steps.values(), key=lambda row: row.seq)

    def unknown_under(self, prefix: Key) -> list[str]:
        """Steps recorded below this phase that the replay never visited: this version does not know them."""
        start = prefix.text + "/"
        return [
            k for k in self._steps if k.startswith(start) and k not in self._visited and self._adoption_of(k) is None
        ]

    def pass_over(self, prefix: Key) -> None:
        """Mark the steps below this key as known; a later visit replaced them."""
        start = prefix.text + "/"
        self._visited.update(key for key in self._steps if key.startswith(start))

    def _adoption_of(self, key: str) -> AdoptionRow | None:
        """The last adoption that covers this key."""
        for adoption in reversed(self.adoptions):
            if any(key == covered or key.startswith(covered + "/") for covered in adoption.covers):
                return adoption
        return None

    # -- transactions

    async def settle(self) -> None:
        """Sync the files that were written so far: from here on a record may name them."""
        if not self._barrier.is_clear:
            await asyncio.to_thread(self._barrier.settle)

    def writing(self, point: str, *events: Event, synced: bool = True) -> JournalTransaction:
        """A transaction of this driver, with its events. `point`: its name for crash tests."""
        return JournalTransaction(self, self._crash, point, events, synced)

    def emit(self, at: str, *events: Event) -> None:
        """See `EventLog.emit`."""
        self.events.emit(at, *events)

    def flush(self) -> None:
        """Write the events that wait for the next transaction."""
        if not self.events.is_empty:
            with self.writing("flush", synced=False):
                pass


class TipLog:
    """The commits of the run's tip, oldest first."""

    def __init__(self, store: Store, claim: EpochClaim) -> None:
        self._table = store.tips
        self._claim = claim
        self.all = store.tips.all(claim.run)

    @property
    def now(self) -> str:
        """The run's tip, whatever its ref shows; '' while none is recorded."""
        return self.all[-1] if self.all else ""

    def put(self, key: str, sha: str) -> None:
        """Inside `Journal.writing`: this step puts this commit on the tip. Move the ref only after the commit."""
        if sha == self.now:
            return
        if not self._table.add(self._claim, sha, key, self.now):
            raise StoppedError("the run's tip was moved by another driver", hint="windlass resume")
        self.all = [*self.all, sha]


class JournalTransaction:
    """One transaction of the journal, with crash points around it. Publishes events only after the commit."""

    def __init__(
        self, journal: Journal, crash: Callable[[str], None], point: str, events: Sequence[Event], synced: bool
    ) -> None:
        self._journal = journal
        self._crash = crash
        self._point = point
        self._events = events
        self._transaction = journal.store.transaction(synced=synced)
        self._tips = journal.tips.all

    def __enter__(self) -> None:
        self._crash(f"before {self._point}")
        self._transaction.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        journal = self._journal
        try:
            if error is not None:
                journal.tips.all = self._tips
                self._transaction.__exit__(kind, error, at)
                return
            written = self._write()
            self._transaction.__exit__(None, None, None)
        except BaseException:
            journal.tips.all = self._tips
            raise
        self._crash(f"after {self._point}")
        journal.events.publish(written)

    def _write(self) -> list[Recorded]:
        try:
            self._journal.events.add(*self._events)
            return self._journal.events.write()
        except BaseException as error:
            self._transaction.__exit__(type(error), error, error.__traceback__)
            raise


def _difference(old: Json, new: Json) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        names = [name for name in sorted(set(old) | set(new)) if old.get(name) != new.get(name)]
        return "; ".join(f"{name}: {_short(old.get(name))} -> {_short(new.get(name))}" for name in names)
    return f"{_short(old)} -> {_short(new)}"


def _short(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def again_count(journal: Journal, phase: Key) -> int:
    """How often a person asked to continue this list of tasks after a reported failure."""
    start = f"{phase}/again#"
    return sum(row.key.startswith(start) for row in journal.recorded_keys())


def retried_since(journal: Journal, phase: Key, id: str) -> bool:
    """Whether a person asked to continue after the failure that is recorded under that name."""
    row, now = journal.find(phase.child(id), None), again_count(journal, phase)
    for nth in range(1, now + 1):
        journal.find(phase.child("again", cycle=nth), None)
    return row is not None and isinstance(row.result, int) and now > row.result


def refuse_unknown(journal: Journal, prefix: Key) -> None:
    unknown = journal.unknown_under(prefix)
    if unknown:
        raise StoppedError(
            f"this version does not know these recorded steps: {', '.join(sorted(unknown)[:5])}",
            hint="resume with the version that recorded them, or fork the run before this phase",
        )
