"""Power cuts: a file system of its own for one run, shut down in mid-flight without writing back what it still holds.

An ext4 image on a loop device takes the place of a disk. `EXT4_IOC_SHUTDOWN` with `NOLOGFLUSH` stops it as a power cut
does: what was not synced is gone, what was renamed without a sync may be empty. After a remount the journal of ext4 is
replayed, as after any cut.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import sqlite3
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from bench import Bench, Said
from crews import FIXER, flow, plan_rule
from gitrepo import make_repo, sh
from storm import LANDED, UNITE, WHO, tip_of

SHUTDOWN = (2 << 30) | (4 << 16) | (ord("X") << 8) | 125
"""_IOR('X', 125, __u32): the same number for ext4 and xfs."""
NO_FLUSH = 2
SIZE = 512 * 2**20
CONFIG = '[checks]\ncommands = [["sh", "check.sh"]]\n[retries]\npauses = ["0s"]\n'
TASKS: list[dict[str, Any]] = [
    {"title": "T1"},
    {"title": "T2"},
    {"title": "T3", "depends_on": ["T1"]},
    {"title": "T4"},
    {"title": "T5", "depends_on": ["T2"]},
    {"title": "T6", "depends_on": ["T3"]},
]
SHARING = ("T2", "T4")
"""Both append to one file without saying so: a conflict that a fixer resolves."""


class Disk:
    """A file system in an image, mounted at `path`."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk.img"
        self.path = folder / "disk"
        self.path.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(self._image))

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.path))

    def unmount(self) -> None:
        deadline = time.monotonic() + 60
        while subprocess.run(["umount", str(self.path)], capture_output=True, check=False).returncode != 0:
            if not os.path.ismount(self.path):
                return
            assert time.monotonic() < deadline, f"still busy: {list(self._users())}"
            self._end_users()
            time.sleep(0.02)

    def flush(self) -> None:
        _run("sync", "-f", str(self.path))

    def cut(self) -> None:
        """The power goes, and with it every process that works here; then it comes back."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", NO_FLUSH))
        finally:
            os.close(handle)
        self._end_users()
        self.unmount()
        self.mount()

    def _end_users(self) -> None:
        for process in self._users():
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)

    def _users(self) -> Iterator[psutil.Process]:
        """Whatever stands in this folder or was told to keep its state here; never this process itself."""
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                named = process.environ().get("XDG_STATE_HOME", "")
                if named.startswith(f"{self.path}/") or Path(os.readlink(f"/proc/{process.pid}/cwd")).is_relative_to(
                    self.path
                ):
                    yield process


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@contextmanager
def disk(folder: Path) -> Iterator[Disk]:
    made = Disk(folder)
    made.mount()
    try:
        yield made
    finally:
        made.unmount()
        made._image.unlink()


@cache
def lacking() -> str:
    """Why no power can be cut here; '' when it can."""
    if os.geteuid() != 0:
        return "a power cut needs root: it mounts a file system of its own"
    if not shutil.which("mkfs.ext4") or not Path("/dev/loop-control").exists():
        return "a power cut needs mkfs.ext4 and loop devices"
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        try:
            with disk(Path(name)) as made:
                made.cut()
        except (subprocess.CalledProcessError, OSError) as error:
            return f"no loop-mounted ext4 can be shut down here: {error}"
    return ""


class Outage:
    """A run of six tasks on four slots, on a disk whose power is cut at moments that one number decides."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self.disk = disk
        self.chance = random.Random(seed)
        self.bench = Bench(disk.path, {"HOME": str(disk.path / "home")})
        (disk.path / "home").mkdir()
        files = {"README.md": "x\n", "src/shared": "", "check.sh": "! grep -rqs '^<<<<<<<' src\n"}
        make_repo(self.bench.root, {**files, ".windlass/config.toml": CONFIG})
        self._write_flow()
        disk.flush()
        self.said: list[Said] = []

    def _write_flow(self) -> None:
        land = {"checks": "all", "fixer": FIXER, "max": 3, "on": {"conflict": "fail", "red": "fail"}}
        (self.disk.path / "crew.yaml").write_text(flow(slots=4, failure="retry", land=land))
        commit = f"git add -A && git {WHO} commit -qm work --allow-empty"
        unite = UNITE.replace("shared-*", "shared")
        rules = [plan_rule(TASKS), {"when": {"purpose": "land-fix"}, "run": [unite, commit], "say": "mended"}]
        for task in TASKS:
            title = task["title"]
            more = [f"echo {title} >> src/shared"] if title in SHARING else []
            # One of them leaves its last file for the engine to commit.
            late = ["echo left > src/left"] if title == "T5" else []
            rules.append(
                {
                    "when": {"role": "implementer", "task": title},
                    "files": {f"src/{title}": f"{title}\n" * 50},
                    "run": [*more, commit, *late],
                    "sleep": round(self.chance.uniform(0.0, 0.15), 2),
                    "say": "done",
                }
            )
        self.bench.script.write_text(json.dumps(rules))

    # -- going wrong

    def cut_at(self, events: int, seconds: float) -> None:
        """So long after the run has recorded so many events, however fast this machine is."""
        process = self.bench.begin(*self._argv())
        try:
            while process.poll() is None and self._recorded() < events:
                time.sleep(0.005)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        finally:
            self.disk.cut()
            process.wait()

    def _recorded(self) -> int:
        with suppress(sqlite3.Error):
            return int(self.bench.rows("SELECT count(*) AS n FROM event")[0]["n"])
        return 0

    def go_on(self) -> Said:
        said = self.bench.windlass(*self._argv())
        self.said.append(said)
        return said

    def _argv(self) -> list[str]:
        if self.has_begun():
            return ["resume"]
        named = ["--flow", str(self.disk.path / "crew.yaml"), "--script", str(self.bench.script)]
        return ["run", "Build it", *named, "--yes"]

    def has_begun(self) -> bool:
        database = self.bench.home / "windlass.db"
        if not database.exists() or not self.bench.rows("SELECT 1 FROM sqlite_master WHERE name = 'run'"):
            return False
        return bool(self.bench.rows("SELECT 1 FROM run WHERE state != 'finished'"))

    def is_over(self) -> bool:
        exists = (self.bench.home / "windlass.db").exists()
        return exists and not self.has_begun() and self.bench.run_state == "finished"

    # -- what must hold

    def assert_repository_sound(self) -> None:
        """The user's own git works, and finds all that refs lead to."""
        root = self.bench.root
        found = sh(root, "fsck", "--full", "--strict", "--no-dangling")
        assert found == "", found
        # A git that the cut met while it moved a ref leaves its lock, as any git would; the next driver removes it.
        if not list((root / ".git" / "refs").rglob("*.lock")):
            sh(root, "gc", "-q", "--prune=now")
        changed = sh(root, "status", "--porcelain")
        assert changed == "", changed
        # git's own defaults leave the refs that it packed unsynced: that is not what the next cut is about.
        self.disk.flush()

    def assert_whole(self) -> None:
        bench = self.bench
        assert bench.run_state == "finished"
        assert not list((bench.root / ".git" / "refs").rglob("*.lock")), "a dead lock is left in the user's repository"
        branch = bench.rows("SELECT branch FROM run")[0]["branch"]
        for task in TASKS:
            assert sh(bench.root, "show", f"{branch}:src/{task['title']}").split() == [task["title"]] * 50
        assert sorted(sh(bench.root, "show", f"{branch}:src/shared").split()) == sorted(SHARING)
        assert sh(bench.root, "show", f"{branch}:src/left") == "left"
        landed = [row["key"].split("/")[1].split("+")[0] for row in bench.rows(LANDED, bench.id)]
        assert Counter(landed) == Counter(f"t{n}" for n in range(1, len(TASKS) + 1))
        trailers = sh(
            bench.engine, "log", "--first-parent", "--format=%(trailers:key=Windlass-Task,valueonly)", tip_of(bench)
        )
        assert Counter(trailers.split()) == Counter(landed)
        assert sh(bench.root, "rev-parse", branch) == sh(bench.engine, "rev-parse", tip_of(bench))
        attempts = bench.rows("SELECT key, state FROM attempt WHERE role != '' ORDER BY key, n")
        for key in {row["key"] for row in attempts}:
            states = [row["state"] for row in attempts if row["key"] == key]
            assert states.count("done") == 1, f"{key}: {states}"
            assert states[-1] == "done", f"{key} was tried again after it had a result: {states}"
        assert sh(bench.engine, "fsck", "--full", "--connectivity-only", "--no-dangling") == ""
