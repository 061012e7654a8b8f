"""Work that agents made and that no branch may have: where it is, what it changes, and how to get at it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from windlass.errors import UserError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo, name_held
from windlass.git.keep import transfer
from windlass.git.publish import names_like
from windlass.text import plain

ATTEMPT = re.compile(r"(?P<key>.+)/@(?P<n>[0-9]+)(?:\.[0-9]+)?")


class TaskWork(Struct, frozen=True):
    """A commit that an attempt at a task left."""

    task: str
    key: str
    n: int
    """The attempt; 0 when it was found in a slot that was given back."""
    ref: str
    commit: str
    held: bool
    """What a writer handed in; else what was left in its slot besides. Such refs are in the engine's repository."""


def task_work(engine: EngineRepo, run: str, tasks: Collection[str], landed: str) -> list[TaskWork]:
    """Of these tasks, without what `landed` contains."""
    held = {ref: (name_held(ref, run), sha, True) for ref, sha in engine.refs().items() if name_held(ref, run)}
    prefix = f"refs/windlass/keep/{run}/"
    kept = git.read_refs(engine.user.root, prefix)
    named = held | {ref: (ref.removeprefix(prefix), sha, False) for ref, sha in kept.items()}
    found = []
    for ref, (name, sha, is_held) in named.items():
        match = ATTEMPT.fullmatch(name)
        task = _task_of(match["key"]) if match else ""
        if match and task in tasks:
            found.append(TaskWork(task, match["key"], int(match["n"]), ref, sha, is_held))
    reached = contained(engine, {work.commit for work in found}, [landed] if landed else [])
    return [work for work in found if work.commit not in reached]


def _task_of(key: str) -> str:
    """The task's id in a key like `execute/t3+2/spec#1`."""
    parts = key.split("/")
    return re.split(r"[+#]", parts[1])[0] if len(parts) > 1 else ""


def contained(engine: EngineRepo, shas: Iterable[str], tips: Iterable[str]) -> set[str]:
    """Those of `shas` that one of `tips` leads to; what does not exist is contained in nothing. Two gits for all."""
    wanted = sorted(set(shas))
    if not wanted:
        return set()
    asked = "".join(f"{sha}^{{commit}}\n" for sha in wanted)
    answers = engine.git("cat-file", "--batch-check", input=asked).out.splitlines()
    present = [
        sha for sha, answer in zip(wanted, answers, strict=True) if not answer.endswith((" missing", "ambiguous"))
    ]
    stdin = "".join(f"{sha}\n" for sha in present) + "".join(f"^{sha}\n" for sha in tips)
    beyond = set(engine.git("rev-list", "--ignore-missing", "--stdin", input=stdin).out.split()) if present else set()
    return set(present) - beyond


def branch_tips(engine: EngineRepo) -> dict[str, str]:
    return git.read_refs(engine.user.root, "refs/heads/")


def base_of(engine: EngineRepo, commit: str, landed: str) -> str:
    """Where a task's work left what has landed."""
    return engine.git("merge-base", landed, commit, check=False).line or landed


def take(engine: EngineRepo, run: str, commit: str, branch: str, *, exact: bool) -> tuple[str, bool]:
    """Put a commit on a branch of the user's repository: the branch, and whether it was made now.

    `exact`: a person named the branch, so no other name will do.
    """
    if not git.is_branch_name(branch):
        raise UserError(f"'{branch}' is not a valid branch name", hint="see `git help check-ref-format`")
    present = branch_tips(engine)
    for name in [branch] if exact else names_like(branch):
        now = present.get(f"refs/heads/{name}", "")
        if now == commit:
            return name, False
        if not now:
            _make_branch(engine, run, name, commit)
            return name, True
    raise UserError(f"branch '{branch}' exists already and is something else", hint="--branch NAME takes another name")


def _make_branch(engine: EngineRepo, run: str, branch: str, commit: str) -> None:
    transfer(engine, [commit], [engine.user.head])
    zero = "0" * len(commit)
    command = ["update-ref", "-m", f"windlass: {run}", f"refs/heads/{branch}", commit, zero]
    done = git.run(command, engine.user.root, check=False)
    if done.code != 0:
        why = plain(done.err).strip()[-400:]
        raise UserError(f"cannot make branch '{branch}': {why}", hint="--branch NAME takes another name")


def newest(works: Iterable[TaskWork], began: Mapping[tuple[str, int], float]) -> TaskWork | None:
    """What stands for a task's work: the last that a writer handed in, else the last that was left in a slot."""
    listed = sorted(works, key=lambda work: (work.held, began.get((work.key, work.n), 0.0), work.n, work.ref))
    return listed[-1] if listed else None
