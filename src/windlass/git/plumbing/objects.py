"""Reads and writes git objects without a git process for each: as files, or from one `cat-file`.

A hash names each object, so a reader cannot get a wrong one and a writer cannot overwrite a right one.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import threading
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from windlass.errors import GitError
from windlass.git.disk import Barrier
from windlass.git.plumbing.cat_file import CatFile

MANY_COMMITS = 20_000
MANY_ENTRIES = 10_000
"""The limit of entries in all cached trees, about 3 MB. A folder with many files is a large tree, and each landing
makes a new version of it.
"""
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


class LooseObjects(Struct, frozen=True):
    """The objects of one repository that are single files."""

    git_dir: Path
    algorithm: str
    barrier: Barrier
    """Gets the written files; settling it puts them on the disk."""

    def file(self, sha: str) -> Path:
        return self.git_dir / "objects" / sha[:2] / sha[2:]

    def read(self, sha: str) -> tuple[str, bytes] | None:
        """Kind and content; None when there is no such file, or it is damaged."""
        try:
            data = zlib.decompress(self.file(sha).read_bytes())
        except (OSError, zlib.error):
            return None
        header, _, body = data.partition(b"\0")
        return header.split(b" ")[0].decode("ascii", "replace"), body

    def write(self, kind: str, body: bytes) -> str:
        data = _stored_bytes(kind, body)
        sha = self.name(data)
        place = self.file(sha)
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            # Renamed when complete. Git takes the temporary name of a killed write for its own leftover.
            with tempfile.NamedTemporaryFile(dir=place.parent, prefix="tmp_obj_", delete=False) as file:
                file.write(zlib.compress(data, 1))
            os.chmod(file.name, 0o444)
            os.rename(file.name, place)
            self.barrier.add([place])
        return sha

    def adopt(self, sha: str, file: Path) -> None:
        """Move a loose object of another repository on this disk here. The caller has checked that it is `sha`."""
        place = self.file(sha)
        place.parent.mkdir(exist_ok=True)
        os.chmod(file, 0o444)
        os.rename(file, place)
        self.barrier.add([place])

    def name(self, data: bytes) -> str:
        return hashlib.new(self.algorithm, data, usedforsecurity=False).hexdigest()

    def remove_torn(self, since: float) -> list[str]:
        """Remove objects that do not match their names; of those written before `since`, only empty ones.

        Git takes a file of that name for the object and does not write it again: a torn one would stay for ever.
        """
        removed = []
        for folder in sorted((self.git_dir / "objects").glob("[0-9a-f][0-9a-f]")):
            with os.scandir(folder) as entries:
                files = [file for file in entries if OBJECT_FILE.fullmatch(file.name)]
            for file in files:
                sha = folder.name + file.name
                if self._is_torn(sha, file, since):
                    Path(file.path).unlink(missing_ok=True)
                    removed.append(sha)
        return removed

    def _is_torn(self, sha: str, file: os.DirEntry[str], since: float) -> bool:
        found = file.stat(follow_symlinks=False)
        if found.st_size == 0:
            return True
        if found.st_mtime < since:
            return False
        try:
            return self.name(zlib.decompress(Path(file.path).read_bytes())) != sha
        except zlib.error:
            return True


class Objects:
    """The objects of one repository and of the one it borrows from. Several threads may use it at once."""

    def __init__(self, git_dir: Path, algorithm: str, barrier: Barrier | None = None) -> None:
        self.loose = LooseObjects(git_dir, algorithm, barrier or Barrier())
        self._commits: dict[str, Commit] = {}
        self._trees: dict[str, Tree] = {}
        self._entry_count = 0
        self._memory = threading.Lock()
        self._turn = threading.Lock()

    def commit(self, sha: str) -> Commit:
        found = self._commits.get(sha)
        if found is None:
            lines = self._body(sha, "commit").partition(b"\n\n")[0].decode("utf-8", "replace").split("\n")
            parents = tuple(line.removeprefix("parent ") for line in lines if line.startswith("parent "))
            found = Commit(lines[0].removeprefix("tree "), parents)
            if len(self._commits) > MANY_COMMITS:
                self._commits.clear()
            self._commits[sha] = found
        return found

    def tree(self, sha: str) -> Tree:
        """'' is the empty tree."""
        if not sha:
            return {}
        found = self._trees.get(sha)
        if found is None:
            entries = ENTRY[self.loose.algorithm].findall(self._body(sha, "tree"))
            found = {name: Entry(sys.intern(mode.decode("ascii")), sha.hex()) for mode, name, sha in entries}
            with self._memory:
                # The oldest trees go first.
                while self._trees and self._entry_count + len(found) > MANY_ENTRIES:
                    self._entry_count -= len(self._trees.pop(next(iter(self._trees))))
                if sha not in self._trees:
                    self._entry_count += len(found)
                self._trees[sha] = found
        return found

    def blob(self, sha: str) -> bytes:
        """A file's content; not cached."""
        return self._body(sha, "blob")

    def tree_of(self, commit: str) -> str:
        return self.commit(commit).tree

    def tree_at(self, sha: str) -> str:
        """The tree of a commit; a tree itself."""
        if sha in self._trees:
            return sha
        if sha not in self._commits and self._read(sha)[0] == "tree":
            return sha
        return self.tree_of(sha)

    def has(self, sha: str) -> bool:
        if sha in self._commits or sha in self._trees or self.loose.file(sha).exists():
            return True
        with self._turn:
            return self._cat_file.has(sha)

    def write_blob(self, content: bytes) -> str:
        return self.loose.write("blob", content)

    def write_tree(self, entries: Tree) -> str:
        ordered = sorted(entries.items(), key=lambda item: item[0] + (b"/" if item[1].is_folder else b""))
        parts = [b"%s %s\0%s" % (one.mode.encode(), name, bytes.fromhex(one.sha)) for name, one in ordered]
        return self.loose.write("tree", b"".join(parts))

    def write_commit(self, tree: str, parents: Sequence[str], identity: str, message: str) -> str:
        """`identity`: name, address and date in git's form."""
        lines = [
            f"tree {tree}",
            *(f"parent {parent}" for parent in parents),
            f"author {identity}",
            f"committer {identity}",
        ]
        text = "\n".join([*lines, "", message])
        return self.loose.write("commit", text.encode("utf-8", "surrogateescape"))

    def _body(self, sha: str, kind: str) -> bytes:
        found, body = self._read(sha)
        if found != kind:
            raise GitError(f"{sha[:12]} is a {found}, not a {kind}", hint="`windlass doctor`")
        return body

    def _read(self, sha: str) -> tuple[str, bytes]:
        found = self.loose.read(sha)
        if found is None:
            with self._turn:
                found = self._cat_file.read(sha)
        # An agent can write to the store too: only content with the right hash is that object.
        if found is None or self.loose.name(_stored_bytes(*found)) != sha:
            raise GitError(f"there is no {sha[:12]} in '{self.loose.git_dir}'", hint="`windlass doctor`")
        return found

    @cached_property
    def _cat_file(self) -> CatFile:
        return CatFile(self.loose.git_dir)


def _stored_bytes(kind: str, body: bytes) -> bytes:
    return b"%s %d\0%s" % (kind.encode(), len(body), body)
