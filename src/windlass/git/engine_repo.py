"""The engine's repository: a bare repository that borrows the user's objects and holds the refs of all runs.

Agents work in slots, which are small repositories that borrow the engine's objects: their `git stash`, `branch -D` or
`reset` have no effect elsewhere.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

from windlass.git import run as git
from windlass.git.disk import Barrier, read_or_empty, sync_tree
from windlass.git.plumbing.compare import TreeDiffs
from windlass.git.plumbing.objects import Objects
from windlass.git.plumbing.stale_locks import locks_in, remove_dead
from windlass.git.ref_audit import RefAudit
from windlass.git.run import GitResult
from windlass.git.run_refs import RunRefs, UserRefs
from windlass.git.state_folder import StateFolder, look_up, settle_home
from windlass.git.user_repo import UserRepo, UserWatch
from windlass.locks import file_lock
from windlass.private_files import replace_file

# Settings of the user's repository that change the content of a checkout or a commit.
CONTENT_SETTINGS = (
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.excludesfile",
)
# Windlass's configuration names no other ref format, and Windlass reads refs as files.
INIT_VARIABLES = {"GIT_DEFAULT_REF_FORMAT": "files"}
KNOWS_REF_FORMAT = (2, 45)
IDENTITY = {"user.name": "Windlass", "user.email": "windlass@localhost"}
# Without these git does not accept a folder as a repository.
SKELETON = ("refs/heads", "objects/info", "objects/pack")

Fence = Callable[[], AbstractContextManager[None]]


class EngineRepo:
    """One repository of the engine, with its objects and refs."""

    def __init__(
        self, user: UserRepo, home: Path, *, fence: Fence = nullcontext, about: StateFolder | None = None
    ) -> None:
        """`home`: the state folder. `fence`: the driver's; refs, slots and branches change only behind it, so never
        after another driver took over. `about`: the current and earlier places of the repository; None when unknown."""
        self.user = user
        self.home = home
        self.path = home / "repo.git"
        self.fence = fence
        self.about = about
        self.sealed = _sealed_files(user)
        """Files below `path` and their content; an agent that changes them changes the meaning of later commands."""
        self.barrier = Barrier()
        """Files that the journal is about to name. Settle it first."""
        self.objects = Objects(self.path, user.object_format, self.barrier)
        self.diffs = TreeDiffs(self.objects, self.path)
        self.refs = RunRefs(self.path, fence, self.barrier)
        self.audit = RefAudit(self.refs)
        self.user_refs = UserRefs(user, self.barrier)
        self.watch = UserWatch(user)
        self.attributes: dict[str, Mapping[str, str]] = {}
        """By tree: its `.gitattributes` files and their blobs, after the first search."""

    @classmethod
    def open(cls, user: UserRepo, state_dir: Path, *, fence: Fence = nullcontext) -> EngineRepo:
        # Not inside the folder: it may be moved.
        with file_lock(state_dir.resolve() / "windlass" / "lock"):
            about = settle_home(user.common_dir, state_dir)
        engine = cls(user, Path(about.home), fence=fence, about=about)
        engine.create()
        engine.clear_locks()
        return engine

    @classmethod
    def at(cls, user: UserRepo, state_dir: Path) -> EngineRepo:
        """The repository in its current state: makes and repairs nothing."""
        about = look_up(user.common_dir, state_dir)
        return cls(user, Path(about.home), about=about)

    def create(self) -> None:
        """Make the repository unless it exists, and restore what git needs to accept it."""
        with file_lock(self.home / "lock"):
            if not self.path.exists():
                # Renamed into place when complete: a half-made repository never appears.
                new = self.home / "repo.git.new"
                shutil.rmtree(new, ignore_errors=True)
                options = init_options(self.user.object_format, git.git_version())
                git.run(["init", "-q", *options, str(new)], self.home, env=INIT_VARIABLES)
                sync_tree(new)
                new.rename(self.path)
                self.barrier.add([self.path, self.home])
                exclude = read_or_empty(self.user.common_dir / "info" / "exclude")
                replace_file(self.path / "info" / "exclude", exclude, sync_to="name")
            for name in SKELETON:
                (self.path / name).mkdir(parents=True, exist_ok=True)
            if not read_or_empty(self.path / "HEAD").startswith("ref: "):
                replace_file(self.path / "HEAD", "ref: refs/heads/main\n", sync_to="name")
            self.seal()

    def seal(self) -> list[str]:
        """Restore the files that only the engine may change. Returns the names of the changed ones."""
        wrong = [name for name, text in self.sealed.items() if read_or_empty(self.path / name) != text]
        for name in wrong:
            replace_file(self.path / name, self.sealed[name], sync_to="name")
        return wrong

    def clear_locks(self) -> None:
        """Remove the locks that killed gits left in both repositories; a lock that may still be held stays."""
        if locks := locks_in(self.path):
            remove_dead(locks, self.home)
        self.user_refs.remove_locks()

    def slot_files(self) -> Mapping[str, str]:
        """Files of every slot's repository: an agent that changes them changes the meaning of later commands."""
        bare, plain = _setting("core.bare", "true"), _setting("core.bare", "false")
        return {
            "config": self.sealed["config"].replace(bare, plain, 1),
            "objects/info/alternates": f"{self.path / 'objects'}\n",
            "info/attributes": "",
            "info/exclude": read_or_empty(self.path / "info" / "exclude"),
            **{name: text for name, text in self.sealed.items() if name == "shallow"},
        }

    def git(
        self, *args: str, env: Mapping[str, str] | None = None, input: str | bytes | None = None, check: bool = True
    ) -> GitResult:
        return git.run([f"--git-dir={self.path}", *args], self.home, env=env, input=input, check=check)

    def ignore(self, paths: Sequence[str]) -> None:
        """Never commit these in any slot: a file copied from the user's checkout may be secret."""
        exclude = self.path / "info" / "exclude"
        with file_lock(self.home / "lock"):
            old = read_or_empty(exclude).splitlines()
            lines = ["/" + re.sub(r"([\\*?\[\]! ])", r"\\\1", path) for path in paths]
            new = [line for line in lines if line not in old]
            if new:
                replace_file(exclude, "\n".join([*old, *new, ""]), sync_to="name")

    def require_fence(self) -> None:
        """Before a longer change: raises when another driver took over."""
        with self.fence():
            pass

    @cached_property
    def committer(self) -> str:
        """Name and address in git's own form."""
        return self.git("var", "GIT_COMMITTER_IDENT").line.rsplit(" ", 2)[0]


