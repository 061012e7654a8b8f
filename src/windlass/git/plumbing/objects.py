"""Commits and trees without starting a git for each: read from their files or from one `cat-file`, written as files.

What git stores is named by its hash, so a reader cannot get a wrong one and a writer cannot overwrite a right one.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from windlass.errors import GitError
from windlass.git.disk import Barrier
from windlass.git.plumbing.cat_file import CatFile

MANY_COMMITS = 20_000
MANY_ENTRIES = 10_000
"""Of all trees that are remembered together, about 3 MB. A folder with many files is a large tree, and each landing
makes another one of it."""
FOLDER = "40000"
OBJECT_FILE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
ENTRY = {
    "sha1": re.compile(rb"([0-7]+) ([^\0]+)\0(.{20})", re.DOTALL),
    "sha256": re.compile(rb"([0-7]+) ([^\0]+)\0(.{32})", re.DOTALL),
}


class Entry(Struct, frozen=True):
    mode: str
    sha: str

    @property
    def is_folder(self) -> bool:
        return self.mode == FOLDER


Tree: TypeAlias = Mapping[bytes, Entry]


class Commit(Struct, frozen=True):
    tree: str
    parents: tuple[str, ...]


class Objects:
    """Of one repository. Safe to be used by several threads.

    `barrier`: gets the files that were written; they are on the disk when it is settled.
    """

    def __init__(self, git_dir: Path, algorithm: str, barrier: Barrier | None = None) -> None:
        self._git_dir = git_dir
        self._algorithm = algorithm
        self._barrier = barrier or Barrier()
        self._commits: dict[str, Commit] = {}
        self._trees: dict[str, Tree] = {}
        self._entry_count = 0
        self._memory = threading.Lock()
        self._lock = threading.Lock()

    def commit(self, sha: str) -> Commit:
        found = self._commits.get(sha)
        if found is None:
            found = _commit(self._body(sha, "commit"))
            if len(self._commits) > MANY_COMMITS:
                self._commits.clear()
            self._commits[sha] = found
        return found

    def tree(self, sha: str) -> Tree:
        """'' is the empty one."""
        if not sha:
            return {}
        found = self._trees.get(sha)
        return self._remember(sha, self._entries(self._body(sha, "tree"))) if found is None else found

    def _remember(self, sha: str, tree: Tree) -> Tree:
        """The oldest are forgotten first. Other threads may be at work here too: whoever comes late finds less."""
        with self._memory:
            while self._trees and self._entry_count + len(tree) > MANY_ENTRIES:
                self._entry_count -= len(self._trees.pop(next(iter(self._trees))))
            if sha not in self._trees:
                self._entry_count += len(tree)
            self._trees[sha] = tree
        return tree

    def has(self, sha: str) -> bool:
        """Here, or in the repository that this one borrows from."""
        if sha in self._commits or sha in self._trees or self._file(sha).exists():
            return True
        with self._lock:
            return self._librarian.has(sha)

    def blob(self, sha: str) -> bytes:
        """A file's content; not remembered."""
        return self._body(sha, "blob")

    def tree_at(self, sha: str) -> str:
        """The tree of a commit; a tree itself."""
        if sha in self._trees:
            return sha
        if sha not in self._commits:
            kind, _ = self._read(sha)
            if kind == "tree":
                return sha
        return self.commit(sha).tree

    def _entries(self, body: bytes) -> Tree:
        found = ENTRY[self._algorithm].findall(body)
        return {name: Entry(sys.intern(mode.decode("ascii")), sha.hex()) for mode, name, sha in found}

    def _body(self, sha: str, kind: str) -> bytes:
        found, body = self._read(sha)
        if found != kind:
            raise GitError(f"{sha[:12]} is a {found}, not a {kind}", hint="`windlass doctor`")
        return body

    def _read(self, sha: str) -> tuple[str, bytes]:
        found = self._loose(sha) or self._asked(sha)
        # An agent can write to the store too: only what has the name's own hash is that object.
        if found is None or self._name(_stored(*found)) != sha:
            raise GitError(f"there is no {sha[:12]} in '{self._git_dir}'", hint="`windlass doctor`")
        return found

    def _name(self, data: bytes) -> str:
        return hashlib.new(self._algorithm, data, usedforsecurity=False).hexdigest()

    def _loose(self, sha: str) -> tuple[str, bytes] | None:
        try:
            data = zlib.decompress(self._file(sha).read_bytes())
        except (OSError, zlib.error):
            return None
        header, _, body = data.partition(b"\0")
        return header.split(b" ")[0].decode("ascii", "replace"), body

    @cached_property
    def _librarian(self) -> CatFile:
        return CatFile(self._git_dir)

    def _asked(self, sha: str) -> tuple[str, bytes] | None:
        with self._lock:
            return self._librarian.ask(sha)

    def _file(self, sha: str) -> Path:
        return self._git_dir / "objects" / sha[:2] / sha[2:]

    # -- writing

    def write_blob(self, content: bytes) -> str:
        return self._write("blob", content)

    def adopt(self, sha: str, file: Path) -> None:
        """A loose object of another repository on this disk becomes ours. The caller has checked that it is `sha`."""
        place = self._file(sha)
        place.parent.mkdir(exist_ok=True)
        os.chmod(file, 0o444)
        os.rename(file, place)
        self._barrier.add([place])

    def write_tree(self, entries: Tree) -> str:
        ordered = sorted(entries.items(), key=lambda item: item[0] + (b"/" if item[1].is_folder else b""))
        parts = [b"%s %s\0%s" % (one.mode.encode(), name, bytes.fromhex(one.sha)) for name, one in ordered]
        return self._write("tree", b"".join(parts))

    def write_commit(self, tree: str, parents: Sequence[str], who: str, message: str) -> str:
        """`who`: name, address and date as git has them."""
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents), f"author {who}", f"committer {who}"]
        text = "\n".join([*lines, "", message])
        return self._write("commit", text.encode("utf-8", "surrogateescape"))

    def _write(self, kind: str, body: bytes) -> str:
        data = _stored(kind, body)
        sha = self._name(data)
        folder = self._git_dir / "objects" / sha[:2]
        if not (folder / sha[2:]).exists():
            folder.mkdir(exist_ok=True)
            # whole at once, and under a name that git takes for a leftover of its own should we be killed here
            with tempfile.NamedTemporaryFile(dir=folder, prefix="tmp_obj_", delete=False) as file:
                file.write(zlib.compress(data, 1))
            os.chmod(file.name, 0o444)
            os.rename(file.name, folder / sha[2:])
            self._barrier.add([folder / sha[2:]])
        return sha

    # -- after a power cut

    def remove_torn(self, since: float) -> list[str]:
        """Loose objects that are not what their names say; those that were written before `since` if they are empty.

        git takes a file of that name for the object and does not write it again: a torn one would stay for good.
        """
        return [sha for sha, file in self._loose_files() if self._is_torn(sha, file, since) and _removed(file)]

    def _loose_files(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        for folder in sorted((self._git_dir / "objects").glob("[0-9a-f][0-9a-f]")):
            with os.scandir(folder) as files:
                yield from ((folder.name + file.name, file) for file in list(files) if OBJECT_FILE.fullmatch(file.name))

    def _is_torn(self, sha: str, file: os.DirEntry[str], since: float) -> bool:
        found = file.stat(follow_symlinks=False)
        if found.st_size == 0:
            return True
        if found.st_mtime < since:
            return False
        try:
            return self._name(zlib.decompress(Path(file.path).read_bytes())) != sha
        except zlib.error:
            return True


def _removed(file: os.DirEntry[str]) -> bool:
    with suppress(FileNotFoundError):
        os.unlink(file.path)
    return True


def _stored(kind: str, body: bytes) -> bytes:
    return b"%s %d\0%s" % (kind.encode(), len(body), body)


def _commit(body: bytes) -> Commit:
    lines = body.partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
    parents = tuple(line.removeprefix("parent ") for line in lines if line.startswith("parent "))
    return Commit(lines[0].removeprefix("tree "), parents)
