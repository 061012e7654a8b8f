"""Makes variants of a task's head: trees in which the changed code is emptied, or written in other words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from windlass.git.engine_repo import EngineRepo
from windlass.git.trees import restaged_tree
from windlass.proof.behaviour import respell, without_behaviour
from windlass.proof.hollow import hollow, is_inert

PYTHON = ".py"
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


class CommitFiles(Struct, frozen=True, eq=False, dict=True):
    """The files of one commit. A text is read when it is needed, and only once."""

    engine: EngineRepo
    commit: str
    _texts: dict[str, str] = field(default_factory=dict)

    @cached_property
    def entries(self) -> Mapping[str, str]:
        """Path -> 'mode sha'."""
        fields = self.engine.git("ls-tree", "-r", "-z", "--full-tree", self.commit).fields
        pairs = [(meta.split(" "), path) for meta, _, path in (line.partition("\t") for line in fields)]
        return {path: f"{words[0]} {words[2]}" for words, path in pairs}

    def __contains__(self, path: str) -> bool:
        return path in self.entries

    def mode(self, path: str) -> str:
        """'' when there is no such entry."""
        return self.entries.get(path, "").partition(" ")[0]

    def text(self, path: str) -> str:
        """'' when there is no such file."""
        if not self.mode(path).startswith("100"):
            return ""
        if path not in self._texts:
            self._texts[path] = self.engine.git("cat-file", "blob", self.entries[path].partition(" ")[2]).out
        return self._texts[path]


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


class Variants(Struct, frozen=True, eq=False, dict=True):
    """The variants of one task's head."""

    base: CommitFiles
    head: CommitFiles
    code: tuple[str, ...]
    """The paths of the changed code."""

    def hollow(self, *, deep: bool) -> Hollow | None:
        """X; None if there is nothing to empty in the change. `deep`: as in `without_behaviour`."""
        work = _HollowEntries()
        for path in self.code:
            if path in self.head:
                self._empty(path, work, deep=deep)
            elif not any(other.startswith(f"{path}/") for other in self.head.entries):
                work.entries[path] = self.base.entries[path]
                work.has_empty_bodies = True
        if all(self.head.entries.get(path) == entry for path, entry in work.entries.items()):
            return None
        tree = restaged_tree(self.head.engine, self.head.commit, work.entries)
        return Hollow(tree, tuple(work.left), work.has_old_bodies, tuple(work.put_back), work.has_empty_bodies)

    def _empty(self, path: str, work: _HollowEntries, *, deep: bool) -> None:
        mode = self.head.mode(path)
        if not mode.startswith("100"):
            work.left.append(path)
            return
        old, new = self.base.text(self._renames.get(path, path)), self.head.text(path)
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
            # Windlass cannot empty bodies in this language, so use the old file or an empty one. An empty program keeps
            # its `#!` line, so that it can still run.
            first = new.partition("\n")[0] + "\n" if new.startswith("#!") else ""
            text, left = _with_comment(path, old or first, new), ()
            work.put_back.append(path)
        work.has_empty_bodies = work.has_empty_bodies or python is not None or emptied is not None
        work.left += [f"{path}: {one}" for one in left]
        work.entries[path] = self._entry(mode, text)

    @cached_property
    def _renames(self) -> Mapping[str, str]:
        """New path -> old path."""
        new = [path for path in self.code if path not in self.base]
        gone = [path for path in self.code if path not in self.head]
        if not new or not gone:
            return {}
        options = ["--find-renames=50%", "--diff-filter=R", "--name-status", "-z", "-r"]
        fields = self.head.engine.git("diff-tree", *options, self.base.commit, self.head.commit).fields
        return {there: here for here, there in zip(fields[1::3], fields[2::3], strict=True)}

    def respelled_tree(self) -> str:
        """The head with its changed code in other words."""
        entries = {}
        for path in self.code:
            mode, text = self.head.mode(path), self.head.text(path)
            if mode.startswith("100"):
                other = respell(text) if path.endswith(PYTHON) else _with_comment(path, text, "the same in other words")
                entries[path] = self._entry(mode, other)
        return restaged_tree(self.head.engine, self.head.commit, entries)

    def _entry(self, mode: str, text: str) -> str:
        return f"{mode} {self.head.engine.git('hash-object', '-w', '--stdin', input=text).line}"


def _with_comment(path: str, text: str, comment: str) -> str:
    """The text with `comment` at its end, if the language has one-line comments."""
    name = path.rsplit("/", 1)[-1]
    mark = COMMENT_OF.get(f".{name.rsplit('.', 1)[-1].lower()}" if "." in name.lstrip(".") else "")
    if mark is None:
        return text
    return f"{text.rstrip()}\n" + "".join(f"{mark} {line}\n" for line in comment.splitlines())
