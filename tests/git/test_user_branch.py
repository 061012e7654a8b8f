from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitrepo import DATE, commit, footprint, make_engine, sh, write
from windlass.errors import GitError, UserError
from windlass.git import publish as branch
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.publish import PublishedBranch, enter_in_place, follow, land_commit, land_plan, plan_landing, publish
from windlass.git.trees import commit_artifacts
from windlass.model import LandResult, LandStyle

BRANCH = "windlass/add-limits"


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n", "b.txt": "1\n"})


def land_on_checkout(user: user_repo.UserRepo, name: str, style: LandStyle = LandStyle.AUTO) -> LandResult:
    """Plan, commit and move, as `windlass land` does."""
    here = user_repo.discover(user.root)
    plan = plan_landing(here, git.read_refs(user.root, f"refs/heads/{name}")[f"refs/heads/{name}"], name, style)
    return land_plan(here, plan, land_commit(here, plan, f"Merge branch '{name}'"), "r1", {})


def _advance(engine: EngineRepo, files: dict[str, str]) -> str:
    new = commit_artifacts(engine, engine.refs.tip("r1"), files, "step\n", DATE)
    assert engine.refs.set_tip("r1", new, engine.refs.tip("r1"))
    return new


def test_the_first_publish_makes_the_branch_and_the_next_moves_it(engine: EngineRepo) -> None:
    one = _advance(engine, {"x": "1"})
    first = publish(engine, "r1", BRANCH, one, "")
    assert first == PublishedBranch(BRANCH, one)
    two = _advance(engine, {"y": "1"})
    assert publish(engine, "r1", BRANCH, two, first.commit) == PublishedBranch(BRANCH, two)
    assert sh(engine.user.root, "rev-parse", BRANCH) == two
    assert publish(engine, "r1", BRANCH, two, two) == PublishedBranch(BRANCH, two)


def test_a_published_branch_needs_nothing_of_the_engine(engine: EngineRepo) -> None:
    publish(engine, "r1", BRANCH, _advance(engine, {"x": "1"}), "")
    engine.path.rename(engine.home / "gone")
    assert sh(engine.user.root, "fsck", "--full") == ""
    assert sh(engine.user.root, "show", f"{BRANCH}:x") == "1"


def test_publishing_leaves_the_users_checkout_as_it_was(engine: EngineRepo) -> None:
    root = engine.user.root
    write(root, {"a.txt": "stashed"})
    sh(root, "stash")
    write(root, {"a.txt": "dirty", "x": "in the way"})
    before = footprint(root)
    publish(engine, "r1", BRANCH, _advance(engine, {"x": "1"}), "")
    after = footprint(root)
    assert replace(after, refs=before.refs) == before
    assert set(after.refs.splitlines()) - set(before.refs.splitlines()) == {
        f"refs/heads/{BRANCH} {engine.refs.tip('r1')}"
    }
    assert not (root / ".git" / "FETCH_HEAD").exists()


def test_a_branch_the_user_has_checked_out_stays_and_it_is_said(tmp_path: Path, engine: EngineRepo) -> None:
    one = _advance(engine, {"x": "1"})
    publish(engine, "r1", BRANCH, one, "")
    sh(engine.user.root, "worktree", "add", "-q", str(tmp_path / "look"), BRANCH)
    two = _advance(engine, {"y": "1"})
    done = publish(engine, "r1", BRANCH, two, one)
    assert (done.branch, done.commit) == (BRANCH, one)
    assert str(tmp_path / "look") in done.note
    sh(engine.user.root, "worktree", "remove", str(tmp_path / "look"))
    assert publish(engine, "r1", BRANCH, two, done.commit) == PublishedBranch(BRANCH, two)


def test_a_branch_someone_else_moved_is_never_forced(engine: EngineRepo) -> None:
    root = engine.user.root
    one = _advance(engine, {"x": "1"})
    publish(engine, "r1", BRANCH, one, "")
    sh(root, "checkout", "-q", BRANCH)
    theirs = commit(root, {"theirs": "1"})
    sh(root, "checkout", "-q", "main")
    two = _advance(engine, {"y": "1"})
    done = publish(engine, "r1", BRANCH, two, one)
    assert (done.branch, done.commit) == (f"{BRANCH}-2", two)
    assert "someone else" in done.note
    assert sh(root, "rev-parse", BRANCH) == theirs
    three = _advance(engine, {"z": "1"})
    assert publish(engine, "r1", done.branch, three, done.commit) == PublishedBranch(f"{BRANCH}-2", three)


