"""The user's checkout and refs, looked at before and after each dispatch: changes are noticed, never undone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from windlass.git import run as git
from windlass.git.plumbing.refs import Refs
from windlass.git.run import UserRepo
from windlass.git.slot_files import read_or_empty

MANY = 5
"""So many changed files are named."""
LOGGED = 20
"""So many moves of a branch are looked at: it may have moved again since it was seen."""
OWN_REASON = "windlass: "
"""What Windlass gives as the reason when it moves a branch; the run's id follows."""
FRESH_S = 0.5
"""What was seen this long ago still stands for the state before a dispatch."""


class UserSignature(Struct, frozen=True):
    """Enough of the user's checkout and refs to notice that somebody changed them."""

    head: str
    index: str
    stash: str
    refs: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    """What is not as HEAD has it: path -> when and how large."""
    root: Path | None = None
    """Where git can be asked who moved a ref; None: nobody is asked."""

    def differences(self, later: UserSignature) -> tuple[str, ...]:
        """What somebody changed, without what other runs of Windlass did."""
        moved = _unlike(self.refs, later.refs)
        by_runs = {name for name in moved if later.root and _moved_by_a_run(later.root, name, later.refs.get(name, ""))}
        parts = [name for name in ("head", "index", "stash") if getattr(self, name) != getattr(later, name)]
        if later.head.strip().removeprefix("ref: ") in by_runs:
            # The checkout followed another run, or somebody landed one.
            parts = [name for name in parts if name != "index"]
        refs = [name for name in moved if name not in by_runs]
        return (*parts, *refs, *_unlike(self.files, later.files)[:MANY])


def _moved_by_a_run(root: Path, name: str, sha: str) -> bool:
    """The log of a branch says who moved it. An agent can write there too, so this spares a person a false alarm; it
    proves nothing. What matters does not hang on it: a run's tip is not in the user's repository."""
    if not sha or not name.startswith("refs/heads/"):
        return False
    done = git.run(["log", "-g", f"-{LOGGED}", "--format=%H %gs", name, "--"], root, check=False)
    return any(line.startswith(f"{sha} {OWN_REASON}") for line in done.out.splitlines())


def _unlike(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    return [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]


def user_signature(user: UserRepo, ours: Sequence[str] = (), refs: Refs | None = None) -> UserSignature:
    """`ours`: branches Windlass moves itself. A refreshed index is no change, so only its size is compared."""
    # A branch that somebody else moved is published beside it, as `-2` and so on.
    skipped = re.compile("|".join(["refs/windlass/.*", *(rf"refs/heads/{re.escape(name)}(-[0-9]+)?" for name in ours)]))
    head = read_or_empty(user.git_dir / "HEAD")
    return UserSignature(
        head=head,
        index=_size(user.git_dir / "index"),
        stash=_size(user.common_dir / "logs" / "refs" / "stash"),
        refs={name: sha for name, sha in _refs(user, refs).items() if not skipped.fullmatch(name)},
        # In place, the checkout follows the run: its files change because of us.
        files={} if head.strip() in {f"ref: refs/heads/{branch}" for branch in ours} else _dirty(user.root),
        root=user.root,
    )


class UserWatch:
    """Looks at one checkout for all who ask. A look costs tens of milliseconds in a large one, so it serves everybody
    who asked before it began: many dispatches at once cost no more looks than one after the other would."""

    def __init__(self, user: UserRepo, clock: Callable[[], float] = time.monotonic) -> None:
        self._user = user
        self._clock = clock
        self._looking = threading.Lock()
        self._refs = Refs(user.git_dir)
        self._begun = 0
        self._last = _Look(0, 0.0, (), None)

    def now(self, ours: tuple[str, ...]) -> UserSignature:
        """As it is after this call began."""
        return self._look(ours, newer_than=self._begun, since=float("inf"))

    def lately(self, ours: tuple[str, ...]) -> UserSignature:
        """As it is, or was a moment ago: a change in between counts as one that came later, so none is missed."""
        return self._look(ours, newer_than=self._begun, since=self._clock() - FRESH_S)

    def refs(self) -> dict[str, str]:
        return _refs(self._user, self._refs)

    def fresh(self, ours: tuple[str, ...]) -> UserSignature | None:
        """What was seen a moment ago, when somebody looked."""
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
    """A file that was changed before and is changed again counts too."""
    done = git.run(["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all"], root, check=False)
    return {path: _stamp(root / path) for path in (entry[3:] for entry in done.fields)}


def _stamp(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns} {found.st_size}"


def _refs(user: UserRepo, known: Refs | None) -> dict[str, str]:
    # A further worktree has some refs of its own: where they lie is git's to know.
    plain = user.git_dir == user.common_dir
    return (known or Refs(user.git_dir)).all() if plain else git.read_refs(user.root)


def _size(path: Path) -> str:
    try:
        return str(path.stat().st_size)
    except FileNotFoundError:
        return ""
