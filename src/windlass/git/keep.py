"""No work is lost: before a slot is reset or removed, refs in the user's repository lead to all that was made in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, count

from msgspec import Struct

from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo, RefChange
from windlass.git.intake import take_what_is_there
from windlass.git.slot import Slot
from windlass.git.trees import SlotStatus, commit_tree, status, work_tree

SHA = re.compile(r"[0-9a-f]{40,64}")
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
    """Whose work it is. A keep-ref's last part starts with '@', which no part of a key does: names never collide."""

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
    """Made by this call, in the user's repository; () when something else reaches all of it."""
    status: SlotStatus
    """The slot as it was found."""


def keep(
    engine: EngineRepo,
    slot: Slot,
    attempt: Attempt,
    date: float,
    undone: Sequence[RefChange] = (),
    seen: SlotStatus | None = None,
) -> Kept:
    """`undone`: unexpected refs that are about to be put back; what they lead to is kept as well.

    `seen`: the slot as it is, when the caller has looked and nothing has run in it since.
    """
    seen = seen or status(engine, slot)
    left = _named_in(slot)
    made = {sha for sha in left if not engine.reaches(sha)}
    shas = (left - made) | take_what_is_there(engine, slot, sorted(made)) | {seen.head}
    shas |= {sha for change in undone for sha in _history(engine, change)}
    if seen.dirty:
        shas.add(_snapshot(engine, slot, seen, attempt, date))
    return Kept(_pin(engine, attempt, shas), seen)


def _named_in(slot: Slot) -> set[str]:
    """What the slot's repository names: HEAD, branches, tags and stashes with their logs, and what an unfinished
    command left."""
    logs = [path for path in (slot.git_dir / "logs").rglob("*") if not path.is_symlink()]
    files = [*logs, *slot.own_refs(), *(slot.git_dir / name for name in PSEUDO_REFS)]
    return {sha for file in files if file.is_file() for sha in _shas(file.read_text(errors="replace"))}


def _history(engine: EngineRepo, change: RefChange) -> set[str]:
    """A stash keeps all but its newest entry in its log only."""
    log = engine.path / "logs" / change.name
    logged = _shas(log.read_text(errors="replace")) if log.is_file() else set()
    return logged | {sha for sha in (change.before, change.after) if sha}


def _shas(text: str) -> set[str]:
    words = (word for line in text.splitlines() for word in line.split("\t")[0].split(" ")[:2])
    return {word for word in words if SHA.fullmatch(word) and word.strip("0")}


def _snapshot(engine: EngineRepo, slot: Slot, seen: SlotStatus, attempt: Attempt, date: float) -> str:
    message = f"Uncommitted work of {attempt.key}, attempt {attempt.n}\n"
    return commit_tree(engine, work_tree(engine, slot, seen), [seen.head], message, date)


def _pin(engine: EngineRepo, attempt: Attempt, shas: Iterable[str]) -> tuple[str, ...]:
    lost = unreached(engine, [sha for sha in shas if not engine.reaches(sha)])
    if not lost:
        return ()
    # An earlier call for this attempt has kept some of it.
    known = _kept_before(engine, attempt)
    lost = unreached(engine, lost, known.values())
    if not lost:
        return ()
    base = git.read_refs(engine.user.root, f"refs/windlass/base/{attempt.run}")
    transfer(engine, lost, list(base.values()))
    names = _free_names(attempt, known)
    made = tuple(next(names) for _ in lost)
    commands = "".join(f"create {name} {sha}\n" for name, sha in zip(made, lost, strict=True))
    with engine.moving_user_refs(made):
        git.run(["update-ref", "--stdin"], engine.user.root, input=commands)
    return made


def _kept_before(engine: EngineRepo, attempt: Attempt) -> dict[str, str]:
    return git.read_refs(engine.user.root, attempt.ref, f"{attempt.ref}.*")


def _free_names(attempt: Attempt, taken: Collection[str]) -> Iterator[str]:
    names = chain([attempt.ref], (f"{attempt.ref}.{k}" for k in count(2)))
    return (name for name in names if name not in taken)


def unreached(engine: EngineRepo, shas: Iterable[str], reached: Iterable[str] = ()) -> list[str]:
    """Those of `shas` that no ref of a run, nothing in `reached` and no other of them leads to."""
    wanted = list(shas)
    if not wanted:
        return []
    stdin = "".join(f"{sha}\n" for sha in wanted) + "".join(f"^{sha}\n" for sha in reached)
    options = ["--parents", "--ignore-missing", "--stdin", "--not", "--glob=refs/windlass/*"]
    lines = [line.split() for line in engine.git("rev-list", *options, input=stdin).out.splitlines()]
    parents = {parent for line in lines for parent in line[1:]}
    return sorted({line[0] for line in lines} - parents)


def transfer(engine: EngineRepo, shas: Sequence[str], present: Sequence[str]) -> None:
    """Copy objects into the user's repository. `present`: commits that refs of theirs lead to."""
    lines = [*shas, *(f"^{sha}" for sha in present)]
    command = [f"--git-dir={engine.path}", "pack-objects", "--revs", "--thin", "--stdout", "-q"]
    pack = git.run_raw(command, engine.home, input="".join(f"{line}\n" for line in lines))
    git.run(["unpack-objects", "-q"], engine.user.root, input=pack.stdout)