def test_a_branch_the_user_moved_back_stays_there(engine: EngineRepo) -> None:
    one = _advance(engine, {"x": "1"})
    two = _advance(engine, {"y": "1"})
    publish(engine, "r1", BRANCH, two, "")
    sh(engine.user.root, "branch", "-f", BRANCH, one)
    three = _advance(engine, {"z": "1"})
    assert publish(engine, "r1", BRANCH, three, two).branch == f"{BRANCH}-2"
    assert sh(engine.user.root, "rev-parse", BRANCH) == one


def test_a_users_branch_of_the_same_name_is_left_alone(engine: EngineRepo) -> None:
    sh(engine.user.root, "branch", BRANCH)
    sh(engine.user.root, "branch", f"{BRANCH}-2")
    done = publish(engine, "r1", BRANCH, _advance(engine, {"x": "1"}), "")
    assert done.branch == f"{BRANCH}-3"
    assert sh(engine.user.root, "rev-parse", BRANCH) == engine.user.head


def test_a_publish_that_was_killed_before_it_was_recorded_goes_on(engine: EngineRepo) -> None:
    one = _advance(engine, {"x": "1"})
    publish(engine, "r1", BRANCH, one, "")
    two = _advance(engine, {"y": "1"})
    assert publish(engine, "r1", BRANCH, two, "") == PublishedBranch(BRANCH, two)
    three = _advance(engine, {"z": "1"})
    assert publish(engine, "r1", BRANCH, three, one) == PublishedBranch(BRANCH, three)


def test_a_branch_the_user_deleted_is_made_again(engine: EngineRepo) -> None:
    one = _advance(engine, {"x": "1"})
    publish(engine, "r1", BRANCH, one, "")
    sh(engine.user.root, "branch", "-D", BRANCH)
    sh(engine.user.root, "gc", "-q", "--prune=now")
    two = _advance(engine, {"y": "1"})
    assert publish(engine, "r1", BRANCH, two, one) == PublishedBranch(BRANCH, two)
    assert sh(engine.user.root, "fsck", "--connectivity-only") == ""


def test_a_name_that_is_no_branch_name_or_is_in_the_way_is_an_error(engine: EngineRepo) -> None:
    tip = _advance(engine, {"x": "1"})
    with pytest.raises(UserError, match="not a valid branch"):
        publish(engine, "r1", "-f", tip, "")
    sh(engine.user.root, "branch", "windlass")
    with pytest.raises(GitError, match=r"cannot move branch 'windlass/add-limits'"):
        publish(engine, "r1", BRANCH, tip, "")


