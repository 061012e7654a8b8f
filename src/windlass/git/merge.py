"""Landing: from a task's head to the run's tip, in steps that can be interrupted and repeated.

candidate -> checks -> record it as the tip -> move the ref: the caller does all but the first. The candidate's SHA
depends only on its arguments, and a head that the tip contains is `already`. So a task lands exactly once, whatever is
killed in between.

`git merge-tree` writes a tree even with a conflict. Some conflicts leave marks in a file. Others leave no trace (a
binary file, a link, a file that one side deleted): the tree holds one side. So a conflict stays open until one of its
paths was changed or named as resolved, and its marks and made-up file names are gone.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.plumbing.compare import merge_base, merge_trees
from windlass.git.plumbing.objects import Entry, Objects
from windlass.git.trees import changes, commit_tree
from windlass.model import Json
from windlass.text import plain

ATTRIBUTES = ".gitattributes"
EMPTY_TREE = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}

CONTENTS, BINARY, SYMLINK, SUBMODULE = "contents", "binary", "symlink", "submodule"
MARKS, NAME = "marks", "name"
"""Windlass's kinds for the remains of a merge: marks in a file, and a file under a name from neither side."""
MEANING = {
    CONTENTS: "both sides changed the same lines",
    BINARY: "both sides changed this binary file, and it holds one side only",
    SYMLINK: "both sides changed where this link leads, and it follows one side only",
    SUBMODULE: "both sides moved this submodule to different commits",
    "modify/delete": "one side changed it, the other deleted it",
    "rename/delete": "one side renamed it, the other deleted it",
    "rename/rename": "the two sides renamed it differently",
    "rename involved in collision": "a renamed file met another one of that name",
    "file/directory": "it is a file on one side and a folder on the other",
    "distinct modes": "it is a file on one side and something else on the other",
    "distinct types": "it is a file on one side and something else on the other",
    "directory rename suggested": "one side added it to a folder that the other side renamed",
    "directory rename unclear split": "one side moved this folder's files to several places",
    MARKS: "conflict marks are left in it",
    NAME: "the merge made this name up; give the file a name of its own, or delete it",
}
_TYPE = re.compile(r"(?:CONFLICT|ERROR) ?\((?P<kind>.*)\)")
_MODES = {"120000": SYMLINK, "160000": SUBMODULE}


class Landing(StrEnum):
    #: a new commit that joins tip and head, not yet the tip
    MERGED = "merged"
    #: the tip contains the head
    ALREADY = "already"
    CONFLICT = "conflict"


class Candidate(Struct, frozen=True):
    kind: Landing
    commit: str
    """The commit to become the tip; for `already` the commit that merged the head; '' for a conflict."""
    tree: str
    tip: str
    """The tip it was made for."""
    files: tuple[str, ...]
    """The files that it changes on the tip; for a conflict, the files in conflict."""
    reason: str = ""
    """For a conflict: its description."""


async def candidate(engine: EngineRepo, tip: str, task_id: str, title: str, head: str, date: float) -> Candidate:
    return await asyncio.to_thread(make_candidate, engine, tip, task_id, title, head, date)


def make_candidate(engine: EngineRepo, tip: str, task_id: str, title: str, head: str, date: float) -> Candidate:
    """`tip`: the run's tip, or another candidate, for a chain that is checked once at its end."""
    bases = _merge_bases(engine, tip, head)
    if not bases:
        return Candidate(Landing.CONFLICT, "", "", tip, (), "the commit has no history in common with the run")
    if bases == (head,):
        return Candidate(Landing.ALREADY, _brought_in_by(engine, tip, head), engine.objects.tree_of(tip), tip, ())
    merge = _merge(engine, bases, tip, head)
    if merge.conflicts:
        found = by_own_names(merge.conflicts, (tip, head))
        reason = f"it conflicts with what has landed:\n{describe(found)}"
        return Candidate(Landing.CONFLICT, "", "", tip, paths_of(found), reason)
    words = " ".join(plain(title).split()) or task_id
    commit = commit_tree(engine, merge.tree, [tip, head], f"{words}\n\nWindlass-Task: {task_id}\n", date)
    files = tuple(change.path for change in changes(engine, tip, merge.tree))
    if not any(path.endswith(ATTRIBUTES) for path in files) and engine.objects.tree_of(tip) in engine.attributes:
        engine.attributes[merge.tree] = engine.attributes[engine.objects.tree_of(tip)]
    return Candidate(Landing.MERGED, commit, merge.tree, tip, files)


