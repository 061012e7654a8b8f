"""The events of a run: recorded once however often a replay emits them, and published after the commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.events import Event, Recorded, encode
from windlass.model import digest
from windlass.store.epoch import EpochClaim
from windlass.store.port import Store


class EventLog:
    def __init__(self, store: Store, claim: EpochClaim, publish: Callable[[Recorded], None]) -> None:
        self._store = store
        self._claim = claim
        self._publish = publish
        self._marks = store.events.marks(claim.run)
        self._waiting: list[tuple[Event, str]] = []
        self._seen = store.events.last_number(claim.run)
        self._own: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether no event waits for the next transaction."""
        return not self._waiting

    def emit(self, at: str, *events: Event) -> None:
        """Record these events once at this place: a replay emits them again, and those with a mark are dropped.

        They are written with the next transaction. After a crash before it, the replay emits them again.
        """
        for event in events:
            mark = f"{at}|{event.type}|{digest(encode(event))[:12]}"
            if mark not in self._marks:
                self._marks.add(mark)
                self._waiting.append((event, mark))

    def add(self, *events: Event) -> None:
        """Inside `Journal.writing`: record these events with the transaction."""
        self._waiting.extend((event, "") for event in events)

    def has_mark(self, at: str, type: str = "") -> bool:
        """Whether an event, or one of that type, was emitted at that place, whatever its text."""
        return any(mark.startswith(f"{at}|{type}") for mark in self._marks)

    def forget(self, keys: Sequence[str]) -> None:
        """Repeated steps emit again: their own events, and the ends of their tasks."""
        under = tuple(f"{key}/" for key in keys) + tuple(f"{key.rpartition('/')[0]}+" for key in keys if "/" in key)
        places = {mark: mark.partition("|")[0] for mark in self._marks}
        again = [mark for mark, place in places.items() if place in keys or place.startswith(under)]
        self._store.events.drop_marks(self._claim, again)
        self._marks.difference_update(again)

    def write(self) -> list[Recorded]:
        """Inside a transaction: write the waiting events. Publish the result after the commit."""
        written = [self._store.events.add(self._claim, event, mark or None) for event, mark in self._waiting]
        self._own.update(recorded.seq for recorded in written)
        self._waiting.clear()
        return written

    def publish(self, written: Sequence[Recorded]) -> None:
        for recorded in written:
            self._publish(recorded)

    def catch_up(self) -> None:
        """Publish the events that other processes recorded for this run since the last call."""
        for recorded in self._store.events.all(self._claim.run, self._seen):
            self._seen = recorded.seq
            if recorded.seq not in self._own:
                self._publish(recorded)
        self._own.clear()

    def show(self, event: Event) -> None:
        """Publish live activity, which is not recorded."""
        self._publish(Recorded(0, self._claim.run, self._store.clock(), event))
