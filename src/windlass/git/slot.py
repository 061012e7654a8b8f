"""A slot: a folder in which an agent works, with its own small repository, and safe access to its files."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from windlass.errors import UserError
from windlass.git import run as git
from windlass.git.disk import remove_tree
from windlass.git.run import GitResult
from windlass.private_files import replace_file

MAX_READ = 8 * 1024 * 1024
FOLDERS = ("objects", "objects/info", "objects/pack", "info", "refs", "refs/heads", "logs")
#: files that would make git read its settings, history or objects from elsewhere
REDIRECTING = (
    "commondir",
    "gitdir",
    "config.worktree",
    "info/grafts",
    "objects/info/commit-graph",
    "objects/info/http-alternates",
)
# The configuration is restored before every call; a commit graph from an agent could still misstate history.
TRUST = ("-c", "core.commitGraph=false")


class IndexFlags(Struct, frozen=True):
    """The flags in a slot's index that hide changes of a file from git."""

    cleared: bool
    """Some files had one."""
    partial: bool
    """Some files keep theirs, because the checkout is partial."""


class Slot(Struct, frozen=True, eq=False):
    """Its repository has its own refs, stash, reflogs and configuration, and borrows the engine's objects. So an agent
    may stash, branch, reset and rebase without an effect on others."""

    n: int
    path: Path
    git_dir: Path
    """Passed in every call, because an agent can overwrite the slot's `.git`."""
    sealed: Callable[[], Mapping[str, str]] = dict
    """Files below `git_dir` that Windlass's commands rely on, with their content."""

    def __eq__(self, other: object) -> bool:
        """Two slots are equal when they are the same folder."""
        return isinstance(other, Slot) and (self.n, self.path, self.git_dir) == (other.n, other.path, other.git_dir)

    def __hash__(self) -> int:
        return hash((self.n, self.path, self.git_dir))

    def git(
        self, *args: str, env: Mapping[str, str] | None = None, input: str | None = None, check: bool = True
    ) -> GitResult:
        return git.run([*self.places(), *args], self.path, env=env, input=input, check=check)

    def places(self) -> tuple[str, ...]:
        """The options that name the slot to a git of Windlass. Seals the repository first: its configuration names
        programs to run."""
        self.seal()
        return (f"--git-dir={self.git_dir}", f"--work-tree={self.path}", *TRUST)

    def seal(self) -> None:
        """Several threads may do this at once."""
        for place in (self.path, self.git_dir, *(self.git_dir / name for name in FOLDERS)):
            if place.is_symlink():
                # It may lead to the user's checkout: nothing may be read or written there.
                place.unlink(missing_ok=True)
            if not place.is_dir():
                place.mkdir(parents=True, exist_ok=True)
        for name in REDIRECTING:
            if (self.git_dir / name).is_symlink() or (self.git_dir / name).exists():
                (self.git_dir / name).unlink(missing_ok=True)
        for name, text in self.sealed().items():
            restore(self.git_dir / name, text)

    @property
    def commit(self) -> str:
        """The commit in HEAD, or 'HEAD' when it is on a branch; for `check_out`."""
        head = (self.git_dir / "HEAD").read_text().strip()
        return "HEAD" if head.startswith("ref:") else head

    def check_out(self, commit: str) -> None:
        """Make a clean checkout of `commit`. Keeps nothing; the log of HEAD stays as the agent left it."""
        log = self.git_dir / "logs" / "HEAD"
        before = log.read_bytes() if log.exists() else b""
        self.git("checkout", "-q", "--force", "--detach", commit)
        self.git("clean", "-ffdq")
        log.write_bytes(before)

    def placed_at(self) -> str:
        """The commit that the slot was placed at: the first entry in the log of HEAD; '' without one."""
        log = self.git_dir / "logs" / "HEAD"
        first = log.read_text(errors="replace").partition("\n")[0].split(" ") if log.is_file() else []
        return first[1] if len(first) > 1 else ""

    def clear_index_flags(self, *, absent: bool) -> IndexFlags:
        """Remove the flags assume-unchanged and skip-worktree, which hide changes of a file from git: such work would
        be lost.

        `absent`: also from files that are not in the folder, which then look deleted.
        """
        entries = self.git("ls-files", "-v", "-z").fields
        unchanged = [entry[2:] for entry in entries if entry[0].islower()]
        skipped = [entry[2:] for entry in entries if entry[0] in "Ss"]
        present = [name for name in skipped if absent or os.path.lexists(self.path / name)]
        for option, names in (("--no-assume-unchanged", unchanged), ("--no-skip-worktree", present)):
            if names:
                self.git("update-index", option, "-z", "--stdin", input="".join(f"{name}\0" for name in names))
        return IndexFlags(cleared=bool(unchanged or present), partial=len(present) < len(skipped))

    def own_refs(self) -> list[Path]:
        """Files of refs: an agent's branches, tags and stash. Windlass makes none here."""
        files = [path for path in (self.git_dir / "refs").rglob("*") if not path.is_symlink() and path.is_file()]
        packed = self.git_dir / "packed-refs"
        return [*files, packed] if packed.is_file() and not packed.is_symlink() else files


