"""Keep-refs: before a slot is reset or removed, refs in the user's repository lead to all work in it.

Also finds the kept work of a task, and puts it on a branch for a person.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, count, islice

from msgspec import Struct

from windlass.errors import UserError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.intake import take_existing
from windlass.git.ref_audit import RefChange
from windlass.git.run_refs import base_ref, name_held
from windlass.git.slot import Slot
from windlass.git.trees import SlotStatus, commit_tree, status, work_tree
from windlass.git.user_repo import names_like
from windlass.text import plain

SHA = re.compile(r"[0-9a-f]{40,64}")
ATTEMPT = re.compile(r"(?P<key>.+)/@(?P<n>[0-9]+)(?:\.[0-9]+)?")
PSEUDO_REFS = (
    "ORIG_HEAD",
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "MERGE_AUTOSTASH",
    "rebase-merge/autostash",
    "rebase-apply/autostash",
)


class Attempt(Struct, frozen=True):
    """The attempt that made the work. The last part of a keep-ref starts with '@', which no part of a key does, so
    names never collide."""

    run: str
    key: str
    n: int

    @property
    def name(self) -> str:
        return f"{self.key}@{self.n}"

    @property
    def ref(self) -> str:
        return f"refs/windlass/keep/{self.run}/{self.key}/@{self.n}"


class Kept(Struct, frozen=True):
    refs: tuple[str, ...]
    """The refs that this call made in the user's repository; () when other refs lead to all of the work."""
    status: SlotStatus
    """The status of the slot before the call."""


def keep(
    engine: EngineRepo,
    slot: Slot,
    attempt: Attempt,
    date: float,
    undone: Sequence[RefChange] = (),
    seen: SlotStatus | None = None,
) -> Kept:
    """Keep all work in the slot. `undone`: changed refs that are about to be restored; their commits are kept too.

    `seen`: the slot's status, if the caller knows it and nothing has run in the slot since.
    """
    seen = seen or status(engine, slot)
    # All commits that the slot's repository names: in HEAD, branches, tags, stashes, their logs, and the files of an
    # unfinished command.
    logs = [path for path in (slot.git_dir / "logs").rglob("*") if not path.is_symlink()]
    files = [*logs, *slot.own_refs(), *(slot.git_dir / name for name in PSEUDO_REFS)]
    left = {sha for file in files if file.is_file() for sha in _shas(file.read_text(errors="replace"))}
    made = {sha for sha in left if not engine.refs.reaches(sha)}
    shas = (left - made) | take_existing(engine, slot, sorted(made)) | {seen.head}
    for change in undone:
        # Only the log of a ref has the older entries of a stash.
        log = engine.path / "logs" / change.name
        shas |= _shas(log.read_text(errors="replace")) if log.is_file() else set()
        shas |= {sha for sha in (change.before, change.after) if sha}
    if seen.dirty:
        message = f"Uncommitted work of {attempt.key}, attempt {attempt.n}\n"
        shas.add(commit_tree(engine, work_tree(engine, slot, seen), [seen.head], message, date))
    return Kept(_pin(engine, attempt, shas), seen)


def _shas(text: str) -> set[str]:
    words = (word for line in text.splitlines() for word in line.split("\t")[0].split(" ")[:2])
    return {word for word in words if SHA.fullmatch(word) and word.strip("0")}


def _pin(engine: EngineRepo, attempt: Attempt, shas: Iterable[str]) -> tuple[str, ...]:
    lost = unreachable_commits(engine, [sha for sha in shas if not engine.refs.reaches(sha)])
    if not lost:
        return ()
    # An earlier call for this attempt kept some of it.
    known = git.read_refs(engine.user.root, attempt.ref, f"{attempt.ref}.*")
    lost = unreachable_commits(engine, lost, known.values())
    if not lost:
        return ()
    base = git.read_refs(engine.user.root, base_ref(attempt.run))
    transfer(engine, lost, list(base.values()))
    names = chain([attempt.ref], (f"{attempt.ref}.{k}" for k in count(2)))
    made = tuple(islice((name for name in names if name not in known), len(lost)))
    commands = "".join(f"create {name} {sha}\n" for name, sha in zip(made, lost, strict=True))
    with engine.user_refs.intent(made):
        git.run(["update-ref", "--stdin"], engine.user.root, input=commands)
    return made


