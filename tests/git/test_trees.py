from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gitrepo import DATE, commit, make_engine, sh, write
from windlass.errors import UserError
from windlass.git import trees
from windlass.git.engine_repo import EngineRepo
from windlass.git.slot import Slot
from windlass.git.slots import Slots
from windlass.git.trees import (
    Change,
    ChangeKind,
    changes,
    commit_artifacts,
    commit_tree,
    diff,
    harvest,
    patch_id,
    places,
    status,
    work_tree,
)


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n", "b.txt": "1\n", ".gitignore": "*.log\n"})


@pytest.fixture
def slot(engine: EngineRepo) -> Slot:
    return Slots(engine).take("r1", "t1", engine.user.head)


def test_status_lists_changed_deleted_staged_and_untracked_names_as_they_are(engine: EngineRepo, slot: Slot) -> None:
    strange = ["new\nline", "with space", "sub/ä\tb", os.fsdecode(b"\xff")]
    write(slot.path, {"a.txt": "2", "staged": "1", "x.log": "", **dict.fromkeys(strange, "x")})
    (slot.path / "b.txt").unlink()
    sh(slot.path, "add", "staged")
    seen = status(engine, slot)
    assert (seen.head, seen.tree) == (engine.user.head, engine.objects.tree_of(engine.user.head))
    assert set(seen.dirty) == {"a.txt", "b.txt", "staged", *strange}


def test_status_lists_files_in_conflict(engine: EngineRepo, slot: Slot) -> None:
    one = commit(slot.path, {"a.txt": "one\n"})
    sh(slot.path, "checkout", "-q", "--detach", engine.user.head)
    commit(slot.path, {"a.txt": "two\n"})
    sh(slot.path, "merge", one, check=False)
    assert status(engine, slot).dirty == ("a.txt",)


def test_status_gives_the_head_that_a_task_starts_from(engine: EngineRepo, slot: Slot) -> None:
    head = commit(slot.path, {"c": "1"})
    assert status(engine, slot).head == head


def test_harvest_commits_everything_not_ignored_with_a_fixed_sha(engine: EngineRepo, slot: Slot) -> None:
    write(slot.path, {"a.txt": "2\n", "new": "1", "x.log": "noise"})
    (slot.path / "b.txt").unlink()
    head = harvest(engine, slot, "work of t1\n", DATE)
    assert status(engine, slot).dirty == ()
    assert changes(engine, engine.user.head, head) == (
        Change("a.txt", ChangeKind.MODIFIED),
        Change("b.txt", ChangeKind.DELETED),
        Change("new", ChangeKind.ADDED),
    )
    sh(slot.path, "reset", "-q", "--hard", engine.user.head)
    write(slot.path, {"a.txt": "2\n", "new": "1"})
    (slot.path / "b.txt").unlink()
    assert harvest(engine, slot, "work of t1\n", DATE) == head


def test_harvest_of_a_clean_slot_is_its_head(engine: EngineRepo, slot: Slot) -> None:
    head = commit(slot.path, {"c": "1"})
    assert harvest(engine, slot, "nothing\n", DATE) == head


def test_harvest_finishes_a_merge_with_both_parents(engine: EngineRepo, slot: Slot) -> None:
    one = commit(slot.path, {"a.txt": "one\n"})
    sh(slot.path, "checkout", "-q", "--detach", engine.user.head)
    two = commit(slot.path, {"a.txt": "two\n"})
    sh(slot.path, "merge", one, check=False)
    write(slot.path, {"a.txt": "both\n"})
    head = harvest(engine, slot, "merged\n", DATE)
    assert sh(slot.path, "rev-parse", f"{head}^1", f"{head}^2").split() == [two, one]


def test_harvest_works_after_a_killed_git_and_stores_inner_repositories_as_files(
    engine: EngineRepo, slot: Slot
) -> None:
    sh(slot.path, "init", "-q", "inner")
    commit(slot.path / "inner", {"deep.txt": "x"})
    (slot.git_dir / "index.lock").touch()
    head = harvest(engine, slot, "work\n", DATE)
    assert changes(engine, engine.user.head, head) == (Change("inner/deep.txt", ChangeKind.ADDED),)


def test_hooks_the_agent_installed_do_not_run_in_the_engines_name(
    tmp_path: Path, engine: EngineRepo, slot: Slot
) -> None:
    hooks = engine.path / "hooks"
    for name in ("pre-commit", "post-commit", "post-checkout", "reference-transaction"):
        write(hooks, {name: f"#!/bin/sh\ntouch '{tmp_path}/ran'\nexit 1\n"})
        (hooks / name).chmod(0o755)
    write(slot.path, {"new": "1"})
    engine.refs.hold("r1", "t1", harvest(engine, slot, "work\n", DATE))
    assert not (tmp_path / "ran").exists()


