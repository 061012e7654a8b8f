"""What is worked out without git is what git would have said, or nothing is said."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gitrepo import make_repo, sh
from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.plumbing.cat_file import CatFile
from windlass.git.plumbing.compare import differences, merge_base, merge_trees
from windlass.git.plumbing.objects import FOLDER, Entry, Objects

Files = dict[str, tuple[str, str]]
"""Path -> mode and content."""
PATHS = ["a", "b.txt", "d/a", "d/b", "d/e/a", "d/e/b", "d.txt", "f/a", "f/g/a"]
CONTENTS = [f"line {n}\n" * 8 for n in range(4)]
EXAMPLES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


class Store:
    """A repository that trees and commits are put into."""

    def __init__(self, folder: Path) -> None:
        self.root = make_repo(folder)
        self.objects = Objects(self.root / ".git", "sha1")
        self.blobs: dict[str, str] = {}

    def tree(self, files: Files) -> str:
        names = {path.partition("/")[0] for path in files}
        return self.objects.write_tree({name.encode(): self._entry(name, files) for name in names})

    def _entry(self, name: str, files: Files) -> Entry:
        if name in files:
            mode, content = files[name]
            return Entry(mode, self._blob(content))
        below = {path.removeprefix(f"{name}/"): file for path, file in files.items() if path.startswith(f"{name}/")}
        return Entry(FOLDER, self.tree(below))

    def _blob(self, content: str) -> str:
        if content not in self.blobs:
            done = git.run(["hash-object", "-w", "--stdin"], self.root, input=content)
            self.blobs[content] = done.line
        return self.blobs[content]

    def commit(self, tree: str, *parents: str, n: int = 0) -> str:
        return self.objects.write_commit(tree, parents, f"A <a@b> {n} +0000", f"{n}\n")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store") / "repo")


def _without_clashes(files: Files) -> Files:
    return {path: one for path, one in files.items() if not any(other.startswith(f"{path}/") for other in files)}


FILES = st.dictionaries(
    st.sampled_from([*PATHS, "d", "f/g"]),
    st.tuples(st.sampled_from(["100644", "100644", "100755", "120000"]), st.sampled_from(CONTENTS)),
    min_size=1,
).map(_without_clashes)


@st.composite
def edits(draw: st.DrawFn, files: Files) -> Files:
    """Files changed, added, removed and moved to other places."""
    found = dict(files)
    for _ in range(draw(st.integers(0, 3))):
        how = draw(st.sampled_from(["change", "remove", "move", "move all"]))
        path = draw(st.sampled_from(PATHS))
        if how == "change":
            found[path] = ("100644", draw(st.sampled_from(CONTENTS)))
        elif how == "move all":
            there = draw(st.sampled_from(["m", "d/n"]))
            found = {one.replace("d/e/", f"{there}/", 1): content for one, content in found.items()}
        elif path in found:
            content = found.pop(path)
            if how == "move":
                found[draw(st.sampled_from(PATHS))] = content
    return _without_clashes(found) or files


LINE = ("100644", CONTENTS[0])


@EXAMPLES
@given(FILES, FILES)
@example({"d/a": LINE, "d.txt": LINE}, {"d": LINE})
def test_two_trees_differ_as_git_says(store: Store, before: Files, after: Files) -> None:
    one, two = store.tree(before), store.tree(after)
    said = git.run(["diff-tree", "-r", "-z", "--no-renames", one, two], store.root).fields
    assert differences(store.objects, one, two) == said


@EXAMPLES
@given(st.data())
def test_what_is_joined_without_git_is_what_git_joins(store: Store, data: st.DataObject) -> None:
    base = data.draw(FILES)
    trees = [store.tree(files) for files in (base, data.draw(edits(base)), data.draw(edits(base)))]
    found = merge_trees(store.objects, *trees)
    root = store.commit(trees[0])
    one, two = store.commit(trees[1], root), store.commit(trees[2], root, n=1)
    said = git.run(
        ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", one, two], store.root, check=False
    )
    if found:
        assert (said.code, said.fields[0]) == (0, found)


def test_changes_to_different_files_of_one_folder_are_joined(store: Store) -> None:
    base: Files = {"d/a": ("100644", "1"), "d/b": ("100644", "1"), "d/e/c": ("100644", "1")}
    ours, theirs = {**base, "d/a": ("100644", "2")}, {**base, "d/b": ("100755", "1"), "d/e/new": ("100644", "3")}
    found = merge_trees(store.objects, store.tree(base), store.tree(ours), store.tree(theirs))
    assert found == store.tree({**ours, **{path: theirs[path] for path in ("d/b", "d/e/new")}})


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"d/a": "2"}, {"d/a": "3"}),
        ({"d/a": "2"}, {"d/a": None}),
        ({"d/a": None, "x": "1"}, {"d/a": None, "y": "1"}),
        ({"d/a": None, "d/b": None, "n/a": "1", "n/b": "1"}, {"d/new": "1"}),
        ({"x": "1"}, {"x/y": "1"}),
        ({"d/a": None, "d/b": None, "d": "1", "m/a": "1"}, {"d/a": None, "d/b": None, "d": "1", "n/a": "1"}),
        ({"d/a": None, "d/b": None, "d": "1", "m/a": "1"}, {"e": "1"}),
    ],
    ids=[
        *("both changed", "changed and gone", "moved twice", "folder moved", "file and folder"),
        *("folder replaced by the same file and moved apart", "folder replaced by a file on one side"),
    ],
)
def test_what_needs_a_closer_look_is_left_to_git(
    store: Store, ours: dict[str, str | None], theirs: dict[str, str | None]
) -> None:
    base = {"d/a": "1", "d/b": "1"}

    def tree(change: dict[str, str | None]) -> str:
        return store.tree({path: ("100644", text) for path, text in {**base, **change}.items() if text is not None})

    assert merge_trees(store.objects, tree({}), tree(ours), tree(theirs)) is None


@pytest.mark.parametrize("seed", range(25))
def test_histories_meet_where_git_says(store: Store, seed: int) -> None:
    """A tip's line with tasks merged into it; some tasks hold merges of their own, or each other's commits."""
    chance = random.Random(seed)
    tree = store.tree({"a": ("100644", "1")})
    numbers = iter(range(seed * 1000, seed * 1000 + 900))
    line = [store.commit(tree, n=next(numbers))]
    heads: list[str] = []
    made: list[str] = []
    for _ in range(chance.randint(3, 9)):
        head = chance.choice(line[-3:])
        for _ in range(chance.randint(1, 3)):
            others = [chance.choice(made)] if made and chance.random() < 0.2 else []
            start = chance.choice(made) if made and chance.random() < 0.1 else head
            head = store.commit(tree, *dict.fromkeys([start, *others]), n=next(numbers))
            made.append(head)
        heads.append(head)
        if chance.random() < 0.7:
            line.append(store.commit(tree, line[-1], chance.choice(heads), n=next(numbers)))
    answers = [(merge_base(store.objects, line[-1], head), head) for head in heads]
    for found, head in answers:
        assert found is None or sh(store.root, "merge-base", "--all", line[-1], head) == found


def test_a_plain_task_meets_the_tip_where_it_began(store: Store) -> None:
    tree = store.tree({"a": ("100644", "1")})
    base = store.commit(tree, n=1)
    one, two = store.commit(tree, base, n=2), store.commit(tree, base, n=3)
    tip = store.commit(tree, base, one, n=4)
    more = store.commit(tree, two, n=5)
    assert merge_base(store.objects, tip, more) == base
    assert merge_base(store.objects, tip, tip) == tip
    assert merge_base(store.objects, tip, store.commit(tree, one, n=6)) is None, "it leads to what has landed"
    assert merge_base(store.objects, tip, store.commit(tree, n=7)) is None


def test_an_object_that_is_not_there_is_an_error(store: Store) -> None:
    with pytest.raises(GitError, match="there is no 0123456789ab"):
        store.objects.commit("0123456789ab" + "0" * 28)


def test_a_cat_file_that_was_killed_is_replaced(store: Store) -> None:
    commit = sh(store.root, "rev-parse", "HEAD")
    cat_file = CatFile(store.root / ".git")
    first = cat_file.read(commit)
    cat_file._child.kill()
    cat_file._child.wait()
    assert first is not None
    assert cat_file.read(commit) == first
    assert cat_file.read("0" * 40) is None
