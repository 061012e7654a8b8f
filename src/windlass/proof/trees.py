"""Makes the trees that the proof compares. It uses a temporary index and changes no folder."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from windlass.checks.test_files import ChangedFiles, Names, is_code, is_data, is_program, shadows_runner, sort_files
from windlass.git.engine_repo import EngineRepo
from windlass.git.trees import changes, restaged_tree
from windlass.proof.behaviour import removes_names
from windlass.proof.claims import Comparison, compare
from windlass.proof.facts import Declaration, ProofFacts, ProofTree
from windlass.proof.harness import changes_harness
from windlass.proof.hollow import hollow
from windlass.proof.variants import PYTHON, CommitFiles, Hollow, Variants

#: a test with one of these words may read the source instead of running it
READS = re.compile(
    r"open|read|source|inspect|linecache|tokenize|__file__|__code__|subprocess|\bdis\b|\bast\b|stat\(|getsize|glob"
    r"|Path|\bgit\b|loader|spawn|popen|eval|exec|hash|environ|\bfs\b",
    re.IGNORECASE,
)


class Trees(Struct, frozen=True, eq=False, dict=True):
    """B, H, and the trees made from them."""

    engine: EngineRepo
    base: str
    head: str
    names: Names

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths that differ between B and H. No other path differs between the trees."""
        return tuple(change.path for change in changes(self.engine, self.base, self.head))

    @cached_property
    def changed(self) -> ChangedFiles:
        wanted = [path for path in self.paths if self.names.is_harness(path)]
        harness = [path for path in wanted if changes_harness(path, self._base.text(path), self._head.text(path))]
        # A module with such a name that was already in B is normal code.
        harness += [path for path in self.paths if shadows_runner(path) and path not in self._base]
        # Only their mode or first line identifies these as programs.
        programs = []
        for path in self.paths:
            files = self._head if path in self._head else self._base
            is_file = not is_code(path) and not is_data(path) and files.mode(path).startswith("100")
            if is_file and is_program(path, files.mode(path), files.text(path)[:2]):
                programs.append(path)
        return sort_files(self.paths, self.names, list(dict.fromkeys(harness)), programs)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Test files that are in B and not in H."""
        return tuple(path for path in self.names.modules_in(self._base.entries) if path not in self._head)

    @cached_property
    def changes_helpers(self) -> bool:
        """The task changed a test helper, so the meaning of any test may have changed."""
        modules = {*self.names.modules_in(self._base.entries), *self.names.modules_in(self._head.entries)}
        return any(path in self._base and path not in modules for path in self.changed.tests_and_harness)

    @cached_property
    def comparison(self) -> Comparison:
        """How the texts of the changed tests differ."""
        old = {path: self._base.text(path) for path in self.changed.tests if path in self._base}
        new = {path: self._head.text(path) for path in self.changed.tests if path in self._head}
        found = compare(old, new)
        return replace(found, touched=None) if self.changes_helpers else found

    @cached_property
    def removes_code(self) -> bool:
        """The task removed a code file, or a name from one."""
        code = self.changed.code
        if any(path not in self._head for path in code):
            return True
        both = [path for path in code if path in self._base]
        pairs = [(path, self._base.text(path), self._head.text(path)) for path in both]
        return any(
            removes_names(old, new) if path.endswith(PYTHON) else hollow(path, new, old) is not None
            for path, old, new in pairs
        )

    @cached_property
    def reads_source(self) -> bool:
        """The changed tests may read the source. They must then pass on the respelled tree."""
        tests = [path for path in self.changed.tests if path in self._head]
        return any(READS.search(self._head.text(path)) for path in tests)

    def files(self, tree: ProofTree, *, every: bool) -> tuple[str, ...]:
        """The test files to run on the tree: the changed ones, or all."""
        old = tree in (ProofTree.BASE, ProofTree.WITH_OLD_TESTS)
        modules = self.names.modules_in((self._base if old else self._head).entries)
        return modules if every else tuple(path for path in modules if path in self.changed.tests)

    def make(self, tree: ProofTree) -> str:
        match tree:
            case ProofTree.BASE:
                return self.engine.objects.tree_of(self.base)
            case ProofTree.HEAD:
                return self.engine.objects.tree_of(self.head)
            case ProofTree.OLD | ProofTree.AGAIN:
                return self._with_tests_of(self.base, self._head)
            case ProofTree.WITH_OLD_TESTS:
                return self._with_tests_of(self.head, self._base)
            case ProofTree.HOLLOW:
                assert self.hollow is not None
                return self.hollow.tree
            case ProofTree.SHALLOW:
                assert self.shallow is not None
                return self.shallow.tree
            case ProofTree.RESPELLED:
                return self._variants.respelled_tree()

    @cached_property
    def hollow(self) -> Hollow | None:
        """None if there is nothing to empty in the change."""
        return self._variants.hollow(deep=True)

    @cached_property
    def shallow(self) -> Hollow | None:
        """An X that keeps the statements that run while a module loads. None if it is the same as X."""
        made = self._variants.hollow(deep=False)
        return made if made and self.hollow and made.tree != self.hollow.tree else None

    @cached_property
    def _variants(self) -> Variants:
        return Variants(self._base, self._head, self.changed.code)

    @cached_property
    def _base(self) -> CommitFiles:
        return CommitFiles(self.engine, self.base)

    @cached_property
    def _head(self) -> CommitFiles:
        return CommitFiles(self.engine, self.head)

    def _with_tests_of(self, onto: str, source: CommitFiles) -> str:
        """The tree of `onto` with the tests and harness files of `source`."""
        gone = "0 " + "0" * len(self.head)
        return restaged_tree(
            self.engine, onto, {path: source.entries.get(path, gone) for path in self.changed.tests_and_harness}
        )


def counts_every_file(trees: Trees, declared: Declaration, known: Collection[str]) -> bool:
    """Whether all test files count, not only the changed ones."""
    return declared is Declaration.PRESERVE or bool(known and not trees.changed.tests) or trees.changes_helpers


def gather_facts(
    trees: Trees, declared: Declaration, *, known: frozenset[str], allowed: frozenset[str], coarse: bool
) -> ProofFacts:
    """The facts that are known before any test runs."""
    every = counts_every_file(trees, declared, known)
    facts = ProofFacts(
        trees.changed,
        declared,
        in_base=bool(trees.files(ProofTree.BASE, every=every)),
        removed=trees.removed,
        known=known,
        allowed=allowed,
        removes_code=trees.removes_code,
        reads_source=trees.reads_source,
        comparison=trees.comparison,
        coarse=coarse,
    )
    hollow, shallow = trees.hollow, trees.shallow
    if hollow is None:
        return facts
    return replace(
        facts,
        hollow=True,
        left=hollow.left,
        has_old_bodies=hollow.has_old_bodies,
        has_empty_bodies=hollow.has_empty_bodies,
        put_back=hollow.put_back,
        shallow=shallow is not None,
        left_shallow=shallow.left if shallow else (),
    )
