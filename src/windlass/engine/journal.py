"""Keyed steps: what has a result is not done twice.

A step's name is its key, its identity the fingerprint of its inputs. A replay from the top visits the same keys;
those with a result return it, the first without one runs.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from windlass.errors import JournalMismatchError, StoppedError
from windlass.events import Event, Recorded, Warned, encode
from windlass.git.disk import Barrier
from windlass.model import ErrorClass, Json, Key, Usage, canonical, compact, digest, text_digest
from windlass.store.database import Store
from windlass.store.rows import AdoptionRow, AttemptRow, Intent, StepRow
from windlass.store.tips import tips_of_steps


class AttemptFailure(Struct, frozen=True):
    """Why an attempt gave no good result."""

    error: ErrorClass
    reason: str
    retry_at: float | None = None
    """When the service said it may be tried again."""
    hint: str = ""
    """The way out, where it is not that of the class."""


class EndedLanding(Struct, frozen=True):
    """An attempt at a landing with its result."""

    key: Key
    n: int
    inputs: Json
    result: Json
    events: Sequence[Event]


class Journal:
    def __init__(
        self,
        store: Store,
        run: str,
        epoch: int,
        *,
        publish: Callable[[Recorded], None] = lambda recorded: None,
        crash: Callable[[str], None] = lambda point: None,
        barrier: Barrier | None = None,
    ) -> None:
        """`barrier`: files that a record may name. It is settled before anything is recorded that names one."""
        self._barrier = barrier or Barrier()
        self.store = store
        self.run = run
        self.epoch = epoch
        self._publish = publish
        self._crash = crash
        self._steps: dict[str, StepRow] = {row.key: row for row in store.steps(run)}
        self._replaced: dict[str, StepRow] = {row.key: row for row in store.superseded(run)}
        self._visited: set[str] = set()
        self._marks = store.marks(run)
        self.tips = store.tips(run)
        """What was put on the run's tip, oldest first."""
        self._waiting: list[tuple[Event, str]] = []
        self.adoptions: Sequence[AdoptionRow] = store.adoptions(run)
        self._seen = store.last_event(run)
        self._own: set[int] = set()

    # -- the tip

    @property
    def tip(self) -> str:
        """The run's tip, whatever its ref shows; '' while the run has none on record."""
        return self.tips[-1] if self.tips else ""

    def put_tip(self, key: str, sha: str) -> None:
        """Inside a transaction: that step puts this commit on the tip. Move the ref only after it is committed."""
        if sha == self.tip:
            return
        if not self.store.add_tip(self.run, sha, key, self.tip):
            raise StoppedError("the run's tip was moved by another driver", hint="windlass resume")
        self.tips = [*self.tips, sha]

    # -- steps

    def find(self, key: Key, inputs: Json) -> StepRow | None:
        """The recorded step with these inputs. Other inputs stop the run, unless an adopted change covers the key."""
        self._visited.add(key.text)
        row = self._steps.get(key.text)
        if row is None or row.fingerprint == digest(inputs):
            return row
        adoption = self._covering(key.text)
        if adoption is None:
            raise JournalMismatchError(
                f"step '{key}' was recorded with other inputs: {_difference(row.inputs, inputs)}",
                hint="something it depends on changed without being adopted; see windlass show",
            )
        self._supersede(row, adoption)
        return None

    def previous(self, key: Key) -> Json:
        """The result that an adopted change replaced, None if there is none."""
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
        """Record fn's result once, in one transaction with its events. `tip`: the commit it puts on the run's tip.
        `synced`: as in `Store.tx`."""
        row = self.find(key, inputs)
        if row is not None:
            return row.result
        result = await fn(self.previous(key))
        await self.settle()
        with self._recording(key.text, synced=synced):
            self._add(key, inputs, context, result)
            if tip is not None:
                self.put_tip(key.text, tip(result))
            self._write(events(result))
        return result

    def give_up(self, keys: Sequence[str], lost: Collection[str], why: str) -> None:
        """Steps whose results are lost: they count as never done, and what they returned stays on record.

        `lost`: the commits that nobody has any more. The tip goes back to what the other steps put there.
        """
        with self.writing("repair", *[Warned("recovery", why)] if why else []):
            for key in keys:
                self.store.supersede(self.run, key, 0)
                self._replaced[key] = self._steps.pop(key)
            self._unsay(keys)
            if keys and self.tip:
                left = [tip for tip in tips_of_steps(self._steps.values()) if tip not in lost]
                self.put_tip("", left[0] if left else self.store.run(self.run).base)

    def _unsay(self, keys: Sequence[str]) -> None:
        """What is done again is told again: what was emitted at these steps, and how their tasks ended."""
        under = tuple(f"{key}/" for key in keys) + tuple(f"{key.rpartition('/')[0]}+" for key in keys if "/" in key)
        places = {mark: mark.partition("|")[0] for mark in self._marks}
        again = [mark for mark, place in places.items() if place in keys or place.startswith(under)]
        self.store.drop_marks(self.run, again)
        self._marks.difference_update(again)

    def recorded(self, key: Key) -> StepRow | None:
        return self._steps.get(key.text)

    def recorded_keys(self) -> Sequence[StepRow]:
        return sorted(self._steps.values(), key=lambda row: row.seq)

    def unknown_under(self, prefix: Key) -> list[str]:
        """Recorded below this phase, never asked for: this version does not know them."""
        start = prefix.text + "/"
        return [k for k in self._steps if k.startswith(start) and k not in self._visited and self._covering(k) is None]

    def pass_over(self, prefix: Key) -> None:
        """Known and left behind: what a later visit took the place of."""
        start = prefix.text + "/"
        self._visited.update(key for key in self._steps if key.startswith(start))

    async def settle(self) -> None:
        """What was written so far is on the disk: from here on a record may name it."""
        if not self._barrier.is_clear:
            await asyncio.to_thread(self._barrier.settle)

    # -- attempts

    def next_attempt(self, key: Key) -> int:
        return max((row.intent.n for row in self.store.attempts(self.run, key.text)), default=0) + 1

    def attempts(self, key: Key) -> list[AttemptRow]:
        return self.store.attempts(self.run, key.text)

    def begin(self, intent: Intent, *events: Event, told: Sequence[str] = (), synced: bool = True) -> None:
        """The intent before the effect. `told`: this dispatch carries what a person said to these roles."""
        with self._recording(f"{intent.key}@{intent.n}.begin", synced=synced):
            self.store.begin_attempt(self.run, self.epoch, intent)
            if told:
                self.store.mark_told(self.run, f"{intent.key}@{intent.n}", told)
            self._write(events)

    def finish(
        self,
        key: Key,
        n: int,
        *,
        inputs: Json,
        context: Json = None,
        result: Json = None,
        failure: AttemptFailure | None = None,
        usage: Usage | None = None,
        assumed_usd: float | None = None,
        events: Iterable[Event] = (),
        blobs: Iterable[tuple[str, str]] = (),
    ) -> None:
        """End the attempt, fenced; a result (None: there is none) becomes the step, all in one transaction.

        On the disk a moment later: whoever goes on from it says so by beginning something, which is synced with it.
        At once where it brings artifacts: their files are on the disk at once too, and would look like somebody's
        edit. What the result names must be on the disk already: `settle` before this.
        """
        contents = list(blobs)
        with self._recording(f"{key}@{n}.finish", synced=bool(contents)):
            for sha, content in contents:
                self.store.put_blob(sha, content)
            self.store.end_attempt(
                self.run,
                key.text,
                n,
                self.epoch,
                state="failed" if failure else "done",
                error=failure.error if failure else "",
                reason=failure.reason if failure else "",
                usage=usage.to_json(assumed_usd) if usage else None,
                cost_usd=usage.cost_usd if usage else None,
            )
            if result is not None:
                self._add(key, inputs, context, result)
            self._write(events)

    def finish_landings(self, landings: Sequence[EndedLanding], tip: str) -> None:
        """End all attempts of a chain and move the tip in one transaction: no link of it was checked alone.

        On the disk before it returns when the tip moves: the ref and the branch follow it, and may not get ahead.
        """
        with self._recording(f"{landings[-1].key}@{landings[-1].n}.finish", synced=tip != self.tip):
            for one in landings:
                self.store.end_attempt(self.run, one.key.text, one.n, self.epoch, state="done")
                self._add(one.key, one.inputs, None, one.result)
                self._write(one.events)
            self.put_tip(landings[-1].key.text, tip)

    def note_session(self, key: Key, n: int, session: str) -> None:
        """The agent's own name for its conversation, so that it can be continued after a crash."""
        with self.store.tx(synced=False):
            self.store.note_attempt(self.run, key.text, n, session=session)

    def note_usage(self, key: Key, n: int, usage: Usage) -> None:
        """For who looks on, or finds the attempt without its driver."""
        with self.store.tx(synced=False):
            self.store.note_usage(self.run, key.text, n, usage.to_json())

    # -- events

    def emit(self, at: str, *events: Event) -> None:
        """Said once per place: a replay says everything again, what has its mark is dropped.

        Written with the next transaction, so a crash in between only means that it is said again.
        """
        for event in events:
            mark = f"{at}|{event.type}|{digest(encode(event))[:12]}"
            if mark not in self._marks:
                self._marks.add(mark)
                self._waiting.append((event, mark))

    def said(self, at: str) -> bool:
        """Something was emitted at that place, whatever its words."""
        return any(mark.startswith(f"{at}|") for mark in self._marks)

    def flush(self) -> None:
        if self._waiting:
            with self._recording("flush", synced=False):
                pass

    @contextmanager
    def writing(self, point: str, *events: Event, synced: bool = True) -> Iterator[None]:
        """A transaction for other tables of the run, with its events."""
        with self._recording(point, synced=synced):
            yield
            self._write(events)

    def say(self, *events: Event) -> None:
        """Inside `writing`: an event that depends on what was written."""
        self._write(events)

    def catch_up(self) -> None:
        """Publish what another process recorded for this run since we last looked."""
        for recorded in self.store.events(self.run, self._seen):
            self._seen = recorded.seq
            if recorded.seq not in self._own:
                self._publish(recorded)
        self._own.clear()

    def show(self, event: Event) -> None:
        """For the eye only: live activity that is not part of the record."""
        self._publish(Recorded(0, self.run, self.store.clock(), event))

    # -- inside

    def _add(self, key: Key, inputs: Json, context: Json, result: Json) -> None:
        given, value = canonical(inputs), compact(result)
        fingerprint = text_digest(given)
        seq = self.store.add_step(self.run, key.text, fingerprint, given, compact(context), value)
        # What a step returns now must be what it returns on replay: no tuples, no int keys.
        self._steps[key.text] = StepRow(seq, key.text, fingerprint, given, value)
        self._visited.add(key.text)

    def _recording(self, point: str, *, synced: bool = True) -> _Recording:
        return _Recording(self, point, synced)

    def _write(self, events: Iterable[Event]) -> None:
        self._waiting.extend((event, "") for event in events)

    def _covering(self, key: str) -> AdoptionRow | None:
        return next((a for a in reversed(self.adoptions) if _covers(a, key)), None)

    def _supersede(self, row: StepRow, adoption: AdoptionRow) -> None:
        with self.store.tx():
            self.store.supersede(self.run, row.key, adoption.id)
        self._replaced[row.key] = self._steps.pop(row.key)


