"""Windlass's own clones: one for each address, updated before a run begins.

The user's checkouts are not involved: `windlass run --repo URL` works from any folder.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from windlass.errors import UserError
from windlass.git import remote
from windlass.git import run as git
from windlass.locks import file_lock
from windlass.paths import state_dir
from windlass.text import plain

SECONDS = 3600.0
SECRET = re.compile(r"https?://[^/]*@")
TRANSPORT = re.compile(r"[A-Za-z0-9+.-]+::")


def clone_of(url: str, cwd: Path, environ: Mapping[str, str]) -> Path:
    """The checkout of the clone, at the current default branch of the remote."""
    address = address_of(url, cwd)
    folder = _folder(address, environ)
    root = folder / _name(address)
    with file_lock(folder / "lock"):
        if root.exists():
            _update(root, address, environ)
            return root
        # Renamed into place when complete: a half-made clone never appears.
        new = root.with_name(f"{root.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        command = ["clone", "-q", "--no-recurse-submodules", "--origin", "origin", "--", address, str(new)]
        done = git.run(command, root.parent, env=remote.credentials(environ), check=False, timeout=SECONDS)
        if done.code != 0:
            shutil.rmtree(new, ignore_errors=True)
            raise UserError(f"'{address}' cannot be cloned: {remote.why(done)}", hint=f"try: git ls-remote {address}")
        new.rename(root)
    return root


def known_clone(url: str, cwd: Path, environ: Mapping[str, str]) -> Path:
    """The clone of an earlier run; otherwise the folder of that name."""
    address = address_of(url, cwd)
    root, here = _folder(address, environ) / _name(address), cwd / url
    if root.exists() or here.is_dir():
        return root if root.exists() else here.resolve()
    raise UserError(f"there is no clone of '{url}'", hint=f'windlass run --repo {url} "what to build" makes one')


def address_of(url: str, cwd: Path) -> str:
    """The address, in a form that works from any folder."""
    if not url.strip() or url.startswith("-") or TRANSPORT.match(url) or plain(url) != url or "\n" in url:
        raise UserError(f"'{plain(url)}' is not an address of a repository", hint="like https://host/owner/name.git")
    if SECRET.match(url):
        what = "an address with a login in it would be stored with the clone, where agents can read it"
        raise UserError(what, hint="leave the login out; git asks your credential helper")
    local = cwd / url
    return str(local.resolve()) if local.exists() else url


def _folder(address: str, environ: Mapping[str, str]) -> Path:
    plain = address.rstrip("/").removesuffix(".git")
    return state_dir(environ) / "windlass" / "clones" / hashlib.sha256(plain.encode()).hexdigest()[:12]


def _name(address: str) -> str:
    last = re.split(r"[/:\\]", address.rstrip("/").removesuffix(".git"))[-1]
    return re.sub(r"[^A-Za-z0-9._-]", "-", last).strip(".-")[:64] or "repository"


def _update(root: Path, address: str, environ: Mapping[str, str]) -> None:
    there = remote.Remote(root, "origin", environ)
    done = there.git("fetch", "-q", "--prune", "--recurse-submodules=no", "--", "origin")
    if done.code != 0:
        raise UserError(f"'{address}' cannot be reached: {remote.why(done)}", hint=f"try: git ls-remote {address}")
    there.git("remote", "set-head", "origin", "--auto")
    if git.run(["status", "--porcelain", "--ignore-submodules=dirty"], root).out:
        raise UserError(f"the clone in '{root}' has uncommitted changes", hint=f"cd {root}, commit them")
    # If the default branch was rewritten, HEAD is detached: local commits stay on their branch.
    head = git.run(["symbolic-ref", "--short", "refs/remotes/origin/HEAD"], root).line
    branch = head.removeprefix("origin/")
    on_it = git.run(["checkout", "-q", branch, "--"], root, check=False).code == 0
    if not on_it or git.run(["merge", "-q", "--ff-only", f"refs/remotes/{head}"], root, check=False).code != 0:
        git.run(["checkout", "-q", "--detach", f"refs/remotes/{head}"], root)