class Joined(Struct, frozen=True):
    """A task's head merged with the tip."""

    commit: str
    conflicts: tuple[Conflict, ...] = ()
    """The conflicts of the merge, with the entries of the commit's tree at their paths."""


def join(engine: EngineRepo, head: str, tip: str, task_id: str, date: float) -> Joined:
    """Merge the tip into a task's head: the task continues with everything that has landed."""
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
    """Empty for unrelated histories, several after criss-cross merges. Raises for a missing commit: merge-tree would
    call it a conflict."""
    base = merge_base(engine.objects, tip, head)
    if base:
        return (base,)
    done = engine.git("merge-base", "--all", tip, head, check=False)
    if done.code > 1:
        raise GitError(f"cannot compare {head[:12]} with the tip: {plain(done.err).strip()}", hint="`windlass doctor`")
    return tuple(done.out.split())


def _brought_in_by(engine: EngineRepo, tip: str, head: str) -> str:
    """The merge on the first-parent line with the head as second parent; the head itself when it is on the line."""
    lines = engine.git("rev-list", "--first-parent", "--merges", "--parents", f"{head}..{tip}").out.splitlines()
    found = [words[0] for words in (line.split() for line in lines) if head in words[2:]]
    return found[-1] if found else head


class _Merge(Struct, frozen=True):
    tree: str
    conflicts: tuple[Conflict, ...] = ()


def _merge(engine: EngineRepo, bases: tuple[str, ...], tip: str, head: str) -> _Merge:
    # Git merges several bases into one first.
    objects = engine.objects
    tree = merge_trees(objects, *(objects.tree_of(sha) for sha in (*bases, tip, head))) if len(bases) == 1 else None
    if tree:
        return _Merge(tree)
    # Full names of both sides: git writes them into the marks, which identifies leftovers.
    command = ["merge-tree", "--write-tree", "-z", "--messages", tip, head]
    with tempfile.TemporaryDirectory(prefix="windlass-merge-") as folder:
        _write_attributes(engine, tip, Path(folder))
        places = [f"--git-dir={engine.path}", f"--work-tree={folder}", "-c", "core.bare=false"]
        # Without the user's configuration none of their merge drivers can run.
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
    """merge-tree reads `.gitattributes` only from a working tree, so these few files are checked out."""
    tree = engine.objects.tree_of(tip)
    if tree not in engine.attributes:
        # The walk compares with the empty tree, so that git filters by name and prints only these few.
        empty = EMPTY_TREE[engine.user.object_format]
        where = ["--", ":(glob)**/.gitattributes"]
        fields = engine.git("diff-tree", "-r", "-z", "--no-renames", empty, tip, *where).fields
        pairs = [(entry.split(" "), path) for entry, path in zip(fields[0::2], fields[1::2], strict=True)]
        engine.attributes[tree] = {path: words[3] for words, path in pairs if words[1].startswith("100")}
    for path, blob in engine.attributes[tree].items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(git.run_raw([f"--git-dir={engine.path}", "cat-file", "blob", blob], engine.home).stdout)


# -- conflicts


class Conflict(Struct, frozen=True):
    """Paths that belong together, and what the two sides did to them."""

    kinds: tuple[str, ...]
    """Git's words, or one of this module's kinds."""
    paths: tuple[str, ...]
    """Empty when git named no path."""
    entries: tuple[str, ...] = ()
    """The joined tree's entry at each path, as 'mode sha'; '' for none."""

    @property
    def meaning(self) -> str:
        return f"{', '.join(map(plain, self.paths)) or 'the whole tree'}: " + "; ".join(
            MEANING.get(kind, kind) for kind in self.kinds
        )

    def to_json(self) -> Json:
        return {"kinds": [*self.kinds], "paths": [*self.paths], "entries": [*self.entries]}

    @classmethod
    def from_json(cls, value: Json) -> Conflict:
        assert isinstance(value, dict)
        return cls(_words(value["kinds"]), _words(value["paths"]), _words(value["entries"]))


