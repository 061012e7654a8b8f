from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gitrepo import commit, footprint, make_engine, make_repo, sh, write
from windlass.errors import GitLockError, UserError
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.engine_repo import IDENTITY, EngineRepo
from windlass.git.ref_audit import RefChange
from windlass.git.slots import Slots
from windlass.git.state_folder import repo_id
from windlass.git.trees import commit_tree
from windlass.git.user_repo import user_signature


def test_the_repo_id_is_the_same_from_every_worktree_and_differs_between_repositories(tmp_path: Path) -> None:
    root, other = make_repo(tmp_path / "a" / "proj"), make_repo(tmp_path / "b" / "proj")
    sh(root, "worktree", "add", "-q", "-b", "w", str(tmp_path / "w"))
    here, there, elsewhere = (repo_id(user_repo.discover(path).common_dir) for path in (root, tmp_path / "w", other))
    assert here == there
    assert here != elsewhere
    assert here.startswith("proj-")


def test_the_engine_reads_the_users_objects_without_copying_them(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    assert engine.git("cat-file", "-t", engine.user.head).line == "commit"
    assert engine.path == tmp_path / "state" / "windlass" / repo_id(engine.user.common_dir) / "repo.git"
    assert not list((engine.path / "objects").glob("??"))


def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    again = EngineRepo.open(engine.user, tmp_path / "state")
    assert (again.path, again.user, again.home, again.sealed) == (engine.path, engine.user, engine.home, engine.sealed)
    assert again.refs.tip("r1") == engine.user.head


def test_opening_at_once_from_many_threads_gives_one_repository(tmp_path: Path) -> None:
    user = user_repo.discover(make_repo(tmp_path / "user"))
    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(lambda _: EngineRepo.open(user, tmp_path / "state"), range(8)))
    assert len({engine.path for engine in engines}) == 1
    assert engines[0].refs.set_tip("r1", user.head, "")


def test_a_repository_left_half_made_is_made_again(tmp_path: Path) -> None:
    user = user_repo.discover(make_repo(tmp_path / "user"))
    half = tmp_path / "state" / "windlass" / repo_id(user.common_dir) / "repo.git.new"
    write(half, {"HEAD": "ref: refs/he"})
    engine = EngineRepo.open(user, tmp_path / "state")
    assert engine.git("rev-parse", "--is-bare-repository").line == "true"
    assert not half.exists()


def test_opening_leaves_the_users_checkout_as_it_was(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "user")
    write(root, {"README.md": "stashed\n"})
    sh(root, "stash")
    write(root, {"README.md": "dirty\n", "untracked": "1"})
    before = footprint(root)
    engine = EngineRepo.open(user_repo.discover(root), tmp_path / "state")
    engine.user_refs.pin_base("r1", engine.user.head)
    assert footprint(root) == before


