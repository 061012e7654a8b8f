"""The engine's own repository beside the user's, and what each of the two may contain.

A bare repository that borrows the user's objects and holds every ref of the engine. Agents work in slots, which are
small repositories of their own that borrow the engine's objects: their `git stash`, `branch -D` or `reset` reach
nobody else. In the user's repository Windlass writes `refs/windlass/*` and the run's branch only.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TextIO

from msgspec import Struct, field

from windlass.errors import GitError, StoppedError, UserError
from windlass.git import compare
from windlass.git import run as git
from windlass.git.disk import Barrier, sync_tree
from windlass.git.plumbing.objects import Objects
from windlass.git.plumbing.refs import Refs, move
from windlass.git.ref_moves import Moves
from windlass.git.run import GitResult, UserRepo
from windlass.git.slot_files import read_or_empty
from windlass.git.stale_locks import intent, locks_in, remove_covered, remove_dead
from windlass.git.state_folder import StateFolder, look_up, settle_home
from windlass.git.user_watch import UserWatch
from windlass.locks import is_stopped, lock_holder
from windlass.model import is_id
from windlass.private_files import replace_file
from windlass.text import plain

# Settings of the user's own repository that change what a checkout or a commit contains.
CONTENT_SETTINGS = (
    "autocrlf",
    "eol",
    "safecrlf",
    "filemode",
    "symlinks",
    "ignorecase",
    "precomposeunicode",
    "excludesfile",
)
LONGEST_NAME = 120
MANY_COMPARED = 500
LOCK_LOOK_S = 2.0
"""So long a lock is waited for before somebody asks whether its holder is stopped."""
LOCK_PATIENCE_S = 120.0
"""As long as a git under it may take."""
# The settings that we write say nothing of another format for refs, and we read them as files.
INIT_VARIABLES = {"GIT_DEFAULT_REF_FORMAT": "files"}
KNOWS_REF_FORMAT = (2, 45)
IDENTITY = {"user.name": "Windlass", "user.email": "windlass@localhost"}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """An OS lock, freed by `kill -9`; held for moments only. A holder that is stopped is named, not waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as handle:
        begun = time.monotonic()
        while not _is_locked(handle):
            time.sleep(0.005)
            if (waited := time.monotonic() - begun) > LOCK_LOOK_S:
                # Where the system does not tell, what the holder wrote does; it may be stopped before it writes.
                handle.seek(0)
                _require_at_work(path, str(lock_holder(path, "FLOCK") or handle.read().strip()), waited)
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield


def _require_at_work(path: Path, holder: str, waited: float) -> None:
    stopped = holder.isdigit() and is_stopped(int(holder))
    if stopped or waited > LOCK_PATIENCE_S:
        raise StoppedError(
            f"'{path}' is locked by process {holder or 'unknown'}{', which is stopped' if stopped else ''}",
            hint=f"kill -CONT {holder} lets it go on, kill -KILL {holder} ends it",
        )


def _is_locked(handle: TextIO) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class RefChange(Struct, frozen=True):
    name: str
    before: str
    """'' when it did not exist."""
    after: str
    """'' when it is gone."""


