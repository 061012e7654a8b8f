"""A folder an agent works in, and the small repository of its own behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from windlass.git import run as git
from windlass.git.disk import remove_tree
from windlass.git.run import GitResult
from windlass.private_files import replace_file

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
# The configuration is put back before every call; a commit graph that an agent wrote could still misstate history.
TRUST = ("-c", "core.commitGraph=false")


class Slot(Struct, frozen=True, eq=False):
    """Its repository has its own refs, stash, reflogs and configuration; other objects come from the engine's by
    alternates. So an agent may stash, branch, reset and rebase, and nobody else sees it."""

    n: int
    path: Path
    git_dir: Path
    """Named in every call, because an agent can overwrite the slot's own `.git`."""
    sealed: Callable[[], Mapping[str, str]] = dict
    """Files below `git_dir` that our own commands rely on, with their content."""

    def __eq__(self, other: object) -> bool:
        """The same folder, whoever opened the repository that it belongs to."""
        return isinstance(other, Slot) and (self.n, self.path, self.git_dir) == (other.n, other.path, other.git_dir)

    def __hash__(self) -> int:
        return hash((self.n, self.path, self.git_dir))

    def git(
        self, *args: str, env: Mapping[str, str] | None = None, input: str | None = None, check: bool = True
    ) -> GitResult:
        return git.run([*self.places(), *args], self.path, env=env, input=input, check=check)

    def places(self) -> tuple[str, ...]:
        """Where a git of ours has to work. Seals the repository first: its configuration names programs to run."""
        self.seal()
        return (f"--git-dir={self.git_dir}", f"--work-tree={self.path}", *TRUST)

    def seal(self) -> None:
        for place in (self.path, self.git_dir, *(self.git_dir / name for name in FOLDERS)):
            if place.is_symlink():
                # It may lead to the user's checkout: nothing may be read or written there.
                place.unlink()
            if not place.is_dir():
                place.mkdir(parents=True, exist_ok=True)
        for name in REDIRECTING:
            if (self.git_dir / name).is_symlink() or (self.git_dir / name).exists():
                (self.git_dir / name).unlink()
        for name, text in self.sealed().items():
            restore(self.git_dir / name, text)

    @property
    def commit(self) -> str:
        """What HEAD names, for `stand_on`."""
        head = (self.git_dir / "HEAD").read_text().strip()
        return "HEAD" if head.startswith("ref:") else head

    def stand_on(self, commit: str) -> None:
        """A clean checkout of `commit`. What is there is not kept; the log of HEAD stays the agent's."""
        log = self.git_dir / "logs" / "HEAD"
        before = log.read_bytes() if log.exists() else b""
        self.git("checkout", "-q", "--force", "--detach", commit)
        self.git("clean", "-ffdq")
        log.write_bytes(before)

    def placed_at(self) -> str:
        """The commit that the slot was placed at, by the first entry in the log of HEAD; '' when there is none."""
        log = self.git_dir / "logs" / "HEAD"
        first = log.read_text(errors="replace").partition("\n")[0].split(" ") if log.is_file() else []
        return first[1] if len(first) > 1 else ""

    def own_refs(self) -> list[Path]:
        """Files that hold refs: an agent's branches, tags and stash. Windlass itself makes none here."""
        files = [path for path in (self.git_dir / "refs").rglob("*") if not path.is_symlink() and path.is_file()]
        packed = self.git_dir / "packed-refs"
        return [*files, packed] if packed.is_file() and not packed.is_symlink() else files


def restore(file: Path, text: str) -> None:
    """Give the file this content, if it has another."""
    if file.is_symlink() or not file.is_file() or file.read_bytes() != text.encode("utf-8", "surrogateescape"):
        if file.is_dir() and not file.is_symlink():
            remove_tree(file)
        replace_file(file, text)
