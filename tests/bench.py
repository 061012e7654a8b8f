"""Whole runs for tests: a small repository, a script for the agents, and `python -m windlass` as a person calls it."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

import zygote
from gitrepo import make_repo, reachable, sh, write
from processes_for_tests import until
from zygote import Process

REQUEST = "Add sub and mul"
SUPERVISOR = "supervisor.py"
COMMIT = (
    "git add -A && git -c user.name=Ada -c user.email=ada@example.org -c commit.gpgsign=false commit -qm {message}"
    " && git rev-parse HEAD >> {made}"
)
PLAN = """# Plan

```superteam-tasks
- title: Subtract
  description: Add sub(a, b).
  files: [src/sub.py]
- title: Multiply
  description: Add mul(a, b).
  files: [src/mul.py]
```
"""
FILES = {"README.md": "calc\n", "src/add.py": "def add(a, b):\n    return a + b\n", "check.sh": "test -s src/add.py\n"}
CONFIG = '[checks]\ncommands = [["sh", "check.sh"]]\n'
PASS: dict[str, Any] = {"status": "pass", "findings": [], "summary": "fine"}
FAIL: dict[str, Any] = {
    "status": "fail",
    "findings": [{"severity": "high", "file": "src/mul.py", "message": "the zero case is missing"}],
    "summary": "no",
}
# A `windlass` that acts at the Nth call of a function, before it or after it: `module:name`, `when`, N.
AT_CALL = """
import importlib, os, signal, sys, threading
place, when, number = sys.argv[1:4]
module, _, name = place.partition(":")
owner = importlib.import_module(module)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
real, left = getattr(owner, last), [int(number)]
def acting(*args, **more):
    left[0] -= 1
    if when == "before" and left[0] == 0:
        ACT
    result = real(*args, **more)
    if when == "after" and left[0] == 0:
        ACT
    return result