def test_a_base_amended_away_survives_the_users_gc(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    sh(engine.user.root, "commit", "-q", "--amend", "-m", "other")
    sh(engine.user.root, "reflog", "expire", "--expire=now", "--all")
    sh(engine.user.root, "gc", "-q", "--prune=now")
    assert engine.git("cat-file", "-t", base).line == "commit"
    assert Slots(engine).take("r1", "t1", base).path.joinpath("README.md").exists()


def test_the_tip_moves_only_from_where_the_caller_saw_it(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    one = commit_tree(engine, engine.objects.tree_of(base), [base], "one\n", 1)
    two = commit_tree(engine, engine.objects.tree_of(base), [base], "two\n", 1)
    assert engine.refs.set_tip("r1", one, base)
    assert not engine.refs.set_tip("r1", two, base)
    assert not engine.refs.set_tip("r1", two, "")
    assert engine.refs.tip("r1") == one


def test_a_lock_left_behind_on_the_tip_is_an_error_and_not_a_lost_race(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    new = commit_tree(engine, engine.objects.tree_of(base), [base], "new\n", 1)
    lock = engine.path / "refs" / "windlass" / "r1" / "tip.lock"
    lock.touch()
    with pytest.raises(GitLockError) as caught:
        engine.refs.set_tip("r1", new, base)
    assert str(lock) in caught.value.hint


def test_the_tip_is_found_after_an_agent_packed_the_refs(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    engine.git("pack-refs", "--all")
    assert engine.refs.tip("r1") == engine.user.head
    assert engine.refs.tip("unknown") == ""


@pytest.mark.parametrize("run", ["", "../x", "a/b", "x.lock", "base", "keep", "a b"])
def test_a_run_id_that_would_make_a_strange_ref_is_refused(tmp_path: Path, run: str) -> None:
    engine = make_engine(tmp_path)
    with pytest.raises(UserError):
        engine.refs.tip(run)


def test_commits_carry_the_users_identity_or_else_our_own(tmp_path: Path) -> None:
    anonymous = make_engine(tmp_path / "a")
    base = anonymous.user.head
    made = commit_tree(anonymous, anonymous.objects.tree_of(base), [base], "x\n", 1)
    assert anonymous.git("log", "-1", "--format=%an <%ae>", made).line == "Windlass <windlass@localhost>"
    assert IDENTITY["user.name"] == "Windlass"
    sh(anonymous.user.root, "config", "user.name", 'Grace "H" \\ Ö')
    sh(anonymous.user.root, "config", "user.email", "grace@example.org")
    known = EngineRepo.open(anonymous.user, tmp_path / "a" / "state")
    made = commit_tree(known, known.objects.tree_of(base), [base], "x\n", 1)
    assert known.git("log", "-1", "--format=%an <%ae>", made).line == 'Grace "H" \\ Ö <grace@example.org>'


def test_config_and_alternates_that_an_agent_changed_are_put_back(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    slot = Slots(engine).take("r1", "t1", engine.user.head)
    sh(slot.path, "config", "core.hooksPath", "/evil")
    sh(engine.path, "config", "core.hooksPath", "/evil")
    (engine.path / "objects" / "info" / "alternates").write_text("/nowhere\n")
    assert engine.seal() == ["config", "objects/info/alternates"]
    assert engine.seal() == []
    slot.seal()
    assert [sh(place, "config", "core.hooksPath", check=False) for place in (slot.path, engine.path)] == ["", ""]


def test_a_shallow_clone_can_be_worked_in(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "full")
    commit(root, {"b": "1"})
    sh(tmp_path, "clone", "-q", "--depth=1", f"file://{root}", "user")
    user = user_repo.discover(tmp_path / "user")
    engine = EngineRepo.open(user, tmp_path / "state")
    engine.refs.set_tip("r1", user.head, "")
    assert engine.git("rev-list", "--count", user.head).line == "1"


def test_a_sha256_repository_can_be_worked_in(tmp_path: Path) -> None:
    sh(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "user")
    commit(tmp_path / "user", {"a": "1"})
    user = user_repo.discover(tmp_path / "user")
    engine = EngineRepo.open(user, tmp_path / "state")
    assert engine.refs.set_tip("r1", user.head, "")
    assert (Slots(engine).take("r1", "t1", user.head).path / "a").read_text() == "1"


def test_line_ending_and_filter_settings_of_the_users_repository_apply_in_slots(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "user", {"a.txt": "one\n", ".gitattributes": "*.txt filter=up\n"})
    sh(root, "config", "filter.up.smudge", "tr a-z A-Z")
    sh(root, "config", "core.autocrlf", "input")
    engine = EngineRepo.open(user_repo.discover(root), tmp_path / "state")
    slot = Slots(engine).take("r1", "t1", engine.user.head)
    assert (slot.path / "a.txt").read_text() == "ONE\n"
    assert engine.git("config", "core.autocrlf").line == "input"


def test_refs_an_agent_made_moved_or_deleted_are_found_and_undone(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    engine.git("update-ref", "refs/heads/old", base)
    engine.refs.hold("r1", "t0", base)
    before = engine.refs.all()
    made = commit_tree(engine, engine.objects.tree_of(base), [base], "made\n", 1)
    sh(engine.path, "branch", "-D", "old")
    sh(engine.path, "tag", "v1", made)
    sh(engine.path, "update-ref", "refs/windlass/r1/tip", made)
    sh(engine.path, "update-ref", "-d", f"refs/windlass/r1/hold/t0,@{base}")
    found = engine.audit.changes("r1", before, engine.refs.all())
    assert found == [
        RefChange("refs/heads/old", base, ""),
        RefChange("refs/tags/v1", "", made),
        RefChange(f"refs/windlass/r1/hold/t0,@{base}", base, ""),
        RefChange("refs/windlass/r1/tip", base, made),
    ]
    engine.audit.undo(found)
    assert engine.refs.all() == before


def test_what_the_engine_or_another_run_moved_is_expected_but_not_a_deletion_of_it(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    base = engine.user.head
    engine.refs.set_tip("r2", base, "")
    before = engine.refs.all()
    new = commit_tree(engine, engine.objects.tree_of(base), [base], "n\n", 1)
    engine.refs.set_tip("r1", new, base)
    engine.refs.hold("r1", "t1", new)
    elsewhere = EngineRepo.open(engine.user, tmp_path / "state")
    elsewhere.refs.set_tip("r3", base, "")
    assert engine.audit.changes("r1", before, engine.refs.all()) == []
    engine.git("update-ref", "-d", "refs/windlass/r2/tip")
    assert engine.audit.changes("r1", before, engine.refs.all()) == [RefChange("refs/windlass/r2/tip", base, "")]


def test_the_signature_notices_commits_stashes_branches_and_staged_files_of_the_user(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "user")
    user = user_repo.discover(root)
    first = user_signature(user)
    assert first.differences(user_signature(user)) == ()
    sh(root, "branch", "x")
    assert first.differences(user_signature(user)) == ("refs/heads/x",)
    write(root, {"staged": "1"})
    sh(root, "add", "staged")
    assert "index" in first.differences(user_signature(user))
    sh(root, "stash")
    assert {"stash", "refs/stash"} <= set(first.differences(user_signature(user)))
    sh(root, "checkout", "-q", "--detach")
    assert "head" in first.differences(user_signature(user))


def test_the_signature_notices_files_of_the_users_checkout_and_again_when_they_change_again(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "user", {"a.py": "1\n", ".gitignore": "*.log\n"})
    user = user_repo.discover(root)
    first = user_signature(user)
    write(root, {"a.py": "22\n", "new/b.py": "1\n", "x.log": "1\n"})
    second = user_signature(user)
    assert first.differences(second) == ("a.py", "new/")
    write(root, {"a.py": "333\n"})
    assert second.differences(user_signature(user)) == ("a.py",)
    sh(root, "checkout", "--", "a.py")
    assert second.differences(user_signature(user)) == ("a.py",)


def test_in_place_the_files_of_the_checkout_are_ours(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "user")
    sh(root, "checkout", "-q", "-b", "windlass/r1")
    user = user_repo.discover(root)
    first = user_signature(user, ["windlass/r1"])
    write(root, {"a.py": "1\n"})
    assert first.differences(user_signature(user, ["windlass/r1"])) == ()
    assert user_signature(user, ["windlass/r"]).files


def test_the_signature_ignores_our_own_refs_branches_and_a_refreshed_index(tmp_path: Path) -> None:
    engine = make_engine(tmp_path)
    root = engine.user.root
    first = user_signature(engine.user, ["windlass/r1"])
    engine.user_refs.pin_base("r2", engine.user.head)
    sh(root, "branch", "windlass/r1")
    (root / "README.md").touch()
    sh(root, "status")
    assert first.differences(user_signature(engine.user, ["windlass/r1"])) == ()


def test_a_run_can_be_started_in_a_linked_worktree_of_the_user(tmp_path: Path) -> None:
    root = make_repo(tmp_path / "user")
    sh(root, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    commit(tmp_path / "side", {"side.txt": "1"})
    user = user_repo.discover(tmp_path / "side")
    engine = EngineRepo.open(user, tmp_path / "state")
    engine.user_refs.pin_base("r1", user.head)
    assert engine.path == EngineRepo.open(user_repo.discover(root), tmp_path / "state").path
    assert (Slots(engine).take("r1", "t1", user.head).path / "side.txt").exists()
    assert "refs/windlass/base/r1" in git.read_refs(root)


def test_importing_the_package_starts_no_process_and_makes_no_file(tmp_path: Path) -> None:
    code = "import windlass.git, windlass.git.merge, windlass.checks.run, windlass.proof"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env={"PATH": ""})
    assert list(tmp_path.iterdir()) == []
