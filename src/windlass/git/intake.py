"""Takes an agent's objects from its slot into the engine's repository, and checks each of them.

The fast path reads the slot's loose objects and starts no git. Unusual objects (packs, odd headers) go through `git
index-pack --strict`, which knows and enforces every rule.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from windlass.errors import GitError
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.plumbing.objects import Entry, Objects
from windlass.git.slot import Slot

CHUNK = 1 << 20
LARGEST_TREE = 64 << 20
MOST_KNOWN = 200
"""How many commits of the engine are passed to git as known when it packs."""
FILE_MODES = frozenset({"100644", "100755", "120000"})
LINK_TO_REPOSITORY = "160000"
# Names that some file system reads as `.git`: with ignored characters (HFS+), trailing dots or as a short name (NTFS).
IGNORED_CHARACTERS = re.compile(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")
DOT_GIT = re.compile(rb"(?:\.git|git~\d+)[. ]*(?::.*)?", re.IGNORECASE | re.DOTALL)
SPECIAL_FILES = (b".gitmodules", b".gitattributes", b".gitignore", b".mailmap")
HEADER = re.compile(rb"(blob|tree|commit) (0|[1-9][0-9]{0,15})")
SHA = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
PERSON = rb"[^\n<>\0]*<[^\n<>\0]*> (?:0|[1-9][0-9]*) [+-][0-9]{4}\n"
COMMIT = re.compile(rb"tree (%b)\n((?:parent %b\n)*)author %bcommitter %b" % (SHA, SHA, PERSON, PERSON))


class RefusedObjectsError(GitError):
    """The slot holds objects that no git should accept: damaged, incomplete or malicious."""


class _UnusualError(Exception):
    """Not for the fast path: git decides."""


def take_in(engine: EngineRepo, slot: Slot, shas: Iterable[str], like: str = "") -> None:
    """Make these objects and everything they lead to part of the engine's repository, or raise RefusedObjectsError.

    `like`: for a tree, a similar one that the engine has.
    """
    lacking = [sha for sha in dict.fromkeys(shas) if not engine.objects.has(sha)]
    if not lacking:
        return
    try:
        walk = _ObjectWalk(engine.objects, slot.git_dir / "objects", engine.user.object_format)
        for sha in lacking:
            walk.take(sha, like)
    except (_UnusualError, RecursionError):
        _take_pack(engine, slot, lacking)


def take_existing(engine: EngineRepo, slot: Slot, shas: Iterable[str]) -> set[str]:
    """Take in the objects that exist and are accepted. Returns those of `shas` that the engine's repository has
    afterwards."""
    found = set[str]()
    for sha in shas:
        try:
            take_in(engine, slot, [sha])
            found.add(sha)
        except GitError:
            continue
    return found


class _ObjectWalk(Struct, frozen=True):
    """Walks from a commit to all objects that the engine lacks. It takes an object only after everything that the
    object names, so the engine's objects are complete even after a kill."""

    ours: Objects
    store: Path
    algorithm: str

    def take(self, sha: str, like: str) -> None:
        if any((self.store / "pack").glob("*.pack")):
            raise _UnusualError
        if self._read(sha)[0] == "tree":
            self._tree(sha, self.ours.tree(like))
            return
        # Depth first, without recursion: an agent may make thousands of commits.
        waiting = [(sha, False)]
        while waiting:
            one, ready = waiting.pop()
            if self._is_ours(one):
                continue
            kind, body = self._read(one)
            header = COMMIT.match(body)
            if kind != "commit" or header is None or b"\0" in body:
                raise _UnusualError
            parents = [line.removeprefix(b"parent ").decode("ascii") for line in header[2].splitlines()]
            if ready:
                against = self.ours.tree(self.ours.commit(parents[0]).tree) if parents else {}
                self._tree(header[1].decode("ascii"), against)
                self._adopt(one)
            else:
                waiting += [(one, True), *((parent, False) for parent in parents)]

    def _is_ours(self, sha: str) -> bool:
        return not self._file(sha).exists() and self.ours.has(sha)

    def _tree(self, sha: str, against: Mapping[bytes, Entry]) -> None:
        """`against`: a tree that the engine has, with mostly the same entries."""
        if self._is_ours(sha):
            return
        kind, body = self._read(sha)
        if kind != "tree":
            raise _UnusualError
        for name, entry in self._entries(body).items():
            known = against.get(name)
            if known == entry or entry.mode == LINK_TO_REPOSITORY:
                continue
            if entry.is_folder:
                self._tree(entry.sha, self.ours.tree(known.sha) if known and known.is_folder else {})
            elif not self._is_ours(entry.sha):
                if self._read(entry.sha)[0] != "blob":
                    raise _UnusualError
                self._adopt(entry.sha)
        self._adopt(sha)

    def _entries(self, body: bytes) -> dict[bytes, Entry]:
        size, at, found, last = hashlib.new(self.algorithm).digest_size, 0, dict[bytes, Entry](), b""
        while at < len(body):
            end = body.find(b"\0", at)
            mode, _, name = body[at:end].partition(b" ")
            entry = Entry(mode.decode("ascii", "replace"), body[end + 1 : end + 1 + size].hex())
            order = name + (b"/" if entry.is_folder else b"")
            if end < 0 or len(entry.sha) != 2 * size or not _is_plain(name, entry) or order <= last or name in found:
                raise _UnusualError
            found[name], last, at = entry, order, end + 1 + size
        return found

    def _file(self, sha: str) -> Path:
        return self.store / sha[:2] / sha[2:]

    def _adopt(self, sha: str) -> None:
        self.ours.loose.adopt(sha, self._file(sha))

    def _read(self, sha: str) -> tuple[str, bytes]:
        """The object's kind, and its content unless it is a blob. Raises unless the content has the right hash."""
        try:
            handle = os.open(self._file(sha), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            raise _UnusualError from None
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _UnusualError
            return self._verify(sha, iter(lambda: file.read(CHUNK), b""))

    def _verify(self, sha: str, packed: Iterable[bytes]) -> tuple[str, bytes]:
        inflate, name, kind, size, body = zlib.decompressobj(), hashlib.new(self.algorithm), "", -1, bytearray()
        length = 0
        try:
            for raw in packed:
                data = inflate.decompress(raw, CHUNK)
                while data:
                    name.update(data)
                    if size < 0:
                        start, _, data = data.partition(b"\0")
                        header = HEADER.fullmatch(start)
                        if header is None:
                            raise _UnusualError
                        kind, size = header[1].decode("ascii"), int(header[2])
                    length += len(data)
                    if kind != "blob":
                        body += data
                    if length > size or len(body) > LARGEST_TREE:
                        raise _UnusualError
                    data = inflate.decompress(inflate.unconsumed_tail, CHUNK) if inflate.unconsumed_tail else b""
        except zlib.error:
            raise _UnusualError from None
        if not inflate.eof or inflate.unused_data or length != size or name.hexdigest() != sha:
            raise _UnusualError
        return kind, bytes(body)


def _is_plain(name: bytes, entry: Entry) -> bool:
    if not name or b"/" in name or name in (b".", b"..") or DOT_GIT.fullmatch(IGNORED_CHARACTERS.sub(b"", name)):
        return False
    # A link with such a name leads git out of the tree.
    if entry.mode != "100644" and entry.mode != "100755" and name.lower().startswith(SPECIAL_FILES):
        return False
    return entry.is_folder or entry.mode in FILE_MODES or entry.mode == LINK_TO_REPOSITORY


def _take_pack(engine: EngineRepo, slot: Slot, shas: Sequence[str]) -> None:
    # A link leads out of the slot, and a pipe would block git.
    for folder, _, names in os.walk(slot.git_dir / "objects"):
        for name in names:
            if not stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode):
                raise RefusedObjectsError(
                    f"'{name}' in the objects of slot {slot.n} is not a file", hint="an agent put it there"
                )
    known = [f"^{sha}" for sha in dict.fromkeys(engine.refs.all().values())][-MOST_KNOWN:]
    wanted = "".join(f"{line}\n" for line in (*shas, *known))
    try:
        options = ["--revs", "--local", "--stdout", "-q"]
        pack = git.run_raw([*slot.places(), "pack-objects", *options], slot.path, input=wanted)
        git.run_raw([f"--git-dir={engine.path}", "index-pack", "--strict", "--stdin"], engine.home, input=pack.stdout)
        engine.barrier.add([engine.path / "objects" / "pack"])
    except GitError as error:
        raise RefusedObjectsError(f"objects of slot {slot.n} are refused: {error.message}", hint=error.hint) from None
    missing = [sha for sha in shas if not engine.objects.has(sha)]
    if missing:
        raise RefusedObjectsError(
            f"slot {slot.n} lacks {missing[0][:12]}, which it names", hint="an agent removed objects it needs"
        )
