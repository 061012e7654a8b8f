"""Makes the trees that the proof compares. It uses a temporary index and changes no folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.checks.test_files import ChangedFiles, Names, is_code, is_data, is_program, shadows_runner, sort_files
from windlass.git.engine_repo import EngineRepo
from windlass.git.trees import changes, restaged_tree
from windlass.proof.behaviour import removes_names, respell, without_behaviour
from windlass.proof.claims import Comparison, compare
from windlass.proof.facts import Declaration, ProofFacts, ProofTree
from windlass.proof.harness import changes_harness
from windlass.proof.hollow import hollow, is_inert

PYTHON = ".py"
#: a test with one of these words may read the source instead of running it
READS = re.compile(
    r"open|read|source|inspect|linecache|tokenize|__file__|__code__|subprocess|\bdis\b|\bast\b|stat\(|getsize|glob"
    r"|Path|\bgit\b|loader|spawn|popen|eval|exec|hash|environ|\bfs\b",
    re.IGNORECASE,
)
# fmt: off
COMMENTS = {
    "#": (".sh", ".bash", ".zsh", ".fish", ".rb", ".pl", ".pm", ".py", ".ps1", ".psm1", ".r", ".jl", ".ex", ".exs",
          ".nim", ".tcl", ".awk", ".cr", ".coffee", ".tf", ".nix", ".jq", ".gd", ""),
    "//": (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".go", ".rs", ".java", ".kt", ".kts",
           ".scala", ".groovy", ".cs", ".fs", ".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".m", ".mm", ".swift",
           ".dart", ".zig", ".sol", ".cu", ".proto", ".d", ".move", ".sv"),
    "--": (".sql", ".lua", ".hs", ".elm", ".vhd"),
    ";": (".el", ".lisp", ".scm", ".rkt", ".clj", ".cljs", ".asm"),
    "%": (".erl",),
}
# fmt: on
COMMENT_OF = {suffix: mark for mark, suffixes in COMMENTS.items() for suffix in suffixes}


class Hollow(Struct, frozen=True):
    """X: the names of the change without its behaviour."""

    tree: str
    left: tuple[str, ...]
    """Parts of the change that still have an effect in X."""
    has_old_bodies: bool
    """Changed functions have their old bodies in X. Otherwise they are empty, which may be right."""
    put_back: tuple[str, ...]
    """Files that are old or empty in X, because Windlass cannot empty bodies in their language."""
    has_empty_bodies: bool
    """X has emptied bodies, not only old files. A test that fails there found all names it needs."""


class _HollowEntries(Struct):
    """The entries of X that replace the changed code."""

    entries: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    put_back: list[str] = field(default_factory=list)
    has_old_bodies: bool = True
    has_empty_bodies: bool = False


class Trees(Struct, frozen=True, eq=False, dict=True):
    """B, H, and the trees made from them."""

    engine: EngineRepo
    base: str
    head: str
    names: Names
    _texts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The paths that differ between B and H. No other path differs between the trees."""
        return tuple(change.path for change in changes(self.engine, self.base, self.head))

    @cached_property
    def changed(self) -> ChangedFiles:
        wanted = [path for path in self.paths if self.names.is_harness(path)]
        harness = [p for p in wanted if changes_harness(p, self._text(self._in_base, p), self._text(self._in_head, p))]
        # A module with such a name that was already in B is normal code.
        harness += [path for path in self.paths if shadows_runner(path) and path not in self._in_base]
        return sort_files(self.paths, self.names, list(dict.fromkeys(harness)), self._programs())

    def _programs(self) -> list[str]:
        """Programs that only their mode or first line identifies."""
        found = []
        for path in self.paths:
            if is_code(path) or is_data(path):
                continue
            entries = self._in_head if path in self._in_head else self._in_base
            mode = _mode(entries[path])
            if mode.startswith("100") and is_program(path, mode, self._text(entries, path)[:2]):
                found.append(path)
        return found

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Test files that are in B and not in H."""
        return tuple(path for path in self.names.modules_in(self._in_base) if path not in self._in_head)

    @cached_property
    def changes_helpers(self) -> bool:
        """The task changed a test helper, so the meaning of any test may have changed."""
        modules = {*self.names.modules_in(self._in_base), *self.names.modules_in(self._in_head)}
        return any(path in self._in_base and path not in modules for path in self.changed.tests_and_harness)

    @cached_property
    def comparison(self) -> Comparison:
        """How the texts of the changed tests differ."""
        old = {path: self._text(self._in_base, path) for path in self.changed.tests if path in self._in_base}
        new = {path: self._text(self._in_head, path) for path in self.changed.tests if path in self._in_head}
        found = compare(old, new)
        return replace(found, touched=None) if self.changes_helpers else found

    @cached_property
    def removes_code(self) -> bool:
        """The task removed a code file, or a name from one."""
        code = self.changed.code
        if any(path not in self._in_head for path in code):
            return True
        both = [path for path in code if path in self._in_base]
        pairs = [(path, self._text(self._in_base, path), self._text(self._in_head, path)) for path in both]
        return any(
            removes_names(old, new) if path.endswith(PYTHON) else hollow(path, new, old) is not None
            for path, old, new in pairs
        )

    @cached_property
    def reads_source(self) -> bool:
        """The changed tests may read the source. They must then pass on the respelled tree."""
        tests = [path for path in self.changed.tests if path in self._in_head]
        return any(READS.search(self._text(self._in_head, path)) for path in tests)

    def files(self, tree: ProofTree, *, every: bool) -> tuple[str, ...]:
        """The test files to run on the tree: the changed ones, or all."""
        old = tree in (ProofTree.BASE, ProofTree.WITH_OLD_TESTS)
        modules = self.names.modules_in(self._in_base if old else self._in_head)
        return modules if every else tuple(path for path in modules if path in self.changed.tests)

    def make(self, tree: ProofTree) -> str:
        match tree:
            case ProofTree.BASE:
                return self.engine.objects.tree_of(self.base)
            case ProofTree.HEAD:
                return self.engine.objects.tree_of(self.head)
            case ProofTree.OLD | ProofTree.AGAIN:
                return self._with_tests_of(self.base, self._in_head)
            case ProofTree.WITH_OLD_TESTS:
                return self._with_tests_of(self.head, self._in_base)
            case ProofTree.HOLLOW:
                assert self.hollow is not None
                return self.hollow.tree
            case ProofTree.SHALLOW:
                assert self.shallow is not None
                return self.shallow.tree
            case ProofTree.RESPELLED:
                return self._respelled_tree()

    @cached_property
    def hollow(self) -> Hollow | None:
        """None if there is nothing to empty in the change."""
        return self._hollow(deep=True)

    @cached_property
    def shallow(self) -> Hollow | None:
        """An X that keeps the statements that run while a module loads. None if it is the same as X."""
        made = self._hollow(deep=False)
        return made if made and self.hollow and made.tree != self.hollow.tree else None

    # -- inside

    def _hollow(self, *, deep: bool) -> Hollow | None:
        work = _HollowEntries()
        for path in self.changed.code:
            if path in self._in_head:
                self._empty(path, work, deep=deep)
            elif not any(other.startswith(f"{path}/") for other in self._in_head):
                work.entries[path] = self._in_base[path]
                work.has_empty_bodies = True
        if all(self._in_head.get(path) == entry for path, entry in work.entries.items()):
            return None
        tree = restaged_tree(self.engine, self.head, work.entries)
        return Hollow(tree, tuple(work.left), work.has_old_bodies, tuple(work.put_back), work.has_empty_bodies)

    def _empty(self, path: str, work: _HollowEntries, *, deep: bool) -> None:
        mode = _mode(self._in_head[path])
        if not mode.startswith("100"):
            work.left.append(path)
            return
        old = self._text(self._in_base, self._origin(path))
        new = self._text(self._in_head, path)
        python = without_behaviour(path, old, new, deep=deep) if path.endswith(PYTHON) else None
        emptied = None if python else hollow(path, old, new)
        if python:
            text, left = python.text, python.left
        elif emptied:
            text, left = _with_comment(path, emptied.text, new), emptied.left
            back = hollow(path, new, old)
            work.has_old_bodies = work.has_old_bodies and (back is None or back.text == old)
        elif is_inert(path, old, new):
            return
        else:
            # Windlass cannot empty bodies in this language, so use the old file or an empty one.
            text, left = _with_comment(path, old or _first_line(new), new), ()
            work.put_back.append(path)
        work.has_empty_bodies = work.has_empty_bodies or python is not None or emptied is not None
        work.left += [f"{path}: {one}" for one in left]
        work.entries[path] = f"{mode} {self._blob(text)}"

    def _origin(self, path: str) -> str:
        """The old path of a renamed file."""
        return self._renames.get(path, path)

    @cached_property
    def _renames(self) -> Mapping[str, str]:
        new = [path for path in self.changed.code if path not in self._in_base]
        gone = [path for path in self.changed.code if path not in self._in_head]
        if not new or not gone:
            return {}
        options = ["--find-renames=50%", "--diff-filter=R", "--name-status", "-z", "-r"]
        fields = self.engine.git("diff-tree", *options, self.base, self.head).fields
        return {there: here for here, there in zip(fields[1::3], fields[2::3], strict=True)}

    def _respelled_tree(self) -> str:
        entries = {}
        for path in self.changed.code:
            mode = _mode(self._in_head.get(path, ""))
            if mode.startswith("100"):
                text = self._text(self._in_head, path)
                other = respell(text) if path.endswith(PYTHON) else _with_comment(path, text, "the same in other words")
                entries[path] = f"{mode} {self._blob(other)}"
        return restaged_tree(self.engine, self.head, entries)

    @cached_property
    def _in_base(self) -> Mapping[str, str]:
        return _entries(self.engine, self.base)

    @cached_property
    def _in_head(self) -> Mapping[str, str]:
        return _entries(self.engine, self.head)

    def _with_tests_of(self, onto: str, source: Mapping[str, str]) -> str:
        """The tree of `onto` with the tests and harness files of `source`."""
        gone = "0 " + "0" * len(self.head)
        return restaged_tree(
            self.engine, onto, {path: source.get(path, gone) for path in self.changed.tests_and_harness}
        )

    def _blob(self, text: str) -> str:
        return self.engine.git("hash-object", "-w", "--stdin", input=text).line

    def _text(self, entries: Mapping[str, str], path: str) -> str:
        mode, _, sha = entries.get(path, "").partition(" ")
        if not mode.startswith("100"):
            return ""
        if sha not in self._texts:
            self._texts[sha] = self.engine.git("cat-file", "blob", sha).out
        return self._texts[sha]


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


def _with_comment(path: str, text: str, comment: str) -> str:
    """The text with `comment` at its end, if the language has one-line comments."""
    name = path.rsplit("/", 1)[-1]
    mark = COMMENT_OF.get(f".{name.rsplit('.', 1)[-1].lower()}" if "." in name.lstrip(".") else "")
    if mark is None:
        return text
    return f"{text.rstrip()}\n" + "".join(f"{mark} {line}\n" for line in comment.splitlines())


def _first_line(text: str) -> str:
    """The `#!` line, so that the empty program can still run."""
    return text.partition("\n")[0] + "\n" if text.startswith("#!") else ""


def _mode(entry: str) -> str:
    return entry.partition(" ")[0]


def _entries(engine: EngineRepo, commit: str) -> dict[str, str]:
    """Path -> 'mode sha'."""
    fields: Iterable[str] = engine.git("ls-tree", "-r", "-z", "--full-tree", commit).fields
    pairs = (field.partition("\t") for field in fields)
    return {path: f"{words[0]} {words[2]}" for words, path in ((meta.split(" "), path) for meta, _, path in pairs)}
