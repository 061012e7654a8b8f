"""Golden histories: runs that an earlier Windlass recorded, kept under `tests/histories`, and how to open one here.

A history is a folder. `history.json` says what it is, who made it and how a person goes on with it. `printed.txt` is
what `status` and `show` print of it. `history.tar.xz` holds the user's repository with Windlass's database and run
folder in it, the state folder, the script of the agents, and `recorded.json`: what the database said and what the run
came to without interruption, as plain JSON, so that no later schema is needed to read it.

A history was made on another machine, under another path, and that machine is off. `unpack` therefore does what a
person does who brings a repository and its state folder over from a broken machine:
- The repository lies at a new path. Windlass itself finds that it was moved; `place.json` keeps the old path.
- The state folder lies at a new path too, which Windlass cannot guess: `home` in `place.json` is set to it.
- The machine has the old one's host name. Its processes count as ended, because the boot id is another one.
- The address of the remote and the script's path are given anew: `git remote set-url`, `windlass resume --script`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench import Bench, Said
from gitrepo import sh
from team import make_gh

HISTORIES = Path(__file__).parent / "histories"
ARCHIVE, ABOUT, PRINTED, RECORDED = "history.tar.xz", "history.json", "printed.txt", "recorded.json"
HOST, BOOT = "the-machine-of-the-history", "00000000-0000-0000-0000-000000000000"
"""Stand in an archive for the names of the machine that made it."""
APART = ("run.", "branch.", "dispatch.", "command.", "warned")
"""Events that tell of drivers, attempts and effects: an interruption adds some, and takes no result away."""
WORDS = ("report/text", "completed/text")
PAGE = "-progress.md"
"""Steps and a file that are made of words, times and costs: who finishes the run writes them."""
HEX = re.compile(r"\b[0-9a-f]{40}\b")
TIME = re.compile(r'"\d{10}\.\d+"|(?<="seconds": )[\d.]+')
"""How long a test ran, and what the order of a proof's runs is drawn from."""
TAG = re.compile(r"(superteam-[a-z]+)-[0-9a-f]{12}")


