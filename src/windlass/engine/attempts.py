"""The attempts of a run: the intent is recorded before the effect, the result in one transaction with the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from windlass.events import Event
from windlass.model import ErrorClass, Json, Key, Usage
from windlass.store.rows import AttemptRow, Intent

if TYPE_CHECKING:
    from windlass.engine.journal import Journal


class AttemptFailure(Struct, frozen=True):
    """Why an attempt failed."""

    error: ErrorClass
    reason: str
    retry_at: float | None = None
    """When the service allows another try."""
    hint: str = ""
    """What a person can do, if it differs from the hint of the error class."""


class EndedLanding(Struct, frozen=True):
    """An attempt at a landing with its result."""

    key: Key
    n: int
    inputs: Json
    result: Json
    events: Sequence[Event]


class AttemptLog:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._claim = journal.claim
        self._table = journal.store.attempts

    def next(self, key: Key) -> int:
        """The number of this step's next attempt."""
        return max((row.intent.n for row in self.all(key)), default=0) + 1

    def all(self, key: Key) -> list[AttemptRow]:
        return self._table.all(self._claim.run, key.text)

    def begin(self, intent: Intent, *events: Event, message_roles: Sequence[str] = (), synced: bool = True) -> None:
        """Record the intent before the effect. `told`: the roles with pending messages that this dispatch receives."""
        with self._journal.writing(f"{intent.key}@{intent.n}.begin", *events, synced=synced):
            self._table.begin(self._claim, intent)
            if message_roles:
                self._journal.store.messages.deliver(self._claim, f"{intent.key}@{intent.n}", message_roles)

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
        """End the attempt; its result (None: there is none) becomes the step's, in the same transaction.

        Synced at once only with artifacts: their files are on the disk already, and would look like a person's edit.
        Otherwise it is synced with the next attempt's intent, the first record that depends on it. Everything that the
        result names must be on the disk: call `Journal.settle` first.
        """
        contents = list(blobs)
        with self._journal.writing(f"{key}@{n}.finish", *events, synced=bool(contents)):
            for sha, content in contents:
                self._journal.store.blobs.put(self._claim, sha, content)
            self._table.finish(
                self._claim,
                key.text,
                n,
                state="failed" if failure else "done",
                error=failure.error if failure else "",
                reason=failure.reason if failure else "",
                usage=usage.to_json(assumed_usd) if usage else None,
                cost_usd=usage.cost_usd if usage else None,
            )
            if result is not None:
                self._journal.add(key, inputs, context, result)

    def finish_landings(self, landings: Sequence[EndedLanding], tip: str) -> None:
        """End all attempts of a chain of landings and move the tip, in one transaction: only the whole chain was
        checked.

        Synced before it returns when the tip moves: the ref and the branch must not get ahead of it.
        """
        last, tips = landings[-1], self._journal.tips
        with self._journal.writing(f"{last.key}@{last.n}.finish", synced=tip != tips.now):
            for one in landings:
                self._table.finish(self._claim, one.key.text, one.n, state="done")
                self._journal.add(one.key, one.inputs, None, one.result)
                self._journal.events.add(*one.events)
            tips.put(last.key.text, tip)

    def note_session(self, key: Key, n: int, session: str) -> None:
        """Record the agent's session id, so that it can be continued after a crash."""
        with self._journal.store.transaction(synced=False):
            self._table.note_session(self._claim, key.text, n, session)

    def note_usage(self, key: Key, n: int, usage: Usage) -> None:
        """For `windlass status`, and for a driver that finds the attempt of an earlier one."""
        with self._journal.store.transaction(synced=False):
            self._table.note_usage(self._claim, key.text, n, usage.to_json())
