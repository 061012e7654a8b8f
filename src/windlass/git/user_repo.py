"""The user's repository: where it is, what is special about it, and whether it was changed.

Windlass compares the user's checkout and refs before and after each dispatch. It reports changes and undoes none.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct, field

from windlass.errors import GitError, UserError
from windlass.git import run as git
from windlass.git.disk import read_or_empty
from windlass.git.plumbing.refs import Refs

QUESTIONS = ("--is-bare-repository", "--is-inside-work-tree", "--is-shallow-repository", "--show-object-format")
PLACES = ("--path-format=absolute", "--git-dir", "--git-common-dir")
HERE = ("HEAD^{commit}", "--symbolic-full-name", "HEAD")
MANY = 5
"""How many changed files a report names."""
LOGGED = 20
"""How many moves of a branch are read from its log: it may have moved again since the last look."""
OWN_REASON = "windlass: "
"""Windlass's reason in the log when it moves a branch; the run's id follows."""
FRESH_S = 0.5
"""A look this old still counts as the state before a dispatch."""


class UserRepo(Struct, frozen=True):
    root: Path
    common_dir: Path
    """Shared by all worktrees of the repository: each of them sees what Windlass stores there."""
    git_dir: Path
    head: str
    branch: str
    """'' when HEAD is detached."""
    shallow: bool = False
    object_format: str = "sha1"

    @property
    def state(self) -> Path:
        return self.common_dir / "windlass"


def discover(path: Path) -> UserRepo:
    match git.run(["rev-parse", *QUESTIONS, *PLACES, *HERE, "--show-toplevel"], path, check=False).out.split("\n"):
        case ["false", "true", shallow, form, git_dir, common_dir, head, name, root, ""]:
            return UserRepo(Path(root), Path(common_dir), Path(git_dir), head, _branch(name), shallow == "true", form)
        case _:
            # Run the queries one by one, to find the fault.
            done = git.run(["rev-parse", *QUESTIONS, *PLACES], path, check=False)
    if done.code != 0 and "not a git repository" in done.err:
        raise UserError(f"'{path}' is not in a git repository", hint="go to your project, or run `git init` there")
    if done.code != 0:
        raise git.failure(["rev-parse"], path, done.err)
    bare, inside, shallow, object_format, git_dir, common_dir = done.out.splitlines()
    if bare == "true" or inside != "true":
        raise UserError(f"'{path}' is a bare repository or a .git folder", hint="go to a checkout of it")
    root = git.run(["rev-parse", "--show-toplevel"], path).out.removesuffix("\n")
    done = git.run(["rev-parse", *HERE], path, check=False)
    if done.code != 0:
        raise UserError("the repository has no commit yet", hint='git add -A && git commit -m "Start"')
    head, name = done.out.splitlines()
    return UserRepo(Path(root), Path(common_dir), Path(git_dir), head, _branch(name), shallow == "true", object_format)


def _branch(name: str) -> str:
    """'' for a detached HEAD."""
    return name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else ""


def is_dirty(repo: UserRepo, *, untracked: bool = True) -> bool:
    files = "normal" if untracked else "no"
    command = ["status", "--porcelain", "-z", f"--untracked-files={files}", "--ignore-submodules=dirty"]
    return bool(git.run(command, repo.root).out)


def is_tracked(repo: UserRepo, path: str) -> bool:
    return git.run(["cat-file", "-e", f"{repo.head}:{path}"], repo.root, check=False).code == 0


def oddities(repo: UserRepo) -> list[str]:
    """Limitations in this repository, for `doctor`."""
    attributes = git.run(
        ["grep", "-lE", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes"], repo.root, check=False
    )
    found = {
        "submodules: they stay empty in the folders agents work in": (repo.root / ".gitmodules").exists(),
        "Git LFS: files that were never downloaded cannot be checked out": attributes.code == 0,
        "shallow clone: history before it cannot be compared": repo.shallow,
        "partial clone: agents see the run's base whole, but of its history only what is here": is_partial(repo),
    }
    return [text for text, present in found.items() if present]


def is_partial(repo: UserRepo) -> bool:
    return bool(_promisor(repo))


def _promisor(repo: UserRepo) -> str:
    """The remote that a partial clone fetches missing objects from; '' for a complete clone."""
    done = git.run(["config", "--name-only", "--get-regexp", r"^remote\..*\.promisor$"], repo.root, check=False)
    first = done.out.partition("\n")[0]
    return first.removeprefix("remote.").removesuffix(".promisor")


def fetch_missing(repo: UserRepo, commit: str) -> None:
    """Fetch all files of a commit of a partial clone into the user's objects, as their own git would."""
    remote, before = _promisor(repo), -1
    listed = ["rev-list", "--objects", "--missing=print", f"{commit}^{{tree}}"]
    while remote:
        lines = git.run(listed, repo.root).out.splitlines()
        missing = [line[1:] for line in lines if line.startswith("?")]
        if not missing:
            return
        if len(missing) == before:
            raise GitError(f"'{remote}' does not give {len(missing)} objects of {commit[:12]}", hint="git fetch")
        options = ["--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin"]
        shas = "".join(f"{sha}\n" for sha in missing)
        fetch = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", "-q", *options, remote]
        git.run(fetch, repo.root, env=git.personal(), input=shas)
        before = len(missing)


def names_like(branch: str) -> list[str]:
    """A branch name, and alternatives when it is taken."""
    return [branch, *(f"{branch}-{k}" for k in range(2, 100))]


