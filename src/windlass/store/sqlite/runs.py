"""The tables of runs and of their tips."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping

from windlass.errors import StoreError
from windlass.model import Json, RunState, compact
from windlass.store.epoch import EpochClaim, Writer
from windlass.store.rows import RunRow
from windlass.store.sqlite.database import Database


class RunTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, row: RunRow) -> EpochClaim:
        with self._database.write(None) as connection:
            connection.execute(
                "INSERT INTO run (id, request, flow, flow_text, slug, date, base, branch, settings, options, state,"
                " budget_usd, warn_usd, parent, started_at, updated_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    *(row.id, row.request, row.flow, row.flow_text, row.slug, row.date, row.base, row.branch),
                    *(compact(row.settings), compact(row.options), row.state, row.budget_usd, row.warn_usd, row.parent),
                    *(row.started_at, row.updated_at),
                ),
            )
        return EpochClaim(row.id, 0)

    def take(self, run: str, driver: str = "", require_lock: Callable[[], None] = lambda: None) -> EpochClaim:
        with self._database.write(None) as connection:
            connection.execute(
                "UPDATE run SET epoch = epoch + 1, driver = ?,"
                " wanted = CASE wanted WHEN 'pause' THEN '' ELSE wanted END WHERE id = ?",
                (driver, run),
            )
            # The claim that was compared in this transaction may be the one that this driver replaces.
            self._database.valid_claim = None
            return EpochClaim(run, self.get(run).epoch, require_lock)

    def get(self, run: str) -> RunRow:
        row = self._database.one("SELECT * FROM run WHERE id = ?", run)
        if row is None:
            raise StoreError(f"no run '{run}'", hint="to list all runs: windlass runs")
        return _run_row(row)

    def all(self) -> list[RunRow]:
        return [_run_row(row) for row in self._database.all("SELECT * FROM run ORDER BY started_at DESC, rowid DESC")]

    def set_state(self, claim: EpochClaim, state: RunState, reason: str = "", hint: str = "") -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "UPDATE run SET state = ?, reason = ?, hint = ?, updated_at = ? WHERE id = ?",
                (state, reason, hint, self._database.clock(), claim.run),
            )

    def set_budget(self, writer: Writer, limit: float | None, warn: float | None) -> None:
        with self._database.write(writer) as connection:
            connection.execute("UPDATE run SET budget_usd = ?, warn_usd = ? WHERE id = ?", (limit, warn, writer.run))

    def set_options(self, writer: Writer, options: Mapping[str, Json]) -> None:
        with self._database.write(writer) as connection:
            connection.execute("UPDATE run SET options = ? WHERE id = ?", (compact(options), writer.run))

    def request(self, run: str, wanted: str) -> None:
        with self._database.write(None) as connection:
            connection.execute("UPDATE run SET wanted = ? WHERE id = ?", (wanted, run))


def _run_row(row: sqlite3.Row) -> RunRow:
    values = dict(row)
    values["settings"] = json.loads(values["settings"])
    values["options"] = json.loads(values["options"])
    values["state"] = RunState(values["state"])
    return RunRow(**values)


class TipTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self, run: str) -> list[str]:
        return [row["sha"] for row in self._database.all("SELECT sha FROM tip WHERE run = ? ORDER BY seq", run)]

    def add(self, claim: EpochClaim, sha: str, key: str, onto: str) -> bool:
        with self._database.write(claim) as connection:
            done = connection.execute(
                "INSERT INTO tip (run, sha, key, at) SELECT ?, ?, ?, ? WHERE"
                " coalesce((SELECT sha FROM tip WHERE run = ? ORDER BY seq DESC LIMIT 1), '') = ?",
                (claim.run, sha, key, self._database.clock(), claim.run, onto),
            )
            return done.rowcount == 1
