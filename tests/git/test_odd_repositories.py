"""What repositories and agents do that git allows and few expect: the run ends well and nothing of the user changes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from front import LEAN, Front, Rule, builder, passing
from gitrepo import commit, footprint, sh
from windlass.git.disk import MIN_FREE_BYTES

QUICK = "[retries]\ncrashed = 0\n"


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, QUICK + LEAN)


def worker(*commands: str, **more: object) -> list[Rule]:
    """An implementer that runs these in its slot, and reviewers that like it."""
    return [builder(run=list(commands), **more), passing()]


def landed(front: Front) -> list[str]:
    """Names on the run's branch, byte for byte."""
    return sh(front.root, "ls-tree", "-r", "-z", "--name-only", front.branch).strip("\0").split("\0")


def test_hooks_and_merge_drivers_of_the_user_do_not_run(front: Front) -> None:
    ran = front.tmp / "ran"
    commit(front.root, {".gitattributes": "*.py merge=mine\n"})
    front.git("config", "merge.mine.driver", f"touch {ran}")
    front.git("config", "core.hooksPath", str(front.tmp / "hooks"))
    (front.tmp / "hooks").mkdir()
    for name in ("pre-commit", "post-checkout", "post-merge", "reference-transaction", "post-index-change"):
        hook = front.tmp / "hooks" / name
        hook.write_text(f"#!/bin/sh\necho {name} >> {ran}\n")
        hook.chmod(0o755)
    before = footprint(front.root)
    ran.unlink(missing_ok=True)
    assert front.task(worker(), "x").code == 0
    assert not ran.exists(), ran.read_text()
    after = footprint(front.root)
    assert (after.files, after.head, after.index) == (before.files, before.head, before.index)


def test_a_rename_in_case_only_lands(front: Front) -> None:
    assert front.task(worker("git mv README.md tmp", "git mv tmp readme.md"), "x").code == 0
    assert "readme.md" in landed(front)
    assert "README.md" not in landed(front)


def test_names_with_spaces_newlines_quotes_and_bytes_that_are_no_text_land_as_they_are(front: Front) -> None:
    names = ["'a b.txt'", r"""$(printf 'new\nline.txt')""", r"""$(printf 'b\351\200')""", "'\"q'"]
    odd = "; ".join(f"printf x > {name}" if name[0] == "'" else f'printf x > "{name}"' for name in names)
    done = front.task(worker(odd), "x")
    assert done.code == 0, done.err
    assert {"a b.txt", "new\nline.txt", "b\udce9\udc80", '"q'} <= set(landed(front))
    assert front("show", front.run).code == 0
    assert front("log", front.run).code == 0


def test_a_link_that_leaves_the_tree_lands_as_a_link_and_nothing_is_written_through_it(front: Front) -> None:
    outside = front.tmp / "outside"
    outside.mkdir()
    assert front.task(worker(f"ln -s {outside} away", f"ln -s {front.root} home", "ln -s /etc/passwd p"), "x").code == 0
    assert front.git("ls-tree", front.branch, "away").startswith("120000")
    assert list(outside.iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "deed",
    [
        "rm -rf .git",
        'rm -rf "$(git rev-parse --absolute-git-dir)"',
        "rm .git; git init -q",
        "rm -rf ./* .git",
    ],
)
def test_an_agent_that_removes_git_from_its_slot_loses_nothing_of_others(front: Front, deed: str) -> None:
    before = footprint(front.root)
    done = front.task([builder(commit="", run=[deed]), passing()], "x")
    assert done.code in (0, 12), done
    assert "Traceback" not in done.err
    assert footprint(front.root).files == before.files
    done = front.task(worker(), "y", "--new")
    assert done.code == 0, done.err


def test_a_detached_head_is_a_good_place_to_start(front: Front) -> None:
    front.git("checkout", "-q", "--detach")
    before = footprint(front.root)
    assert front.task(worker(), "x").code == 0
    assert "src/t1.py" in landed(front)
    assert footprint(front.root).head == before.head


def test_changes_an_agent_hid_from_git_are_part_of_its_work(front: Front) -> None:
    hide = "git update-index --assume-unchanged README.md; git update-index --skip-worktree src/app.py"
    change = "echo hidden > README.md; echo 'x = 2' > src/app.py"
    assert front.task([builder(commit="", run=[hide, change]), passing()], "x").code == 0
    assert (front.show("README.md"), front.show("src/app.py")) == ("hidden", "x = 2")


def test_a_partial_checkout_an_agent_made_does_not_reach_the_next_one(front: Front) -> None:
    commit(front.root, {"docs/a.md": "a\n"})
    assert front.task(worker("git sparse-checkout set src tests"), "x").code == 0
    assert "docs/a.md" in landed(front)
    again = worker("test -f docs/a.md")
    assert front.task(again, "y", "--new").code == 0


@pytest.mark.long
def test_a_large_file_lands(front: Front) -> None:
    assert front.task(worker("head -c 30000000 /dev/zero > big.bin"), "x").code == 0
    assert front.git("cat-file", "-s", f"{front.branch}:big.bin") == "30000000"


@pytest.mark.long
def test_read_only_files_and_folders_are_in_nobody_s_way(front: Front) -> None:
    lock = "mkdir -p cache/a; echo 1 > cache/a/b; chmod 444 cache/a/b README.md; chmod 555 cache/a cache"
    assert front.task(worker(lock), "x").code == 0
    assert "cache/a/b" in landed(front)
    assert front.task(worker(), "y", "--new").code == 0
    assert front("gc").code == 0


