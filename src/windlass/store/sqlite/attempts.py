"""The table of attempts, with their cost."""

from __future__ import annotations

import sqlite3

from windlass.cost import ASSUMED_USD
from windlass.errors import LostAttemptError
from windlass.model import Json, compact
from windlass.store.epoch import EpochClaim
from windlass.store.rows import AttemptRow, Intent, Spend, load
from windlass.store.sqlite.database import Database


class AttemptTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, claim: EpochClaim, intent: Intent) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "INSERT INTO attempt (run, key, n, state, epoch, host, boot, folder, slot, base, role, agent, model,"
                " credential, reserved, wall_s, started_at) VALUES (?,?,?,'running',?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    *(claim.run, intent.key, intent.n, claim.epoch, intent.host, intent.boot, intent.folder),
                    *(intent.slot, intent.base, intent.role, intent.agent, intent.model, intent.credential),
                    *(intent.reserved, intent.wall_s, self._database.clock()),
                ),
            )

    def finish(
        self,
        claim: EpochClaim,
        key: str,
        n: int,
        *,
        state: str,
        error: str = "",
        reason: str = "",
        usage: Json = None,
        cost_usd: float | None = None,
    ) -> None:
        with self._database.write(claim) as connection:
            done = connection.execute(
                "UPDATE attempt SET state = ?, error = ?, reason = ?, usage = ?, cost_usd = ?, ended_at = ?"
                " WHERE run = ? AND key = ? AND n = ? AND state = 'running' AND epoch = ?",
                (
                    *(state, error, reason, compact(usage), cost_usd, self._database.clock()),
                    *(claim.run, key, n, claim.epoch),
                ),
            )
            if done.rowcount != 1:
                raise LostAttemptError(f"attempt {n} of '{key}' belongs to another driver now")

    def interrupt(self, claim: EpochClaim, key: str, n: int, usage: Json = None, cost_usd: float | None = None) -> bool:
        with self._database.write(claim) as connection:
            done = connection.execute(
                "UPDATE attempt SET state = 'interrupted', error = 'driver_lost', usage = ?, cost_usd = ?, ended_at = ?"
                " WHERE run = ? AND key = ? AND n = ? AND state = 'running'",
                (compact(usage), cost_usd, self._database.clock(), claim.run, key, n),
            )
            return done.rowcount == 1

    def note_session(self, claim: EpochClaim, key: str, n: int, session: str) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "UPDATE attempt SET session = ? WHERE run = ? AND key = ? AND n = ?", (session, claim.run, key, n)
            )

    def note_usage(self, claim: EpochClaim, key: str, n: int, usage: Json) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "UPDATE attempt SET usage = ? WHERE run = ? AND key = ? AND n = ? AND state = 'running'",
                (compact(usage), claim.run, key, n),
            )

    def settle_cost(self, claim: EpochClaim, key: str, n: int, usage: Json, cost_usd: float | None) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "UPDATE attempt SET usage = ?, cost_usd = ? WHERE run = ? AND key = ? AND n = ? AND state != 'running'",
                (compact(usage), cost_usd, claim.run, key, n),
            )

    def all(self, run: str, key: str | None = None) -> list[AttemptRow]:
        if key is None:
            return self._rows("run = ? ORDER BY started_at, n", run)
        return self._rows("run = ? AND key = ? ORDER BY started_at, n", run, key)

    def running(self, run: str) -> list[AttemptRow]:
        return self._rows("run = ? AND state = 'running' ORDER BY started_at", run)

    def done_since(self, run: str, epoch: int) -> list[AttemptRow]:
        return self._rows("run = ? AND epoch >= ? AND state = 'done'", run, epoch)

    def _rows(self, where: str, *args: object) -> list[AttemptRow]:
        return [_attempt_row(row) for row in self._database.all(f"SELECT * FROM attempt WHERE {where}", *args)]

    def spend(self, run: str) -> Spend:
        # Computed in SQL, because every dispatch asks for it and a run may have thousands of attempts.
        rows = self._database.all(
            "SELECT role, sum(cost_usd) AS known, sum(assumed) AS assumed, sum(assumed > 0) AS unknown,"
            " max(CASE WHEN state = 'done' THEN cost_usd END) AS top,"
            " sum(CASE WHEN cost_usd IS NULL THEN tokens ELSE 0 END) AS tokens FROM"
            " (SELECT role, state, cost_usd,"
            "  coalesce(json_extract(usage, '$.assumed_usd'), CASE WHEN cost_usd IS NULL THEN ? ELSE 0 END) AS assumed,"
            "  coalesce(json_extract(usage, '$.input'), 0) + coalesce(json_extract(usage, '$.output'), 0) AS tokens"
            "  FROM attempt WHERE run = ? AND role != '' AND state != 'running') GROUP BY role",
            *(ASSUMED_USD, run),
        )
        return Spend(
            known_usd=sum(row["known"] or 0.0 for row in rows),
            assumed_usd=sum(row["assumed"] for row in rows),
            unknown=sum(row["unknown"] for row in rows),
            by_role={row["role"]: row["top"] for row in rows if row["top"] is not None},
            unpriced_tokens=sum(row["tokens"] for row in rows),
        )


def _attempt_row(row: sqlite3.Row) -> AttemptRow:
    intent = Intent(
        *(row["key"], row["n"], row["folder"], row["host"], row["boot"], row["slot"], row["base"], row["role"]),
        *(row["agent"], row["model"], row["credential"], row["reserved"], row["wall_s"]),
    )
    return AttemptRow(
        *(intent, row["state"], row["epoch"], row["started_at"], row["ended_at"], row["proc"], row["session"]),
        *(row["error"], row["reason"], load(row["usage"]), row["cost_usd"]),
    )
