"""GitHub's own program: one way to call it, and what its answers mean."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from windlass.git import plain

SECONDS = 120.0
NOT_LOGGED_IN = 4
QUIET = {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1", "CLICOLOR": "0", "GH_PAGER": "cat"}
URL = re.compile(r"https?://[^\s\"'<>]+")


@dataclass(frozen=True)
class Said:
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
        """The repository's remotes lie on no server that this program knows."""
        return "known GitHub host" in self.err

    @property
    def url(self) -> str:
        """The last address it named: on success the pull request's, on `already exists` that of the one there is."""
        found = URL.findall(self.out) or URL.findall(self.err)
        return found[-1] if found else ""

    @property
    def why(self) -> str:
        return " ".join(self.err.split())[-600:] or f"gh ended with {self.code}"


@dataclass(frozen=True)
class Gh:
    """The program as this machine has it, called in the user's checkout with the user's environment."""

    binary: str
    cwd: Path
    environ: Mapping[str, str]

    def pull_request_of(self, branch: str) -> Said:
        """Any state counts: one that was merged or closed meanwhile is not opened again."""
        return self._call("pr", "list", f"--head={branch}", "--state=all", "--limit=1", "--json=url")

    def open_pull_request(self, branch: str, base: str, title: str, body: str) -> Said:
        into = [f"--base={base}"] if base else []
        return self._call("pr", "create", f"--head={branch}", *into, f"--title={title}", "--body-file=-", input=body)

    def _call(self, *args: str, input: str = "") -> Said:
        env = {**self.environ, **QUIET}
        sent = input.encode("utf-8", "replace")
        command: Sequence[str] = [self.binary, *args]
        try:
            done = subprocess.run(
                command, cwd=self.cwd, env=env, input=sent, capture_output=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return Said(124, "", f"gh did not answer within {SECONDS:g} s")
        except OSError as error:
            return Said(126, "", f"gh cannot be started: {error.strerror}")
        return Said(done.returncode, plain(_text(done.stdout)), plain(_text(done.stderr)))


def find(cwd: Path, environ: Mapping[str, str]) -> Gh | None:
    binary = shutil.which("gh", path=environ.get("PATH", ""))
    return Gh(binary, cwd, environ) if binary else None


def first_url(listed: str) -> str:
    """The address in what `pr list` said; '' when it lists none."""
    try:
        found = json.loads(listed)
    except ValueError:
        return ""
    first = found[0] if isinstance(found, list) and found else None
    return str(first.get("url") or "") if isinstance(first, dict) else ""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