class OpenConflicts(Struct, frozen=True):
    """The conflicts that a task has to resolve before it may land; passed from join to join."""

    conflicts: tuple[Conflict, ...] = ()
    labels: tuple[str, ...] = ()
    """Commits that were joined with conflicts: git writes their names into marks and made-up file names."""

    def __bool__(self) -> bool:
        return bool(self.conflicts or self.labels)

    def to_json(self) -> Json:
        return {"conflicts": [one.to_json() for one in self.conflicts], "labels": [*self.labels]}

    @classmethod
    def from_json(cls, value: Json) -> OpenConflicts:
        assert isinstance(value, dict)
        listed = value["conflicts"]
        assert isinstance(listed, list)
        return cls(tuple(Conflict.from_json(one) for one in listed), _words(value["labels"]))


def _words(value: Json) -> tuple[str, ...]:
    assert isinstance(value, list)
    return tuple(str(word) for word in value)


# -- conflicts as git reports them


def parse_merge(out: str) -> tuple[str, tuple[Conflict, ...]]:
    """The tree and the conflicts in the output of `git merge-tree --write-tree -z --messages` with conflicts."""
    tree, _, rest = out.partition("\0")
    fields = iter(rest.split("\0"))
    modes: dict[str, set[str]] = {}
    for field in iter(lambda: next(fields, ""), ""):
        info, _, path = field.partition("\t")
        modes.setdefault(path, set()).add(info.partition(" ")[0])
    groups: list[tuple[set[str], dict[str, None]]] = []
    # After its messages git may add advice about submodules, as plain text.
    while (count := next(fields, "")).isdecimal():
        paths = [next(fields) for _ in range(int(count))]
        kind = _TYPE.fullmatch(next(fields))
        next(fields)
        if kind:
            _add_group(groups, _kind(kind["kind"], paths, modes), paths)
    for path in modes:
        if not any(path in paths for _, paths in groups):
            _add_group(groups, _kind(CONTENTS, [path], modes), [path])
    found = []
    for kinds, named in groups:
        special = kinds - {CONTENTS}
        listed = special if special & {BINARY, SYMLINK, SUBMODULE} else kinds
        found.append(Conflict(tuple(sorted(listed)), tuple(named)))
    return tree, tuple(sorted(found, key=lambda one: one.paths)) or (Conflict((CONTENTS,), ()),)


def _kind(kind: str, paths: Sequence[str], modes: Mapping[str, Collection[str]]) -> str:
    """Git reports a conflict of two links or two submodules as one of contents."""
    seen = {mode for path in paths for mode in modes.get(path, ())}
    return next((own for mode, own in _MODES.items() if mode in seen), kind) if kind == CONTENTS else kind


def _add_group(groups: list[tuple[set[str], dict[str, None]]], kind: str, paths: Iterable[str]) -> None:
    """Several messages about one path are one conflict."""
    mine: tuple[set[str], dict[str, None]] = ({kind}, dict.fromkeys(paths))
    for group in [group for group in groups if group[1].keys() & mine[1].keys()]:
        groups.remove(group)
        mine = (group[0] | mine[0], {**group[1], **mine[1]})
    groups.append(mine)


# -- which conflicts are still open


def in_tree(objects: Objects, tree: str, conflicts: Iterable[Conflict]) -> tuple[Conflict, ...]:
    """The conflicts with this tree's entries at their paths: a path with another entry later was changed."""
    return tuple(
        replace(one, entries=tuple(_entry(objects, tree, path) for path in one.paths) or (tree,)) for one in conflicts
    )


