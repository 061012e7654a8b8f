"""The tables of questions to people, and of messages from people to agents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence

from windlass.model import Json, compact
from windlass.store.epoch import EpochClaim, Writer
from windlass.store.rows import QuestionRow
from windlass.store.sqlite.database import Database


class QuestionTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, claim: EpochClaim, key: str, id: str, data: Json) -> bool:
        with self._database.write(claim) as connection:
            done = connection.execute(
                "INSERT OR IGNORE INTO question (run, key, id, data, state, asked_at) VALUES (?,?,?,?,'pending',?)",
                (claim.run, key, id, compact(data), self._database.clock()),
            )
            return done.rowcount == 1

    def replace(self, claim: EpochClaim, key: str, data: Json) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "UPDATE question SET data = ? WHERE run = ? AND key = ? AND state = 'pending'",
                (compact(data), claim.run, key),
            )

    def answer(self, writer: Writer, key: str, value: str, comment: str, by: str) -> bool:
        with self._database.write(writer) as connection:
            done = connection.execute(
                "UPDATE question SET state = 'answered', answer = ?, comment = ?, by = ?, answered_at = ?"
                " WHERE run = ? AND key = ? AND state = 'pending'",
                (value, comment, by, self._database.clock(), writer.run, key),
            )
            return done.rowcount == 1

    def find(self, run: str, key: str) -> QuestionRow | None:
        row = self._database.one("SELECT * FROM question WHERE run = ? AND key = ?", run, key)
        return _question_row(row) if row else None

    def all(self, run: str, *, pending: bool = False) -> list[QuestionRow]:
        only = " AND state = 'pending'" if pending else ""
        rows = self._database.all(f"SELECT * FROM question WHERE run = ?{only} ORDER BY asked_at", run)
        return [_question_row(row) for row in rows]

    def copy(self, claim: EpochClaim, source: str, keys: Iterable[str]) -> None:
        with self._database.write(claim) as connection:
            connection.executemany(
                "INSERT INTO question (run, key, id, data, state, answer, comment, by, asked_at, answered_at)"
                " SELECT ?, key, id, data, state, answer, comment, by, asked_at, answered_at FROM question"
                " WHERE run = ? AND key = ?",
                [(claim.run, source, key) for key in keys],
            )


def _question_row(row: sqlite3.Row) -> QuestionRow:
    return QuestionRow(
        *(row["key"], row["id"], json.loads(row["data"]), row["state"], row["asked_at"]),
        *(row["answer"], row["comment"], row["by"], row["answered_at"]),
    )


class MessageTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, run: str, text: str, by: str, role: str = "") -> None:
        with self._database.write(None) as connection:
            connection.execute(
                "INSERT INTO told (run, text, by, at, role) VALUES (?,?,?,?,?)",
                (run, text, by, self._database.clock(), role),
            )

    def waiting(self, run: str, roles: Sequence[str]) -> list[str]:
        places = ",".join("?" * len(roles))
        sql = f"SELECT text FROM told WHERE run = ? AND key = '' AND role IN ({places}) ORDER BY seq"
        return [row["text"] for row in self._database.all(sql, run, *roles)]

    def deliver(self, claim: EpochClaim, key: str, roles: Sequence[str]) -> None:
        places = ",".join("?" * len(roles))
        with self._database.write(claim) as connection:
            connection.execute(
                f"UPDATE told SET key = ? WHERE run = ? AND key = '' AND role IN ({places})", (key, claim.run, *roles)
            )
