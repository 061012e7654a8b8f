"""Runs in bad weather: random task graphs whose tasks conflict, and drivers, supervisors and gits that are killed."""

from __future__ import annotations

import json
import random
import shutil
import signal
import sqlite3
import subprocess
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import Bench, kill_supervisors, wait_for
from crews import FIXER, flow, plan_rule
from gitrepo import Footprint, footprint, make_repo, sh

CONFIG = '[checks]\ncommands = [["sh", "check.sh"]]\n[retries]\npauses = ["0s"]\n'
WHO = "-c user.name=Ada -c user.email=ada@example.org -c commit.gpgsign=false"
# Nobody resolves by thought here: both sides' lines stay.
UNITE = "for f in src/shared-*; do [ -e $f ] || continue; grep -v '^[<=>]\\{7\\}' $f > x || true; mv x $f; done"
# What agents do with git besides committing. All use the same names: in a shared repository they would meet.
COMMIT = f"git add -A && git {WHO} commit -q --allow-empty -m"
HABITS = (
    "true",
    f"git add -A && git {WHO} stash -q && git stash list >/dev/null && git stash pop -q",
    f"git checkout -q -B work && {COMMIT} early && git reset -q --soft HEAD~1",
    f"{COMMIT} one && git {WHO} commit -q --allow-empty --amend -m two",
    f"{COMMIT} one && git branch -f side && git tag -f v1",
    f"{COMMIT} a && {COMMIT} b && git {WHO} rebase -q --force-rebase HEAD~2",
    "git stash clear; git branch -D work side 2>/dev/null; git worktree prune; git gc -q --prune=now",
    f"echo x > lost && {COMMIT} lost && git rev-parse HEAD >> {{made}} && git reset -q HEAD~1 && rm lost",
)
# Starts the real git for the Nth call and kills it after a moment; all others go through.
GIT = """#!/bin/sh
echo . >> {count}
if [ $(wc -l < {count}) = {number} ]; then
  exec 3<&0
  {git} "$@" <&3 &
  sleep {delay}
  kill -9 $!
  exit 137
fi
exec {git} "$@"
"""


@dataclass(frozen=True)
class Weather:
    """One run's tasks and what goes wrong in it, all from one number."""

    seed: int
    given: tuple[tuple[str, float], ...] = ()
    """What goes wrong, when it is not left to chance."""

    @property
    def chance(self) -> random.Random:
        return random.Random(self.seed)

    @property
    def tasks(self) -> list[dict[str, Any]]:
        chance = self.chance
        count = chance.randint(3, 6)
        titles = [f"T{n}" for n in range(1, count + 1)]
        return [
            {"title": title, "depends_on": chance.sample(titles[:n], chance.choice([0, 0, 1, min(2, n)]) if n else 0)}
            for n, title in enumerate(titles)
        ]

    @property
    def shared(self) -> dict[str, int]:
        """Tasks that write the same file without saying so: a textual conflict."""
        chance = random.Random(self.seed + 1)
        return {task["title"]: chance.choice([0, 0, 1, 2]) for task in self.tasks}

    @property
    def quarrels(self) -> list[tuple[str, str]]:
        """Pairs that are fine alone and wrong together."""
        chance, titles = random.Random(self.seed + 2), [task["title"] for task in self.tasks]
        return [tuple(sorted(chance.sample(titles, 2))) for _ in range(chance.randint(0, 2))]

    @property
    def kills(self) -> list[tuple[str, float]]:
        if self.given:
            return [*self.given]
        chance = random.Random(self.seed + 3)
        ways = ("point", "point", "time", "supervisors", "git", "stopped")
        return [self._kill(chance, chance.choice(ways)) for _ in range(chance.randint(1, 4))]

    def _kill(self, chance: random.Random, way: str) -> tuple[str, float]:
        if way == "point":
            return way, chance.randint(3, 60)
        return (way, chance.randint(5, 150)) if way == "git" else (way, chance.uniform(0.2, 2.5))

    @property
    def text(self) -> str:
        land = {"checks": "all", "fixer": FIXER, "max": 3, "on": {"conflict": "fail", "red": "fail"}}
        order = random.Random(self.seed + 5).choice(["deps", "deps", "list", "waves"])
        return flow(slots=4, order=order, failure="retry", land=land)

    @property
    def check(self) -> str:
        """Green: no quarrel without its peace. Half of the repositories look for conflict marks themselves."""
        lines = ["! grep -rqs '^<<<<<<<' src || exit 1"] if self.seed % 2 else []
        lines += [f"[ -e src/{a} ] && [ -e src/{b} ] && [ ! -e src/peace-{a}-{b} ] && exit 1" for a, b in self.quarrels]
        return "\n".join([*lines, "exit 0", ""])

    def script(self, bench: Bench) -> list[dict[str, Any]]:
        commit = f"git add -A && git {WHO} commit -qm work --allow-empty && git rev-parse HEAD >> {bench.made}"
        chance = random.Random(self.seed + 4)
        peace = {f"src/peace-{a}-{b}": "\n" for a, b in self.quarrels}
        mend = {"when": {"purpose": "land-fix"}, "files": peace, "run": [UNITE, commit], "say": "mended"}
        idle = {"when": {"purpose": "land-fix"}, "times": chance.choice([0, 0, 1, 2, 4]), "say": "it is fine as it is"}
        rules = []
        for task in self.tasks:
            title, number = task["title"], self.shared[task["title"]]
            more = [f"echo {title} >> src/shared-{number}"] if number else []
            files = {f"src/{title}": f"{title}\n"}
            when = {"role": "implementer", "task": title}
            sleep = round(chance.uniform(0.0, 0.2), 2)
            habit = chance.choice(HABITS).replace("{made}", str(bench.made))
            rules.append({"when": when, "files": files, "run": [*more, habit, commit], "sleep": sleep, "say": "done"})
        return [plan_rule(self.tasks), *([idle] if idle["times"] else []), mend, *rules]


