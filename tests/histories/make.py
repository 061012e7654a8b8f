"""Makes a golden history with the Windlass of this checkout: `.venv/bin/python tests/histories/make.py NAME...`

NAME is one of `SCENARIOS`. A history is never replaced: one that is there is refused, and a scenario that is to be kept
again, as a later version records it, gets a name of its own with `--suffix`.

The run is made at a folder that no machine has for long (`--at`), once to its end without interruption and once as the
scenario says. What the first came to is what every later version must make of the second.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sqlite3
import sys
import tarfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

# ruff: noqa: E402 - the helpers of the tests lie one folder up
import brainstorming
import team
import windlass
from bench import Bench, kill, wait_for
from front import NO_EXTRAS, NO_PLAN_REVIEW, plan_of
from gitrepo import make_repo, sh
from processes_for_tests import until
from recorded_runs import (
    ABOUT,
    ARCHIVE,
    BOOT,
    HOST,
    PRINTED,
    RECORDED,
    History,
    end_of,
    histories,
    printed,
    read_records,
    rename_machine,
    unpack,
)

AT = Path("/tmp/windlass-history")
Rule = dict[str, Any]
SPENT: Rule = {"usage": {"input": 100, "output": 20, "cost_usd": 0.01}}
PASS: Rule = {"when": {}, "json": {"status": "pass", "findings": [], "summary": "fine"}, **SPENT}
FILES = {"README.md": "calc\n", "src/add.sh": "echo $(($1 + $2))\n", "check.sh": "test -s src/add.sh\n"}
CHECKS = '[checks]\ncommands = [["sh", "check.sh"]]\n'
CONFIG = CHECKS + NO_EXTRAS
TASKS = [
    {"title": "Subtract", "description": "Add sub.", "files": ["src/t1.sh"]},
    {"title": "Multiply", "description": "Add mul.", "files": ["src/t2.sh"]},
]


@dataclass(frozen=True)
class Scenario:
    """How to make a run that rests as wanted, and how a person goes on with it."""

    about: str
    rests: str
    """finished | waiting | killed"""
    command: tuple[str, ...]
    """What the person types. Everything is answered by it, except what the run is to wait for."""
    rules: Sequence[Rule]
    files: Mapping[str, str] = field(default_factory=lambda: FILES)
    config: str = CONFIG
    remote: bool = False
    """With a remote, and a stand-in for GitHub's program."""
    answers: Mapping[str, str] = field(default_factory=dict)
    """Question id -> the answer it is given when the run goes on; a run that is not to wait is given them at once."""
    crash: str = ""
    """The driver kills itself there: a crash point of the journal."""
    hang: Sequence[Rule] = ()
    """The rules whose agents do their work and then hang; the driver is killed when all of them do."""
    before_kill: str = "SELECT 1 FROM run"
    """And when the database has such a row."""


def _writer(task: str, text: str, **when: Any) -> Rule:
    files = {f"src/{task}.sh": text, f"tests/test_{task}.sh": f'test -n "$(sh src/{task}.sh 2 3)"\n'}
    rule = {"when": {"role": "implementer", "task": task, **when}, "files": files}
    return {**rule, "commit": f"feat: {task}", "say": "done", **SPENT}


def _fails(role: str, message: str, **when: Any) -> Rule:
    found = [{"severity": "high", "file": "src/t2.sh", "message": message}]
    return {"when": {"role": role, **when}, "json": {"status": "fail", "findings": found, "summary": "no"}, **SPENT}


def _given(answers: Mapping[str, str], most: int | None = None) -> list[str]:
    return [word for name, value in [*answers.items()][:most] for word in ("--answer", f"{name}={value}")]


