"""The only SQL. One connection, one thread; every change inside `tx()`."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from windlass.cost import ASSUMED_USD
from windlass.errors import LostAttemptError, StoreError
from windlass.events import Event, Recorded, decode, encode
from windlass.model import Json, RunState
from windlass.store.codec import attempt_row, dump, question_row, run_row
from windlass.store.fence import EpochClaim
from windlass.store.opening import (
    check_after_crash,
    close_database,
    connect,
    create_database,
    migrate,
    readable,
    require_database,
    was_left_open,
)
from windlass.store.rows import AdoptionRow, AttemptRow, Intent, QuestionRow, RunRow, Spend, StepRow, load
from windlass.store.transaction import Transaction

FIRST_PAGE, PAGE = 100, 2_000
E = TypeVar("E", bound=Event)


class Store:
    def __init__(self, db: sqlite3.Connection, path: Path, clock: Callable[[], float]) -> None:
        self.db = db
        self.path = path
        self.clock = clock
        self.pending = False
        """Something was committed that is not synced yet."""
        self.claim: EpochClaim | None = None
        """A driver's: every transaction compares its epoch first, and writes nothing once another driver took over."""

    @classmethod
    def open(cls, path: Path, clock: Callable[[], float], *, create: bool = False, drives: bool = False) -> Store:
        """`drives`: after a crash the database is looked through first; whoever only reads does not wait for that."""
        with readable(path):
            if create:
                create_database(path)
            require_database(path)
            close_database(path)
            crashed = drives and was_left_open(path)
            db = connect(path)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            # A log that is written over syncs faster than one that grows: 1 MB, then from its start again.
            db.execute("PRAGMA wal_autocheckpoint=250")
            check_after_crash(db, path, crashed=crashed)
            migrate(db, path)
        return cls(db, path, clock)

    def close(self) -> None:
        self.db.close()

    def tx(self, *, synced: bool = True) -> Transaction:
        """One transaction; nested calls join the outer one. Not `synced`: until the next one that is, or `sync`, a
        power cut may take it back, together with all that came after it; nothing else does."""
        return Transaction(self, synced)

    def sync(self) -> None:
        """Takes as long as the disk does; may be called in any thread."""
        self.pending = False
        # The log only: closing a file of the database would drop sqlite's locks on it.
        with suppress(FileNotFoundError), self.path.with_name(f"{self.path.name}-wal").open("rb") as log:
            os.fsync(log.fileno())

    def data_version(self) -> int:
        """Changes when another connection committed: a cheap wake-up."""
        return int(self.db.execute("PRAGMA data_version").fetchone()[0])

    # -- runs

    def add_run(self, row: RunRow) -> None:
        self.db.execute(
            "INSERT INTO run (id, request, flow, flow_text, slug, date, base, branch, settings, options, state,"
            " budget_usd, warn_usd, parent, started_at, updated_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(row.id, row.request, row.flow, row.flow_text, row.slug, row.date, row.base, row.branch),
                *(dump(row.settings), dump(row.options), row.state, row.budget_usd, row.warn_usd, row.parent),
                *(row.started_at, row.updated_at),
            ),
        )

    def run(self, id: str) -> RunRow:
        row = self._one("SELECT * FROM run WHERE id = ?", (id,))
        if row is None:
            raise StoreError(f"no run '{id}'", hint="windlass runs lists them")
        return run_row(row)

    def runs(self) -> list[RunRow]:
        return [run_row(row) for row in self._all("SELECT * FROM run ORDER BY started_at DESC, rowid DESC", ())]

    def next_epoch(self, run: str, driver: str = "") -> int:
        """Each driver gets a number of its own; an older one writes nothing more. A wish to pause was for that one."""
        self.db.execute(
            "UPDATE run SET epoch = epoch + 1, driver = ?, wanted = CASE wanted WHEN 'abort' THEN wanted ELSE '' END"
            " WHERE id = ?",
            (driver, run),
        )
        return self.run(run).epoch

    def require_claim(self) -> None:
        """Raises when another driver took over. Only a look: inside `tx()` it is certain."""
        if self.claim:
            with readable(self.path):
                self.claim.check(self.db)

    def set_state(self, run: str, state: RunState, reason: str = "", hint: str = "") -> None:
        self.db.execute(
            "UPDATE run SET state = ?, reason = ?, hint = ?, updated_at = ? WHERE id = ?",
            (state, reason, hint, self.clock(), run),
        )

    def set_wanted(self, run: str, wanted: str) -> None:
        self.db.execute("UPDATE run SET wanted = ? WHERE id = ?", (wanted, run))

    def set_budget(self, run: str, limit: float | None, warn: float | None) -> None:
        self.db.execute("UPDATE run SET budget_usd = ?, warn_usd = ? WHERE id = ?", (limit, warn, run))

    def set_options(self, run: str, options: dict[str, Json]) -> None:
        self.db.execute("UPDATE run SET options = ? WHERE id = ?", (dump(options), run))

    # -- tips

    def tips(self, run: str) -> list[str]:
        """What the engine put on the run's tip, oldest first; empty for a run that is older than this table."""
        return [row["sha"] for row in self._all("SELECT sha FROM tip WHERE run = ? ORDER BY seq", (run,))]

    def add_tip(self, run: str, sha: str, key: str, onto: str) -> bool:
        """Compare and swap: False when the run's tip is not `onto` ('' when there is none yet)."""
        done = self.db.execute(
            "INSERT INTO tip (run, sha, key, at) SELECT ?, ?, ?, ? WHERE"
            " coalesce((SELECT sha FROM tip WHERE run = ? ORDER BY seq DESC LIMIT 1), '') = ?",
            (run, sha, key, self.clock(), run, onto),
        )
        return done.rowcount == 1

    # -- steps

    def steps(self, run: str) -> list[StepRow]:
        return self._steps("step", run)

    def superseded(self, run: str) -> list[StepRow]:
        """What adopted changes replaced, oldest first."""
        return self._steps("superseded", run)

    def _steps(self, table: str, run: str) -> list[StepRow]:
        rows = self._all(f"SELECT * FROM {table} WHERE run = ? ORDER BY seq", (run,))
        return [StepRow(r["seq"], r["key"], r["fingerprint"], r["inputs"], r["result"]) for r in rows]

    def add_step(self, run: str, key: str, fingerprint: str, inputs: str, context: str, result: str) -> int:
        done = self.db.execute(
            "INSERT INTO step (run, key, fingerprint, inputs, context, result, at) VALUES (?,?,?,?,?,?,?)",
            (run, key, fingerprint, inputs, context, result, self.clock()),
        )
        return int(done.lastrowid or 0)

    def supersede(self, run: str, key: str, adoption: int) -> None:
        self.db.execute(
            "INSERT INTO superseded (run, key, fingerprint, inputs, result, adoption, at)"
            " SELECT run, key, fingerprint, inputs, result, ?, ? FROM step WHERE run = ? AND key = ?",
            (adoption, self.clock(), run, key),
        )
        self.db.execute("DELETE FROM step WHERE run = ? AND key = ?", (run, key))

    def begin_attempt(self, run: str, epoch: int, intent: Intent) -> None:
        self.db.execute(
            "INSERT INTO attempt (run, key, n, state, epoch, host, boot, folder, slot, base, role, agent, model,"
            " credential, reserved, wall_s, started_at) VALUES (?,?,?,'running',?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(run, intent.key, intent.n, epoch, intent.host, intent.boot, intent.folder, intent.slot, intent.base),
                *(intent.role, intent.agent, intent.model, intent.credential, intent.reserved, intent.wall_s),
                self.clock(),
            ),
        )

    def note_attempt(self, run: str, key: str, n: int, *, proc: str = "", session: str = "") -> None:
        self.db.execute(
            "UPDATE attempt SET proc = CASE WHEN ? = '' THEN proc ELSE ? END,"
            " session = CASE WHEN ? = '' THEN session ELSE ? END WHERE run = ? AND key = ? AND n = ?",
            (proc, proc, session, session, run, key, n),
        )

    def end_attempt(
        self,
        run: str,
        key: str,
        n: int,
        epoch: int,
        *,
        state: str,
        error: str = "",
        reason: str = "",
        usage: Json = None,
        cost_usd: float | None = None,
    ) -> None:
        """Fenced: only the driver that began the attempt may end it, and only once."""
        done = self.db.execute(
            "UPDATE attempt SET state = ?, error = ?, reason = ?, usage = ?, cost_usd = ?, ended_at = ?"
            " WHERE run = ? AND key = ? AND n = ? AND state = 'running' AND epoch = ?",
            (state, error, reason, dump(usage), cost_usd, self.clock(), run, key, n, epoch),
        )
        if done.rowcount != 1:
            raise LostAttemptError(f"attempt {n} of '{key}' belongs to another driver now")

    def interrupt(self, run: str, key: str, n: int, usage: Json = None, cost_usd: float | None = None) -> bool:
        """False: it had ended."""
        done = self.db.execute(
            "UPDATE attempt SET state = 'interrupted', error = 'driver_lost', usage = ?, cost_usd = ?, ended_at = ?"
            " WHERE run = ? AND key = ? AND n = ? AND state = 'running'",
            (dump(usage), cost_usd, self.clock(), run, key, n),
        )
        return done.rowcount == 1

    def note_usage(self, run: str, key: str, n: int, usage: Json) -> None:
        """What an attempt has used so far: for who looks at it while it is at work."""
        self.db.execute(
            "UPDATE attempt SET usage = ? WHERE run = ? AND key = ? AND n = ? AND state = 'running'",
            (dump(usage), run, key, n),
        )

    def settle_cost(self, run: str, key: str, n: int, usage: Json, cost_usd: float | None) -> None:
        """What an ended attempt cost, found out later."""
        self.db.execute(
            "UPDATE attempt SET usage = ?, cost_usd = ? WHERE run = ? AND key = ? AND n = ? AND state != 'running'",
            (dump(usage), cost_usd, run, key, n),
        )

    def attempts(self, run: str, key: str | None = None) -> list[AttemptRow]:
        where, args = ("run = ?", (run,)) if key is None else ("run = ? AND key = ?", (run, key))
        return [
            attempt_row(row) for row in self._all(f"SELECT * FROM attempt WHERE {where} ORDER BY started_at, n", args)
        ]

    def open_attempts(self, run: str) -> list[AttemptRow]:
        rows = self._all("SELECT * FROM attempt WHERE run = ? AND state = 'running' ORDER BY started_at", (run,))
        return [attempt_row(row) for row in rows]

    def attempts_since(self, run: str, epoch: int) -> list[AttemptRow]:
        """Those that ended with a result under this driver or a later one."""
        sql = "SELECT * FROM attempt WHERE run = ? AND epoch >= ? AND state = 'done'"
        return [attempt_row(row) for row in self._all(sql, (run, epoch))]

    def spend(self, run: str) -> Spend:
        """What is at work counts when it has ended: until then its driver knows more."""
        # In SQL: it is asked before every dispatch, and a run may have thousands of attempts.
        rows = self._all(
            "SELECT role, sum(cost_usd) AS known, sum(assumed) AS assumed, sum(assumed > 0) AS unknown,"
            " max(CASE WHEN state = 'done' THEN cost_usd END) AS top,"
            " sum(CASE WHEN cost_usd IS NULL THEN tokens ELSE 0 END) AS tokens FROM"
            " (SELECT role, state, cost_usd,"
            "  coalesce(json_extract(usage, '$.assumed_usd'), CASE WHEN cost_usd IS NULL THEN ? ELSE 0 END) AS assumed,"
            "  coalesce(json_extract(usage, '$.input'), 0) + coalesce(json_extract(usage, '$.output'), 0) AS tokens"
            "  FROM attempt WHERE run = ? AND role != '' AND state != 'running') GROUP BY role",
            (ASSUMED_USD, run),
        )
        return Spend(
            known_usd=sum(row["known"] or 0.0 for row in rows),
            assumed_usd=sum(row["assumed"] for row in rows),
            unknown=sum(row["unknown"] for row in rows),
            by_role={row["role"]: row["top"] for row in rows if row["top"] is not None},
            unpriced_tokens=sum(row["tokens"] for row in rows),
        )

    # -- events

    def add_event(self, run: str, event: Event, mark: str | None = None) -> Recorded:
        at = self.clock()
        done = self.db.execute(
            "INSERT INTO event (run, at, type, data, mark) VALUES (?,?,?,?,?)",
            (run, at, event.type, encode(event), mark),
        )
        return Recorded(int(done.lastrowid or 0), run, at, event)

    def events(self, run: str, after: int = 0) -> list[Recorded]:
        return [recorded for page in self.event_pages(run, after) for recorded in page]

    def event_pages(self, run: str, after: int = 0) -> Iterator[list[Recorded]]:
        """The first is small, so that a reader has something to show at once; none is held longer than it is used."""
        sql = "SELECT seq, at, type, data FROM event WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?"
        size = FIRST_PAGE
        while rows := self._all(sql, (run, after, size)):
            yield [Recorded(r["seq"], run, r["at"], decode(r["type"], r["data"])) for r in rows]
            if len(rows) < size:
                return
            after, size = rows[-1]["seq"], PAGE

    def last_of(self, run: str, kind: type[E]) -> E | None:
        """The last event of a kind, without reading the others."""
        row = self._one(
            "SELECT type, data FROM event WHERE run = ? AND type = ? ORDER BY seq DESC LIMIT 1", (run, kind.type)
        )
        event = decode(row["type"], row["data"]) if row else None
        return event if isinstance(event, kind) else None

    def events_of(self, run: str, *kinds: type[E]) -> list[E]:
        """Those of some kinds, oldest first, without reading the others."""
        sql = f"SELECT type, data FROM event WHERE run = ? AND type IN ({','.join('?' * len(kinds))}) ORDER BY seq"
        found = (decode(row["type"], row["data"]) for row in self._all(sql, (run, *(kind.type for kind in kinds))))
        return [event for event in found if isinstance(event, kinds)]

    def last_event(self, run: str) -> int:
        row = self._one("SELECT max(seq) AS seq FROM event WHERE run = ?", (run,))
        return int(row["seq"] or 0) if row else 0

    def marks(self, run: str) -> set[str]:
        rows = self._all("SELECT mark FROM event WHERE run = ? AND mark IS NOT NULL", (run,))
        return {row["mark"] for row in rows}

    def drop_marks(self, run: str, marks: Iterable[str]) -> None:
        """The events stay; the same may be emitted once more."""
        self.db.executemany("UPDATE event SET mark = NULL WHERE run = ? AND mark = ?", [(run, mark) for mark in marks])

    # -- questions

    def add_question(self, run: str, key: str, id: str, data: Json) -> bool:
        """False: it was stored before."""
        done = self.db.execute(
            "INSERT OR IGNORE INTO question (run, key, id, data, state, asked_at) VALUES (?,?,?,?,'pending',?)",
            (run, key, id, dump(data), self.clock()),
        )
        return done.rowcount == 1

    def question(self, run: str, key: str) -> QuestionRow | None:
        row = self._one("SELECT * FROM question WHERE run = ? AND key = ?", (run, key))
        return question_row(row) if row else None

    def questions(self, run: str, *, pending: bool = False) -> list[QuestionRow]:
        only = " AND state = 'pending'" if pending else ""
        return [
            question_row(r) for r in self._all(f"SELECT * FROM question WHERE run = ?{only} ORDER BY asked_at", (run,))
        ]

    def answer(self, run: str, key: str, value: str, comment: str, by: str) -> bool:
        """The first valid answer wins: False when it was not pending any more."""
        done = self.db.execute(
            "UPDATE question SET state = 'answered', answer = ?, comment = ?, by = ?, answered_at = ?"
            " WHERE run = ? AND key = ? AND state = 'pending'",
            (value, comment, by, self.clock(), run, key),
        )
        return done.rowcount == 1

    def replace_question(self, run: str, key: str, data: Json) -> None:
        """A pending question whose text changed (an adopted plan was reviewed again) is asked as it is now."""
        self.db.execute(
            "UPDATE question SET data = ? WHERE run = ? AND key = ? AND state = 'pending'", (dump(data), run, key)
        )

    # -- content, adoptions, checks

    def put_blob(self, sha: str, content: str) -> None:
        data = content.encode("utf-8", "surrogatepass")
        self.db.execute("INSERT OR IGNORE INTO blob (sha, content) VALUES (?,?)", (sha, data))

    def blob(self, sha: str) -> str:
        row = self._one("SELECT content FROM blob WHERE sha = ?", (sha,))
        if row is None:
            raise StoreError(f"content {sha[:12]} is missing from the database")
        return bytes(row["content"]).decode("utf-8", "surrogatepass")

    def add_adoption(self, run: str, row: AdoptionRow) -> None:
        self.db.execute(
            "INSERT INTO adoption (run, artifact, producer, old_sha, new_sha, covers, by, at) VALUES (?,?,?,?,?,?,?,?)",
            (
                run,
                row.artifact,
                row.producer,
                row.old_sha,
                row.new_sha,
                dump(sorted(row.covers)),
                row.by,
                self.clock(),
            ),
        )

    def adoptions(self, run: str) -> list[AdoptionRow]:
        rows = self._all("SELECT * FROM adoption WHERE run = ? ORDER BY id", (run,))
        return [
            AdoptionRow(
                *(r["id"], r["artifact"], r["producer"], r["old_sha"], r["new_sha"], r["by"]),
                covers=frozenset(json.loads(r["covers"])),
            )
            for r in rows
        ]

    def tell(self, run: str, text: str, by: str, role: str = "") -> None:
        """`role`: whom it is for; '' for whoever writes code."""
        values = (run, text, by, self.clock(), role)
        self.db.execute("INSERT INTO told (run, text, by, at, role) VALUES (?,?,?,?,?)", values)

    def untold(self, run: str, roles: Sequence[str]) -> list[str]:
        """What is for one of these and no dispatch has been given yet."""
        marks = ",".join("?" * len(roles))
        rows = self._all(
            f"SELECT text FROM told WHERE run = ? AND key = '' AND role IN ({marks}) ORDER BY seq", (run, *roles)
        )
        return [row["text"] for row in rows]

    def mark_told(self, run: str, key: str, roles: Sequence[str]) -> None:
        marks = ",".join("?" * len(roles))
        self.db.execute(f"UPDATE told SET key = ? WHERE run = ? AND key = '' AND role IN ({marks})", (key, run, *roles))

    def put_checked(self, tree: str, command: str, setup: str, result: Json) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO checked (tree, command, setup, result, at) VALUES (?,?,?,?,?)",
            (tree, command, setup, dump(result), self.clock()),
        )

    def checked(self, tree: str, command: str, setup: str) -> Json:
        row = self._one(
            "SELECT result FROM checked WHERE tree = ? AND command = ? AND setup = ?", (tree, command, setup)
        )
        return load(row["result"]) if row else None

    # -- reading

    def _one(self, sql: str, args: Sequence[object]) -> sqlite3.Row | None:
        rows = self._all(sql, args)
        return rows[0] if rows else None

    def _all(self, sql: str, args: Sequence[object]) -> list[sqlite3.Row]:
        with readable(self.path):
            cursor = self.db.execute(sql, args)
            cursor.row_factory = sqlite3.Row
            return cursor.fetchall()
