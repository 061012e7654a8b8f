"""The tables of texts by content id, and of checks that passed on a tree."""

from __future__ import annotations

from windlass.errors import StoreError
from windlass.model import Json, compact
from windlass.store.epoch import EpochClaim
from windlass.store.rows import load
from windlass.store.sqlite.database import Database


class BlobTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, claim: EpochClaim, sha: str, content: str) -> None:
        data = content.encode("utf-8", "surrogatepass")
        with self._database.write(claim) as connection:
            connection.execute("INSERT OR IGNORE INTO blob (sha, content) VALUES (?,?)", (sha, data))

    def get(self, sha: str) -> str:
        row = self._database.one("SELECT content FROM blob WHERE sha = ?", sha)
        if row is None:
            raise StoreError(f"content {sha[:12]} is missing from the database")
        return bytes(row["content"]).decode("utf-8", "surrogatepass")


class CheckTable:
    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, claim: EpochClaim, tree: str, command: str, setup: str, result: Json) -> None:
        with self._database.write(claim) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO checked (tree, command, setup, result, at) VALUES (?,?,?,?,?)",
                (tree, command, setup, compact(result), self._database.clock()),
            )

    def get(self, tree: str, command: str, setup: str) -> Json:
        sql = "SELECT result FROM checked WHERE tree = ? AND command = ? AND setup = ?"
        row = self._database.one(sql, tree, command, setup)
        return load(row["result"]) if row else None