BUILD = [
    _writer("t2", "echo $(($1 * $2)) # zero too\n", purpose="fix"),
    _writer("t1", "echo $(($1 - $2))\n"),
    {name: value for name, value in _writer("t2", "echo $(($1 * $2))\n").items() if name != "commit"},
]
"""The second task's agent leaves its work uncommitted, and mends it when it is sent back."""
PLAN = [
    {"when": {"role": "scout"}, "say": "A calculator.", **SPENT},
    {"when": {"role": "planner"}, "files": {"{plan_path}": plan_of(TASKS)}, "say": "done", **SPENT},
    *BUILD,
    _fails("spec-reviewer", "the zero case is missing", task="t2", cycle=1),
    PASS,
]
STUCK = [*PLAN[:-1], _fails("quality-reviewer", "nobody needs this", task="t2"), PASS]
RUN = ("run", "Add sub and mul")
APPROVE, MODES = {"approve": "approve"}, ("--set", "review_mode=iterative", "--set", "execution_mode=auto")
LEAN = CONFIG + NO_PLAN_REVIEW

STORM = [rule | SPENT for rule in brainstorming.brainstorm()]
BRAINSTORM = ("run", brainstorming.REQUEST, "--flow", "brainstorm")
STORM_ANSWERS = {
    "question-1": "SAML",
    "question-2": "fast",
    "question-3": "1",
    "approach": "other",
    "own-approach": "Basic auth",
    "section-1": "yes",
    "section-2": "yes",
    "section-3": "yes",
    "approve": "approve",
    "execution_mode": "auto",
    "review_mode": "iterative",
}

SUBTASKS = [team.subtask("a"), *(team.subtask(name, "a") for name in "bcd")]
SWE_B = team.engineer(when={"role": "swe", "task": "b", "purpose": "implement"})
TESTER_C = {"when": {"role": "swe-tester", "task": "c"}, "json": {"passed": True, "errors": []}, **SPENT}
TEAM = [
    team.asks("Per user, or per address?", 1),
    team.red("b", "b() is 2, not 1", times=1),
    team.disapproved("c", "say what it returns", times=1),
    SWE_B,
    TESTER_C,
    *team.basics(*SUBTASKS),
]
TEAM_RUN = ("run", "Add four functions", "--flow", "team", "--set", "pool_size=3")
TEAM_ANSWERS = {"clarify": "per user", "clarify-confirm": "yes"}

ONE = [
    _fails("quality-reviewer", "the zero case is missing", cycle=1),
    _writer("t1", "echo $(($1 * $2)) # zero too\n", purpose="fix"),
    _writer("t1", "echo $(($1 * $2))\n"),
    {"when": {"role": "implementer"}, "files": {"src/add.sh": "echo 3\n"}, "commit": "fix: add", "say": "ok", **SPENT},
    PASS,
]
TASK = ("task", "Add mul")
RED = {**FILES, "src/add.sh": ""}

