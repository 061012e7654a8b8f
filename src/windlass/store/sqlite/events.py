"""The table of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from windlass.events import Event, Recorded, decode, encode
from windlass.store.epoch import EpochClaim, Writer
from windlass.store.sqlite.database import Database

FIRST_PAGE, PAGE = 100, 2_000
E = TypeVar("E", bound=Event)


class EventTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, writer: Writer, event: Event, mark: str | None = None) -> Recorded:
        at = self._database.clock()
        with self._database.write(writer) as connection:
            done = connection.execute(
                "INSERT INTO event (run, at, type, data, mark) VALUES (?,?,?,?,?)",
                (writer.run, at, event.type, encode(event), mark),
            )
            return Recorded(int(done.lastrowid or 0), writer.run, at, event)

    def all(self, run: str, after: int = 0) -> list[Recorded]:
        return [recorded for page in self.pages(run, after) for recorded in page]

    def pages(self, run: str, after: int = 0) -> Iterator[list[Recorded]]:
        sql = "SELECT seq, at, type, data FROM event WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
        size = FIRST_PAGE
        while rows := self._database.all(sql, run, after, size):
            yield [Recorded(r["seq"], run, r["at"], decode(r["type"], r["data"])) for r in rows]
            if len(rows) < size:
                return
            after, size = rows[-1]["seq"], PAGE

    def last(self, run: str, kind: type[E]) -> E | None:
        sql = "SELECT type, data FROM event WHERE run = ? AND type = ? ORDER BY seq DESC LIMIT 1"
        row = self._database.one(sql, run, kind.type)
        event = decode(row["type"], row["data"]) if row else None
        return event if isinstance(event, kind) else None

    def of_kinds(self, run: str, *kinds: type[E]) -> list[E]:
        sql = f"SELECT type, data FROM event WHERE run = ? AND type IN ({','.join('?' * len(kinds))}) ORDER BY seq"
        rows = self._database.all(sql, run, *(kind.type for kind in kinds))
        found = (decode(row["type"], row["data"]) for row in rows)
        return [event for event in found if isinstance(event, kinds)]

    def last_number(self, run: str) -> int:
        row = self._database.one("SELECT max(seq) AS seq FROM event WHERE run = ?", run)
        return int(row["seq"] or 0) if row else 0

    def marks(self, run: str) -> set[str]:
        rows = self._database.all("SELECT mark FROM event WHERE run = ? AND mark IS NOT NULL", run)
        return {row["mark"] for row in rows}

    def drop_marks(self, claim: EpochClaim, marks: Iterable[str]) -> None:
        with self._database.write(claim) as connection:
            connection.executemany(
                "UPDATE event SET mark = NULL WHERE run = ? AND mark = ?", [(claim.run, mark) for mark in marks]
            )

    def copy(self, claim: EpochClaim, source: str, numbers: Iterable[int]) -> None:
        # The current time, because the copied steps took no time in the fork.
        now = self._database.clock()
        with self._database.write(claim) as connection:
            connection.executemany(
                "INSERT INTO event (run, at, type, data, mark)"
                " SELECT ?, ?, type, data, mark FROM event WHERE run = ? AND seq = ?",
                [(claim.run, now, source, number) for number in numbers],
            )