def test_changes_since_a_base_include_committed_uncommitted_and_untracked_files(engine: EngineRepo, slot: Slot) -> None:
    base = engine.user.head
    commit(slot.path, {"c.txt": "1"})
    write(slot.path, {"a.txt": "2\n", "untracked": "1", "x.log": ""})
    index = (slot.git_dir / "index").read_bytes()
    found = {change.path for change in changes(engine, base, work_tree(engine, slot))}
    assert found == {"a.txt", "c.txt", "untracked"}
    assert (slot.git_dir / "index").read_bytes() == index
    write(slot.path, {"b.txt": "fixed\n"})
    assert "b.txt" in {change.path for change in changes(engine, base, work_tree(engine, slot))}


def test_a_diff_shows_the_change_and_is_cut_where_it_is_too_long(engine: EngineRepo, slot: Slot) -> None:
    write(slot.path, {"a.txt": "two\n", "big": "x\n" * 5000})
    tree = work_tree(engine, slot)
    whole = diff(engine, engine.user.head, tree, 1_000_000)
    assert "-1\n+two\n" in whole
    assert diff(engine, engine.user.head, tree, 100) == whole[:100] + "\n[diff cut after 100 bytes]\n"


def test_artifacts_are_committed_on_the_tip_without_a_checkout(engine: EngineRepo) -> None:
    base = engine.user.head
    new = commit_artifacts(engine, base, {"docs/plans/p.md": "# Plan ö\r\n", "a.txt": "2\n"}, "docs: plan\n", DATE)
    assert engine.refs.tip("r1") == base, "the journal comes first"
    assert changes(engine, base, new) == (
        Change("a.txt", ChangeKind.MODIFIED),
        Change("docs/plans/p.md", ChangeKind.ADDED),
    )
    assert engine.git("show", f"{new}:docs/plans/p.md").out == "# Plan ö\r\n"
    assert engine.git("rev-parse", f"{new}^").line == base


def test_committing_equal_artifacts_changes_nothing(engine: EngineRepo) -> None:
    base = engine.user.head
    assert commit_artifacts(engine, base, {"a.txt": "1\n"}, "same\n", DATE) == base


@pytest.mark.parametrize("path", ["../x", "/etc/x", ".git/config", "a/../../x", ""])
def test_an_artifact_path_that_leaves_the_repository_is_refused(engine: EngineRepo, path: str) -> None:
    with pytest.raises(UserError, match="leaves"):
        commit_artifacts(engine, engine.user.head, {path: "x"}, "x\n", DATE)


def test_an_artifact_may_take_the_place_of_a_folder(tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "other", {"docs/a": "1"})
    new = commit_artifacts(engine, engine.user.head, {"docs": "file"}, "x\n", DATE)
    assert engine.git("ls-tree", "-r", "--name-only", new).line == "docs"


def test_the_patch_id_knows_the_same_change_on_another_base(engine: EngineRepo) -> None:
    base = engine.user.head

    def on(parent: str, files: dict[str, str]) -> str:
        return commit_tree(engine, trees.edited_tree(engine, parent, files), [parent], "x\n", DATE)

    other = on(base, {"b.txt": "other\n"})
    first = patch_id(engine, base, on(base, {"a.txt": "2\n"}))
    assert first
    assert patch_id(engine, other, on(other, {"a.txt": "2\n"})) == first
    assert patch_id(engine, other, on(other, {"a.txt": "3\n"})) != first


def test_the_work_tree_has_files_that_became_folders_links_and_back(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, {"file": "1", "folder/a": "1", "folder/b/c": "1", "gone": "1", "plain": "1"})
    slot = Slots(engine).take("r1", "t1", engine.user.head)
    for path in ("file", "gone", "plain"):
        (slot.path / path).unlink()
    shutil.rmtree(slot.path / "folder")
    write(slot.path, {"file/now/deep": "1", "folder": "1", 'new \n"name': "1"})
    (slot.path / "plain").symlink_to("/nowhere")
    os.chmod(slot.path / "file/now/deep", 0o755)
    listed = engine.git("ls-tree", "-r", "-z", work_tree(engine, slot)).fields
    found = {entry.split("\t")[1]: entry[:6] for entry in listed}
    assert found == {"file/now/deep": "100755", "folder": "100644", 'new \n"name': "100644", "plain": "120000"}
    head = harvest(engine, slot, "x\n", DATE)
    assert engine.git("ls-tree", "-r", "-z", head).fields == listed
    assert status(engine, slot).dirty == ()


def test_lines_of_a_file_that_look_like_a_diff_are_no_places(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    root = engine.user.root
    before = commit(root, {"notes.md": "-- gone.py\nkept\n"})
    after = commit(root, {"notes.md": "++ secret.py\nkept\n"})
    assert places(engine, before, after) == "- notes.md: line 1"


def test_a_file_that_is_not_text_is_named_once_among_the_places(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    root = engine.user.root
    before = sh(root, "rev-parse", "HEAD")
    (root / "a picture.bin").write_bytes(b"\0\1")
    sh(root, "add", "-A")
    sh(root, "commit", "-qm", "a picture")
    assert places(engine, before, sh(root, "rev-parse", "HEAD")) == "- a picture.bin: new"