SCENARIOS: dict[str, Scenario] = {
    "plan-finished": Scenario(
        "Two tasks, the second sent back once by a reviewer; finished.",
        *("finished", (*RUN, *MODES), PLAN),
        answers=APPROVE,
    ),
    "plan-waiting-for-approval": Scenario(
        "The plan waits for the person's approval.",
        *("waiting", (*RUN, *MODES), PLAN),
        answers=APPROVE,
        config=LEAN,
    ),
    "plan-waiting-for-escalation": Scenario(
        "The first task landed, the second is never good enough for its reviewer: what now?",
        *("waiting", (*RUN, *MODES, "--answer", "approve=approve", "--set", "max_task_review_cycles=1"), STUCK),
        answers={"escalation": "skip"},
        config=LEAN,
    ),
    "plan-killed-in-a-dispatch": Scenario(
        "The first task landed; killed while the agent of the second had written its code.",
        *("killed", (*RUN, *MODES), PLAN),
        answers=APPROVE,
        hang=[BUILD[2]],
        before_kill="SELECT 1 FROM event WHERE type = 'branch.published'",
    ),
    "plan-killed-in-a-landing": Scenario(
        "Killed when the second task was merged and checked, before its landing was recorded.",
        *("killed", (*RUN, *MODES), PLAN),
        answers=APPROVE,
        config=LEAN,
        crash="before execute/t2/land#1@1.finish",
    ),
    "plan-killed-in-parallel-tasks": Scenario(
        "Two tasks at work at once: the first landed, the agent of the second had written its code.",
        *("killed", (*RUN, *MODES, "--slots", "2"), PLAN),
        answers=APPROVE,
        config=LEAN,
        hang=[BUILD[2]],
        before_kill="SELECT 1 FROM event WHERE type = 'branch.published'",
    ),
    "brainstorm-finished": Scenario(
        "Questions, an approach in the person's own words, a design, a plan, two tasks; finished.",
        *("finished", BRAINSTORM, STORM),
        answers=STORM_ANSWERS,
    ),
    "brainstorm-waiting-for-a-section": Scenario(
        "The first section of the design is approved, the second waits.",
        *("waiting", (*BRAINSTORM, *_given(STORM_ANSWERS, 6)), STORM),
        answers=dict([*STORM_ANSWERS.items()][6:]),
    ),
    "brainstorm-killed-in-a-dispatch": Scenario(
        "All questions are answered; killed while the brainstormer was at work on the design.",
        *("killed", BRAINSTORM, STORM),
        answers=STORM_ANSWERS,
        hang=[STORM[3]],
    ),
    "brainstorm-killed-after-a-landing": Scenario(
        "Killed when the landing of the first task was recorded, before the branch showed it.",
        *("killed", BRAINSTORM, STORM),
        answers=STORM_ANSWERS,
        crash="after execute/t1/land#1@1.finish",
    ),
    "team-finished": Scenario(
        "Clarified, four subtasks in two waves, a red test, an unhappy reviewer, a pull request; finished.",
        *("finished", TEAM_RUN, TEAM),
        answers=TEAM_ANSWERS,
        config=CHECKS,
        remote=True,
    ),
    "team-waiting-for-clarification": Scenario(
        "The architect asked back and waits for the answer.",
        *("waiting", TEAM_RUN, TEAM),
        answers=TEAM_ANSWERS,
        config=CHECKS,
        remote=True,
    ),
    "team-killed-in-parallel-tasks": Scenario(
        "One subtask landed; of the three after it one was implemented, one tested, one reviewed and not landed.",
        *("killed", TEAM_RUN, TEAM),
        answers=TEAM_ANSWERS,
        config=CHECKS,
        remote=True,
        hang=[SWE_B, TESTER_C],
        before_kill="SELECT 1 FROM step WHERE key LIKE 'execute/d/review%'",
    ),
    "team-killed-in-a-landing": Scenario(
        "One subtask landed; killed when the three after it were merged and checked, before that was recorded.",
        *("killed", TEAM_RUN, TEAM),
        answers=TEAM_ANSWERS,
        config=CHECKS,
        remote=True,
        crash="before execute/d/land#1@1.finish",
    ),
    "team-killed-between-push-and-pull-request": Scenario(
        "Killed when the branch was pushed and that was recorded.",
        *("killed", TEAM_RUN, TEAM),
        answers=TEAM_ANSWERS,
        config=CHECKS,
        remote=True,
        crash="after pr/push",
    ),
    "task-finished": Scenario(
        "One task, sent back once; finished.",
        *("finished", TASK, ONE),
    ),
    "task-waiting-for-the-baseline": Scenario(
        "The checks fail before any work: shall an agent mend them first?",
        *("waiting", TASK, ONE),
        files=RED,
        answers={"baseline": "fix"},
    ),
    "task-killed-in-a-fix": Scenario(
        "Killed while the agent mended what the second reviewer found.",
        *("killed", TASK, ONE),
        hang=[ONE[1]],
    ),
    "task-killed-in-a-landing": Scenario(
        "Killed when the landing had begun.",
        *("killed", TASK, ONE),
        crash="after execute/t1/land#1@1.begin",
    ),
    "task-killed-after-a-proof": Scenario(
        "Its tests were seen red without the code; killed before the landing was recorded.",
        *("killed", TASK, ONE),
        files={**FILES, "run-tests.sh": 'for file in "$@"; do sh "$file" || exit 1; done\n'},
        config=f'{CONFIG}[tests]\nrun_files = ["sh", "run-tests.sh", "{{files}}"]\n',
        crash="before execute/t1/land#1@1.finish",
    ),
}


