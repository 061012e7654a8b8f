"""The trees that are compared, made with a temporary index: no folder of anybody's is touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from windlass.tdd.facts import Tree
from windlass.tdd.files import Changed, Names, sort_files
from windlass.tdd.harness import changes_harness
from windlass.tdd.hollow import hollow, is_inert
from windlass.workspace import EngineRepo, changes, restaged_tree


@dataclass(frozen=True)
class Hollow:
    tree: str
    whole: bool


@dataclass(frozen=True)
class Trees:
    """B and H, and what is made of the two."""

    engine: EngineRepo
    base: str
    head: str
    names: Names

    @cached_property
    def changed(self) -> Changed:
        paths = [change.path for change in changes(self.engine, self.base, self.head)]
        wanted = [path for path in paths if self.names.is_harness(path)]
        harness = [p for p in wanted if changes_harness(p, self._text(self._in_base, p), self._text(self._in_head, p))]
        return sort_files(paths, self.names, harness)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Test files that B had and H has not."""
        return tuple(path for path in self.names.modules_in(self._in_base) if path not in self._in_head)

    @cached_property
    def widened(self) -> bool:
        """What helps tests was changed: then any test may mean something else."""
        modules = {*self.names.modules_in(self._in_base), *self.names.modules_in(self._in_head)}
        return any(path in self._in_base and path not in modules for path in self.changed.swapped)

    def files(self, tree: Tree, *, every: bool) -> tuple[str, ...]:
        """The test files to run on that tree: those that changed, or every one."""
        old = tree in (Tree.BASE, Tree.WITH_OLD_TESTS)
        modules = self.names.modules_in(self._in_base if old else self._in_head)
        return modules if every else tuple(path for path in modules if path in self.changed.tests)

    def make(self, tree: Tree) -> str:
        match tree:
            case Tree.BASE:
                return self.engine.tree_of(self.base)
            case Tree.HEAD:
                return self.engine.tree_of(self.head)
            case Tree.OLD | Tree.AGAIN:
                return self._swapped(self.base, self._in_head)
            case Tree.WITH_OLD_TESTS:
                return self._swapped(self.head, self._in_base)
            case Tree.HOLLOW:
                assert self.hollow is not None
                return self.hollow.tree

    @cached_property
    def hollow(self) -> Hollow | None:
        """None where the change has nothing that could be emptied."""
        code = [path for path in self.changed.code if path in self._in_head]
        both = {path: (self._text(self._in_base, path), self._text(self._in_head, path)) for path in code}
        made = {path: hollow(path, *texts) for path, texts in both.items()}
        texts = {path: done.text for path, done in made.items() if done}
        if not texts:
            return None
        whole = not self.changed.data and len(code) == len(self.changed.code)
        emptied = all(done.whole if done else is_inert(path, *both[path]) for path, done in made.items())
        return Hollow(self._written(texts), whole and emptied)

    # -- inside

    @cached_property
    def _in_base(self) -> Mapping[str, str]:
        return _entries(self.engine, self.base)

    @cached_property
    def _in_head(self) -> Mapping[str, str]:
        return _entries(self.engine, self.head)

    def _swapped(self, onto: str, source: Mapping[str, str]) -> str:
        """The tree of `onto` with the tests, and what decides how they run, as `source` has them."""
        gone = "0 " + "0" * len(self.head)
        return restaged_tree(self.engine, onto, {path: source.get(path, gone) for path in self.changed.swapped})

    def _written(self, texts: Mapping[str, str]) -> str:
        blobs = {path: self.engine.git("hash-object", "-w", "--stdin", input=text).line for path, text in texts.items()}
        return restaged_tree(
            self.engine, self.head, {path: f"{_mode(self._in_head[path])} {sha}" for path, sha in blobs.items()}
        )

    def _text(self, entries: Mapping[str, str], path: str) -> str:
        mode, _, sha = entries.get(path, "").partition(" ")
        return self.engine.git("cat-file", "blob", sha).out if mode.startswith("100") else ""


def _mode(entry: str) -> str:
    return entry.partition(" ")[0]


def _entries(engine: EngineRepo, commit: str) -> dict[str, str]:
    """Path -> 'mode sha'."""
    fields: Iterable[str] = engine.git("ls-tree", "-r", "-z", "--full-tree", commit).fields
    pairs = (field.partition("\t") for field in fields)
    return {path: f"{words[0]} {words[2]}" for words, path in ((meta.split(" "), path) for meta, _, path in pairs)}