class _Recording:
    """One transaction of the journal: crash points around it, events shown only after the commit."""

    def __init__(self, journal: Journal, point: str, synced: bool) -> None:
        self._journal = journal
        self._point = point
        self._tx = journal.store.tx(synced=synced)
        self._tips = journal.tips
        self._written: list[Recorded] = []

    def __enter__(self) -> None:
        self._journal._crash(f"before {self._point}")
        self._tx.__enter__()

    def __exit__(self, *error: object) -> None:
        journal = self._journal
        if error[0] is None:
            self._written = [journal.store.add_event(journal.run, e, mark or None) for e, mark in journal._waiting]
            journal._own.update(recorded.seq for recorded in self._written)
            journal._waiting.clear()
        try:
            self._tx.__exit__(*error)  # type: ignore[arg-type]
        except BaseException:
            journal.tips = self._tips
            raise
        if error[0] is not None:
            journal.tips = self._tips
        if error[0] is None:
            journal._crash(f"after {self._point}")
            for recorded in self._written:
                journal._publish(recorded)


def _covers(adoption: AdoptionRow, key: str) -> bool:
    return any(key == covered or key.startswith(covered + "/") for covered in adoption.covers)


def _difference(old: Json, new: Json) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        names = [name for name in sorted(set(old) | set(new)) if old.get(name) != new.get(name)]
        return "; ".join(f"{name}: {_short(old.get(name))} -> {_short(new.get(name))}" for name in names)
    return f"{_short(old)} -> {_short(new)}"


def _short(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def again_count(journal: Journal, phase: Key) -> int:
    """How often a person asked to go on with this list of tasks after a failure was reported."""
    start = f"{phase}/again#"
    return sum(row.key.startswith(start) for row in journal.recorded_keys())


def retried_since(journal: Journal, phase: Key, id: str) -> bool:
    """A person asked to go on after the failure that is recorded under that name."""
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
