"""Real repositories for tests, made fast, and a way to see that nothing of a user's was touched."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo

DATE = 1_700_000_000.0
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")


def sh(cwd: Path, *args: str, check: bool = True) -> str:
    """git as a person or an agent calls it: with hooks, with the repository's own config."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(["git", *IDENTITY, *args], cwd=cwd, env=env, capture_output=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"git {' '.join(args)}: {done.stderr.decode()}")
    return done.stdout.decode("utf-8", "surrogateescape").strip("\n")


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def commit(root: Path, files: Mapping[str, str], message: str = "change") -> str:
    write(root, files)
    sh(root, "add", "-A")
    sh(root, "commit", "-q", "--no-verify", "-m", message)
    return sh(root, "rev-parse", "HEAD")


def make_repo(root: Path, files: Mapping[str, str] | None = None) -> Path:
    """A repository with one commit on `main`."""
    root.mkdir(parents=True, exist_ok=True)
    sh(root, "init", "-q", "-b", "main", "--template=")
    commit(root, files or {"README.md": "hello\n", "src/app.py": "x = 1\n"}, "start")
    return root


def make_engine(tmp_path: Path, files: Mapping[str, str] | None = None, run: str = "r1") -> EngineRepo:
    """A user's repository, the engine's own beside it, and a run whose tip is the user's HEAD."""
    user = user_repo.discover(make_repo(tmp_path / "user", files))
    engine = EngineRepo.open(user, tmp_path / "state")
    engine.user_refs.pin_base(run, user.head)
    engine.refs.set_tip(run, user.head, "")
    return engine


@dataclass(frozen=True)
class Footprint:
    """All of a user's checkout that Windlass promises not to change."""

    status: str
    index: bytes
    head: str
    stash: str
    refs: str
    files: Mapping[str, bytes]


def footprint(root: Path) -> Footprint:
    index = (root / ".git" / "index").read_bytes()
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".git" not in path.relative_to(root).parts
    }
    return Footprint(
        status=sh(root, "--no-optional-locks", "status", "--porcelain=v2", "--branch", "-uall"),
        index=index,
        head=(root / ".git" / "HEAD").read_text(),
        stash=sh(root, "stash", "list"),
        refs=sh(root, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags", "refs/stash"),
        files=files,
    )


def reachable(root: Path, sha: str) -> bool:
    """Whether some ref of the repository at `root` leads to `sha`."""
    return bool(sh(root, "for-each-ref", f"--contains={sha}", check=False))