setattr(owner, last, acting)
from windlass.app import compose
from windlass.interfaces.exit import run
sys.exit(run(sys.argv[4:], compose()))
"""
KILLER = AT_CALL.replace("ACT", "os.kill(os.getpid(), signal.SIGKILL)")
# To the calling thread: a signal for the process may be taken by another thread, while this one does a little more.
STOPPER = AT_CALL.replace("ACT", "signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)")


@dataclass(frozen=True)
class Said:
    """What one call of windlass came to."""

    code: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __str__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


@dataclass(frozen=True)
class Bench:
    """A repository with a script, in a folder of its own; nothing of it is shared with another test."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        return self.folder / "repo"

    @property
    def script(self) -> Path:
        return self.folder / "script.yaml"

    @property
    def made(self) -> Path:
        """Every commit that the script's agents made, one a line."""
        return self.folder / "made"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    # -- calling

    def windlass(self, *args: str, crash: str = "", timeout: float = 120.0) -> Said:
        return self._call(["-m", "windlass", *args], crash, timeout)

    def killed_at(self, place: str, when: str, number: int, *args: str) -> Said:
        return self._call(["-c", KILLER, place, when, str(number), *args], "", 120.0)

    def run(self, *more: str, crash: str = "") -> Said:
        return self.windlass("run", REQUEST, "--script", str(self.script), *more, crash=crash)

    @contextmanager
    def driver(self, *args: str) -> Iterator[Process]:
        """A driver in the background, killed at the end of the block if it still runs."""
        process = self.begin(*args)
        try:
            yield process
        finally:
            kill(process)

    def first_driver(self, *more: str) -> AbstractContextManager[Process]:
        return self.driver("run", REQUEST, "--script", str(self.script), *more)

    def begin(self, *args: str) -> Process:
        """What it says goes to `driver.out`."""
        with (self.folder / "driver.out").open("ab") as out:
            return zygote.popen(
                ["-m", "windlass", *args],
                cwd=self.root,
                env=self.environ(),
                stdout=out,
                stderr=out,
                own_session=True,
            )

    def environ(self, crash: str = "") -> dict[str, str]:
        names = ("PATH", "HOME", "LANG", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        own = {"XDG_STATE_HOME": str(self.state), "XDG_CONFIG_HOME": str(self.folder / "config"), "COLUMNS": "100"}
        return {**kept, **own, **self.env, **({"WINDLASS_CRASH": crash} if crash else {})}

    def _call(self, arguments: Sequence[str], crash: str, timeout: float) -> Said:
        """`python ARGUMENTS`, to its end."""
        done = zygote.run(arguments, cwd=self.root, env=self.environ(crash), timeout=timeout)
        return Said(done.returncode, done.stdout, done.stderr)

    # -- looking

    @property
    def home(self) -> Path:
        return self.root / ".git" / "windlass"

    @property
    def engine(self) -> Path:
        return next(self.state.glob("windlass/*/repo.git"))

    def rows(self, sql: str, *args: object) -> list[dict[str, Any]]:
        # Looking must not create it: an empty file would be a damaged database.
        address = f"{(self.home / 'windlass.db').as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, args).fetchall()]

    @property
    def id(self) -> str:
        return str(self.rows("SELECT id FROM run ORDER BY started_at DESC")[0]["id"])

    @property
    def run_folder(self) -> Path:
        return self.home / "runs" / self.id

    @property
    def run_state(self) -> str:
        return str(self.rows("SELECT state FROM run ORDER BY started_at DESC")[0]["state"])

    def dispatches(self) -> list[dict[str, Any]]:
        """Every start of the scripted agent, as the agent itself wrote it down."""
        log = self.run_folder / "scripted" / "dispatches.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line for line in map(json.loads, lines) if line["event"] == "start"]

    def tree(self) -> dict[str, str]:
        """What the run's branch contains, by path; the plan's date is taken out of its name."""
        row = self.rows("SELECT branch, date FROM run")[0]
        lines = sh(self.root, "ls-tree", "-r", row["branch"]).splitlines()
        pairs = (line.split("\t") for line in lines)
        return {path.replace(row["date"], "DATE"): entry for entry, path in pairs}

    def commits_made(self) -> list[str]:
        return self.made.read_text().split() if self.made.exists() else []

    def leftovers(self) -> list[str]:
        """Processes of this bench that are still there, supervisors included."""
        return [" ".join(process.cmdline()) for process in self.processes()]

    def processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE and self._is_ours(process):
                    yield process

    def _is_ours(self, process: psutil.Process) -> bool:
        if process.environ().get("XDG_STATE_HOME") == str(self.state):
            return True
        marked = process.environ().get("WINDLASS_ATTEMPT", "").startswith(f"{self.id}:")
        return marked or Path(process.cwd()).is_relative_to(self.state)


def kill(process: Process) -> None:
    process.kill()
    process.wait()


def is_stopped(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False


def kill_supervisors(bench: Bench) -> int:
    """As the kernel's memory killer would: the driver's helpers die with it. How many there were."""
    found = [process for process in bench.processes() if _supervises(process, bench)]
    for process in found:
        with suppress(psutil.Error):
            process.kill()
    return len(found)


def _supervises(process: psutil.Process, bench: Bench) -> bool:
    """A scripted agent is forked from a supervisor and has the same command line, but works in a slot."""
    with suppress(psutil.Error):
        supervisor = any(word.endswith(SUPERVISOR) for word in process.cmdline())
        return supervisor and not Path(process.cwd()).is_relative_to(bench.state)
    return False


def wait_for(bench: Bench, sql: str, seconds: float = 300.0) -> None:
    """Until the journal has such a row."""

    def there() -> bool:
        with suppress(sqlite3.Error, IndexError):
            return bool(bench.rows(sql))
        return False

    until(there, seconds)


def rule(when: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"when": dict(when), "usage": {"input": 100, "output": 20, "cost_usd": 0.01}, **more}


def writer(bench: Bench, when: Mapping[str, Any], name: str, text: str, **more: Any) -> dict[str, Any]:
    """An implementer that commits code with its test, and writes down the commit."""
    files = {f"src/{name}.py": text, f"tests/test_{name}.py": f"from {name} import {name}\n\n\ndef test_it(): ...\n"}
    commit = COMMIT.format(message=name, made=bench.made)
    return rule(when, files=files, run=[commit], say="done", **more)


def default_script(bench: Bench, **more: Any) -> list[dict[str, Any]]:
    """Two tasks; the second is sent back once by its first reviewer, and its writer leaves a file uncommitted."""
    mul = "def mul(a, b):\n    return a * b\n"
    fixed = mul + "\n\nZERO = 0\n"
    return [
        rule({"role": "scout"}, say="A calculator.", **more),
        rule({"role": "planner"}, files={"{plan_path}": PLAN}, say="done", **more),
        writer(bench, {"role": "implementer", "task": "t2", "purpose": "fix"}, "mul", fixed, **more),
        writer(bench, {"role": "implementer", "task": "t1"}, "sub", "def sub(a, b):\n    return a - b\n", **more),
        writer(bench, {"role": "implementer", "task": "t2"}, "mul", mul, **more)
        | {"run": [COMMIT.format(message="mul", made=bench.made), "echo left > src/left.py"]},
        rule({"role": "spec-reviewer", "task": "t2", "cycle": 1}, json=FAIL, **more),
        rule({}, json=PASS, **more),
    ]


def make_bench(
    folder: Path, *, script: Sequence[Mapping[str, Any]] | None = None, config: str = CONFIG, **more: Any
) -> Bench:
    bench = Bench(folder)
    make_repo(bench.root, {**FILES, ".windlass/config.toml": config})
    bench.script.write_text(json.dumps(list(script or default_script(bench, **more)), indent=1))
    return bench


def edit(bench: Bench, name: str, text: str) -> None:
    """As a person edits a file of the run while it is at rest."""
    write(bench.run_folder / "files", {name: text})


def plan_path(bench: Bench) -> str:
    row = bench.rows("SELECT date, slug FROM run")[0]
    return f"docs/plans/{row['date']}-{row['slug']}.md"


# -- what must hold of a run that was killed, however often


def assert_whole(bench: Bench, expected: Mapping[str, str], keys: set[str], kills: int) -> None:
    assert bench.run_state == "finished"
    assert bench.tree() == dict(expected)
    _assert_nothing_ran_twice(bench, keys, kills)
    _assert_all_reachable(bench)
    _assert_projections_right(bench)
    assert not bench.leftovers()
    assert sh(bench.root, "status", "--porcelain") == ""


def _assert_nothing_ran_twice(bench: Bench, keys: set[str], kills: int) -> None:
    attempts = bench.rows("SELECT key, n, state FROM attempt WHERE run = ? AND role != '' ORDER BY key, n", bench.id)
    by_key: dict[str, list[str]] = {}
    for row in attempts:
        by_key.setdefault(row["key"], []).append(row["state"])
    assert set(by_key) == keys
    for key, states in by_key.items():
        assert states.count("done") == 1, f"{key}: {states}"
        assert states[-1] == "done", f"{key} was tried again after it had a result: {states}"
    starts = Counter((line["key"], line["attempt"]) for line in bench.dispatches())
    assert set(starts.values()) == {1}
    assert set(starts) <= {(row["key"], row["n"]) for row in attempts}
    # Two dispatches at most are at work at once.
    assert len(starts) <= len(keys) + 2 * kills


def _assert_all_reachable(bench: Bench) -> None:
    for sha in bench.commits_made():
        assert reachable(bench.engine, sha) or reachable(bench.root, sha), f"commit {sha} is lost"


def _assert_projections_right(bench: Bench) -> None:
    plan = plan_path(bench)
    shown = sh(bench.root, "show", f"{bench.rows('SELECT branch FROM run')[0]['branch']}:{plan}")
    assert (bench.run_folder / "files" / plan).read_text().strip() == shown.strip()
    assert not (bench.run_folder / ".superteam-workflow.json").exists()
    report = (bench.run_folder / "report.md").read_text()
    assert "Multiply" in report


def assert_state_file_readable(bench: Bench) -> None:
    """A kill at any moment leaves the old or the new file."""
    path = bench.run_folder / ".superteam-workflow.json"
    if path.exists():
        assert json.loads(path.read_text())["phase"]


def go_on_until_done(bench: Bench, *, crash: str = "", most: int = 400) -> int:
    """A bare `windlass` again and again; how often it was killed on the way."""
    for kills in range(most):
        said = bench.windlass(crash=crash)
        if not said.killed:
            assert said.code == 0, str(said)
            return kills
        assert_state_file_readable(bench)
    raise AssertionError("it never came to an end")
