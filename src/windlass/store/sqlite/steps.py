"""The tables of step results, and of the adoptions that replace some of them."""

from __future__ import annotations

import json
from collections.abc import Iterable

from windlass.model import compact
from windlass.store.epoch import EpochClaim
from windlass.store.rows import AdoptionRow, StepRow
from windlass.store.sqlite.database import Database


class StepTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, run: str) -> list[StepRow]:
        return self._rows("step", run)

    def superseded(self, run: str) -> list[StepRow]:
        return self._rows("superseded", run)

    def _rows(self, table: str, run: str) -> list[StepRow]:
        rows = self._database.all(f"SELECT * FROM {table} WHERE run = ? ORDER BY seq", run)
        return [StepRow(r["seq"], r["key"], r["fingerprint"], r["inputs"], r["result"]) for r in rows]

    def add(self, claim: EpochClaim, key: str, fingerprint: str, inputs: str, context: str, result: str) -> int:
        with self._database.write(claim) as connection:
            done = connection.execute(
                "INSERT INTO step (run, key, fingerprint, inputs, context, result, at) VALUES (?,?,?,?,?,?,?)",
                (claim.run, key, fingerprint, inputs, context, result, self._database.clock()),
            )
            return int(done.lastrowid or 0)

    def supersede(self, claim: EpochClaim, key: str, adoption: int) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "INSERT INTO superseded (run, key, fingerprint, inputs, result, adoption, at)"
                " SELECT run, key, fingerprint, inputs, result, ?, ? FROM step WHERE run = ? AND key = ?",
                (adoption, self._database.clock(), claim.run, key),
            )
            connection.execute("DELETE FROM step WHERE run = ? AND key = ?", (claim.run, key))

    def copy(self, claim: EpochClaim, source: str, keys: Iterable[str]) -> None:
        with self._database.write(claim) as connection:
            connection.executemany(
                "INSERT INTO step (run, key, fingerprint, inputs, context, result, at)"
                " SELECT ?, key, fingerprint, inputs, context, result, at FROM step WHERE run = ? AND key = ?",
                [(claim.run, source, key) for key in keys],
            )


class AdoptionTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, run: str) -> list[AdoptionRow]:
        return [
            AdoptionRow(
                *(row["id"], row["artifact"], row["producer"], row["old_sha"], row["new_sha"], row["by"]),
                covers=frozenset(json.loads(row["covers"])),
            )
            for row in self._database.all("SELECT * FROM adoption WHERE run = ? ORDER BY id", run)
        ]

    def add(self, claim: EpochClaim, row: AdoptionRow) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "INSERT INTO adoption (run, artifact, producer, old_sha, new_sha, covers, by, at)"
                " VALUES (?,?,?,?,?,?,?,?)",
                (
                    *(claim.run, row.artifact, row.producer, row.old_sha, row.new_sha, compact(sorted(row.covers))),
                    *(row.by, self._database.clock()),
                ),
            )

    def copy(self, claim: EpochClaim, source: str, ids: Iterable[int]) -> None:
        with self._database.write(claim) as connection:
            connection.executemany(
                "INSERT INTO adoption (run, artifact, producer, old_sha, new_sha, covers, by, at)"
                " SELECT ?, artifact, producer, old_sha, new_sha, covers, by, at FROM adoption"
                " WHERE run = ? AND id = ?",
                [(claim.run, source, id) for id in ids],
            )
