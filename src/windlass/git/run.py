"""Plain git: one way to call it, and what can be read from a repository without changing it.

Every call is an argument list (no shell), free of hooks and of signing, and has only the few variables that git needs:
a repository's or a person's own set-up can neither run code in our name nor change what a command means, and a program
that git starts all the same finds no secret in its environment.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import ParamSpec, TypeVar

from msgspec import Struct

from windlass.errors import GitError, GitLockError, GitUnansweredError, UserError, WindlassError, exhausted_in
from windlass.text import plain

OLDEST = (2, 38)
READ_SECONDS = 5.0
LAST_OWN_CODE = 129
LAST_SIGNAL = 64
ENDED_HINT = "nothing is lost; run the same command again, or `windlass resume` if a run had begun"
# Not the index: what a slot's says can be found out again.
FSYNC = "loose-object,pack,pack-metadata,commit-graph,reference"
"""What git writes to the disk before it gives it its name. The journal names commits and refs: a power cut must not
leave them empty."""
ISOLATED = (
    *("-c", f"core.fsync={FSYNC}"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "core.pager=cat"),
    *("-c", "commit.gpgSign=false"),
    *("-c", "tag.gpgSign=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "merge.autoStash=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "advice.detachedHead=false"),
)
# Where programs and a person's own settings are, and who the person is. Other GIT_* would redirect our commands.
KEPT_VARIABLES = frozenset(
    {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"}
    | {"PATH", "HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME", "EMAIL", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT", "TZ"}
    | {"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
)
NO_PERSONAL_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
FIXED_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
    "GIT_EDITOR": ":",
}
LOCK = re.compile(r"Unable to create '([^']+\.lock)': File exists")

P = ParamSpec("P")
T = TypeVar("T")


class GitResult(Struct, frozen=True):
    code: int
    out: str
    """Bytes that are not UTF-8 are kept as surrogate escapes, so that a path can be given back to git unchanged."""
    err: str

    @property
    def line(self) -> str:
        return self.out.strip()

    @property
    def fields(self) -> tuple[str, ...]:
        """The parts of NUL-separated output."""
        return tuple(part for part in self.out.split("\0") if part)


def environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """`extra`: what this call needs besides; who talks to a remote gives the person's credentials (`personal`)."""
    kept = {name: value for name, value in environ.items() if name in KEPT_VARIABLES}
    return {**kept, **FIXED_VARIABLES, **extra}


