"""The team flow for tests: what its agents say, a remote, and a stand-in for GitHub's program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from front import Front, Rule
from gitrepo import sh

URL = "https://github.example/acme/calc/pull/7"
SPENT = {"usage": {"input": 100, "output": 20, "cost_usd": 0.01}}
CHECKPOINTS = (
    "QUEUED", "REPO_SYNC", "WORKSPACE_CREATED", "BRANCH_CREATED", "CLARIFYING", "CLARIFIED", "PLANNING", "PLANNED",
    "AGENTS_SPAWNED", "SUBTASK_IMPLEMENTING", "SUBTASK_COMMITTING", "SUBTASK_TESTING", "SUBTASK_REVIEWING",
    "SUBTASK_FEEDBACK", "SUBTASK_DONE", "MERGING_AGENTS", "CREATING_PR", "COMPLETED", "FAILED",
)  # fmt: skip
# Knows the pull requests it opened, as the server would; `gh.does` changes how it answers.
GH = """#!/bin/sh
here="{folder}"
printf '%s\\n' "$*" >> "$here/gh.log"
env | sort > "$here/gh.env"
if [ -f "$here/gh.does" ]; then . "$here/gh.does"; fi
case "$2" in
  list) cat "$here/gh.open" 2>/dev/null || echo '[]' ;;
  create)
    cat > "$here/gh.body"
    for word in "$@"; do case "$word" in --head=*:*) login="${{word#--head=}}"; login="${{login%%:*}}" ;; esac; done
    printf '[{{"url": "%s", "headRepositoryOwner": {{"login": "%s"}}}}]' "{url}" "$login" > "$here/gh.open"
    echo "{url}" ;;
esac
"""


def subtask(id: str, *needs: str, **more: Any) -> dict[str, Any]:
    entry = {"id": id, "title": f"Build {id}", "description": f"Add {id}().", "depends_on": [*needs]}
    return {**entry, "files": [f"src/{id}.py"], **more}


def plan(subtasks: Sequence[Mapping[str, Any]]) -> Rule:
    return {
        "when": {"role": "architect", "purpose": "draft"},
        "json": {"summary": "x", "subtasks": [*subtasks]},
    } | SPENT


def asks(message: str, cycle: int) -> Rule:
    answer = {"status": "questions", "message": message}
    return {"when": {"role": "architect", "purpose": "clarify", "cycle": cycle}, "json": answer} | SPENT


def ready(message: str = "Add the functions, each with a test.", **when: Any) -> Rule:
    answer = {"status": "ready", "message": message}
    return {"when": {"role": "architect", "purpose": "clarify", **when}, "json": answer} | SPENT


def red(task: str, *errors: str, times: int | None = None) -> Rule:
    rule = {"when": {"role": "swe-tester", "task": task}, "json": {"passed": False, "errors": [*errors]}} | SPENT
    return rule if times is None else {**rule, "times": times}


def disapproved(task: str, feedback: str, times: int | None = None) -> Rule:
    answer = {"approved": False, "feedback": feedback}
    rule = {"when": {"role": "architect", "purpose": "review", "task": task}, "json": answer} | SPENT
    return rule if times is None else {**rule, "times": times}


def engineer(**more: Any) -> Rule:
    """Leaves everything uncommitted."""
    files = {"src/{task_id}.py": "def {task_id}(): return 1\n", "tests/test_{task_id}.py": "def test_it(): pass\n"}
    return {"when": {"role": "swe"}, "files": files, "say": "done", **SPENT, **more}


def basics(*subtasks: Mapping[str, Any]) -> list[Rule]:
    """What every good run ends with; put what goes wrong before it."""
    return [
        ready(),
        plan(subtasks or [subtask("add"), subtask("mul", "add")]),
        engineer(),
        {"when": {"role": "swe-tester"}, "json": {"passed": True, "errors": []}} | SPENT,
        {"when": {"role": "architect"}, "json": {"approved": True, "feedback": ""}} | SPENT,
    ]


def make_gh(folder: Path) -> Path:
    """The folder to put before everything else on the PATH."""
    place = folder / "gh-bin"
    place.mkdir()
    (place / "gh").write_text(GH.format(folder=folder, url=URL))
    (place / "gh").chmod(0o755)
    return place


def make_remote(root: Path, folder: Path) -> Path:
    """A server's repository that has what `root` has; `origin` of it."""
    remote = folder / "remote.git"
    sh(folder, "init", "-q", "--bare", "-b", "main", str(remote))
    sh(root, "remote", "add", "origin", str(remote))
    sh(root, "push", "-q", "origin", "HEAD:refs/heads/main")
    return remote


def created(folder: Path) -> list[str]:
    """The pull requests that were asked for."""
    log = folder / "gh.log"
    return [line for line in log.read_text().splitlines() if line.startswith("pr create")] if log.exists() else []


class Team(Front):
    """A repository with a remote, and a stand-in for `gh`."""

    def __init__(self, tmp: Path, *, remote: bool = True, gh: bool = True, **more: Any) -> None:
        super().__init__(tmp, **more)
        self.remote = make_remote(self.root, tmp) if remote else tmp / "none"
        if gh:
            self.env["PATH"] = f"{make_gh(tmp)}{os.pathsep}{os.environ['PATH']}"

    def go(self, rules: Sequence[Rule], *argv: str, clarify: bool = False) -> Any:
        skip = () if clarify else ("--set", "skip_clarification=true")
        return self.start(rules, "--flow", "team", *skip, *argv, request="Add add and mul")

    def gh_does(self, shell: str) -> None:
        (self.tmp / "gh.does").write_text(shell)

    @property
    def created(self) -> list[str]:
        return created(self.tmp)

    @property
    def steps(self) -> list[str]:
        """Every checkpoint that was reached, in order."""
        found = [getattr(recorded.event, "label", "") for recorded in self.records]
        return [label for label in found if label in CHECKPOINTS]

    @property
    def report(self) -> str:
        return (self.folder / "report.md").read_text()

    def pushed(self) -> dict[str, str]:
        lines = sh(self.remote, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)