@dataclass(frozen=True)
class History:
    """One of the kept runs."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def about(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / ABOUT).read_text()))


def histories(rests: str = "") -> list[History]:
    """All that there are, or those that rest so: `finished`, `waiting` or `killed`."""
    found = [History(path.parent) for path in sorted(HISTORIES.glob(f"*/{ABOUT}"))]
    return [one for one in found if rests in ("", one.about["rests"])]


class Opened(Bench):
    """A history that was unpacked."""

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """`records` of the database, `end` of the uninterrupted run, `status` and `show` as JSON."""
        return dict(json.loads((self.folder / RECORDED).read_text()))

    def resume(self, *more: str) -> Said:
        return self.windlass("resume", "--script", str(self.script), *more)


def unpack(history: History, folder: Path) -> Opened:
    with tarfile.open(history.folder / ARCHIVE) as archive:
        archive.extractall(folder, filter="tar")
    env = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    opened = Opened(folder, env)
    if (folder / "remote.git").exists():
        sh(opened.root, "remote", "set-url", "origin", str(folder / "remote.git"))
        opened = Opened(folder, {**env, "PATH": f"{make_gh(folder)}{os.pathsep}{os.environ['PATH']}"})
    place = opened.home / "place.json"
    known = json.loads(place.read_text())
    [home] = [path for path in (opened.state / "windlass").iterdir() if path.is_dir()]
    place.write_text(json.dumps({**known, "home": str(home)}))
    rename_machine(opened.home, {HOST: socket.gethostname()})
    return opened


def rename_machine(home: Path, names: Mapping[str, str]) -> None:
    """In all places that say which machine a process belonged to: `attempt`, `run.driver`, `proc.json`."""
    with closing(sqlite3.connect(home / "windlass.db")) as db, db:
        for old, new in names.items():
            db.execute(
                "UPDATE attempt SET host = replace(host, ?, ?), boot = replace(boot, ?, ?)", (old, new, old, new)
            )
            db.execute("UPDATE run SET driver = replace(driver, ?, ?)", (json.dumps(old), json.dumps(new)))
    for proc in home.glob("runs/**/proc.json"):
        text = proc.read_text()
        for old, new in names.items():
            text = text.replace(json.dumps(old), json.dumps(new))
        proc.write_text(text)


# -- what a database says, as plain JSON


def read_records(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    """All that must stay as it is. This is the one reader that follows the schema: histories keep what it gave."""
    steps = bench.rows("SELECT key, fingerprint, inputs, context, result FROM step ORDER BY seq")
    attempts = bench.rows("SELECT key, n, state, role, error, cost_usd FROM attempt ORDER BY started_at, key, n")
    events = bench.rows("SELECT type, data, mark FROM event ORDER BY seq")
    questions = bench.rows("SELECT key, state, answer, comment FROM question ORDER BY asked_at, key")
    return {
        "steps": [{**row, **_parsed(row, "inputs", "context", "result")} for row in steps],
        "attempts": attempts,
        "events": [{**row, **_parsed(row, "data")} for row in events],
        "questions": questions,
        "superseded": bench.rows("SELECT key FROM superseded ORDER BY seq"),
        "dispatches": [{"key": line["key"], "attempt": line["attempt"]} for line in bench.dispatches()],
    }


def _parsed(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: json.loads(row[name]) for name in names}


def printed(bench: Bench) -> str:
    """What a person sees of the run; its age and where it lies are no part of it."""
    shown = "\n".join(f"$ windlass {command}\n{bench.windlass(command).out}" for command in ("status", "show"))
    shown = shown.replace(str(bench.folder), "FOLDER")
    return re.sub(r"(?m)^(State: .* UTC) \(.*\)$", r"\1", shown)


# -- what a run came to, without what differs from one run to the next


@dataclass(frozen=True)
class End:
    """Comparable between a run that was interrupted and one that was not."""

    exit: int
    state: str
    tree: dict[str, str]
    steps: dict[str, Any]
    """Key -> result."""
    story: dict[str, list[str]]
    """What happened, in order, for the run ('') and for each task: tasks at work at once may take turns."""


def end_of(bench: Bench, exit: int, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> End:
    plain = _Plain(bench, records)
    return End(
        exit=exit,
        state=bench.run_state,
        tree={path: "(words)" if path.endswith(PAGE) else entry for path, entry in bench.tree().items()},
        steps={row["key"]: plain.value(row["result"]) for row in records["steps"] if row["key"] not in WORDS},
        story=_story(records["events"]),
    )


class _Plain:
    """Takes out of a value what no two runs share: commits, run ids, dates, times, tags of blocks."""

    def __init__(self, bench: Bench, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        row = bench.rows("SELECT id, date FROM run")[0]
        self._words = {str(bench.folder): "FOLDER", row["id"]: "RUN", row["id"][:8]: "RUN8", row["date"]: "DATE"}
        named = sorted(set(HEX.findall(json.dumps([one["result"] for one in records["steps"]]))))
        self._words |= dict.fromkeys(_commits(bench, named), "COMMIT")

    def value(self, value: Any) -> Any:
        text = TIME.sub('"TIME"', json.dumps(value, sort_keys=True))
        text = TAG.sub(r"\1-TAG", text)
        for word, name in self._words.items():
            text = text.replace(word, name)
        return json.loads(text)


def _commits(bench: Bench, shas: Sequence[str]) -> Iterator[str]:
    """Those that are commits; trees and blobs depend on their content alone."""
    for place in (bench.engine, bench.root):
        argv = ["git", "cat-file", "--batch-check=%(objecttype) %(objectname)"]
        done = subprocess.run(argv, cwd=place, input="\n".join(shas), capture_output=True, text=True, check=True)
        found = (line.partition(" ") for line in done.stdout.splitlines())
        yield from (sha for kind, _, sha in found if kind == "commit")


def _story(events: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    story: dict[str, list[str]] = {}
    for event in events:
        data = event["data"]
        if not event["type"].startswith(APART):
            told = [str(data[name]) for name in ("key", "state", "outcome", "verdict", "answer") if data.get(name)]
            story.setdefault(_task(data), []).append(" ".join([event["type"], *told]))
    return story


def _task(data: Mapping[str, Any]) -> str:
    """Whose turn it was: `execute/t1/spec#1` is of t1."""
    parts = re.split(r"[#+!]", str(data.get("key") or ""))[0].split("/")
    return str(data.get("task") or (parts[1] if len(parts) > 1 and parts[0] == "execute" else ""))


# -- comparing


def difference(old: Any, new: Any, at: str = "") -> str:
    """The first place where they differ, in words; '' when all that `old` has is in `new`. More fields may come."""
    if isinstance(old, dict) and isinstance(new, dict):
        inside = (
            difference(value, new.get(name, "(nothing)"), f"{at}.{name}".strip(".")) for name, value in old.items()
        )
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        inside = (difference(*pair, f"{at}[{n}]") for n, pair in enumerate(zip(old, new, strict=True)))
    else:
        return "" if old == new else f"{at or 'it'} was {old!r}, is {new!r}"
    return next((found for found in inside if found), "")
