"""Remotes: which one is used, which refs it has, and how a commit is pushed. Never by force.

Only these calls may use the person's credentials: no agent, check or set-up command gets them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from windlass.errors import UserError, near
from windlass.git import run as git
from windlass.git.run import GitResult
from windlass.text import plain

SECONDS = 300.0
#: how git reaches a server, and as which user; every other GIT_* would redirect Windlass's commands
CREDENTIALS = re.compile(
    r"GIT_(?:SSH|SSH_COMMAND|SSH_VARIANT|ASKPASS|PROXY_COMMAND|SSL_\w+|HTTP_\w+|CONFIG_COUNT|CONFIG_(?:KEY|VALUE)_\d+)"
)


class Remote(Struct, frozen=True):
    """A remote of the user's repository, with everything needed to reach it."""

    root: Path
    name: str
    environ: Mapping[str, str]

    def git(self, *args: str) -> GitResult:
        return git.run(args, self.root, env=credentials(self.environ), check=False, timeout=SECONDS)

    def refs(self, *patterns: str) -> Mapping[str, str] | str:
        """Name -> object on the remote now; a text when the remote cannot be reached."""
        done = self.git("ls-remote", "--", self.name, *patterns)
        if done.code != 0:
            return why(done)
        pairs = (line.split("\t", 1) for line in done.out.splitlines() if "\t" in line)
        return {name: sha for sha, name in pairs}

    def push(self, sha: str, ref: str) -> str:
        """'' when it was pushed, otherwise why not."""
        options = ["--porcelain", "--no-follow-tags", "--no-signed", "--recurse-submodules=no"]
        done = self.git("push", *options, "--", self.name, f"{sha}:{ref}")
        return why(done) if done.code != 0 else ""

    def fetch(self, branch: str, into: str) -> str:
        """Fetch one branch under Windlass's own name; the user's refs do not change. '' or why not."""
        options = ["-q", "--no-tags", "--no-write-fetch-head", "--refmap=", "--recurse-submodules=no"]
        done = self.git("fetch", *options, "--", self.name, f"+refs/heads/{branch}:{into}")
        return why(done) if done.code != 0 else ""


def credentials(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with which the user's own git reaches a server."""
    return git.personal(environ) | {name: value for name, value in environ.items() if CREDENTIALS.fullmatch(name)}


def names(root: Path) -> list[str]:
    return git.run(["remote"], root).out.splitlines()


def choose(root: Path, branch: str, wanted: str = "") -> str:
    """The remote's name; '' when the repository has none."""
    known = names(root)
    if wanted:
        if wanted not in known:
            raise UserError(f"there is no remote '{wanted}'", hint=near(wanted, known))
        return wanted
    configured = [
        *_setting(root, f"branch.{branch}.pushRemote"),
        *_setting(root, "remote.pushDefault"),
        *(_setting(root, f"branch.{branch}.remote") if branch else []),
        "origin",
    ]
    return next((name for name in [*configured, *known[:1]] if name in known), "")


def proposal_remote(root: Path, branch: str, pushed: str) -> str:
    """The remote that changes are proposed to: gh's setting, otherwise the branch's upstream, otherwise its push
    remote.

    A remote's name does not decide: a user with an `upstream` need not want to show their work there.
    """
    known = names(root)
    chosen = [name for name in known if _setting(root, f"remote.{name}.gh-resolved") == ["base"]]
    follows = _setting(root, f"branch.{branch}.remote") if branch else []
    return next((name for name in [*chosen, *follows] if name in known), pushed)


def addresses(root: Path, name: str, *, push: bool = False) -> list[str]:
    """The address that git uses, and the one in the configuration: each may contain more than the other."""
    reached = git.run(["remote", "get-url", *(["--push"] if push else []), name], root, check=False).out.splitlines()
    written = [*(_setting(root, f"remote.{name}.pushurl") if push else []), *_setting(root, f"remote.{name}.url")]
    return [*reached[:1], *written[:1]]


def _setting(root: Path, name: str) -> list[str]:
    return git.run(["config", "--get", name], root, check=False).out.split()


def why(done: GitResult) -> str:
    """Why it failed, in the words of the server, otherwise of git."""
    refused = [line for line in done.out.splitlines() if line.startswith("!")]
    lines = [*(line.split("\t")[-1] for line in refused), *plain(done.err).splitlines()]
    useful = [" ".join(line.split()) for line in lines if line.strip() and not line.startswith(("hint:", "To "))]
    return "; ".join(dict.fromkeys(useful))[-600:] or f"git ended with {done.code}"
