"""The refs of runs: in the engine's repository, and Windlass's own refs in the user's repository.

In the engine's repository a run has a tip and holds heads that its journal names, both below `refs/windlass/<run>/`.
In the user's repository Windlass writes `refs/windlass/*` and the run's branch, and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from windlass.errors import UserError
from windlass.git import run as git
from windlass.git.disk import Barrier, read_or_empty
from windlass.git.plumbing.refs import Refs, move
from windlass.git.plumbing.stale_locks import intent, remove_covered
from windlass.git.user_repo import UserRepo
from windlass.model import is_id

LONGEST_NAME = 120


def hold_refs(run: str) -> str:
    """The prefix of a run's hold-refs. They are in one folder: every dispatch reads them twice."""
    return f"refs/windlass/{_run_id(run)}/hold/"


def name_held(ref: str, run: str) -> str:
    """The name in a hold-ref; '' for another ref."""
    start = hold_refs(run)
    return ref.removeprefix(start).rpartition(",@")[0].replace(",", "/") if ref.startswith(start) else ""


def tip_ref(run: str) -> str:
    return f"refs/windlass/{_run_id(run)}/tip"


def base_ref(run: str) -> str:
    """In the user's repository: the commit that the run began at."""
    return f"refs/windlass/base/{_run_id(run)}"


def _run_id(run: str) -> str:
    if not is_id(run) or run in ("base", "keep"):
        raise UserError(f"'{run}' is not a valid run id", hint="letters, digits, '.', '_' and '-', at most 64")
    return run


class RefMoves:
    """The refs that this process set, in order, to distinguish them from an agent's changes.

    A move is noted before it is made, because other threads compare refs meanwhile.
    """

    def __init__(self) -> None:
        self._all: list[tuple[str, str]] = []
        self._unfinished: set[int] = set()
        self._lock = threading.Lock()

    @contextmanager
    def note(self, *moves: tuple[str, str]) -> Iterator[None]:
        with self._lock:
            places = range(len(self._all), len(self._all) + len(moves))
            self._all += moves
            self._unfinished |= set(places)
        try:
            yield
        finally:
            with self._lock:
                self._unfinished -= set(places)

    def mark(self) -> int:
        """Later moves may appear in refs that are read after this call."""
        with self._lock:
            return min(self._unfinished, default=len(self._all))

    def since(self, mark: int) -> set[tuple[str, str]]:
        with self._lock:
            return set(self._all[mark:])


class RunRefs:
    """The refs of all runs in the engine's repository. Several threads may use it at once."""

    def __init__(self, git_dir: Path, fence: Callable[[], AbstractContextManager[None]], barrier: Barrier) -> None:
        self.git_dir = git_dir
        self.fence = fence
        self.moves = RefMoves()
        self.shown: dict[str, str] = {}
        """Tip refs as this process set them last."""
        self._barrier = barrier
        self._reached: set[str] = set()
        self._refs = Refs(git_dir)

    def all(self) -> dict[str, str]:
        """Name -> object."""
        return self._refs.all()

    def tip(self, run: str) -> str:
        """The value of the tip ref; '' without one. An agent may have moved it: a driver uses its journal."""
        loose = read_or_empty(self.git_dir / tip_ref(run)).strip()
        return loose or self._git("rev-parse", "--verify", "-q", tip_ref(run)).line

    def set_tip(self, run: str, new: str, old: str) -> bool:
        """Compare and swap; `old` is '' for the first tip. False: it has another value."""
        moved = self._swap(tip_ref(run), new, old)
        if moved:
            self.shown[tip_ref(run)] = new
        return moved

    def show_tip(self, run: str, tip: str, known: Collection[str]) -> str:
        """Point the tip ref at the tip. Returns its other value, unless that is '' or `known`; that commit stays
        reachable."""
        ref = tip_ref(run)
        with self.fence():
            if ref in self.shown and self.set_tip(run, tip, self.shown[ref]):
                return ""
            refs = self.all()
            found = read_or_empty(self.git_dir / ref).strip() or refs.get(ref, "")
            strange = bool(found) and found not in known
            if strange:
                commit = self._git("rev-parse", "--verify", "-q", f"{ref}^{{commit}}").line
                if commit:
                    self.hold(run, "stray", commit)
            # A ref below its name would prevent writing it.
            below = {name: sha for name, sha in refs.items() if name.startswith(f"{ref}/")}
            for sha in below.values():
                self.hold(run, "stray", sha)
            if below:
                self.drop([*below])
            self.shown[ref] = tip
            if found != tip:
                self.point(ref, tip)
            return found if strange else next(iter(below), "")

    def hold(self, run: str, name: str, sha: str) -> None:
        """Keep a head that the journal names reachable, in addition to earlier heads of that name."""
        self.point(f"{hold_refs(run)}{name.replace('/', ',') if len(name) < LONGEST_NAME else name},@{sha}", sha)

    def point(self, ref: str, sha: str) -> None:
        """Set a ref; other refs keep its old value reachable."""
        self._swap(ref, sha, None)

    def drop(self, refs: Sequence[str]) -> None:
        self._reached.clear()
        with self.fence(), self.moves.note(*((ref, "") for ref in refs)):
            command = [f"--git-dir={self.git_dir}", "update-ref", "--stdin"]
            git.run(command, self.git_dir.parent, input="".join(f"delete {ref}\n" for ref in refs))

    def reaches(self, sha: str) -> bool:
        """This process made a ref that leads to the commit. Starts no git, so False may also mean unknown."""
        return sha in self._reached

    def forget(self) -> None:
        """Drop the cached refs after a repair by another process."""
        self.shown.clear()
        self._reached.clear()

    def _swap(self, ref: str, new: str, old: str | None) -> bool:
        with self.fence(), self.moves.note((ref, new)):
            moved = move(self.git_dir, ref, new, old, self._barrier)
        if moved:
            self._reached.add(new)
        return moved

    def _git(self, *args: str) -> git.GitResult:
        return git.run([f"--git-dir={self.git_dir}", *args], self.git_dir.parent, check=False)


class UserRefs:
    """Windlass's refs in the user's repository."""

    def __init__(self, user: UserRepo, barrier: Barrier) -> None:
        self._user = user
        self._barrier = barrier
        self._intents = user.state / "moving"

    @contextmanager
    def intent(self, names: Sequence[str]) -> Iterator[None]:
        """Around every git that moves or removes Windlass's refs in the user's repository.

        When it is killed, its locks are known as Windlass's. When it ends, the refs wait to be synced.
        """
        with intent(self._intents, names):
            yield
        # Git synced the files, but not their names.
        self._barrier.add([self._user.common_dir / name for name in names])

    def move(self, refs: Mapping[str, str]) -> None:
        """Set these refs, all or none, whatever their values are."""
        commands = "".join(f"update {name} {sha}\n" for name, sha in refs.items())
        with self.intent(list(refs)):
            git.run(["update-ref", "--stdin"], self._user.root, input=commands)

    def pin_base(self, run: str, sha: str) -> None:
        """A base that the user amends away must survive their `git gc`."""
        self.move({base_ref(run): sha})

    def remove_locks(self) -> None:
        """Remove the locks that killed gits of Windlass left; a lock that may still be held stays."""
        remove_covered(self._intents, self._user.common_dir, self._user.root)
