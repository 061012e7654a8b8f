"""Refs read without git say what git says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitrepo import make_repo, sh
from windlass.git import run as git
from windlass.git.plumbing.refs import Refs


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = make_repo(tmp_path / "repo", {"a.txt": "a\n"})
    sh(root, "branch", "feature/one")
    sh(root, "tag", "-a", "v1", "-m", "one")
    return root


def same(root: Path) -> bool:
    return Refs(root / ".git").all() == git.read_refs(root)


def test_loose_packed_and_moved_refs_are_as_git_has_them(repo: Path) -> None:
    assert same(repo)
    sh(repo, "pack-refs", "--all")
    assert same(repo)
    sh(repo, "commit", "-q", "--allow-empty", "-m", "two")
    sh(repo, "branch", "-D", "feature/one")
    sh(repo, "branch", "ünïcode")
    assert same(repo)
    assert "refs/heads/ünïcode" in Refs(repo / ".git").all()


def test_a_ref_that_names_another_is_followed(repo: Path) -> None:
    sh(repo, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/feature/one")
    assert same(repo)
    assert Refs(repo / ".git").all()["refs/remotes/origin/HEAD"] == git.read_refs(repo)["refs/heads/feature/one"]


@pytest.mark.parametrize("text", ["", "nonsense\n", "\0", "f" * 39 + "\n"])
def test_what_is_no_ref_is_left_to_git(repo: Path, text: str) -> None:
    (repo / ".git" / "refs" / "heads" / "odd").write_text(text)
    assert "refs/heads/odd" not in Refs(repo / ".git").all()
    assert same(repo)


def test_a_lock_is_no_ref(repo: Path) -> None:
    (repo / ".git" / "refs" / "heads" / "main.lock").write_text("")
    assert "refs/heads/main.lock" not in Refs(repo / ".git").all()