def restore(file: Path, text: str) -> None:
    """Write this content, unless the file has it."""
    if file.is_symlink() or not file.is_file() or file.read_bytes() != text.encode("utf-8", "surrogateescape"):
        if file.is_dir() and not file.is_symlink():
            remove_tree(file)
        replace_file(file, text)


# -- files below an agent's folder: nothing outside it is read or written


def check_path(path: str) -> PurePosixPath:
    """Checks the text of a path: relative, below its root, and not in `.git`."""
    pure = PurePosixPath(path)
    bad = pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in path
    if bad or any(part.lower() == ".git" for part in pure.parts):
        raise UserError(f"path {path!r} leaves the workspace", hint="use a relative path without '..' and '.git'")
    return pure


def safe_path(root: Path, path: str) -> Path:
    """Like `check_path`, and refuses a symbolic link that leads out of `root`."""
    place = root / check_path(path)
    real, top = place.resolve(), root.resolve()
    if not real.is_relative_to(top) or ".git" in real.relative_to(top).parts:
        raise UserError(f"path {path!r} leads out of the workspace", hint="a symbolic link on the way points elsewhere")
    return place


def write_artifacts(root: Path, contents: Mapping[str, str]) -> None:
    places = {safe_path(root, path): text for path, text in contents.items()}
    for place, text in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")


def remove_artifacts(root: Path, paths: Sequence[str]) -> None:
    for path in paths:
        place = safe_path(root, path)
        if not place.is_dir():
            place.unlink(missing_ok=True)


def read_file(root: Path, path: str) -> str | None:
    """None when there is no such file."""
    place = safe_path(root, path)
    if not place.is_file():
        return None
    size = place.stat().st_size
    if size > MAX_READ:
        raise UserError(f"file {path!r} has {size} bytes", hint=f"at most {MAX_READ} bytes are read")
    return place.read_bytes().decode("utf-8", "replace")


def copy_into(root: Path, source: Path, globs: Sequence[str]) -> list[str]:
    """Copy regular files of `source` that match; returns their paths. Links are not followed out of it."""
    copied = []
    for path in sorted({path for glob in globs for path in source.glob(str(check_path(glob)))}):
        name = path.relative_to(source).as_posix()
        if path.is_symlink() or not path.is_file() or ".git" in path.relative_to(source).parts:
            continue
        place = safe_path(root, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(safe_path(source, name), place)
        copied.append(name)
    return copied


def lock_hash(root: Path, names: Sequence[str]) -> str:
    """A hash of the lock files. When it changes, the set-up runs again."""
    parts = [(name, read_file(root, name)) for name in sorted(names)]
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
