"""The front door for tests: the command line in this process, the scripted agent as real processes, real git."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from gitrepo import make_repo, sh
from windlass import paths as place
from windlass.app import compose, new_id, spawn
from windlass.events import DispatchStarted, Event, QuestionAnswered, QuestionAsked, Recorded, TaskChanged, Warned
from windlass.interfaces.exit import run as command_line
from windlass.runs.service import Host, Service
from windlass.views.state import View

Rule = dict[str, Any]
E = TypeVar("E", bound=Event)

PASS: Rule = {"status": "pass", "findings": [], "summary": "fine"}
TOOLS = ("git", "sh", "cat", "echo", "true", "sleep", "env")
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "TZ")
NO_EXTRAS = "".join(f'[roles.{role}]\nagent = "none"\n' for role in ("security-reviewer", "performance-reviewer"))
NO_PLAN_REVIEW = '[roles.architect]\nagent = "none"\n'
LEAN = NO_EXTRAS + NO_PLAN_REVIEW

#: the smallest flow that lands something
ONE_TASK = """\
flow: tiny
about: One task, one dispatch, landed.
branch: windlass/{slug}-{id8}
tdd: off
over_budget: stop
settings: {}
artifacts:
  plan: {kind: text, contract: tasks, given: true}
phases:
  - id: execute
    kind: tasks
    from: plan
    order: list
    slots: 1
    failure: stop
    steps:
      - id: implement
        kind: produce
        calls: [{role: implementer, in: [task, plan]}]
        on: {failed: fail}
    land: {checks: all, max: 1, on: {conflict: fail, red: fail}}
    on: {done: finish, stopped: stop}
"""


@dataclass(frozen=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str


class Front:
    """One repository and everything a person sees of the runs in it."""

    def __init__(self, tmp: Path, config: str = "", files: dict[str, str] | None = None) -> None:
        self.tmp = tmp
        self.root = make_repo(tmp / "repo", {"README.md": "hello\n", "src/app.py": "x = 1\n", **(files or {})})
        self.script = tmp / "script.yaml"
        if config:
            self.configure(config)

    @cached_property
    def env(self) -> dict[str, str]:
        """Isolated, and the same for module-wide runs, which begin before a test's own clean room does."""
        home = self.tmp / "home"
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        folders = {f"XDG_{name}_HOME": home / name.lower() for name in ("CONFIG", "STATE", "DATA", "CACHE")}
        for folder in (home, *folders.values()):
            folder.mkdir(parents=True, exist_ok=True)
        git = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "TERM": "dumb", "COLUMNS": "100"}
        return {**kept, "HOME": str(home), **{name: str(path) for name, path in folders.items()}, **git}

    def clis(self, **programs: str) -> Path:
        """A PATH with these agent CLIs, as shell scripts, and no others; the folder they are in."""
        folder = self.tmp / "bin"
        folder.mkdir()
        for name in TOOLS:
            (folder / name).symlink_to(str(shutil.which(name)))
        for name, body in programs.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        self.env["PATH"] = str(folder)
        return folder

    # -- doing

    def __call__(self, *argv: str, cwd: Path | None = None) -> Done:
        out, err = io.StringIO(), io.StringIO()
        with self.inside(cwd or self.root), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command_line(argv, compose())
        print(f"$ windlass {' '.join(argv)}\n{out.getvalue()}{err.getvalue()}exit {code}")  # pytest shows it on failure
        return Done(int(code), out.getvalue(), err.getvalue())

    @contextlib.contextmanager
    def inside(self, cwd: Path) -> Iterator[None]:
        with contextlib.chdir(cwd), mock.patch.dict(os.environ, self.env, clear=True):
            yield

    def start(self, rules: Sequence[Rule], *argv: str, request: str = "Add sub and mul") -> Done:
        self.say(rules)
        return self("run", "--script", str(self.script), *argv, "--", request)

    def task(self, rules: Sequence[Rule], *argv: str) -> Done:
        self.say(rules)
        return self("task", "--script", str(self.script), *argv)

    def say(self, rules: Sequence[Rule]) -> None:
        """JSON is YAML."""
        self.script.write_text(json.dumps(rules, ensure_ascii=False), encoding="utf-8")

    def configure(self, text: str) -> None:
        """A person's own settings: the repository stays as it is."""
        folder = Path(self.env["XDG_CONFIG_HOME"]) / "windlass"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)

    def git(self, *args: str) -> str:
        return sh(self.root, *args)

    # -- seeing

    @property
    def service(self) -> Service:
        host = Host(place.find(self.root), self.env, lambda: 0.0, self.root, new_id, spawn)
        return Service(host)

    @property
    def run(self) -> str:
        return self.service.run().id

    @property
    def folder(self) -> Path:
        return self.service.host.place.run_folder(self.run)

    @property
    def view(self) -> View:
        return self.service.view(self.run)

    @property
    def records(self) -> list[Recorded]:
        return self.service.events(self.run)

    def events(self, kind: type[E]) -> list[E]:
        return [recorded.event for recorded in self.records if isinstance(recorded.event, kind)]

    @property
    def dispatches(self) -> list[str]:
        """Every attempt in the order it began, as `role purpose key`."""
        return [f"{event.role} {event.purpose} {event.key}" for event in self.events(DispatchStarted)]

    @property
    def keys(self) -> list[str]:
        return [event.key for event in self.events(DispatchStarted)]

    def prompt(self, key: str, attempt: int = 1) -> str:
        return (self.folder / "attempts" / key / f"@{attempt}" / "prompt.md").read_text(encoding="utf-8")

    @property
    def state_file(self) -> Path:
        return self.folder / ".superteam-workflow.json"

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.state_file.read_text(encoding="utf-8")))

    @property
    def status(self) -> dict[str, Any]:
        return dict(json.loads(self("status", "--json").out))

    @property
    def asked(self) -> list[str]:
        return [event.id for event in self.events(QuestionAsked)]

    @property
    def answers(self) -> dict[str, str]:
        return {event.key: event.answer for event in self.events(QuestionAnswered)}

    @property
    def warnings(self) -> list[str]:
        return [event.text for event in self.events(Warned)]

    def states(self, task: str) -> list[str]:
        """What a task was, one after the other."""
        found = [event.state for event in self.events(TaskChanged) if event.task == task]
        return [state for n, state in enumerate(found) if n == 0 or found[n - 1] != state]

    @property
    def branch(self) -> str:
        return self.view.published

    def show(self, path: str) -> str:
        """A file as the run's branch has it."""
        return self.git("show", f"{self.branch}:{path}")

    @property
    def landed(self) -> set[str]:
        return set(self.git("ls-tree", "-r", "--name-only", self.branch).splitlines())