def test_filters_of_the_user_shape_the_slot_and_what_lands_is_clean(front: Front) -> None:
    front.git("config", "filter.shout.smudge", "tr a-z A-Z")
    front.git("config", "filter.shout.clean", "tr A-Z a-z")
    commit(front.root, {".gitattributes": "*.txt filter=shout\n", "old.txt": "old\n"})
    assert front.task(worker("grep -q OLD old.txt", "echo NEW > new.txt"), "x").code == 0
    assert front.show("new.txt") == "new"
    assert front.show("old.txt") == "old"


def test_a_filter_that_is_not_installed_stops_nobody(front: Front) -> None:
    commit(front.root, {".gitattributes": "*.dat filter=absent\n", "a.dat": "1\n"})
    assert front.task(worker("echo 2 > b.dat"), "x").code == 0
    assert front.show("b.dat") == "2"


INNER = "git init -q inner; cd inner; git config user.name a; git config user.email b; echo 1 > f"


def test_a_repository_that_an_agent_committed_inside_its_own_is_told(front: Front) -> None:
    done = front.task(worker(f"{INNER}; git add f; git commit -qm inner"), "x")
    assert done.code == 0, done.err
    assert front.git("ls-tree", front.branch, "inner").startswith("160000")
    (told,) = front.warnings
    assert "'inner' is a repository of its own" in told


@pytest.mark.parametrize("more", ["", "; git add f; git commit -qm inner"], ids=["no commit", "a commit"])
def test_the_files_of_a_repository_left_inside_the_slot_are_part_of_the_work(front: Front, more: str) -> None:
    done = front.task([builder(commit="", run=[INNER + more]), passing()], "x")
    assert done.code == 0, done.err
    assert front.show("inner/f") == "1"


@pytest.mark.long
@pytest.mark.parametrize("sparse", [[], ["--sparse"]], ids=["whole", "sparse"])
def test_in_a_partial_clone_the_base_is_whole(front: Front, sparse: list[str]) -> None:
    for n in range(3):
        commit(front.root, {"src/app.py": f"x = {n}\n", "docs/a.md": f"{n}\n"})
    front.git("config", "uploadpack.allowFilter", "true")
    front.git("config", "uploadpack.allowAnySHA1InWant", "true")
    clone = front.tmp / "partial"
    sh(front.tmp, "clone", "-q", "--filter=blob:none", *sparse, f"file://{front.root}", str(clone))
    front.say(worker("grep -q 2 docs/a.md"))
    done = front("task", "x", "--script", str(front.script), cwd=clone)
    assert done.code == 0, done.err
    branch = sh(clone, "branch", "--format=%(refname:short)", "--list", "windlass/*")
    assert "src/t1.py" in sh(clone, "ls-tree", "-r", "--name-only", branch).splitlines()


def test_a_partial_clone_whose_remote_is_gone_is_refused_before_the_run_begins(front: Front) -> None:
    commit(front.root, {"docs/a.md": "1\n"})
    front.git("config", "uploadpack.allowFilter", "true")
    clone = front.tmp / "partial"
    sh(front.tmp, "clone", "-q", "--filter=blob:none", "--sparse", f"file://{front.root}", str(clone))
    front.root.rename(front.tmp / "moved")
    front.say(worker())
    done = front("task", "x", "--script", str(front.script), cwd=clone)
    assert done.code in (1, 12)
    assert "fetch" in done.err
    assert not (clone / ".git" / "windlass" / "windlass.db").exists()


def test_a_nearly_full_disk_is_refused_before_anything_is_written(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nearly_full(path: Path) -> shutil._ntuple_diskusage:
        return shutil._ntuple_diskusage(2**40, 2**40 - MIN_FREE_BYTES + 1, MIN_FREE_BYTES - 1)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    before = sorted(os.walk(front.tmp / "repo"))
    done = front.task(worker(), "x")
    assert done.code == 1
    assert "MiB left" in done.err
    assert "windlass gc" in done.err
    assert sorted(os.walk(front.tmp / "repo")) == before
    assert not (Path(front.env["XDG_STATE_HOME"]) / "windlass").exists()


def test_kept_slots_stay_after_the_run_until_it_is_collected_by_name(front: Front) -> None:
    done = front.task(worker("mkdir -p build; echo out > build/out; echo build > .gitignore"), "x", "--keep")
    assert done.code == 0, done.err
    (slot,) = Path(front.env["XDG_STATE_HOME"]).glob("windlass/*/slots/1")
    assert (slot / "build" / "out").read_text() == "out\n"
    assert f"    {slot}\n" in done.out
    assert f"    windlass gc {front.run}\n" in done.out
    assert "kept by --keep" in front("gc").out
    assert slot.exists()
    assert front("gc", front.run).code == 0
    assert not slot.exists()


def test_json_names_the_kept_slots_too_and_without_keep_there_are_none(front: Front) -> None:
    done = front.task(worker("echo 1 > one"), "x", "--keep", "--json")
    (slot,) = Path(front.env["XDG_STATE_HOME"]).glob("windlass/*/slots/1")
    assert json.loads(done.out.splitlines()[-1])["kept"] == [str(slot)]
    done = front.task(worker("echo 2 > two"), "y", "--json")
    assert json.loads(done.out.splitlines()[-1])["kept"] == []