# -- making


def make(name: str, into: Path, at: Path, suffix: str = "") -> Path:
    """The folder of the new history."""
    scenario, folder = SCENARIOS[name], into / f"{name}{suffix}"
    if folder.exists():
        raise SystemExit(f"'{folder}' is there already: a history is never replaced (see --suffix)")
    bench = _prepared(scenario, at)
    exit = _finish(bench, scenario)
    end, date = end_of(bench, exit, read_records(bench)), _column(bench, "date")
    bench = _prepared(scenario, at)
    _rest(bench, scenario)
    if _column(bench, "date") != date:
        raise SystemExit("midnight came in between: make it once more")
    records = read_records(bench)
    about = {
        "scenario": name,
        "about": scenario.about,
        "rests": scenario.rests,
        "windlass": windlass.__version__,
        "schema": bench.rows("PRAGMA user_version")[0]["user_version"],
        "command": ["windlass", *_command(scenario)],
        "question": next((row["key"] for row in records["questions"] if row["state"] == "pending"), ""),
        "answers": dict(scenario.answers) if scenario.rests == "waiting" else {},
        "end": {"exit": end.exit, "state": end.state, "files": sorted(end.tree)},
    }
    kept = {
        "records": records,
        "end": asdict(end),
        **{name: bench.windlass(name, "--json").json for name in ("status", "show")},
    }
    shown = printed(bench) if scenario.rests == "finished" else ""
    own = _strip(bench)
    (at / RECORDED).write_text(_json(kept))
    _refuse_names(at, own)
    folder.mkdir(parents=True)
    _pack(at, folder / ARCHIVE)
    (folder / ABOUT).write_text(_json(about))
    if shown:
        (folder / PRINTED).write_text(shown)
    shutil.rmtree(at)
    return folder