def unresolved_conflicts(
    engine: EngineRepo, base: str, head: str, known: OpenConflicts, resolved: Collection[str]
) -> tuple[Conflict, ...]:
    """The conflicts that are still open at `head`. Searches all files that differ from `base` for marks.

    `resolved`: paths that a fixer declared as resolved. A declaration never resolves marks and made-up names.
    """
    if not known:
        return ()
    tree, objects = engine.objects.tree_of(head), engine.objects
    paths = {*engine.diffs.between(base, head)[1::2]} | {path for one in known.conflicts for path in one.paths}
    marked = sorted(path for path in paths if _has_marks(objects, _entry(objects, tree, path), known.labels))
    made_up = [path for path in paths if any(re.search(rf"~{label}(?:_\d+)?$", path) for label in known.labels)]
    named = sorted(path for path in made_up if _entry(objects, tree, path))
    left = [one for one in known.conflicts if not _is_resolved(engine, tree, one, known.labels, resolved)]
    known_paths = {path for one in left for path in one.paths}
    found = []
    for one in left:
        more = [kind for kind, those in ((MARKS, marked), (NAME, named)) if {*one.paths} & {*those}]
        found.append(replace(one, kinds=(*one.kinds, *more)))
    found += [Conflict((MARKS,), (path,)) for path in marked if path not in known_paths]
    found += [Conflict((NAME,), (path,)) for path in named if path not in {*known_paths, *marked}]
    return tuple(found)


def carry_conflicts(objects: Objects, tree: str, left: Iterable[Conflict]) -> tuple[Conflict, ...]:
    """The open conflicts after another join, on the new tree. Their labels identify marks and made-up names."""
    kept = [replace(one, kinds=tuple(kind for kind in one.kinds if kind not in (MARKS, NAME))) for one in left]
    return in_tree(objects, tree, [one for one in kept if one.kinds])


def by_own_names(conflicts: Sequence[Conflict], labels: Sequence[str]) -> tuple[Conflict, ...]:
    """The conflicts without the file names that this merge made up: another merge makes up others."""
    ends = re.compile(rf"~(?:{'|'.join(labels)})(?:_\d+)?$")
    return tuple(
        replace(one, paths=tuple(dict.fromkeys(ends.sub("", path) for path in one.paths))) for one in conflicts
    )


def describe(conflicts: Sequence[Conflict]) -> str:
    return "\n".join(f"- {one.meaning}" for one in conflicts)


def paths_of(conflicts: Iterable[Conflict]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for one in conflicts for path in one.paths))


def _is_resolved(
    engine: EngineRepo, tree: str, one: Conflict, labels: Sequence[str], resolved: Collection[str]
) -> bool:
    if any(plain(path) in resolved for path in one.paths):
        return True
    objects = engine.objects
    now = [_entry(objects, tree, path) for path in one.paths] or [tree]
    changed = [path for path, before, after in zip(one.paths, one.entries, now, strict=False) if before != after]
    if not one.paths:
        return [*one.entries] != now
    return bool(changed) and not any(_has_separators(engine, tree, path, labels) for path in changed)


def _has_marks(objects: Objects, entry: str, labels: Sequence[str]) -> bool:
    """Only marks of these merges count: a text about git may contain other marks."""
    if not labels or not entry.startswith("100"):
        return False
    names = b"|".join(label.encode("ascii") for label in labels)
    # The mark of a renamed file has its path after the commit; a file with CRLF has CRLF after a mark.
    return bool(re.search(rb"^[<>|]+ (?:%s)(?::[^\n]*)?\r?$" % names, objects.blob(entry[7:]), re.MULTILINE))


def _has_separators(engine: EngineRepo, tree: str, path: str, labels: Sequence[str]) -> bool:
    """The middle mark names no commit: it belongs to the merge when neither side had such a line."""
    objects = engine.objects
    if not _separators(objects, _entry(objects, tree, path)):
        return False
    sides = (_entry(objects, engine.objects.tree_of(label), path) for label in labels)
    return not any(_separators(objects, entry) for entry in sides)


def _separators(objects: Objects, entry: str) -> bool:
    return entry.startswith("100") and bool(re.search(rb"^={7}\r?$", objects.blob(entry[7:]), re.MULTILINE))


def _entry(objects: Objects, tree: str, path: str) -> str:
    """'mode sha'; '' when there is no entry."""
    found: Entry | None = None
    for name in path.encode("utf-8", "surrogateescape").split(b"/"):
        if found is not None and not found.is_folder:
            return ""
        found = objects.tree(found.sha if found else tree).get(name)
        if found is None:
            return ""
    return f"{found.mode} {found.sha}" if found else ""