def init_options(object_format: str, version: tuple[int, ...]) -> list[str]:
    """A person's settings for new repositories (`init.*`) do not affect the engine's."""
    options = ["--bare", "--template=", "--initial-branch=main", f"--object-format={object_format}"]
    return [*options, "--ref-format=files"] if version[:2] >= KNOWS_REF_FORMAT else options


def _sealed_files(user: UserRepo) -> dict[str, str]:
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
        **_user_settings(user),
    }
    files = {
        "config": "".join(_setting(name, value) for name, value in settings.items()),
        "objects/info/alternates": f"{user.common_dir / 'objects'}\n",
        "info/attributes": "",
    }
    # Without the list of cut-off commits, a walk through a shallow clone ends in "missing object".
    return {**files, "shallow": read_or_empty(user.common_dir / "shallow")} if user.shallow else files


def _user_settings(user: UserRepo) -> dict[str, str]:
    """The identity, from any scope; settings that shape a checkout, only from the user's repository."""
    entries = git.run(["config", "--list", "-z", "--show-scope"], user.root).out.split("\0")
    found, unsafe = dict(IDENTITY), set[str]()
    for scope, entry in zip(entries[0::2], entries[1::2], strict=False):
        name, _, value = entry.partition("\n")
        local = scope in ("local", "worktree")
        is_filter = name.startswith("filter.")
        if is_filter and name.endswith((".clean", ".smudge", ".process")) and _is_in_checkout(user.root, value):
            unsafe.add(name.rpartition(".")[0])
        if (name in IDENTITY and value) or (local and (is_filter or name in CONTENT_SETTINGS)):
            found[name] = value
    # An agent could rewrite such a program, and Windlass's git would run it. An empty setting runs nothing.
    for driver in sorted(unsafe):
        found |= {f"{driver}.clean": "", f"{driver}.smudge": "", f"{driver}.process": "", f"{driver}.required": "false"}
    return found


def _is_in_checkout(root: Path, command: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:
        return True
    # A word without a slash or a dot is a program on the PATH or its subcommand: `git-lfs clean`.
    return any((root / word).is_file() for word in words if ("/" in word or "." in word) and not os.path.isabs(word))


def _setting(name: str, value: str) -> str:
    section, _, rest = name.partition(".")
    middle, _, last = rest.rpartition(".")
    head = f"[{section} {_quote(middle)}]" if middle else f"[{section}]"
    return f"{head}\n\t{last} = {_quote(value)}\n"


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