def _prepared(scenario: Scenario, at: Path) -> Bench:
    shutil.rmtree(at, ignore_errors=True)
    at.mkdir(parents=True)
    os.environ |= {"HOME": str(at), "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    bench = Bench(at)
    make_repo(bench.root, {**scenario.files, ".windlass/config.toml": scenario.config})
    for name, value in (("name", "Ada"), ("email", "ada@example.org")):
        sh(bench.root, "config", f"user.{name}", value)
    bench.script.write_text(_json(scenario.rules))
    if not scenario.remote:
        return bench
    team.make_remote(bench.root, at)
    return Bench(at, {"PATH": f"{team.make_gh(at)}{os.pathsep}{os.environ['PATH']}"})


def _command(scenario: Scenario) -> tuple[str, ...]:
    return (*scenario.command, *(_given(scenario.answers) if scenario.rests != "waiting" else ()))


def _finish(bench: Bench, scenario: Scenario) -> int:
    said = bench.windlass(*scenario.command, *_given(scenario.answers), "--script", str(bench.script))
    if bench.run_state != "finished":
        raise SystemExit(f"without interruption it does not finish: {said}")
    return said.code


def _rest(bench: Bench, scenario: Scenario) -> None:
    command = (*_command(scenario), "--script", str(bench.script))
    if scenario.rests == "finished":
        _finish(bench, scenario)
    elif scenario.rests == "waiting":
        said = bench.windlass(*command)
        if said.code != 10:
            raise SystemExit(f"it does not wait: {said}")
    elif scenario.crash:
        said = bench.windlass(*command, crash=scenario.crash)
        if not said.killed:
            raise SystemExit(f"'{scenario.crash}' was not reached: {said}")
    else:
        _kill_in_dispatches(bench, scenario, command)
    until(lambda: not bench.leftovers())


def _kill_in_dispatches(bench: Bench, scenario: Scenario, command: Sequence[str]) -> None:
    hanging = [rule | {"hang": True} if rule in scenario.hang else rule for rule in scenario.rules]
    bench.script.write_text(_json(hanging))
    with bench.driver(*command) as driver:
        wait_for(bench, scenario.before_kill)
        until(lambda: _hung(bench, scenario) == len(scenario.hang))
        kill(driver)
    bench.script.write_text(_json(scenario.rules))


def _hung(bench: Bench, scenario: Scenario) -> int:
    """Agents of these rules that have done their work and said what they spent."""
    rules = {number for number, rule in enumerate(scenario.rules, 1) if rule in scenario.hang}
    found = [line for line in bench.dispatches() if line["rule"] in rules]
    files = [bench.run_folder / "attempts" / line["key"] / f"@{line['attempt']}" / "stdout" for line in found]
    return sum(file.exists() and '"usage"' in file.read_text() for file in files)


def _column(bench: Bench, name: str) -> str:
    return str(bench.rows(f"SELECT {name} FROM run")[0][name])


# -- packing


def _strip(bench: Bench) -> list[str]:
    """The log goes into the database, and the names of this machine go out of it. Which they are."""
    driver = json.loads(_column(bench, "driver"))
    rename_machine(bench.home, {driver["host"]: HOST, driver["boot"]: BOOT})
    with closing(sqlite3.connect(bench.home / "windlass.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("VACUUM")
    for path in (bench.folder / "gh-bin", bench.folder / "gh.env"):
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
    return [json.dumps(driver["host"]), driver["boot"]]


def _refuse_names(at: Path, own: Sequence[str]) -> None:
    """Nothing that depends on this machine, on this checkout, or on how Windlass is built."""
    places = [*own, str(HERE.parents[1]), sys.prefix, sys.base_prefix]
    modules = "|".join(
        sorted(path.stem for path in Path(windlass.__file__).parent.iterdir() if path.stem.isidentifier())
    )
    names = re.compile("|".join([*map(re.escape, places), rf"\bwindlass\.(?:{modules})\b"]).encode())
    for path in (path for path in at.rglob("*") if path.is_file()):
        found = names.search(path.read_bytes())
        if found:
            raise SystemExit(f"'{path}' has {found[0].decode()!r} in it, which a later Windlass need not have")


def _pack(at: Path, archive: Path) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:xz") as tar:
        for path in sorted(at.iterdir()):
            tar.add(path, path.name, filter=plain)


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write_words(name: str, into: Path) -> None:
    """Windlass says it in other words now, on purpose: the history keeps these. Nothing else of it changes."""
    with TemporaryDirectory() as folder:
        opened = unpack(History(into / name), Path(folder))
        (into / name / PRINTED).write_text(printed(opened))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a scenario; without any: those that have no history")
    parser.add_argument("--suffix", default="", help="added to the name of the history")
    parser.add_argument("--into", type=Path, default=HERE)
    parser.add_argument("--at", type=Path, default=AT, help="where the run is made; it is removed before and after")
    parser.add_argument("--words", action="store_true", help="only write down how the named histories are told now")
    args = parser.parse_args()
    if args.words:
        for name in args.names or [one.name for one in histories("finished")]:
            write_words(name, args.into)
        return 0
    names = args.names or [name for name in SCENARIOS if not (args.into / f"{name}{args.suffix}").exists()]
    unknown = sorted(set(names) - set(SCENARIOS))
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    for name in names:
        folder = make(name, args.into, args.at, args.suffix)
        print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) // 1024} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
