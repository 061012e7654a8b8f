"""The end of a plan run: the review of the whole, the report, the branch, the user's checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from front import LEAN, Front, basics, failing, passing, spent
from gitrepo import commit, footprint, write
from windlass.events import BranchPublished, PhaseFinished
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots

QUICK = "[retries]\ncrashed = 0\n"


@pytest.fixture
def front(tmp_path: Path) -> Front:
    return Front(tmp_path, QUICK + LEAN)


def report(front: Front) -> str:
    return (front.folder / "report.md").read_text(encoding="utf-8")


@pytest.mark.sweep(2)
@pytest.mark.req("S0-71", "S0-72")
@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        (failing("quality-reviewer", "two names for one thing", phase="finalize"), "two names for one thing"),
        ({"when": {"role": "quality-reviewer", "phase": "finalize"}, "exit": 4, "stderr": "fell over"}, "fell over"),
    ],
    ids=["findings", "crash"],
)
def test_what_the_final_review_says_is_reported_and_changes_nothing(
    front: Front, rule: dict[str, object], shown: str
) -> None:
    done = front.start([rule, *basics("One")], "--yes")
    assert done.code == 0
    assert shown in report(front)
    assert [event.phase for event in front.events(PhaseFinished)][-2:] == ["finalize", "report"]
    assert front.keys[-1] == "finalize/quality-reviewer#1"


@pytest.mark.req("S0-72")
def test_the_report_says_where_the_code_is_and_how_to_take_it(front: Front) -> None:
    done = front.start([{**rule, **spent(0.5)} for rule in basics("One", "Two")], "--yes")
    text = report(front)
    assert text in done.out.replace("[x]", "✅")
    for wanted in (f"Branch `{front.branch}`", f"git diff {front.view.base[:12]}..{front.branch}", "windlass land"):
        assert wanted in text
    assert f"Total cost: ${0.5 * len(front.keys):.2f}" in text
    assert "- Checks: unchecked" in text
    assert "- Elapsed:" in text


@pytest.mark.req("S0-69")
def test_when_every_task_was_skipped_the_run_still_ends_with_a_report(front: Front) -> None:
    crash = {"when": {"role": "implementer"}, "exit": 9, "stderr": "no"}
    done = front.start([crash, *basics("One", "Two")], "--yes")
    assert done.code == 14
    assert "- 0 completed" in report(front)
    assert "- 2 skipped" in report(front)


@pytest.mark.req("S0-73", "S0-75")
def test_in_place_the_checkout_follows_the_run_and_shows_its_state_file(front: Front) -> None:
    file = front.root / ".superteam-workflow.json"
    assert front.start(basics("One"), "--in-place").code == 10
    assert file.read_text() == front.state_file.read_text()
    assert front.git("branch", "--show-current") == front.service.run().branch
    assert front("resume", "--yes").code == 0
    assert not file.exists()
    assert (front.root / "src/t1.py").exists()
    assert front.git("status", "--porcelain") == ""
    assert front.git("rev-parse", "HEAD") == front.view.tip


@pytest.mark.req("S0-04")
def test_aborting_in_place_leaves_nothing_in_the_checkout(front: Front) -> None:
    front.start(basics("One"), "--in-place")
    assert front("abort").code == 0
    assert front.git("status", "--porcelain", "--ignored") == ""


@pytest.mark.req("S0-75")
def test_the_state_file_is_in_the_run_s_own_folder_and_not_in_the_checkout(front: Front) -> None:
    front.start(basics("One"))
    assert front.state["phase"] == "plan-review"
    assert not (front.root / ".superteam-workflow.json").exists()


def test_no_slot_stays_taken_when_a_run_has_ended(front: Front) -> None:
    front.start(basics("One"), "--yes")
    with front.inside(front.root):
        engine = EngineRepo.open(user_repo.discover(front.root), Path(front.env["XDG_STATE_HOME"]))
        assert Slots(engine).leases_of(front.run) == []


def test_a_dirty_checkout_is_fine_and_is_said(front: Front) -> None:
    write(front.root, {"src/app.py": "x = 2\n", "notes.txt": "mine\n"})
    before = footprint(front.root)
    done = front.start(basics("One"), "--yes")
    assert done.code == 0
    assert "uncommitted" in done.out
    after = footprint(front.root)
    assert (after.status, after.files, after.index, after.head) == (
        before.status,
        before.files,
        before.index,
        before.head,
    )
    assert front.show("src/app.py") == "x = 1"


def test_a_branch_that_the_user_moved_is_never_forced(front: Front) -> None:
    front.start(basics("One"))
    front.git("checkout", "-q", front.branch)
    theirs = commit(front.root, {"mine.txt": "mine\n"}, "my own")
    front.git("checkout", "-q", "main")
    own = front.branch
    assert front("resume", "--yes").code == 0
    assert front.git("rev-parse", own) == theirs
    last = front.events(BranchPublished)[-1]
    assert last.branch == f"{own}-2"
    assert "src/t1.py" in front.landed
    assert f"{own}-2" in report(front)


@pytest.mark.long
def test_a_branch_that_is_checked_out_is_left_alone_and_said(front: Front) -> None:
    front.start(basics("One"))
    own = front.branch
    front.git("checkout", "-q", own)
    before = front.git("rev-parse", "HEAD")
    done = front("resume", "--yes")
    assert done.code == 0
    assert front.git("status", "--porcelain") == ""
    assert front.git("rev-parse", "HEAD") == before
    assert any("checked out" in event.note for event in front.events(BranchPublished))


@pytest.mark.long
def test_a_base_that_was_amended_away_and_collected_does_not_matter(front: Front) -> None:
    front.start(basics("One"))
    base = front.view.base
    write(front.root, {"README.md": "other\n"})
    front.git("commit", "-qam", "amended", "--amend")
    front.git("reflog", "expire", "--expire=now", "--all")
    front.git("gc", "-q", "--prune=now")
    assert front("resume", "--yes").code == 0
    assert front.git("merge-base", "--is-ancestor", base, front.branch) == ""
    assert "src/t1.py" in front.landed


@pytest.mark.long
def test_a_second_run_beside_an_active_one_is_a_choice(front: Front) -> None:
    front.start(basics("One"))
    first = front.run
    done = front.start(basics("One"), request="Something else")
    assert done.code == 1
    assert first in done.err
    for way in ("windlass resume", "windlass abort", "--new"):
        assert way in done.err
    assert front.start([*basics("One"), passing()], "--new", "--yes", request="Something else").code == 0
    assert len(front.service.runs()) == 2


def test_a_pending_question_is_answered_by_its_own_command_and_text_never_is_both(front: Front) -> None:
    front.start(basics("One"))
    done = front.start(basics("One"), request="approve")
    assert done.code == 1
    assert len(front.service.runs()) == 1
    assert front("answer", "approve", "--no-resume").code == 0
    assert front.answers == {"plan-approval!approve": "approve"}
