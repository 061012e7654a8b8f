from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gitrepo import commit, footprint, make_repo, sh, write
from windlass.errors import GitError, UserError
from windlass.git import run as git
from windlass.git import user_repo
from windlass.text import plain


def _shadow_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.req("S0-98")
def test_the_three_helpers_give_head_changed_and_tracked_files(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r", {"a.txt": "1\n", "b.txt": "1\n"})
    base = sh(root, "rev-parse", "HEAD")
    head = commit(root, {"c.txt": "1\n"})
    write(root, {"a.txt": "2\n", "new.txt": "x\n"})

    async def all_three() -> tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        return (
            await git.head_sha(root),
            await git.changed_files(root, base),
            await git.changed_files(root),
            await git.tracked_files(root),
        )

    expected = (head, ("a.txt", "c.txt", "new.txt"), ("a.txt", "new.txt"), ("a.txt", "b.txt", "c.txt"))
    assert asyncio.run(all_three()) == expected


def test_changed_files_leave_out_ignored_ones_and_include_deleted_and_staged_ones(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r", {".gitignore": "*.log\n", "gone.txt": "1\n", "keep.txt": "1\n"})
    (root / "gone.txt").unlink()
    write(root, {"x.log": "1", "staged.txt": "1"})
    sh(root, "add", "staged.txt")
    assert git.read_changed(root) == ("gone.txt", "staged.txt")


def test_changed_files_are_the_same_from_a_sub_folder(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r", {"a.txt": "1\n", "sub/b.txt": "1\n"})
    write(root, {"a.txt": "2\n", "sub/b.txt": "2\n", "new.txt": "1", "sub/new.txt": "1"})
    assert git.read_changed(root / "sub") == git.read_changed(root)
    assert git.read_tracked(root / "sub") == ("a.txt", "sub/b.txt")


def test_names_with_spaces_newlines_quotes_and_bytes_survive(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r", {"plain": "1"})
    names = [b"with space", b"new\nline", b'quo"te', b"t\tab", b"\xff\xfe raw", "grün".encode(), b"-dash"]
    for name in names:
        (root / os.fsdecode(name)).write_text("x")
    assert {os.fsencode(path) for path in git.read_changed(root)} == set(names)
    sh(root, "add", "-A")
    assert {os.fsencode(path) for path in git.read_tracked(root)} == {*names, b"plain"}


@pytest.mark.req("S0-99")
@pytest.mark.parametrize("place", ["missing", "plain", "unborn"])
def test_the_helpers_give_empty_values_where_git_fails(tmp_path: Path, place: str) -> None:
    (tmp_path / "plain").mkdir()
    sh(tmp_path, "init", "-q", "unborn")
    where = tmp_path / place
    assert asyncio.run(git.head_sha(where)) == ""
    assert asyncio.run(git.changed_files(where, "HEAD~1")) == ()
    assert asyncio.run(git.tracked_files(where)) == ()
    with pytest.raises(GitError):
        git.read_head(where)


@pytest.mark.req("S0-99")
def test_a_helper_that_takes_too_long_gives_an_empty_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo(tmp_path / "r")
    _shadow_git(tmp_path, monkeypatch, "exec sleep 3000")
    assert git.READ_SECONDS == 5.0
    monkeypatch.setattr(git, "READ_SECONDS", 0.2)
    monkeypatch.setattr(git.read_head, "__kwdefaults__", {"timeout": 0.2})
    assert asyncio.run(git.head_sha(root)) == ""


@pytest.mark.req("S0-100")
def test_a_slow_helper_does_not_hold_up_other_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo(tmp_path / "r")
    marker = tmp_path / "go"
    _shadow_git(tmp_path, monkeypatch, f"while [ ! -e '{marker}' ]; do sleep 0.01; done; echo abc")

    async def scenario() -> str:
        asked = asyncio.create_task(git.head_sha(root))
        await asyncio.sleep(0)
        # Only other work can end the wait: were the helper blocking, this line would not be reached.
        marker.touch()
        return await asked

    assert asyncio.run(scenario()) == "abc"


@pytest.mark.req("S0-100")
def test_arguments_are_never_read_by_a_shell_or_as_options(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    hostile = (f"$(touch {tmp_path / 'pwned'})", f"--output={tmp_path / 'pwned'}")
    for base in hostile:
        assert asyncio.run(git.changed_files(root, base)) == ()
    assert not (tmp_path / "pwned").exists()


def test_a_failure_names_the_command_the_reason_and_a_way_out(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    with pytest.raises(GitError) as caught:
        git.run(["rev-parse", "--verify", "nothing-like-this"], root)
    assert "git rev-parse --verify nothing-like-this" in caught.value.message
    assert "Needed a single revision" in caught.value.message
    assert caught.value.hint


def test_terminal_escapes_in_what_git_says_are_removed() -> None:
    assert plain("a\x1b[31mred\x1b[0m \x1b]0;title\x07b\x08\r\nc\x9b") == "ared b\nc"


def test_the_callers_git_variables_do_not_reach_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, other = make_repo(tmp_path / "r"), make_repo(tmp_path / "other", {"o": "1"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert git.read_tracked(root) == ("README.md", "src/app.py")


def test_where_a_persons_config_lies_is_respected() -> None:
    kept = git.environment({"GIT_CONFIG_GLOBAL": "/x", "GIT_DIR": "/y", "HOME": "/h"}, {"GIT_INDEX_FILE": "/i"})
    assert (kept["GIT_CONFIG_GLOBAL"], kept["HOME"], kept["GIT_INDEX_FILE"]) == ("/x", "/h", "/i")
    assert "GIT_DIR" not in kept


def test_hooks_of_the_repository_do_not_run(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-checkout", "pre-commit", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{tmp_path}/hook-ran'\n")
        (hooks / name).chmod(0o755)
    git.run(["update-ref", "refs/windlass/x", "HEAD"], root)
    git.run(["checkout", "-q", "-b", "b"], root)
    assert not (tmp_path / "hook-ran").exists()


def test_discover_finds_the_repository_from_a_sub_folder(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    found = user_repo.discover(root / "src")
    assert found == user_repo.UserRepo(root, root / ".git", root / ".git", sh(root, "rev-parse", "HEAD"), "main")
    assert found.state == root / ".git" / "windlass"


def test_discover_says_a_detached_head_has_no_branch(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    sh(root, "checkout", "-q", "--detach")
    assert user_repo.discover(root).branch == ""


def test_a_worktree_and_a_worktree_made_from_it_share_one_common_dir(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    sh(root, "worktree", "add", "-q", "-b", "one", str(tmp_path / "one"))
    sh(tmp_path / "one", "worktree", "add", "-q", "-b", "two", str(tmp_path / "two"))
    found = user_repo.discover(tmp_path / "two")
    assert (found.common_dir, found.branch) == (root / ".git", "two")
    assert found.git_dir == root / ".git" / "worktrees" / "two"


def test_discover_refuses_what_is_no_checkout_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    sh(tmp_path, "init", "-q", "--bare", "bare")
    sh(tmp_path, "init", "-q", "unborn")
    root = make_repo(tmp_path / "r")
    places = {
        tmp_path / "plain": "not in a git repository",
        tmp_path / "bare": "bare",
        root / ".git": "bare",
        tmp_path / "unborn": "no commit yet",
    }
    for place, words in places.items():
        with pytest.raises(UserError, match=words) as caught:
            user_repo.discover(place)
        assert caught.value.hint


def test_a_shallow_clone_is_seen_and_listed_as_an_oddity(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    commit(root, {"b": "1"})
    sh(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", "shallow")
    found = user_repo.discover(tmp_path / "shallow")
    assert found.shallow
    assert [text.split(":")[0] for text in user_repo.oddities(found)] == ["shallow clone"]
    assert user_repo.oddities(user_repo.discover(root)) == []


def test_submodules_lfs_and_partial_clones_are_oddities(tmp_path: Path) -> None:
    files = {".gitmodules": '[submodule "x"]\n', "assets/.gitattributes": "*.bin filter=lfs diff=lfs\n"}
    root = make_repo(tmp_path / "r", files)
    sh(root, "config", "remote.origin.promisor", "true")
    assert [text.split(":")[0] for text in user_repo.oddities(user_repo.discover(root))] == [
        "submodules",
        "Git LFS",
        "partial clone",
    ]


def test_dirty_means_changed_or_untracked_and_looking_changes_nothing(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r")
    repo = user_repo.discover(root)
    assert not user_repo.is_dirty(repo)
    write(root, {"new": "1"})
    before = footprint(root)
    assert user_repo.is_dirty(repo)
    assert not user_repo.is_dirty(repo, untracked=False)
    write(root, {"README.md": "2"})
    assert user_repo.is_dirty(repo, untracked=False)
    assert footprint(root).index == before.index


def test_an_old_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git.require_git()
    _shadow_git(tmp_path, monkeypatch, "echo git version 2.30.2")
    with pytest.raises(UserError, match=r"2\.30\.2 is too old"):
        git.require_git()


def test_a_missing_git_is_the_users_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="not installed"):
        git.run(["version"], tmp_path)


def test_output_beyond_the_cap_is_cut_and_said(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "r", {"big": "x" * 100_000})
    assert git.capped_output(["show", "HEAD:big"], root, 10) == ("x" * 10, True)
    assert git.capped_output(["show", "HEAD:big"], root, 200_000) == ("x" * 100_000, False)
    with pytest.raises(GitError):
        git.capped_output(["show", "HEAD:none"], root, 10)


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("feature/x", True),
        ("a b", False),
        ("-x", False),
        ("a..b", False),
        ("@", False),
        ("@{-1}", False),
        ("HEAD", False),
    ],
)
def test_branch_names_are_checked(name: str, valid: bool) -> None:
    assert git.is_branch_name(name) is valid
