"""Work of tasks that were refused, skipped or failed: shown, seen and taken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from front import LEAN, Front, basics, builder, failing, passing
from gitrepo import commit, footprint
from windlass.events import BranchPublished
from windlass.store.epoch import Person

QUICK = '[retries]\ncrashed = 0\npauses = ["10ms"]\n'


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> Front:
    """Two tasks: the first lands, the second is refused by its reviewer and skipped."""
    front = Front(tmp_path_factory.mktemp("skipped"), LEAN + QUICK)
    rules = [failing("spec-reviewer", "no good", task="t2"), *basics("One", "Two")]
    assert front.start(rules, "--yes", "--answer", "escalation*=skip").code == 14
    assert front.states("t2")[-1] == "skipped"
    return front


def test_show_names_the_work_of_a_skipped_task_and_how_to_take_it(skipped: Front) -> None:
    text = skipped("show").out
    (work,) = json.loads(skipped("show", "--json").out)["work"]
    assert work["task"] == "t2"
    assert work["ref"] in text
    assert f"windlass take {skipped.run} t2" in text
    assert f"windlass show {skipped.run} --diff t2" in text


@pytest.mark.parametrize("name", ["t2", "2", "Two"])
def test_the_diff_of_a_skipped_task_is_its_own_work_alone(skipped: Front, name: str) -> None:
    text = skipped("show", skipped.run, "--diff", name).out
    assert "src/t2.py" in text
    assert "src/t1.py" not in text
    found = json.loads(skipped("show", skipped.run, "--diff", name, "--json").out)
    assert (found["task"], found["diff"]) == ("t2", text)


def test_the_diff_of_a_landed_task_and_of_the_run(skipped: Front) -> None:
    assert "src/t1.py" in skipped("show", skipped.run, "--diff", "t1").out
    whole = skipped("show", skipped.run, "--diff").out
    assert "src/t1.py" in whole
    assert "src/t2.py" not in whole


def test_taking_puts_the_work_on_a_branch_and_leaves_the_checkout_alone(skipped: Front) -> None:
    before = footprint(skipped.root)
    found = json.loads(skipped("take", "t2", "--json").out)
    assert found["made"]
    assert found["branch"] == f"{skipped.branch}-t2"
    assert skipped.git("show", f"{found['branch']}:src/t2.py") == "y = 1"
    assert footprint(skipped.root).files == before.files
    assert footprint(skipped.root).index == before.index
    again = skipped("take", skipped.run, "t2")
    assert (again.code, "already" in again.out) == (0, True)
    assert skipped.git("fsck", "--connectivity-only") == ""


def test_a_branch_of_a_name_that_is_taken_is_not_moved(skipped: Front) -> None:
    assert skipped("take", "t2", "--branch", "main").code == 1
    assert skipped("take", "t2", "--branch", "-f").code in (1, 2)
    named = json.loads(skipped("take", "t2", "--branch", "rescue", "--json").out)
    assert skipped.git("rev-parse", "rescue") == named["commit"]


def test_a_task_that_does_not_exist_or_left_nothing_is_said(skipped: Front) -> None:
    done = skipped("take", "t9")
    assert (done.code, "has no task 't9'" in done.err) == (1, True)
    assert skipped("take", "a", "b", "c").code == 2


def test_uncommitted_work_of_a_task_that_failed_is_found_by_its_keep_ref(tmp_path: Path) -> None:
    front = Front(tmp_path, LEAN + QUICK)
    dies = builder(exit=1) | {"when": {"role": "implementer", "task": "t2"}}
    del dies["commit"]
    front.start([dies, *basics("One", "Two")], "--yes", "--answer", "escalation*=skip")
    (work,) = json.loads(front("show", "--json").out)["work"]
    assert work["task"] == "t2"
    found = json.loads(front("take", work["ref"], "--json").out)
    assert front.git("show", f"{found['branch']}:src/t2.py") == "y = 1"


# -- gc


def collected(front: Front, *more: str) -> dict[str, bool]:
    return {entry["what"]: entry["removed"] for entry in json.loads(front("gc", "--json", *more).out)}


def landed(tmp_path: Path) -> Front:
    front = Front(tmp_path, LEAN)
    assert front.task([builder(), passing()], "Add t1").code == 0
    return front


def test_a_merged_branch_of_a_run_is_collected_and_others_stay(tmp_path: Path) -> None:
    front = landed(tmp_path)
    branch = front.branch
    assert f"branch {branch}" not in collected(front)
    assert front("land").code == 0
    assert collected(front, "--dry-run")[f"branch {branch}"]
    assert front.git("branch", "--list", branch)
    assert collected(front)[f"branch {branch}"]
    assert front.git("branch", "--format", "%(refname:short)") == "main"
    assert "windlass land" not in front("status").out
    assert front("land").code == 0


def test_a_branch_that_is_checked_out_or_was_moved_is_not_collected(tmp_path: Path) -> None:
    front = landed(tmp_path)
    branch = front.branch
    assert front("land").code == 0
    front.git("checkout", "-q", branch)
    assert collected(front)[f"branch {branch}"] is False
    commit(front.root, {"mine.txt": "mine\n"})
    front.git("checkout", "-q", "main")
    front.git("merge", "-q", branch)
    assert f"branch {branch}" not in collected(front)
    assert front.git("branch", "--list", branch)


def test_a_branch_without_anything_in_it_is_collected(tmp_path: Path) -> None:
    front = landed(tmp_path)
    branch, base = front.branch, front.view.base
    front.git("branch", "-f", branch, base)
    assert f"branch {branch}" not in collected(front)
    service = front.service
    service.store.events.add(Person(front.run), BranchPublished(branch, base))
    service.close()
    assert collected(front)[f"branch {branch}"]


def test_the_state_folder_of_a_repository_that_is_gone(tmp_path: Path) -> None:
    front = landed(tmp_path)
    home = next(Path(front.env["XDG_STATE_HOME"]).glob("windlass/*/repo.git")).parent
    assert json.loads((home / "owner.json").read_text())["path"] == str(front.root / ".git")
    other = Front(tmp_path / "other", LEAN)
    other.env["XDG_STATE_HOME"] = front.env["XDG_STATE_HOME"]
    assert other.task([builder(), passing()], "Add t1").code == 0
    assert not any(str(home) in what for what in collected(other))
    front.root.rename(tmp_path / "moved")
    slot = home / "slots" / "1"
    assert slot.is_dir()
    found = collected(other)
    assert found[str(home)] is False
    assert not slot.exists()
    assert (home / "repo.git").exists()
    # Made by an older version: known by what its objects are borrowed from.
    (home / "owner.json").unlink()
    assert any(str(home) in what for what, removed in collected(other, "--gone").items() if removed)
    assert not home.exists()
    (other.root / "x").mkdir()
    assert other("gc", "--gone", other.run).code == 2
