"""Rows of one run as rows of another: the SQL of a fork."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.store.database import Store

STEP = (
    "INSERT INTO step (run, key, fingerprint, inputs, context, result, at)"
    " SELECT ?, key, fingerprint, inputs, context, result, at FROM step WHERE run = ? AND key = ?"
)
QUESTION = (
    "INSERT INTO question (run, key, id, data, state, answer, comment, by, asked_at, answered_at)"
    " SELECT ?, key, id, data, state, answer, comment, by, asked_at, answered_at FROM question"
    " WHERE run = ? AND key = ?"
)
ADOPTION = (
    "INSERT INTO adoption (run, artifact, producer, old_sha, new_sha, covers, by, at)"
    " SELECT ?, artifact, producer, old_sha, new_sha, covers, by, at FROM adoption WHERE run = ? AND id = ?"
)
EVENT = (
    "INSERT INTO event (run, at, type, data, mark) SELECT ?, ?, type, data, mark FROM event WHERE run = ? AND seq = ?"
)


def copy_steps(store: Store, source: str, target: str, keys: Iterable[str]) -> None:
    store.db.executemany(STEP, [(target, source, key) for key in keys])


def copy_questions(store: Store, source: str, target: str, keys: Iterable[str]) -> None:
    store.db.executemany(QUESTION, [(target, source, key) for key in keys])


def copy_adoptions(store: Store, source: str, target: str, ids: Iterable[int]) -> None:
    store.db.executemany(ADOPTION, [(target, source, id) for id in ids])


def copy_events(store: Store, source: str, target: str, seqs: Iterable[int]) -> None:
    """With their marks, so that a replay does not say them again; dated now, because here they took no time."""
    now = store.clock()
    store.db.executemany(EVENT, [(target, now, source, seq) for seq in seqs])