class EngineRepo(Struct, frozen=True, eq=False, dict=True):
    user: UserRepo
    home: Path
    sealed: Mapping[str, str]
    """Files below `path` and their content; an agent that changes them changes what later commands mean."""
    fence: Callable[[], AbstractContextManager[None]] = nullcontext
    """A driver's: refs, slots and branches change only behind it, so never after another driver took over."""
    about: StateFolder | None = None
    """Where the repository is and was; None when nobody looked."""
    _moves: Moves = field(default_factory=Moves)
    _shown: dict[str, str] = field(default_factory=dict)
    """Tip refs as this process set them last."""
    _reached: set[str] = field(default_factory=set)
    barrier: Barrier = field(default_factory=Barrier)
    """What the journal is about to name. `settle` it first."""
    _compared: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    attributes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """By tree: its `.gitattributes` files and their blobs, once somebody looked for them."""

    @classmethod
    def open(
        cls, user: UserRepo, state_dir: Path, *, fence: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> EngineRepo:
        # Not inside the folder: it may be moved.
        with locked(state_dir.resolve() / "windlass" / "lock"):
            about = settle_home(user.common_dir, state_dir)
        home = Path(about.home)
        engine = cls(user, home, _sealed(user), fence, about)
        engine.create()
        engine.clear_locks()
        return engine

    def create(self) -> None:
        """Unless it is there; and what git needs to take it for a repository is put back."""
        with locked(self.home / "lock"):
            if not self.path.exists():
                self._create()
                exclude = read_or_empty(self.user.common_dir / "info" / "exclude")
                replace_file(self.path / "info" / "exclude", exclude, sync_to="name")
            self._restore_skeleton()
            self.seal()

    @classmethod
    def at(cls, user: UserRepo, state_dir: Path) -> EngineRepo:
        """As it is, whole or not: nothing is made and nothing is put right."""
        about = look_up(user.common_dir, state_dir)
        return cls(user, Path(about.home), _sealed(user), about=about)

    @property
    def path(self) -> Path:
        return self.home / "repo.git"

    @cached_property
    def _refs(self) -> Refs:
        return Refs(self.path)

    @cached_property
    def watch(self) -> UserWatch:
        return UserWatch(self.user)

    def _create(self) -> None:
        # Renamed into place when complete: a half-made repository is never seen.
        new = self.home / "repo.git.new"
        shutil.rmtree(new, ignore_errors=True)
        form = self.user.object_format
        git.run(["init", "-q", *init_options(form, git.git_version()), str(new)], self.home, env=INIT_VARIABLES)
        sync_tree(new)
        new.rename(self.path)
        self.barrier.add([self.path, self.home])

    def _restore_skeleton(self) -> None:
        """Without these git does not take the folder for a repository."""
        for name in ("refs/heads", "objects/info", "objects/pack"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        if not read_or_empty(self.path / "HEAD").startswith("ref: "):
            replace_file(self.path / "HEAD", "ref: refs/heads/main\n", sync_to="name")

    def seal(self) -> list[str]:
        """Put back what no one but the engine may change here; the names of what was changed."""
        wrong = [name for name, text in self.sealed.items() if read_or_empty(self.path / name) != text]
        for name in wrong:
            replace_file(self.path / name, self.sealed[name], sync_to="name")
        return wrong

    def clear_locks(self) -> None:
        """Those that killed gits left, in both repositories; what somebody may still hold stays."""
        if locks := locks_in(self.path):
            remove_dead(locks, self.home)
        remove_covered(self._intents, self.user.common_dir, self.user.root)

    @property
    def _intents(self) -> Path:
        return self.user.state / "moving"

    @contextmanager
    def moving_user_refs(self, names: Sequence[str]) -> Iterator[None]:
        """Around every git that moves or removes refs of ours in the user's repository.

        Killed in between, its locks are known to be ours; when it is done, the refs wait for the disk.
        """
        with intent(self._intents, names):
            yield
        # Their files were synced by git, the names of the files were not.
        self.barrier.add([self.user.common_dir / name for name in names])

    def slot_files(self) -> Mapping[str, str]:
        """What every slot's repository has, by name: an agent that changes it changes what later commands mean."""
        shallow = {name: text for name, text in self.sealed.items() if name == "shallow"}
        return {
            "config": self._slot_config,
            "objects/info/alternates": f"{self.path / 'objects'}\n",
            "info/attributes": "",
            "info/exclude": read_or_empty(self.path / "info" / "exclude"),
            **shallow,
        }

    @cached_property
    def _slot_config(self) -> str:
        return self.sealed["config"].replace(_setting("core.bare", "true"), _setting("core.bare", "false"), 1)

    def git(
        self, *args: str, env: Mapping[str, str] | None = None, input: str | bytes | None = None, check: bool = True
    ) -> GitResult:
        return git.run([f"--git-dir={self.path}", *args], self.home, env=env, input=input, check=check)

    def ignore(self, paths: Sequence[str]) -> None:
        """Never harvest or snapshot these, in any slot: what is copied in from the user's checkout may be secret."""
        exclude = self.path / "info" / "exclude"
        with locked(self.home / "lock"):
            old = read_or_empty(exclude).splitlines()
            new = [line for line in map(_exclude_line, paths) if line not in old]
            if new:
                replace_file(exclude, "\n".join([*old, *new, ""]), sync_to="name")

    def pin_base(self, run: str, sha: str) -> None:
        """A base the user amends away must outlive their `git gc`."""
        self.move_user_refs({f"refs/windlass/base/{_named(run)}": sha})

    def move_user_refs(self, refs: Mapping[str, str]) -> None:
        """Refs of Windlass's own in the user's repository, all or none, whatever they are now."""
        commands = "".join(f"update {name} {sha}\n" for name, sha in refs.items())
        with self.moving_user_refs(list(refs)):
            git.run(["update-ref", "--stdin"], self.user.root, input=commands)

    def settle(self) -> None:
        """What was written so far is on the disk when this returns; may take as long as the disk does."""
        if not self.barrier.is_clear:
            self.barrier.settle()

    def tip(self, run: str) -> str:
        """What the ref shows, which an agent may have moved; '' while there is none. A driver goes by its journal."""
        loose = read_or_empty(self.path / tip_ref(run))
        if loose.strip():
            return loose.strip()
        return self.git("rev-parse", "--verify", "-q", tip_ref(run), check=False).line

    def require_fence(self) -> None:
        """Before a longer change: raises when another driver took over."""
        with self.fence():
            pass

    def set_tip(self, run: str, new: str, old: str) -> bool:
        """Compare and swap; `old` is '' for the first one. False: somebody else moved it."""
        moved = self._swap(tip_ref(run), new, old)
        if moved:
            self._shown[tip_ref(run)] = new
        return moved

    def show_tip(self, run: str, tip: str, known: Collection[str]) -> str:
        """Make the ref show the tip. What the ref showed instead, unless it is '' or `known`: that stays reachable."""
        with self.fence():
            return self._show_tip(run, tip, known)

    def _show_tip(self, run: str, tip: str, known: Collection[str]) -> str:
        ref = tip_ref(run)
        if ref in self._shown and self.set_tip(run, tip, self._shown[ref]):
            return ""
        refs = self.refs()
        found = read_or_empty(self.path / ref).strip() or refs.get(ref, "")
        strange = bool(found) and found not in known
        if strange:
            commit = self.git("rev-parse", "--verify", "-q", f"{ref}^{{commit}}", check=False).line
            if commit:
                self.hold(run, "stray", commit)
        # A ref below its name would keep it from being written.
        below = {name: sha for name, sha in refs.items() if name.startswith(f"{ref}/")}
        for sha in below.values():
            self.hold(run, "stray", sha)
        if below:
            self.drop([*below])
        self._shown[ref] = tip
        if found != tip:
            self.point(ref, tip)
        return found if strange else next(iter(below), "")

    def forget(self) -> None:
        """Refs were put right behind this object's back: what it knows of them does not count."""
        self._shown.clear()
        self._reached.clear()

    def _swap(self, ref: str, new: str, old: str | None) -> bool:
        with self.fence(), self._moves.noted((ref, new)):
            moved = move(self.path, ref, new, old, self.barrier)
        if moved:
            self._reached.add(new)
        return moved

    def hold(self, run: str, name: str, sha: str) -> None:
        """A head that the journal names stays reachable, and so do earlier ones of that name."""
        self.point(f"{hold_refs(run)}{name.replace('/', ',') if len(name) < LONGEST_NAME else name},@{sha}", sha)

    def point(self, ref: str, sha: str) -> None:
        """A ref that only shows where somebody is; what it leaves is held elsewhere."""
        self._swap(ref, sha, None)

    def mark(self) -> int:
        """To be taken before refs are read for a later `audit`."""
        return self._moves.mark()

    def reaches(self, sha: str) -> bool:
        """Known without asking git: this process made a ref that leads to it. False may mean: not known."""
        return sha in self._reached

    def drop(self, refs: Sequence[str]) -> None:
        self._reached.clear()
        with self.fence(), self._moves.noted(*((ref, "") for ref in refs)):
            self.git("update-ref", "--stdin", input="".join(f"delete {ref}\n" for ref in refs))

    def refs(self) -> dict[str, str]:
        return self._refs.all()

    def audit(self, run: str, before: Mapping[str, str], after: Mapping[str, str], mark: int = 0) -> list[RefChange]:
        """Changes that neither this engine nor another run's made. `mark`: taken before `before` was read."""
        names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        changes = [RefChange(name, before.get(name, ""), after.get(name, "")) for name in names]
        moves = self._moves.since(mark)
        return [change for change in changes if not self._expected(run, change, moves)]

    def _expected(self, run: str, change: RefChange, moves: set[tuple[str, str]]) -> bool:
        if (change.name, change.after) in moves:
            return True
        engines = change.name.startswith("refs/windlass/")
        another_runs = engines and not change.name.startswith(f"refs/windlass/{run}/")
        return another_runs and bool(change.after)

    def undo(self, changes: Sequence[RefChange]) -> None:
        """Put refs back. Keep what they lead to first: `Slots.keep(..., undone=changes)`."""
        for change in changes:
            self._undo(change)

    def _undo(self, change: RefChange) -> None:
        """Only what still is as it was seen: beside us the lander moves on, and others undo the same."""
        before = self._shown.get(change.name, change.before)
        to = [before or "0" * len(change.after), change.after or "0" * len(change.before)]
        with self.fence(), self._moves.noted((change.name, before)):
            done = self.git("update-ref", "--no-deref", change.name, *to, check=False)
        if done.code != 0 and self.refs().get(change.name, "") == change.after:
            raise GitError(f"cannot put '{change.name}' back: {plain(done.err).strip()}", hint="`windlass doctor`")

    def tree_of(self, sha: str) -> str:
        return self.objects.commit(sha).tree

    def differences(self, base: str, head: str) -> tuple[str, ...]:
        """Of two commits or trees: ':old-mode new-mode old-sha new-sha letter' and the path, in turn."""
        # Two trees never differ in another way later, so they are compared once.
        pair = self.objects.tree_at(base), self.objects.tree_at(head)
        found = self._compared.get(pair)
        if found is None:
            found = self._differences(*pair)
            if len(self._compared) >= MANY_COMPARED:
                self._compared.clear()
            self._compared[pair] = found
        return found

    def _differences(self, base: str, head: str) -> tuple[str, ...]:
        try:
            return compare.differences(self.objects, base, head)
        except GitError:
            # A clone that lacks some trees: git knows where to get them.
            return self.git("diff-tree", "-r", "-z", "--no-renames", base, head).fields

    @cached_property
    def committer(self) -> str:
        """Name and address as git itself would write them."""
        return self.git("var", "GIT_COMMITTER_IDENT").line.rsplit(" ", 2)[0]

    @cached_property
    def objects(self) -> Objects:
        return Objects(self.path, self.user.object_format, self.barrier)


def init_options(object_format: str, version: tuple[int, ...]) -> list[str]:
    """Nothing of how a person likes their own repositories to be made (`init.*`) shapes the engine's."""
    options = ["--bare", "--template=", "--initial-branch=main", f"--object-format={object_format}"]
    return [*options, "--ref-format=files"] if version[:2] >= KNOWS_REF_FORMAT else options


def hold_refs(run: str) -> str:
    """What their names begin with. All in one folder: they are looked at before and after every dispatch."""
    return f"refs/windlass/{_named(run)}/hold/"


def name_held(ref: str, run: str) -> str:
    """'' when it is none."""
    start = hold_refs(run)
    return ref.removeprefix(start).rpartition(",@")[0].replace(",", "/") if ref.startswith(start) else ""


def tip_ref(run: str) -> str:
    return f"refs/windlass/{_named(run)}/tip"


def _named(run: str) -> str:
    if not is_id(run) or run in ("base", "keep"):
        raise UserError(f"'{run}' is not a valid run id", hint="letters, digits, '.', '_' and '-', at most 64")
    return run


def _sealed(user: UserRepo) -> dict[str, str]:
    files = {
        "config": _config(user),
        "objects/info/alternates": f"{user.common_dir / 'objects'}\n",
        "info/attributes": "",
    }
    # Without the list of cut-off commits a walk through a shallow clone's history ends in "missing object".
    return {**files, "shallow": read_or_empty(user.common_dir / "shallow")} if user.shallow else files


def _config(user: UserRepo) -> str:
    theirs = _user_settings(user)
    settings = {
        "core.repositoryformatversion": "1" if user.object_format != "sha1" else "0",
        "core.bare": "true",
        "core.logAllRefUpdates": "always",
        "gc.auto": "0",
        "gc.reflogExpire": "never",
        "gc.reflogExpireUnreachable": "never",
        "gc.pruneExpire": "never",
        **({"extensions.objectFormat": user.object_format} if user.object_format != "sha1" else {}),
        **({"lfs.storage": str(user.common_dir / "lfs")} if (user.common_dir / "lfs").is_dir() else {}),
        **theirs,
    }
    return "".join(_setting(name, value) for name, value in settings.items())


def _user_settings(user: UserRepo) -> dict[str, str]:
    """Who commits, from anywhere; what a checkout contains, from their repository (ours has its own)."""
    entries = git.run(["config", "--list", "-z", "--show-scope"], user.root).out.split("\0")
    found, unsafe = dict(IDENTITY), set[str]()
    for scope, entry in zip(entries[0::2], entries[1::2], strict=False):
        name, _, value = entry.partition("\n")
        local = scope in ("local", "worktree")
        if _is_filter_program(name) and _lies_in_checkout(user.root, value):
            unsafe.add(name.rpartition(".")[0])
        if (name in IDENTITY and value) or (local and _shapes_content(name)):
            found[name] = value
    # An agent could rewrite such a program, and our own git would run it. Set to nothing, it is not run.
    for driver in sorted(unsafe):
        found |= {f"{driver}.clean": "", f"{driver}.smudge": "", f"{driver}.process": "", f"{driver}.required": "false"}
    return found


def _is_filter_program(name: str) -> bool:
    return name.startswith("filter.") and name.endswith((".clean", ".smudge", ".process"))


def _lies_in_checkout(root: Path, command: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:
        return True
    # A word without a slash or a dot is a program on the PATH or its subcommand: `git-lfs clean`.
    return any((root / word).is_file() for word in words if ("/" in word or "." in word) and not os.path.isabs(word))


def _shapes_content(name: str) -> bool:
    return name.startswith("filter.") or name in {f"core.{setting}" for setting in CONTENT_SETTINGS}


def _setting(name: str, value: str) -> str:
    section, _, rest = name.partition(".")
    middle, _, last = rest.rpartition(".")
    head = f"[{section} {_quoted(middle)}]" if middle else f"[{section}]"
    return f"{head}\n\t{last} = {_quoted(value)}\n"


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _exclude_line(path: str) -> str:
    return "/" + re.sub(r"([\\*?\[\]! ])", r"\\\1", path)