def personal(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """All that the person's own git would have, without the GIT_* that would redirect our commands."""
    known = os.environ if environ is None else environ
    return {name: value for name, value in known.items() if not name.startswith("GIT_") or name in KEPT_VARIABLES}


def run(
    args: Sequence[str],
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    check: bool = True,
    timeout: float = 600.0,
) -> GitResult:
    raw = run_raw(args, cwd, env=env, input=input, check=check, timeout=timeout)
    return GitResult(raw.returncode, _text(raw.stdout), _text(raw.stderr))


def run_raw(
    args: Sequence[str],
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    check: bool = True,
    timeout: float = 600.0,
) -> subprocess.CompletedProcess[bytes]:
    sent = input.encode("utf-8", "surrogateescape") if isinstance(input, str) else input or b""
    try:
        done = subprocess.run(
            [program(), *ISOLATED, *args],
            cwd=cwd,
            env=environment(os.environ, env or {}),
            input=sent,
            capture_output=True,
            close_fds=False,  # what Python opens is never inherited, and looking for the rest takes as long as a git
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GitUnansweredError(f"'{_command(args)}' took more than {timeout:g} s", hint=f"try it in {cwd}") from None
    except FileNotFoundError:
        raise _not_started(cwd) from None
    # An answer of "no" is one thing, no answer another: a command that was ended is never read, whoever asks.
    if signal_of(done.returncode):
        raise _ended(args, cwd, signal_of(done.returncode))
    if check and done.returncode != 0:
        raise _failed(args, cwd, _text(done.stderr))
    return done


def program() -> str:
    """Where it is: looking for it anew takes time at every start."""
    return _found(os.environ.get("PATH"))


@cache
def _found(path: str | None) -> str:
    return shutil.which("git", path=path) or "git"


def signal_of(code: int) -> int:
    """What ended the command, 0 for one that ended by itself. A shell adds 128; git itself says 128 and 129."""
    if code < 0:
        return -code
    return code - 128 if LAST_OWN_CODE < code <= 128 + LAST_SIGNAL else 0


def _ended(args: Sequence[str], cwd: Path, signal: int) -> GitUnansweredError:
    return GitUnansweredError(f"'{_command(args)}' was ended by signal {signal} in {cwd}", hint=ENDED_HINT)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _command(args: Sequence[str]) -> str:
    words = [word for word in args if not word.startswith(("--git-dir", "--work-tree"))]
    return plain("git " + " ".join(words)[:200])


def _not_started(cwd: Path) -> WindlassError:
    if not cwd.is_dir():
        return GitError(f"folder '{cwd}' does not exist", hint="it was removed; run `windlass doctor`")
    return UserError("git is not installed", hint="install git 2.38 or newer")


def _failed(args: Sequence[str], cwd: Path, err: str) -> WindlassError:
    tail = plain(err).strip()[-600:] or "it said nothing"
    if "dubious ownership" in err:
        return UserError(f"git does not trust '{cwd}': another user owns it", hint=tail.rsplit("\n", 1)[-1].strip())
    if lock := lock_in_the_way(err):
        return lock
    failed = f"'{_command(args)}' failed in {cwd}"
    if lacking := exhausted_in(err, cwd):
        return GitUnansweredError(f"{failed}: {lacking.message}", hint=lacking.hint)
    return GitError(f"{failed}: {tail}", hint="mend it, then `windlass resume`")


def lock_in_the_way(err: str) -> GitLockError | None:
    """What git says of a lock that it waited for in vain, with its age and the way out."""
    found = LOCK.search(err)
    if not found:
        return None
    lock = Path(found[1])
    try:
        age = f", {max(0.0, time.time() - lock.stat().st_mtime):.0f} s old"
    except OSError:
        age = ""
    hint = f"if no git is at work in that repository: rm '{plain(str(lock))}'"
    return GitLockError(f"'{plain(str(lock))}' is in the way{age}: a git is at work, or was killed", hint=hint)


def capped(args: Sequence[str], cwd: Path, limit: int) -> tuple[str, bool]:
    """The first `limit` bytes of what git says, and whether there was more."""
    command = [program(), *ISOLATED, *args]
    env = environment(os.environ, {})
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        head = child.stdout.read(limit + 1)
        if len(head) > limit:
            child.kill()
        code = child.wait()
    if signal_of(code) and len(head) <= limit:
        raise _ended(args, cwd, signal_of(code))
    if code != 0 and len(head) <= limit:
        raise _failed(args, cwd, "")
    return head[:limit].decode("utf-8", "replace"), len(head) > limit


def dated(date: float) -> dict[str, str]:
    """Commits made with these variables have the same SHA whenever they are made."""
    stamp = f"@{int(date)} +0000"
    return {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}


def read_head(cwd: Path, *, timeout: float = READ_SECONDS) -> str:
    return run(["rev-parse", "--verify", "HEAD^{commit}"], cwd, timeout=timeout).line


def read_changed(cwd: Path, base: str = "", *, timeout: float = READ_SECONDS) -> tuple[str, ...]:
    """From `base` (HEAD when empty) to the working tree: committed, uncommitted and untracked, never ignored files."""
    options = ["--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=dirty"]
    tracked = run(["diff", *options, "--end-of-options", base or "HEAD", "--"], cwd, timeout=timeout).fields
    others = ["ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", ":/"]
    return tuple(sorted({*tracked, *run(others, cwd, timeout=timeout).fields}))


def read_tracked(cwd: Path, *, timeout: float = READ_SECONDS) -> tuple[str, ...]:
    return run(["ls-files", "-z", "--full-name", "--", ":/"], cwd, timeout=timeout).fields


async def head_sha(cwd: Path) -> str:
    """Contract: never raises; '' on any error or after 5 seconds. Where an empty answer misleads, use `read_head`."""
    return await _forgiving("", read_head, cwd)


async def changed_files(cwd: Path, base: str = "") -> tuple[str, ...]:
    """Contract: never raises; () on any error or after 5 seconds. For reviews use `read_changed`."""
    return await _forgiving((), read_changed, cwd, base)


async def tracked_files(cwd: Path) -> tuple[str, ...]:
    """Contract: never raises; () on any error or after 5 seconds."""
    return await _forgiving((), read_tracked, cwd)


async def _forgiving(empty: T, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await asyncio.to_thread(read, *args, **kwargs)
    except (WindlassError, OSError, TimeoutError):
        return empty


class UserRepo(Struct, frozen=True):
    root: Path
    common_dir: Path
    """Shared by all worktrees of the repository: what Windlass stores there is seen from each of them."""
    git_dir: Path
    head: str
    branch: str
    """'' when HEAD is detached."""
    shallow: bool = False
    object_format: str = "sha1"

    @property
    def state(self) -> Path:
        return self.common_dir / "windlass"


QUESTIONS = ("--is-bare-repository", "--is-inside-work-tree", "--is-shallow-repository", "--show-object-format")
PLACES = ("--path-format=absolute", "--git-dir", "--git-common-dir")
HERE = ("HEAD^{commit}", "--symbolic-full-name", "HEAD")


def discover(path: Path) -> UserRepo:
    match run(["rev-parse", *QUESTIONS, *PLACES, *HERE, "--show-toplevel"], path, check=False).out.split("\n"):
        case ["false", "true", shallow, form, git_dir, common_dir, head, name, root, ""]:
            return UserRepo(Path(root), Path(common_dir), Path(git_dir), head, _branch(name), shallow == "true", form)
        case _:
            return _ask_in_turn(path)


def _ask_in_turn(path: Path) -> UserRepo:
    """Something is odd: which of the questions has no answer says what."""
    done = run(["rev-parse", *QUESTIONS, *PLACES], path, check=False)
    if done.code != 0:
        raise _no_repository(path, done.err)
    bare, inside, shallow, object_format, git_dir, common_dir = done.out.splitlines()
    if bare == "true" or inside != "true":
        raise UserError(f"'{path}' is a bare repository or a .git folder", hint="go to a checkout of it")
    root, head, branch = _checkout(path)
    return UserRepo(root, Path(common_dir), Path(git_dir), head, branch, shallow == "true", object_format)


def _no_repository(path: Path, err: str) -> WindlassError:
    if "not a git repository" not in err:
        return _failed(["rev-parse"], path, err)
    return UserError(f"'{path}' is not in a git repository", hint="go to your project, or run `git init` there")


def _checkout(path: Path) -> tuple[Path, str, str]:
    root = Path(run(["rev-parse", "--show-toplevel"], path).out.removesuffix("\n"))
    done = run(["rev-parse", *HERE], path, check=False)
    if done.code != 0:
        raise UserError("the repository has no commit yet", hint='git add -A && git commit -m "Start"')
    head, name = done.out.splitlines()
    return root, head, _branch(name)


def _branch(name: str) -> str:
    """'' for a HEAD that is on none."""
    return name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else ""


def is_dirty(repo: UserRepo, *, untracked: bool = True) -> bool:
    files = "normal" if untracked else "no"
    command = ["status", "--porcelain", "-z", f"--untracked-files={files}", "--ignore-submodules=dirty"]
    return bool(run(command, repo.root).out)


def is_tracked(repo: UserRepo, path: str) -> bool:
    return run(["cat-file", "-e", f"{repo.head}:{path}"], repo.root, check=False).code == 0


def oddities(repo: UserRepo) -> list[str]:
    """What works less well in this repository, in words for `doctor`."""
    attributes = run(["grep", "-lE", "filter=lfs", "HEAD", "--", ":(glob)**/.gitattributes"], repo.root, check=False)
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
    """The remote that a partial clone fetches missing objects from; '' for a clone that has all of its own."""
    done = run(["config", "--name-only", "--get-regexp", r"^remote\..*\.promisor$"], repo.root, check=False)
    first = done.out.partition("\n")[0]
    return first.removeprefix("remote.").removesuffix(".promisor")


def fetch_missing(repo: UserRepo, commit: str) -> None:
    """All files of a commit, from where the partial clone came; into the user's objects, as their own git would."""
    remote, before = _promisor(repo), -1
    while remote and (missing := _missing(repo, commit)):
        if len(missing) == before:
            raise GitError(f"'{remote}' does not give {len(missing)} objects of {commit[:12]}", hint="git fetch")
        options = ["--no-tags", "--no-write-fetch-head", "--recurse-submodules=no", "--filter=blob:none", "--stdin"]
        shas = "".join(f"{sha}\n" for sha in missing)
        fetch = ["-c", "fetch.negotiationAlgorithm=noop", "fetch", "-q", *options, remote]
        run(fetch, repo.root, env=personal(), input=shas)
        before = len(missing)


def _missing(repo: UserRepo, commit: str) -> list[str]:
    listed = run(["rev-list", "--objects", "--missing=print", f"{commit}^{{tree}}"], repo.root).out
    return [line[1:] for line in listed.splitlines() if line.startswith("?")]


def git_version() -> tuple[int, ...]:
    words = run(["version"], Path(os.sep)).out
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", words)
    if not match:
        raise UserError(f"git gave no version: '{plain(words).strip()}'", hint="install git 2.38 or newer")
    return tuple(int(part) for part in match.groups(default="0"))


def require_git() -> None:
    version = git_version()
    if version[:2] < OLDEST:
        raise UserError(f"git {'.'.join(map(str, version))} is too old", hint="install git 2.38 or newer")


def read_refs(cwd: Path, *patterns: str, git_dir: Path | None = None) -> dict[str, str]:
    """Name -> object, of the refs that exist and match, as a whole, as a folder or as a glob (all without patterns).

    `git_dir`: of a bare repository, which git may be told not to find by itself (`safe.bareRepository`).
    """
    named = [f"--git-dir={git_dir}"] if git_dir else []
    lines = run([*named, "for-each-ref", "--format=%(objectname) %(refname)", *patterns], cwd).out.splitlines()
    return {name: sha for sha, _, name in (line.partition(" ") for line in lines)}


@cache
def is_branch_name(name: str) -> bool:
    return run(["check-ref-format", "--branch", name], Path(os.sep), check=False).code == 0 and not name.startswith("@")


def is_ancestor(cwd: Path, older: str, newer: str) -> bool:
    """Also False when one of them does not exist here."""
    return run(["merge-base", "--is-ancestor", older, newer], cwd, check=False).code == 0