# -- rules


def plan_text(titles: Iterable[str], **more: Any) -> str:
    listed = [{"title": title, "description": f"Do {title}.", **more} for title in titles]
    return plan_of(listed)


def plan_of(tasks: Sequence[dict[str, Any]]) -> str:
    return f"# Plan\n\n```superteam-tasks\n{json.dumps(tasks, ensure_ascii=False)}\n```\n"


def scout(**more: Any) -> Rule:
    return {"when": {"role": "scout"}, "say": "A small program in src/app.py.", **more}


def planner(*titles: str, **more: Any) -> Rule:
    return {"when": {"role": "planner"}, "files": {"{plan_path}": plan_text(titles)}, "say": "done", **more}


def builder(**more: Any) -> Rule:
    """Each task gets a module and its test."""
    files = {"src/{task_id}.py": "y = 1\n", "tests/test_{task_id}.py": "def test_it(): pass\n"}
    return {"when": {"role": "implementer"}, "files": files, "commit": "feat: {task_id}", "say": "done", **more}


def passing(**more: Any) -> Rule:
    return {"when": {}, "json": PASS, **more}


def failing(role: str, *messages: str, severity: str = "high", times: int | None = None, **when: Any) -> Rule:
    findings = [{"severity": severity, "file": "src/t1.py", "message": message} for message in messages]
    rule: Rule = {
        "when": {"role": role, **when},
        "json": {"status": "fail", "findings": findings, "summary": "not yet"},
    }
    return rule if times is None else {**rule, "times": times}


def basics(*titles: str) -> list[Rule]:
    """What every good run ends with; put what goes wrong before it."""
    return [scout(), planner(*titles), builder(), passing()]


def spent(usd: float) -> dict[str, Any]:
    return {"usage": {"input": 100, "output": 10, "cost_usd": usd}}


def scripted(front: Front) -> str:
    """Configuration: the scripted agent for every role that names no other."""
    return f'[agents]\ndefault = "scripted"\n[agents.scripted]\nscript = "{front.script}"\n'
