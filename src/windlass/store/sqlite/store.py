"""The store in one SQLite file, with one connection for one thread."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from windlass.store.epoch import EpochClaim
from windlass.store.port import Store
from windlass.store.sqlite.attempts import AttemptTable
from windlass.store.sqlite.blobs import BlobTable, CheckTable
from windlass.store.sqlite.database import Database, SqliteFence, Transaction, compare_epoch, connect
from windlass.store.sqlite.errors import translate_errors
from windlass.store.sqlite.events import EventTable
from windlass.store.sqlite.files import (
    create_database,
    make_database_private,
    require_database,
    require_undamaged,
    was_left_open,
)
from windlass.store.sqlite.questions import MessageTable, QuestionTable
from windlass.store.sqlite.quota import QuotaTable
from windlass.store.sqlite.runs import RunTable, TipTable
from windlass.store.sqlite.schema import VERSION, migrate
from windlass.store.sqlite.steps import AdoptionTable, StepTable


class SqliteStore(Store):
    schema = VERSION

    def __init__(self, database: Database, waits: Path) -> None:
        self.database = database
        self.clock = database.clock
        self.runs = RunTable(database)
        self.tips = TipTable(database)
        self.steps = StepTable(database)
        self.adoptions = AdoptionTable(database)
        self.attempts = AttemptTable(database)
        self.events = EventTable(database)
        self.questions = QuestionTable(database)
        self.messages = MessageTable(database)
        self.blobs = BlobTable(database)
        self.checks = CheckTable(database)
        self.quota = QuotaTable(waits, database)

    @classmethod
    def open(
        cls,
        path: Path,
        clock: Callable[[], float],
        *,
        waits: Path | None = None,
        create: bool = False,
        drives: bool = False,
    ) -> SqliteStore:
        """`waits`: the file of the quota waits that all repositories share; by default, this database has its own.
        `drives`: check for damage after a crash. A reader does not wait for this."""
        with translate_errors(path):
            if create:
                create_database(path)
            require_database(path)
            make_database_private(path)
            crashed = drives and was_left_open(path)
            connection = connect(path)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            # Reuse the log from its start after 1 MB, because a log that grows syncs slower.
            connection.execute("PRAGMA wal_autocheckpoint=250")
            if crashed:
                require_undamaged(connection, path)
            migrate(connection, path)
        return cls(Database(connection, path, clock), waits or path.with_name("waits.db"))

    def transaction(self, *, synced: bool = True) -> Transaction:
        return self.database.transaction(synced=synced)

    @property
    def in_transaction(self) -> bool:
        return self.database.connection.in_transaction

    @property
    def pending(self) -> bool:
        return self.database.pending

    def require(self, claim: EpochClaim) -> None:
        with translate_errors(self.database.path):
            compare_epoch(self.database.connection, claim)

    def fence(self, claim: EpochClaim) -> SqliteFence:
        return SqliteFence(self.database.path, claim)

    def data_version(self) -> int:
        return int(self.database.connection.execute("PRAGMA data_version").fetchone()[0])

    def sync(self) -> None:
        self.database.sync()

    def close(self) -> None:
        self.database.connection.close()