def test_a_branch_moved_at_the_very_moment_of_publishing_is_not_forced(
    engine: EngineRepo, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = _advance(engine, {"x": "1"})
    publish(engine, "r1", BRANCH, one, "")
    two = _advance(engine, {"y": "1"})
    real = branch.checkout_folder

    def while_looking(user: user_repo.UserRepo, name: str) -> str:
        monkeypatch.setattr(branch, "checkout_folder", real)
        sh(engine.user.root, "branch", "-f", BRANCH, "main")
        return ""

    monkeypatch.setattr(branch, "checkout_folder", while_looking)
    assert publish(engine, "r1", BRANCH, two, one).branch == f"{BRANCH}-2"
    assert sh(engine.user.root, "rev-parse", BRANCH) == engine.user.head


def test_hooks_of_the_user_do_not_run_when_publishing(tmp_path: Path, engine: EngineRepo) -> None:
    hooks = engine.user.root / ".git" / "hooks"
    for name in ("reference-transaction", "post-update", "post-checkout", "post-merge", "pre-merge-commit"):
        write(hooks, {name: f"#!/bin/sh\ntouch '{tmp_path}/ran'\nexit 1\n"})
        (hooks / name).chmod(0o755)
    publish(engine, "r1", BRANCH, _advance(engine, {"x": "1"}), "")
    land_on_checkout(engine.user, BRANCH)
    assert not (tmp_path / "ran").exists()


def test_in_place_the_checkout_follows_each_landing(engine: EngineRepo) -> None:
    root = engine.user.root
    enter_in_place(engine.user, BRANCH, engine.user.head)
    enter_in_place(engine.user, BRANCH, engine.user.head)
    assert user_repo.discover(root).branch == BRANCH
    write(root, {".superteam-workflow.json": "{}"})
    tip = _advance(engine, {"a.txt": "2\n"})
    follow(engine, "r1", BRANCH, tip)
    assert (root / "a.txt").read_text() == "2\n"
    assert git.read_head(root) == tip


def test_in_place_never_touches_uncommitted_work(engine: EngineRepo) -> None:
    root = engine.user.root
    enter_in_place(engine.user, BRANCH, engine.user.head)
    tip = _advance(engine, {"a.txt": "2\n", "new": "engine"})
    write(root, {"b.txt": "mine"})
    before = footprint(root)
    with pytest.raises(UserError, match="uncommitted"):
        follow(engine, "r1", BRANCH, tip)
    with pytest.raises(UserError, match="uncommitted"):
        enter_in_place(engine.user, "other", engine.user.head)
    assert footprint(root) == before
    sh(root, "checkout", "-q", "b.txt")
    write(root, {"new": "mine"})
    with pytest.raises(UserError, match="overwritten"):
        follow(engine, "r1", BRANCH, tip)
    assert (root / "new").read_text() == "mine"
    sh(root, "checkout", "-q", "main")
    with pytest.raises(UserError, match="is on 'main'"):
        follow(engine, "r1", BRANCH, tip)


def test_in_place_refuses_a_branch_that_exists(engine: EngineRepo) -> None:
    sh(engine.user.root, "branch", BRANCH)
    with pytest.raises(UserError, match="exists already"):
        enter_in_place(engine.user, BRANCH, engine.user.head)


def test_landing_is_a_fast_forward_where_it_can_be(engine: EngineRepo) -> None:
    tip = _advance(engine, {"a.txt": "2\n"})
    publish(engine, "r1", BRANCH, tip, "")
    done = land_on_checkout(engine.user, BRANCH)
    assert (done.branch, done.before, done.after, done.kind) == ("main", engine.user.head, tip, "fast-forward")
    assert (engine.user.root / "a.txt").read_text() == "2\n"
    assert land_on_checkout(engine.user, BRANCH).kind == "already"


def test_landing_on_a_branch_that_went_on_is_a_merge(engine: EngineRepo) -> None:
    root = engine.user.root
    publish(engine, "r1", BRANCH, _advance(engine, {"a.txt": "2\n"}), "")
    mine = commit(root, {"b.txt": "2\n"})
    write(root, {"untracked": "mine"})
    done = land_on_checkout(engine.user, BRANCH)
    assert done.kind == "merge"
    assert sh(root, "rev-parse", "HEAD^1", "HEAD^2").split() == [mine, engine.refs.tip("r1")]
    assert ((root / "a.txt").read_text(), (root / "untracked").read_text()) == ("2\n", "mine")


def test_landing_that_conflicts_or_meets_uncommitted_work_leaves_all_as_it_was(engine: EngineRepo) -> None:
    root = engine.user.root
    publish(engine, "r1", BRANCH, _advance(engine, {"a.txt": "2\n", "new": "engine"}), "")
    write(root, {"b.txt": "dirty"})
    _refused(engine, "uncommitted changes")
    sh(root, "checkout", "-q", "b.txt")
    write(root, {"new": "mine"})
    _refused(engine, "overwritten")
    (root / "new").unlink()
    commit(root, {"a.txt": "mine\n"})
    _refused(engine, r"conflicts with 'main' in 'a\.txt'")
    sh(root, "checkout", "-q", "--detach")
    _refused(engine, "detached")


def _refused(engine: EngineRepo, words: str) -> None:
    before = footprint(engine.user.root)
    with pytest.raises(UserError, match=words) as caught:
        land_on_checkout(engine.user, BRANCH)
    assert caught.value.hint
    assert footprint(engine.user.root) == before
    assert not (engine.user.root / ".git" / "MERGE_HEAD").exists()
