"""From a task's head to the run's tip, in steps that can be stopped and started again anywhere.

candidate -> checks -> record it as the tip -> move the ref: all but the first by the caller. The candidate's SHA
depends on its arguments alone, and a head that the tip contains already is `already`: so a task lands exactly once,
whatever was killed in between.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.compare import meeting, merged
from windlass.git.conflicts import Conflict, by_own_names, describe, in_tree, parse_merge, paths_of
from windlass.git.engine_repo import EngineRepo
from windlass.git.trees import changes, commit_tree
from windlass.text import plain

ATTRIBUTES = ".gitattributes"
EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


class Landing(StrEnum):
    #: a new commit that joins tip and head, not yet the tip
    MERGED = "merged"
    #: the tip contains the head
    ALREADY = "already"
    CONFLICT = "conflict"


class Candidate(Struct, frozen=True):
    kind: Landing
    commit: str
    """To become the tip; for `already` the commit that brought the head in; '' for a conflict."""
    tree: str
    tip: str
    """The tip it was made for."""
    files: tuple[str, ...]
    """What it changes on the tip; for a conflict, the files that conflict."""
    reason: str = ""
    """For a conflict: what is in conflict, and how."""


async def candidate(engine: EngineRepo, tip: str, task_id: str, title: str, head: str, date: float) -> Candidate:
    return await asyncio.to_thread(make_candidate, engine, tip, task_id, title, head, date)


def make_candidate(engine: EngineRepo, tip: str, task_id: str, title: str, head: str, date: float) -> Candidate:
    """`tip`: the run's, or a candidate that is not the tip yet, to build a chain that is checked once at its top."""
    bases = _merge_bases(engine, tip, head)
    if not bases:
        return Candidate(Landing.CONFLICT, "", "", tip, (), "the commit has no history in common with the run")
    if bases == (head,):
        return Candidate(Landing.ALREADY, _brought_in_by(engine, tip, head), engine.tree_of(tip), tip, ())
    merge = _merge(engine, bases, tip, head)
    if merge.conflicts:
        found = by_own_names(merge.conflicts, (tip, head))
        reason = f"it conflicts with what has landed:\n{describe(found)}"
        return Candidate(Landing.CONFLICT, "", "", tip, paths_of(found), reason)
    commit = commit_tree(engine, merge.tree, [tip, head], _message(task_id, title), date)
    files = tuple(change.path for change in changes(engine, tip, merge.tree))
    if not any(path.endswith(ATTRIBUTES) for path in files) and engine.tree_of(tip) in engine.attributes:
        engine.attributes[merge.tree] = engine.attributes[engine.tree_of(tip)]
    return Candidate(Landing.MERGED, commit, merge.tree, tip, files)


class Joined(Struct, frozen=True):
    """A task's head with the tip in it."""

    commit: str
    conflicts: tuple[Conflict, ...] = ()
    """What could not be joined, with what the commit's tree holds there."""


def join(engine: EngineRepo, head: str, tip: str, task_id: str, date: float) -> Joined:
    """The other way round than a candidate: the task goes on from here, on all that has landed."""
    bases = _merge_bases(engine, tip, head)
    if not bases or bases == (tip,):
        return Joined(head)
    if bases == (head,):
        return Joined(tip)
    merge = _merge(engine, bases, head, tip)
    marked = f", with conflicts in {', '.join(paths_of(merge.conflicts))}" if merge.conflicts else ""
    message = f"Join what has landed into {task_id}{plain(marked)}\n"
    commit = commit_tree(engine, merge.tree, [head, tip], message, date)
    return Joined(commit, in_tree(engine.objects, merge.tree, merge.conflicts))


def _merge_bases(engine: EngineRepo, tip: str, head: str) -> tuple[str, ...]:
    """Empty for unrelated histories, several after criss-cross merges. A missing commit is an error here already:
    merge-tree would call it a conflict."""
    base = meeting(engine.objects, tip, head)
    if base:
        return (base,)
    done = engine.git("merge-base", "--all", tip, head, check=False)
    if done.code > 1:
        raise GitError(f"cannot compare {head[:12]} with the tip: {plain(done.err).strip()}", hint="`windlass doctor`")
    return tuple(done.out.split())


def _message(task_id: str, title: str) -> str:
    words = " ".join(plain(title).split()) or task_id
    return f"{words}\n\nWindlass-Task: {task_id}\n"


def _brought_in_by(engine: EngineRepo, tip: str, head: str) -> str:
    """The merge on the first-parent line whose second parent is the head; the head itself when it is on the line."""
    lines = engine.git("rev-list", "--first-parent", "--merges", "--parents", f"{head}..{tip}").out.splitlines()
    found = [words[0] for words in (line.split() for line in lines) if head in words[2:]]
    return found[-1] if found else head


class _Merge(Struct, frozen=True):
    tree: str
    conflicts: tuple[Conflict, ...] = ()


def _merge(engine: EngineRepo, bases: tuple[str, ...], tip: str, head: str) -> _Merge:
    # Several bases are merged into one first, which is git's to do.
    plain = merged(engine.objects, *(engine.tree_of(sha) for sha in (*bases, tip, head))) if len(bases) == 1 else None
    return _Merge(plain) if plain else _merge_files(engine, tip, head)


def _merge_files(engine: EngineRepo, tip: str, head: str) -> _Merge:
    # Both sides by their full names: those stand in the marks, where a leftover is known by them.
    command = ["merge-tree", "--write-tree", "-z", "--messages", tip, head]
    with tempfile.TemporaryDirectory(prefix="windlass-merge-") as folder:
        _write_attributes(engine, tip, Path(folder))
        places = [f"--git-dir={engine.path}", f"--work-tree={folder}", "-c", "core.bare=false"]
        # Without a person's own config no merge driver of theirs can run.
        done = git.run([*places, *command], Path(folder), env=git.NO_PERSONAL_CONFIG, check=False)
    match done.code:
        case 0:
            return _Merge(done.fields[0])
        case 1:
            return _Merge(*parse_merge(done.out))
        case _:
            why = plain(done.err).strip()
            raise GitError(f"merging {head[:12]} into {tip[:12]} failed: {why}", hint="`windlass doctor`")


def _write_attributes(engine: EngineRepo, tip: str, folder: Path) -> None:
    """merge-tree reads `.gitattributes` from a working tree only; these few files stand for a checkout of the tip."""
    for path, blob in _attribute_files(engine, tip).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(git.run_raw([f"--git-dir={engine.path}", "cat-file", "blob", blob], engine.home).stdout)


def _attribute_files(engine: EngineRepo, tip: str) -> Mapping[str, str]:
    tree = engine.tree_of(tip)
    if tree not in engine.attributes:
        engine.attributes[tree] = _find_attribute_files(engine, tip)
    return engine.attributes[tree]


def _find_attribute_files(engine: EngineRepo, tip: str) -> Mapping[str, str]:
    # The walk compares with the empty tree, so that git filters by name and prints these few only.
    empty = EMPTY_TREE[engine.user.object_format]
    where = ["--", ":(glob)**/.gitattributes"]
    fields = engine.git("diff-tree", "-r", "-z", "--no-renames", empty, tip, *where).fields
    pairs = zip(fields[0::2], fields[1::2], strict=True)
    return {path: entry.split(" ")[3] for entry, path in pairs if entry.split(" ")[1].startswith("100")}
