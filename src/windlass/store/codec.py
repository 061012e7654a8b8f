"""From sqlite's rows to ours, and JSON both ways."""

from __future__ import annotations

import json
import sqlite3

from windlass.model import RunState
from windlass.store.rows import AttemptRow, Intent, QuestionRow, RunRow, load


def dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def run_row(row: sqlite3.Row) -> RunRow:
    values = dict(row)
    values["settings"] = json.loads(values["settings"])
    values["options"] = json.loads(values["options"])
    values["state"] = RunState(values["state"])
    return RunRow(**values)


def attempt_row(row: sqlite3.Row) -> AttemptRow:
    intent = Intent(
        *(row["key"], row["n"], row["folder"], row["host"], row["boot"], row["slot"], row["base"], row["role"]),
        *(row["agent"], row["model"], row["credential"], row["reserved"], row["wall_s"]),
    )
    return AttemptRow(
        *(intent, row["state"], row["epoch"], row["started_at"], row["ended_at"], row["proc"], row["session"]),
        *(row["error"], row["reason"], load(row["usage"]), row["cost_usd"]),
    )


def question_row(row: sqlite3.Row) -> QuestionRow:
    return QuestionRow(
        *(row["key"], row["id"], json.loads(row["data"]), row["state"], row["asked_at"]),
        *(row["answer"], row["comment"], row["by"], row["answered_at"]),
    )
