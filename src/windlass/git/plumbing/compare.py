"""Compares two trees, merges three, and finds the meeting point of two histories, without starting a git.

These functions decide the plain cases. In every other case they return None, and the caller runs git.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.plumbing.objects import Entry, Objects

NOTHING = Entry("000000", "")
MANY_COMPARED = 500
FAR, NEAR = 500, 50
"""How many commits are visited: on the tip's first-parent line, and of the task."""


class TreeDiffs:
    """Differences between trees of one repository. Trees never change, so two are compared only once."""

    def __init__(self, objects: Objects, git_dir: Path) -> None:
        self._objects = objects
        self._git_dir = git_dir
        self._known: dict[tuple[str, str], tuple[str, ...]] = {}

    def between(self, base: str, head: str) -> tuple[str, ...]:
        """Of two commits or trees: ':old-mode new-mode old-sha new-sha letter' and the path, alternately."""
        pair = self._objects.tree_at(base), self._objects.tree_at(head)
        found = self._known.get(pair)
        if found is None:
            try:
                found = differences(self._objects, *pair)
            except GitError:
                # A clone that lacks some trees: git knows where to get them.
                command = [f"--git-dir={self._git_dir}", "diff-tree", "-r", "-z", "--no-renames", *pair]
                found = git.run(command, self._git_dir.parent).fields
            if len(self._known) >= MANY_COMPARED:
                self._known.clear()
            self._known[pair] = found
        return found


def differences(objects: Objects, base: str, head: str) -> tuple[str, ...]:
    """The differences of two trees, in the form of `git diff-tree -r -z --no-renames`."""
    return tuple(field for entry in _differences(objects, base, head, b"") for field in entry)


def _differences(objects: Objects, base: str, head: str, under: bytes) -> Iterator[tuple[str, str]]:
    before, after = objects.tree(base), objects.tree(head)
    changed = {name for name, _ in before.items() ^ after.items()}
    # Git sorts a folder as if its name ended with a slash. A name may be a file before and a folder after.
    for key in sorted(key for name in changed for key in (name, name + b"/")):
        name = key.removesuffix(b"/")
        old, new = before.get(name), after.get(name)
        old_folder, new_folder = _folder(old), _folder(new)
        if name != key:
            if old_folder or new_folder:
                yield from _differences(objects, old_folder, new_folder, under + key)
            continue
        old, new = None if old_folder else old, None if new_folder else new
        if old or new:
            one, two = old or NOTHING, new or NOTHING
            none = "0" * len(one.sha or two.sha)
            letter = "A" if not old else "D" if not new else "M" if old.mode[:2] == new.mode[:2] else "T"
            line = f":{one.mode} {two.mode} {one.sha or none} {two.sha or none} {letter}"
            yield line, (under + name).decode("utf-8", "surrogateescape")


def _folder(entry: Entry | None) -> str:
    return entry.sha if entry and entry.is_folder else ""


def merge_trees(objects: Objects, base: str, ours: str, theirs: str) -> str | None:
    """The tree with the changes of both sides; None when both changed one file. '' is the empty tree, also in the
    arguments."""
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    one, two, three = objects.tree(base), objects.tree(ours), objects.tree(theirs)
    joined: dict[bytes, Entry] = {}
    for name in {*one, *two, *three}:
        entry = _merge_entry(objects, one.get(name), two.get(name), three.get(name))
        if entry is None:
            return None
        if entry is not NOTHING:
            joined[name] = entry
    return objects.write_tree(joined) if joined else ""


def _merge_entry(objects: Objects, base: Entry | None, ours: Entry | None, theirs: Entry | None) -> Entry | None:
    if ours == theirs:
        # A folder that is gone on both sides may have moved to different places, which is a conflict.
        return ours if ours == base or not (_folder(ours) or _folder(base)) else None
    if len({entry.is_folder for entry in (base, ours, theirs) if entry}) == 2:
        # One version has a file where another has a folder: only git follows files that moved out of the folder.
        return None
    if base == ours:
        return theirs or NOTHING
    if base == theirs:
        return ours or NOTHING
    if not ours or not theirs or not (ours.is_folder and theirs.is_folder) or (base and not base.is_folder):
        return None
    tree = merge_trees(objects, base.sha if base else "", ours.sha, theirs.sha)
    if tree is None:
        return None
    return Entry(ours.mode, tree) if tree else NOTHING


def merge_base(objects: Objects, tip: str, head: str) -> str | None:
    """The one best common ancestor of a run's tip and a task's head, when the task's history is a straight line."""
    try:
        own = _straight(objects, head)
        line = FirstParents(objects, tip)
        met = next((sha for sha in line.walk() if sha in own), None)
        if met is None:
            return None
        mine = set(own[: own.index(met)])
        merges = [side for sha in line.before(met) for side in objects.commit(sha).parents[1:]]
        return met if not mine or all(_is_apart(objects, side, mine, line) for side in merges) else None
    except GitError:
        # A history that was cut off, as in a shallow clone.
        return None


def _is_apart(objects: Objects, side: str, mine: set[str], line: FirstParents) -> bool:
    """Whether a commit merged into the line leads straight to it, without the task's commits."""
    straight = _straight(objects, side)
    own = next((n for n, sha in enumerate(straight) if sha in line), None)
    return own is not None and not mine & set(straight[:own])


def _straight(objects: Objects, sha: str) -> list[str]:
    """A commit and its ancestors, as long as each has one parent."""
    found = [sha]
    while len(found) < NEAR and len(parents := objects.commit(found[-1]).parents) == 1:
        found.append(parents[0])
    return found


class FirstParents:
    """A commit and its first parents, read as far as needed."""

    def __init__(self, objects: Objects, tip: str) -> None:
        self._objects = objects
        self._known = [tip]

    def walk(self) -> Iterator[str]:
        for n in range(FAR):
            if n == len(self._known):
                parents = self._objects.commit(self._known[-1]).parents
                if not parents:
                    return
                self._known.append(parents[0])
            yield self._known[n]

    def before(self, sha: str) -> list[str]:
        return self._known[: self._known.index(sha)]

    def __contains__(self, sha: str) -> bool:
        return any(sha == one for one in self.walk())