class Storm:
    """A bench with such a run in it."""

    def __init__(self, folder: Path, weather: Weather) -> None:
        self.weather = weather
        self.bench = Bench(folder)
        files = {"README.md": "x\n", "src/shared-1": "", "src/shared-2": "", "check.sh": weather.check}
        make_repo(self.bench.root, {**files, ".windlass/config.toml": CONFIG})
        (folder / "crew.yaml").write_text(weather.text)
        self.bench.script.write_text(json.dumps(weather.script(self.bench)))
        self.before = self._users()
        self.killed: Counter[str] = Counter()

    def weather_it(self) -> None:
        for way, number in self.weather.kills:
            if self._is_over():
                return
            self._live(way, number)
        for _ in range(40):
            if self._is_over():
                return
            self._drive(self.bench)
        raise AssertionError(f"it never came to an end: {self.bench.run_state}")

    def _is_over(self) -> bool:
        return self._has_begun() and self.bench.run_state in ("finished", "aborted")

    def _is_over_or_locked(self) -> bool:
        """A driver that is stopped while it opens or closes the database leaves nothing to read; Windlass says so."""
        try:
            return self._is_over()
        except sqlite3.OperationalError:
            said = self.bench.windlass("resume")
            assert said.code == 12, str(said)
            assert "locked" in said.err, str(said)
            return True

    def _has_begun(self) -> bool:
        return (self.bench.home / "windlass.db").exists() and bool(self._rows("SELECT 1 FROM run"))

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        return self.bench.rows(sql) if self.bench.rows("SELECT 1 FROM sqlite_master WHERE name = 'run'") else []

    def _argv(self) -> list[str]:
        if self._has_begun():
            return ["resume"]
        file = str(self.bench.folder / "crew.yaml")
        return ["run", "Build it", "--flow", file, "--script", str(self.bench.script), "--yes"]

    def _drive(self, bench: Bench, crash: str = "") -> None:
        said = bench.windlass(*self._argv(), crash=crash)
        assert said.killed or said.code in (0, 12, 14), str(said)

    def _live(self, way: str, number: float) -> None:
        self.killed[way] += 1
        match way:
            case "point":
                self._drive(self.bench, crash=str(int(number)))
            case "git":
                self._drive(self._with_dying_git(int(number)))
            case "stopped":
                self._stopped_after(number)
            case _:
                self._killed_after(number, together=way == "supervisors")

    def _with_dying_git(self, number: int) -> Bench:
        folder = self.bench.folder / f"git-{number}"
        folder.mkdir(exist_ok=True)
        real = shutil.which("git")
        wrapper = folder / "git"
        wrapper.write_text(GIT.format(git=real, number=number, count=folder / "calls", delay=number % 5 / 1000))
        wrapper.chmod(0o755)
        path = f"{folder}:{self.bench.environ()['PATH']}"
        return Bench(self.bench.folder, {"PATH": path})

    def _killed_after(self, seconds: float, *, together: bool) -> None:
        with self.bench.driver(*self._argv()) as driver:
            if not self._has_begun():
                wait_for(self.bench, "SELECT 1 FROM run")
            try:
                driver.wait(seconds)
            except subprocess.TimeoutExpired:
                driver.kill()
        if together:
            kill_supervisors(self.bench)

    def _stopped_after(self, seconds: float) -> None:
        """The driver stands still and loses its lock, another one takes over, and then the first goes on."""
        with self.bench.driver(*self._argv()) as driver:
            if not self._has_begun():
                wait_for(self.bench, "SELECT 1 FROM run")
            with suppress(subprocess.TimeoutExpired):
                driver.wait(seconds)
            if driver.poll() is not None:
                return
            driver.send_signal(signal.SIGSTOP)
            for lock in (self.bench.home / "locks").glob("*"):
                lock.unlink()
            try:
                if not self._is_over_or_locked():
                    self._drive(self.bench)
            finally:
                driver.send_signal(signal.SIGCONT)
            code, said = driver.wait(300), (self.bench.folder / "driver.out").read_text()
            # Stopped before it had looked at the run, it finds that the other one has finished it.
            assert code in (0, 12, 14) or (code == 1 and "is finished" in said), said

    # -- what must hold

    def _users(self) -> Footprint:
        return footprint(self.bench.root)

    def assert_nothing_lost(self) -> None:
        assert self.bench.run_state == "finished"
        self._assert_tasks_once()
        self._assert_every_tip_green()
        self._assert_all_reachable()
        self._assert_users_repository_untouched()
        self._assert_nothing_paid_twice()
        assert not self.bench.leftovers()

    def _assert_tasks_once(self) -> None:
        """Completed: once in the tip. Not completed: not in it."""
        bench = self.bench
        landed = [row["key"].split("/")[1].split("+")[0] for row in bench.rows(LANDED, bench.id)]
        assert len(landed) == len(set(landed)), landed
        trailers = sh(
            bench.engine, "log", "--first-parent", "--format=%(trailers:key=Windlass-Task,valueonly)", tip_of(bench)
        )
        assert Counter(trailers.split()) == Counter(landed)
        titles = [task["title"] for task in self.weather.tasks]
        files = set(sh(bench.engine, "ls-tree", "--name-only", f"{tip_of(bench)}:src").split())
        assert {title for title in titles if title in files} == {titles[int(id[1:]) - 1] for id in landed}
        assert sh(bench.root, "rev-parse", bench.rows("SELECT branch FROM run")[0]["branch"]) == sh(
            bench.engine, "rev-parse", tip_of(bench)
        )
        assert landed, "no task landed at all"

    def _assert_every_tip_green(self) -> None:
        bench = self.bench
        tips = [row["sha"] for row in bench.rows("SELECT sha FROM tip WHERE run = ? ORDER BY seq", bench.id)]
        assert tips[-1] == sh(bench.engine, "rev-parse", tip_of(bench))
        for number, tip in enumerate(dict.fromkeys(tips)):
            place = bench.folder / "tips" / str(number)
            place.mkdir(parents=True)
            archive = subprocess.run(
                ["git", f"--git-dir={bench.engine}", "archive", tip], capture_output=True, check=True
            )
            subprocess.run(["tar", "x", "-C", str(place)], input=archive.stdout, check=True)
            assert subprocess.run(["sh", "check.sh"], cwd=place, check=False).returncode == 0, f"tip {tip} is red"
            marked = [path.name for path in (place / "src").iterdir() if "<<<<<<< " in path.read_text()]
            assert marked == [], f"tip {tip} has conflict marks in {marked}"

    def _assert_all_reachable(self) -> None:
        """Told by the agent as soon as git had made it: a commit that was killed half-way is none."""
        made, bench = set(self.bench.commits_made()), self.bench
        kept = set(sh(bench.engine, "rev-list", "--glob=refs/*").split())
        kept |= set(sh(bench.root, "rev-list", "--all").split())
        assert made <= kept, f"lost: {made - kept}"

    def _assert_nothing_paid_twice(self) -> None:
        attempts = self.bench.rows("SELECT key, state FROM attempt WHERE role != '' ORDER BY key, n")
        for key in {row["key"] for row in attempts}:
            states = [row["state"] for row in attempts if row["key"] == key]
            assert states.count("done") <= 1, f"{key}: {states}"
            assert "done" not in states[:-1], f"{key} was tried again after it had a result: {states}"

    def _assert_users_repository_untouched(self) -> None:
        after, branch = self._users(), self.bench.rows("SELECT branch FROM run")[0]["branch"]
        refs = [line for line in after.refs.splitlines() if not line.startswith(f"refs/heads/{branch}")]
        assert (after.files, after.head, after.stash, after.status) == (
            self.before.files,
            self.before.head,
            self.before.stash,
            self.before.status,
        )
        assert refs == self.before.refs.splitlines()
        others = sh(self.bench.root, "for-each-ref", "--format=%(refname)").splitlines()
        strange = [name for name in others if not name.startswith(("refs/windlass/", "refs/heads/"))]
        assert strange == []


LANDED = """SELECT key FROM step WHERE run = ? AND key LIKE 'execute/%/land#%'
            AND json_extract(result, '$.kind') = 'landed'"""


def tip_of(bench: Bench) -> str:
    return f"refs/windlass/{bench.id}/tip"
