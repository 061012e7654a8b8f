"""Small flows with several tasks at once, for tests: a plan, tasks with what the test needs, a report."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from front import Front, Rule, plan_of

HEAD = """
flow: crew
about: Several tasks at once.
branch: windlass/{slug}-{id8}
tdd: off
over_budget: stop
artifacts:
  plan: {kind: file, path: docs/plan.md, contract: tasks, commit: true}
  changes: {kind: diff}
{questions}phases:
  - id: plan
    kind: produce
    calls: [{role: planner, in: [request], out: plan}]
    on: {failed: stop, empty: stop}
  - id: execute
    kind: tasks
    from: plan
"""
TAIL = """
  - {id: end, kind: report, template: task, to: [store], on: {ok: finish}}
"""
IMPLEMENT: dict[str, Any] = {
    "id": "implement",
    "kind": "produce",
    "label": "implementing",
    "calls": [{"role": "implementer", "in": ["task"]}],
    "on": {"failed": "fail"},
}
REVIEW: dict[str, Any] = {
    "id": "spec",
    "kind": "review",
    "label": "reviewing",
    "of": "changes",
    "reviewers": [{"role": "spec-reviewer", "in": ["task"]}],
    "mode": "single-pass",
    "threshold": "low",
    "on": {"pass": "next", "noted": "next", "blocking": "fail", "inconclusive": "fail"},
}
FIXER = {"role": "implementer", "in": ["task"]}


def flow(*stuck: str, **fields: Any) -> str:
    """A flow file whose `tasks` phase has these fields; JSON is YAML."""
    land = {"checks": "all", "max": 0, "on": {"conflict": "fail", "red": "fail"}}
    given = {"order": "deps", "slots": 4, "steps": [IMPLEMENT], "land": land, "on": {"done": "next"}, **fields}
    if given.get("failure", "stop") == "stop":
        given["on"] = {"stopped": "stop", **given["on"]}
    lines = "".join(f"    {name}: {json.dumps(value)}\n" for name, value in given.items())
    return HEAD.replace("{questions}", _questions(stuck)) + lines + TAIL


def _questions(options: Sequence[str]) -> str:
    """`stuck` with these options, by the target each leads to."""
    if not options:
        return ""
    words = {"continue": "redo", "accept": "waive"}
    targets = {key: words.get(key, key) for key in options}
    question = {"text": "{task.title}: {reason}", "options": targets, "comment": "optional", "per": "task"}
    return f"questions: {json.dumps({'stuck': question})}\n"


def plan_rule(tasks: Sequence[Mapping[str, Any]]) -> Rule:
    listed = [{"description": f"Do {task['title']}.", **task} for task in tasks]
    return {"when": {"role": "planner"}, "files": {"{plan_path}": plan_of(listed)}, "say": "done"}


def rule(task: str, files: Mapping[str, str], **more: Any) -> Rule:
    when = {"role": "implementer", "task": task, **more.pop("when", {})}
    return {"when": when, "files": dict(files), "commit": f"feat: {task}", "say": "done", **more}


def meeting(folder: Path, mine: str, *others: str) -> str:
    """A shell command that only ends when all of them are at work at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    wait = " && ".join(f"[ -e {folder / other} ]" for other in others)
    return f"touch {folder / mine}; n=0; until {wait}; do n=$((n+1)); [ $n -lt 1200 ] || exit 9; sleep 0.05; done"


class Crewed(Front):
    """A repository with such a flow in it."""

    def go(self, text: str, rules: Sequence[Rule], *argv: str) -> Any:
        file = self.tmp / "crew.yaml"
        file.write_text(text)
        return self.start(rules, "--flow", str(file), *argv, request="Build it")

    def until(self, event: str, *words: str) -> str:
        """A shell command that ends when the journal has such an event with these words in it."""
        likes = " AND data LIKE ?" * len(words)
        asked = (f"SELECT 1 FROM event WHERE type = ?{likes}", (event, *(f"%{word}%" for word in words)))
        database = str(self.root / ".git" / "windlass" / "windlass.db")
        look = f"sqlite3.connect({database!r}).execute(*{asked!r}).fetchone()"
        return shlex.join([sys.executable, "-c", f"import sqlite3, time\nwhile not {look}: time.sleep(0.05)"])
