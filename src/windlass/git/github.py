"""GitHub's program `gh`: its calls and the meaning of its answers."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from windlass.text import plain

SECONDS = 120.0
NOT_LOGGED_IN = 4
QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1", "CLICOLOR": "0", "GH_PAGER": "cat"}
URL = re.compile(r"https?://[^\s\"'<>]+")
#: https://host/owner/name.git, ssh://git@host:22/owner/name, git@host:owner/name.git
ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^/@]*@)?(?P<host>[^/:@]+)(?::\d+)?/|(?:[^/@:]+@)?(?P<short>[^/:@]+):(?!/))"
    r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?"
)
HOME = "github.com"
MANY = 50


class Repo(Struct, frozen=True):
    """A repository as its server names it."""

    host: str
    owner: str
    name: str

    def is_same(self, other: Repo) -> bool:
        """Servers ignore case."""
        return self.slug.lower() == other.slug.lower()

    @property
    def slug(self) -> str:
        # A host without a dot is an alias in an ssh config, which gh does not know.
        other = self.host != HOME and "." in self.host
        return f"{self.host}/{self.owner}/{self.name}" if other else f"{self.owner}/{self.name}"


def repo_of(url: str) -> Repo | None:
    """None for another address, such as a folder."""
    found = ADDRESS.fullmatch(url.strip())
    if not found:
        return None
    return Repo((found["host"] or found["short"]).lower(), found["owner"], found["name"])


class Heading(Struct, frozen=True):
    """The branch of a pull request, its owner, and the repository it goes to."""

    branch: str
    owner: str = ""
    """'' when the address does not contain it."""
    repo: str = ""
    """'': gh decides."""
    is_fork: bool = False

    @property
    def head(self) -> str:
        return f"{self.owner}:{self.branch}" if self.is_fork else self.branch

    @property
    def into(self) -> list[str]:
        return [f"--repo={self.repo}"] if self.repo else []


class GhOutput(Struct, frozen=True):
    code: int
    out: str
    err: str

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def needs_login(self) -> bool:
        return self.code == NOT_LOGGED_IN or "gh auth login" in self.err

    @property
    def not_github(self) -> bool:
        """Whether no remote of the repository is on a server that gh knows."""
        return "known GitHub host" in self.err

    @property
    def url(self) -> str:
        """The last address in the output: the new pull request, or the existing one."""
        found = URL.findall(self.out) or URL.findall(self.err)
        return found[-1] if found else ""

    @property
    def why(self) -> str:
        return " ".join(self.err.split())[-600:] or f"gh ended with {self.code}"


class Gh(Struct, frozen=True):
    """The installed program, called in the user's checkout with the user's environment."""

    binary: str
    cwd: Path
    environ: Mapping[str, str]

    def pull_requests_of(self, heading: Heading) -> GhOutput:
        """In any state: a pull request that was merged or closed meanwhile is not opened again."""
        # gh takes no owner here: branches of that name in other forks are listed too.
        which = [f"--head={heading.branch}", "--state=all", f"--limit={MANY}"]
        return self._call("pr", "list", *heading.into, *which, "--json=url,headRepositoryOwner")

    def open_pull_request(self, heading: Heading, base: str, title: str, body: str) -> GhOutput:
        onto = [f"--base={base}"] if base else []
        what = [f"--head={heading.head}", *onto, f"--title={title}", "--body-file=-"]
        return self._call("pr", "create", *heading.into, *what, input=body)

    def _call(self, *args: str, input: str = "") -> GhOutput:
        env = {**self.environ, **QUIET}
        sent = input.encode("utf-8", "replace")
        command: Sequence[str] = [self.binary, *args]
        try:
            done = subprocess.run(
                command, cwd=self.cwd, env=env, input=sent, capture_output=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return GhOutput(124, "", f"gh did not answer within {SECONDS:g} s")
        except OSError as error:
            return GhOutput(126, "", f"gh cannot be started: {error.strerror}")
        return GhOutput(done.returncode, plain(_text(done.stdout)), plain(_text(done.stderr)))


def find(cwd: Path, environ: Mapping[str, str]) -> Gh | None:
    binary = shutil.which("gh", path=environ.get("PATH", ""))
    return Gh(binary, cwd, environ) if binary else None


def first_url(listed: str, owner: str = "") -> str:
    """The first address in the output of `pr list`, of that owner's branch if one is given; '' for none."""
    try:
        found = json.loads(listed)
    except ValueError:
        return ""
    for entry in found if isinstance(found, list) else ():
        if not isinstance(entry, dict):
            continue
        fork = entry.get("headRepositoryOwner")
        # There is no login when the fork is gone.
        login = str(fork.get("login") or "").lower() if isinstance(fork, dict) else ""
        if not owner or login in ("", owner.lower()):
            return str(entry.get("url") or "")
    return ""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