def unreachable_commits(engine: EngineRepo, shas: Iterable[str], reached: Iterable[str] = ()) -> list[str]:
    """The commits of `shas` that no ref of a run, none of `reached` and no other of `shas` leads to."""
    wanted = list(shas)
    if not wanted:
        return []
    stdin = "".join(f"{sha}\n" for sha in wanted) + "".join(f"^{sha}\n" for sha in reached)
    options = ["--parents", "--ignore-missing", "--stdin", "--not", "--glob=refs/windlass/*"]
    lines = [line.split() for line in engine.git("rev-list", *options, input=stdin).out.splitlines()]
    parents = {parent for line in lines for parent in line[1:]}
    return sorted({line[0] for line in lines} - parents)


def transfer(engine: EngineRepo, shas: Sequence[str], present: Sequence[str]) -> None:
    """Copy commits into the user's repository. `present`: commits that its refs lead to."""
    lines = [*shas, *(f"^{sha}" for sha in present)]
    command = [f"--git-dir={engine.path}", "pack-objects", "--revs", "--thin", "--stdout", "-q"]
    pack = git.run_raw(command, engine.home, input="".join(f"{line}\n" for line in lines))
    git.run(["unpack-objects", "-q"], engine.user.root, input=pack.stdout)


# -- the kept work of a task


class TaskWork(Struct, frozen=True):
    """A commit that an attempt at a task left."""

    task: str
    key: str
    n: int
    """The attempt; 0 for work found in a released slot."""
    ref: str
    commit: str
    held: bool
    """True: the head that a writer returned; its ref is in the engine's repository. False: work left in a slot."""


def task_work(engine: EngineRepo, run: str, tasks: Collection[str], landed: str) -> list[TaskWork]:
    """The kept work of these tasks, without commits that `landed` contains."""
    held = {ref: (name_held(ref, run), sha, True) for ref, sha in engine.refs.all().items() if name_held(ref, run)}
    prefix = f"refs/windlass/keep/{run}/"
    kept = git.read_refs(engine.user.root, prefix)
    named = held | {ref: (ref.removeprefix(prefix), sha, False) for ref, sha in kept.items()}
    found = []
    for ref, (name, sha, is_held) in named.items():
        match = ATTEMPT.fullmatch(name)
        # The second part of a key names the task and its visit: `execute/t3+2/spec#1`.
        parts = match["key"].split("/") if match else []
        task = re.split(r"[+#]", parts[1])[0] if len(parts) > 1 else ""
        if match and task in tasks:
            found.append(TaskWork(task, match["key"], int(match["n"]), ref, sha, is_held))
    reached = contained_commits(engine, {work.commit for work in found}, [landed] if landed else [])
    return [work for work in found if work.commit not in reached]


def contained_commits(engine: EngineRepo, shas: Iterable[str], tips: Iterable[str]) -> set[str]:
    """The commits of `shas` that one of `tips` leads to. Starts two gits for all of them."""
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
    """The last commit that a task's work and the landed commits share."""
    return engine.git("merge-base", landed, commit, check=False).line or landed


def take(engine: EngineRepo, run: str, commit: str, branch: str, *, exact: bool) -> tuple[str, bool]:
    """Put a commit on a branch of the user's repository. Returns the branch, and whether it is new.

    `exact`: a person named the branch, so no other name is tried.
    """
    if not git.is_branch_name(branch):
        raise UserError(f"'{branch}' is not a valid branch name", hint="see `git help check-ref-format`")
    present = branch_tips(engine)
    for name in [branch] if exact else names_like(branch):
        now = present.get(f"refs/heads/{name}", "")
        if now == commit:
            return name, False
        if now:
            continue
        transfer(engine, [commit], [engine.user.head])
        command = ["update-ref", "-m", f"windlass: {run}", f"refs/heads/{name}", commit, "0" * len(commit)]
        done = git.run(command, engine.user.root, check=False)
        if done.code != 0:
            why = plain(done.err).strip()[-400:]
            raise UserError(f"cannot make branch '{name}': {why}", hint="--branch NAME takes another name")
        return name, True
    raise UserError(f"branch '{branch}' exists already and is something else", hint="--branch NAME takes another name")


def newest(works: Iterable[TaskWork], began: Mapping[tuple[str, int], float]) -> TaskWork | None:
    """The last work that a writer returned, otherwise the last that was left in a slot."""
    listed = sorted(works, key=lambda work: (work.held, began.get((work.key, work.n), 0.0), work.n, work.ref))
    return listed[-1] if listed else None
