"""A folder an agent works in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from windlass import git
from windlass.git import Done


@dataclass(frozen=True)
class Slot:
    """A folder an agent works in: a detached worktree of the engine's repository."""

    n: int
    path: Path
    git_dir: Path
    """Named in every call, because an agent can overwrite the slot's own `.git`."""

    def git(
        self, *args: str, env: Mapping[str, str] | None = None, input: str | None = None, check: bool = True
    ) -> Done:
        places = [f"--git-dir={self.git_dir}", f"--work-tree={self.path}"]
        return git.run([*places, *args], self.path, env=env, input=input, check=check)

    @property
    def commit(self) -> str:
        """What HEAD names, for `stand_on`."""
        head = (self.git_dir / "HEAD").read_text().strip()
        return "HEAD" if head.startswith("ref:") else head

    def stand_on(self, commit: str) -> None:
        """A clean checkout of `commit`. What is there is not kept; the log of HEAD stays the agent's."""
        log = self.git_dir / "logs" / "HEAD"
        before = log.read_bytes() if log.exists() else b""
        self.git("checkout", "-q", "--force", "--detach", commit)
        self.git("clean", "-ffdq")
        log.write_bytes(before)