def checkout_bytes(user: UserRepo) -> int:
    """The size of all tracked files: about the size of another checkout."""
    size = 0
    for path in git.run(["ls-files", "-z", "--full-name", "--", ":/"], user.root).fields:
        with suppress(OSError):
            size += os.lstat(user.root / path).st_size
    return size


# -- changes


class UserSignature(Struct, frozen=True):
    """Enough of the user's checkout and refs to notice a change."""

    head: str
    index: str
    stash: str
    refs: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that differ from HEAD: path -> time and size."""
    root: Path | None = None
    """The checkout with the logs of moved refs; None: logs are not read."""

    def differences(self, later: UserSignature) -> tuple[str, ...]:
        """The changes, without those of other runs of Windlass."""
        moved = _differing_names(self.refs, later.refs)
        by_runs = {name for name in moved if later.root and _moved_by_a_run(later.root, name, later.refs.get(name, ""))}
        parts = [name for name in ("head", "index", "stash") if getattr(self, name) != getattr(later, name)]
        if later.head.strip().removeprefix("ref: ") in by_runs:
            # The checkout followed another run, or a run landed.
            parts = [name for name in parts if name != "index"]
        refs = [name for name in moved if name not in by_runs]
        return (*parts, *refs, *_differing_names(self.files, later.files)[:MANY])


def _moved_by_a_run(root: Path, name: str, sha: str) -> bool:
    """The log of a branch names its mover. An agent can write there too, so this proves nothing; it prevents false
    alarms. A run's tip does not depend on it: it is not in the user's repository."""
    if not sha or not name.startswith("refs/heads/"):
        return False
    done = git.run(["log", "-g", f"-{LOGGED}", "--format=%H %gs", name, "--"], root, check=False)
    return any(line.startswith(f"{sha} {OWN_REASON}") for line in done.out.splitlines())


def _differing_names(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def user_signature(user: UserRepo, ours: Sequence[str] = (), refs: Refs | None = None) -> UserSignature:
    """`ours`: branches that Windlass moves. A refreshed index is not a change, so only its size is compared."""
    # When the branch was moved by others, the run is published as `-2` and so on.
    skipped = re.compile("|".join(["refs/windlass/.*", *(rf"refs/heads/{re.escape(name)}(-[0-9]+)?" for name in ours)]))
    head = read_or_empty(user.git_dir / "HEAD")
    return UserSignature(
        head=head,
        index=_size(user.git_dir / "index"),
        stash=_size(user.common_dir / "logs" / "refs" / "stash"),
        refs={name: sha for name, sha in _refs(user, refs).items() if not skipped.fullmatch(name)},
        # In place, the checkout follows the run: Windlass changes its files.
        files={} if head.strip() in {f"ref: refs/heads/{branch}" for branch in ours} else _dirty(user.root),
        root=user.root,
    )


class UserWatch:
    """Observes one checkout for many dispatches. A look takes tens of milliseconds in a large checkout, so one look
    serves every caller that waited for it to begin."""

    def __init__(self, user: UserRepo, clock: Callable[[], float] = time.monotonic) -> None:
        self._user = user
        self._clock = clock
        self._looking = threading.Lock()
        self._refs = Refs(user.git_dir)
        self._begun = 0
        self._last = _Look(0, 0.0, (), None)

    def now(self, ours: tuple[str, ...]) -> UserSignature:
        """The state at some time after this call began."""
        return self._look(ours, newer_than=self._begun, since=float("inf"))

    def lately(self, ours: tuple[str, ...]) -> UserSignature:
        """The state now or a moment ago. A change in between counts as a later one, so none is missed."""
        return self._look(ours, newer_than=self._begun, since=self._clock() - FRESH_S)

    def refs(self) -> dict[str, str]:
        return _refs(self._user, self._refs)

    def fresh(self, ours: tuple[str, ...]) -> UserSignature | None:
        """The result of a look a moment ago, if there was one."""
        last = self._last
        return last.found if last.ours == ours and last.at >= self._clock() - FRESH_S else None

    def _look(self, ours: tuple[str, ...], *, newer_than: int, since: float) -> UserSignature:
        with self._looking:
            last = self._last
            if last.found is not None and last.ours == ours and (last.n > newer_than or last.at >= since):
                return last.found
            self._begun += 1
            begun, at = self._begun, self._clock()
            found = user_signature(self._user, ours, self._refs)
            self._last = _Look(begun, at, ours, found)
            return found


class _Look(Struct, frozen=True):
    n: int
    at: float
    ours: tuple[str, ...]
    found: UserSignature | None


def _dirty(root: Path) -> dict[str, str]:
    """Changed files with time and size: a file that changes again counts too."""
    done = git.run(["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all"], root, check=False)
    found: dict[str, str] = {}
    for path in (entry[3:] for entry in done.fields):
        try:
            seen = (root / path).lstat()
            found[path] = f"{seen.st_mtime_ns} {seen.st_size}"
        except OSError:
            found[path] = ""
    return found


def _refs(user: UserRepo, known: Refs | None) -> dict[str, str]:
    # A linked worktree has its own refs; git knows where.
    is_main = user.git_dir == user.common_dir
    return (known or Refs(user.git_dir)).all() if is_main else git.read_refs(user.root)


def _size(path: Path) -> str:
    try:
        return str(path.stat().st_size)
    except FileNotFoundError:
        return ""
