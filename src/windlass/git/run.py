"""The one way to start git, and reads of a repository that change nothing.

Every call is an argument list (no shell), without hooks and signing, and with only the few variables that git needs. So
the configuration of a repository or a person can neither run code in Windlass's name nor change the meaning of a
command. A program that git starts anyway finds no secret in its environment.
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
# Not the index: a slot's index can be made again.
FSYNC = "loose-object,pack,pack-metadata,commit-graph,reference"
"""Files that git syncs before it renames them. The journal names commits and refs: a power cut must not leave them
empty.
"""
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
# The paths of programs and of the user's settings, and the user's identity. Other GIT_* would redirect Windlass's
# commands.
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
    """Bytes that are not UTF-8 become surrogate escapes, so that git gets a path back unchanged."""
    err: str

    @property
    def line(self) -> str:
        return self.out.strip()

    @property
    def fields(self) -> tuple[str, ...]:
        """The parts of NUL-separated output."""
        return tuple(part for part in self.out.split("\0") if part)


def environment(environ: Mapping[str, str], extra: Mapping[str, str]) -> dict[str, str]:
    """The variables of a git process. `extra`: for a remote, the user's credentials (`personal`)."""
    kept = {name: value for name, value in environ.items() if name in KEPT_VARIABLES}
    return {**kept, **FIXED_VARIABLES, **extra}


def personal(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of the user's own git, without the GIT_* that would redirect Windlass's commands."""
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
            close_fds=False,  # Python's files are never inherited, and a search for others takes as long as a git
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GitUnansweredError(f"'{_command(args)}' took more than {timeout:g} s", hint=f"try it in {cwd}") from None
    except FileNotFoundError:
        if cwd.is_dir():
            raise UserError("git is not installed", hint="install git 2.38 or newer") from None
        raise GitError(f"folder '{cwd}' does not exist", hint="it was removed; run `windlass doctor`") from None
    # A failure is an answer. A command that was ended gave none, so its output is not read.
    if signal_of(done.returncode):
        raise _ended_error(args, cwd, signal_of(done.returncode))
    if check and done.returncode != 0:
        raise failure(args, cwd, _text(done.stderr))
    return done


def program() -> str:
    """The path of git, found once: a search at every start takes time."""
    return _git_path(os.environ.get("PATH"))


@cache
def _git_path(path: str | None) -> str:
    return shutil.which("git", path=path) or "git"


def signal_of(code: int) -> int:
    """The signal that ended the command; 0 when it exited. A shell adds 128; git's own codes are 128 and 129."""
    if code < 0:
        return -code
    return code - 128 if LAST_OWN_CODE < code <= 128 + LAST_SIGNAL else 0


def _ended_error(args: Sequence[str], cwd: Path, signal: int) -> GitUnansweredError:
    return GitUnansweredError(f"'{_command(args)}' was ended by signal {signal} in {cwd}", hint=ENDED_HINT)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _command(args: Sequence[str]) -> str:
    words = [word for word in args if not word.startswith(("--git-dir", "--work-tree"))]
    return plain("git " + " ".join(words)[:200])


def failure(args: Sequence[str], cwd: Path, err: str) -> WindlassError:
    tail = plain(err).strip()[-600:] or "without a message"
    if "dubious ownership" in err:
        return UserError(f"git does not trust '{cwd}': another user owns it", hint=tail.rsplit("\n", 1)[-1].strip())
    if lock := lock_in_the_way(err):
        return lock
    failed = f"'{_command(args)}' failed in {cwd}"
    if lacking := exhausted_in(err, cwd):
        return GitUnansweredError(f"{failed}: {lacking.message}", hint=lacking.hint)
    return GitError(f"{failed}: {tail}", hint="fix it, then `windlass resume`")


def lock_in_the_way(err: str) -> GitLockError | None:
    """The error for a lock that git reports, with its age and a hint; None when git reports none."""
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


def capped_output(args: Sequence[str], cwd: Path, limit: int) -> tuple[str, bool]:
    """The first `limit` bytes of git's output, and whether there was more."""
    command = [program(), *ISOLATED, *args]
    env = environment(os.environ, {})
    with subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        head = child.stdout.read(limit + 1)
        if len(head) > limit:
            child.kill()
        code = child.wait()
    if signal_of(code) and len(head) <= limit:
        raise _ended_error(args, cwd, signal_of(code))
    if code != 0 and len(head) <= limit:
        raise failure(args, cwd, "")
    return head[:limit].decode("utf-8", "replace"), len(head) > limit


def date_variables(date: float) -> dict[str, str]:
    """Variables that give a repeated commit the same SHA."""
    stamp = f"@{int(date)} +0000"
    return {"GIT_AUTHOR_DATE": stamp, "GIT_COMMITTER_DATE": stamp}


def read_head(cwd: Path, *, timeout: float = READ_SECONDS) -> str:
    return run(["rev-parse", "--verify", "HEAD^{commit}"], cwd, timeout=timeout).line


def read_changed(cwd: Path, base: str = "", *, timeout: float = READ_SECONDS) -> tuple[str, ...]:
    """Files that differ between `base` (default HEAD) and the working tree, untracked ones included, ignored ones
    not."""
    options = ["--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=dirty"]
    tracked = run(["diff", *options, "--end-of-options", base or "HEAD", "--"], cwd, timeout=timeout).fields
    others = ["ls-files", "-z", "--others", "--exclude-standard", "--full-name", "--", ":/"]
    return tuple(sorted({*tracked, *run(others, cwd, timeout=timeout).fields}))


def read_tracked(cwd: Path, *, timeout: float = READ_SECONDS) -> tuple[str, ...]:
    return run(["ls-files", "-z", "--full-name", "--", ":/"], cwd, timeout=timeout).fields


async def head_sha(cwd: Path) -> str:
    """Contract: never raises; '' on any error or after 5 seconds. Use `read_head` where an empty result misleads."""
    return await _or_empty("", read_head, cwd)


async def changed_files(cwd: Path, base: str = "") -> tuple[str, ...]:
    """Contract: never raises; () on any error or after 5 seconds. For reviews use `read_changed`."""
    return await _or_empty((), read_changed, cwd, base)


async def tracked_files(cwd: Path) -> tuple[str, ...]:
    """Contract: never raises; () on any error or after 5 seconds."""
    return await _or_empty((), read_tracked, cwd)


async def _or_empty(empty: T, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await asyncio.to_thread(read, *args, **kwargs)
    except (WindlassError, OSError, TimeoutError):
        return empty


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
    """Name -> object, of the refs that match exactly, as a folder or as a glob (all refs without patterns).

    `git_dir`: for a bare repository, because `safe.bareRepository` may forbid git to discover it.
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
