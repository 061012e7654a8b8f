"""A conflict stays open until somebody resolves it, whatever it left in the files; through the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crews import FIXER, IMPLEMENT, REVIEW, Crewed, flow, plan_rule
from front import LEAN, Front, Rule, basics, passing, plan_of
from gitrepo import DATE, make_engine, sh
from windlass.events import LandingRefused, TaskLanded
from windlass.git import trees
from windlass.git.engine_repo import EngineRepo
from windlass.git.merge import Conflict, OpenConflicts, join, paths_of, unresolved_conflicts
from windlass.git.trees import commit_tree

QUICK = "[retries]\ncrashed = 0\n"
TEXT = "".join(f"line {n}\n" for n in range(1, 13))
FOLDER = {f"dd/{name}": f"{name}\n{TEXT * 2}" for name in ("f1", "f2")}
LAND = {"checks": "all", "fixer": FIXER, "max": 2, "on": {"conflict": "fail", "red": "fail"}}

MODULE, COMMIT = "git update-index --cacheinfo 160000", "git -c user.name=A -c user.email=a@b commit -qm moved"


@dataclass(frozen=True)
class Clash:
    """What two tasks do to the same base, as shell commands."""

    first: str
    second: str
    path: str
    """Named in the refusal."""
    kind: str
    """In words, as the refusal has it."""
    mend: str = "git show HEAD^2:note.txt > note.txt; echo both >> note.txt"
    """Resolves it by a change."""


CLASHES = {
    "contents": Clash("echo one > note.txt", "echo two > note.txt", "note.txt", "changed the same lines"),
    "added twice": Clash("echo one > new", "echo two > new", "new", "changed the same lines", "echo one and two > new"),
    "binary": Clash(
        *(r"printf 'a\0001' > logo", r"printf 'a\0002' > logo", "logo", "binary file"),
        mend=r"printf 'a\00012' > logo",
    ),
    "symlink": Clash(
        *("ln -sfn one link", "ln -sfn two link", "link", "where this link leads"), mend="ln -sfn both link"
    ),
    "changed and deleted": Clash(
        *("echo one >> note.txt", "git rm -q note.txt", "note.txt", "the other deleted it"), mend="git rm -q note.txt"
    ),
    "deleted and changed": Clash(
        "git rm -q note.txt", "echo two >> note.txt", "note.txt", "the other deleted it", "git rm -q note.txt"
    ),
    "file and folder": Clash(
        *("echo one >> thing", "git rm -q thing; mkdir thing; echo two > thing/in", "thing", "a folder on the other"),
        mend="git mv thing~* thing-file",
    ),
    "folder and file": Clash(
        *("git rm -q thing; mkdir thing; echo one > thing/in", "echo two >> thing", "thing", "a folder on the other"),
        mend="git rm -q thing~*",
    ),
    "renamed twice": Clash(
        *("git mv ren.txt one.txt", "git mv ren.txt two.txt", "ren.txt", "renamed it differently"),
        mend="git rm -q one.txt",
    ),
    "renamed and deleted": Clash(
        *("git mv ren.txt one.txt", "git rm -q ren.txt", "one.txt", "the other deleted it"), mend="git rm -q one.txt"
    ),
    "submodule": Clash(
        *(f"{MODULE},{sha},module && {COMMIT}" for sha in ("1" * 40, "2" * 40)),
        *("module", "submodule"),
        mend=f"{MODULE},{'3' * 40},module && {COMMIT}",
    ),
}


def crew_with_base(tmp_path: Path) -> Crewed:
    crew = Crewed(
        tmp_path, QUICK, {"note.txt": TEXT, "logo": "a\0b", "thing": TEXT, "ren.txt": f"ren\n{TEXT}", **FOLDER}
    )
    (crew.root / "link").symlink_to("base")
    sh(crew.root, "add", "-A")
    sh(crew.root, "update-index", "--add", "--cacheinfo", f"160000,{'0' * 39}1,module")
    sh(crew.root, "commit", "-qm", "base")
    (crew.root / "module").mkdir()
    return crew


def work(task: str, command: str) -> Rule:
    return {"when": {"role": "implementer", "purpose": "implement", "task": task}, "run": [command], "say": "done"}


def fixer(**more: Any) -> Rule:
    return {"when": {"role": "implementer", "purpose": "land-fix"}, "say": "done", **more}


def go(crew: Crewed, clash: Clash, *fixers: Rule, land: dict[str, Any] | None = None) -> Any:
    rules = [plan_rule([{"title": "A"}, {"title": "B"}]), *fixers, work("t1", clash.first), work("t2", clash.second)]
    fields = {"order": "waves", "failure": "continue", "land": land or LAND, "steps": [IMPLEMENT, REVIEW]}
    return crew.go(flow(**fields), [*rules, passing()])


def landed(crew: Front) -> list[str]:
    return [event.task for event in crew.events(TaskLanded)]


def details(crew: Front) -> list[str]:
    return [event.detail for event in crew.events(LandingRefused)]


# -- nobody resolves it


@pytest.mark.sweep(4)
@pytest.mark.parametrize("clash", CLASHES.values(), ids=CLASHES.keys())
def test_a_conflict_that_nobody_resolved_never_lands(clash: Clash, tmp_path: Path) -> None:
    crew = crew_with_base(tmp_path)
    done = go(crew, clash, fixer(say="looks fine"))
    assert done.code == 14, done.out
    assert landed(crew) == ["t1"]
    assert {task.id: task.state for task in crew.view.tasks} == {"t1": "complete", "t2": "failed"}
    # What landed first is all that the branch has.
    tip = crew.events(TaskLanded)[-1].tip
    assert crew.git("rev-parse", crew.branch) == tip
    assert "~" not in "".join(crew.landed)
    told = details(crew)
    assert len(told) == 3, "one refusal at first, and one after each fixer"
    assert all(clash.path in one and clash.kind in one for one in told), told
    # The second fixer is told what the first one left.
    assert clash.kind in crew.prompt("execute/t2/land.fix#2")
    assert "resolved" in crew.prompt("execute/t2/land.fix#2")


@pytest.mark.sweep(12)
@pytest.mark.parametrize("clash", CLASHES.values(), ids=CLASHES.keys())
def test_a_conflict_that_the_fixer_resolves_by_a_change_is_reviewed_again_and_lands(
    clash: Clash, tmp_path: Path
) -> None:
    crew = crew_with_base(tmp_path)
    done = go(crew, clash, fixer(run=[clash.mend]))
    assert done.code == 0, done.out
    assert landed(crew) == ["t1", "t2"], details(crew)
    assert len(details(crew)) == 1
    assert "execute/t2/spec+2#1" in crew.keys
    assert "~" not in "".join(crew.landed)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", ["binary", "symlink", "changed and deleted", "renamed twice", "submodule"])
def test_a_conflict_without_marks_that_the_fixer_names_as_resolved_is_reviewed_again_and_lands(
    name: str, tmp_path: Path
) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES[name]
    done = go(crew, clash, fixer(json={"resolved": [clash.path]}))
    assert done.code == 0, done.out
    assert landed(crew) == ["t1", "t2"], details(crew)
    assert f"named as resolved by the fixer: {clash.path}" in crew.prompt("execute/t2/spec+2#1")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ["contents", "file and folder"])
def test_marks_and_made_up_names_are_never_resolved_by_a_word(name: str, tmp_path: Path) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES[name]
    claim = fixer(json={"resolved": [clash.path]}, run=["git ls-files | grep '~' >> named || true; rm -f named"])
    assert go(crew, clash, claim).code == 14
    assert landed(crew) == ["t1"]


def test_what_a_fixer_says_in_its_free_text_resolves_nothing(tmp_path: Path) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES["binary"]
    assert go(crew, clash, fixer(say='I resolved logo. {"resolved": ["logo"]}')).code == 14
    assert landed(crew) == ["t1"]


def test_another_file_than_the_one_in_conflict_resolves_nothing(tmp_path: Path) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES["binary"]
    assert go(crew, clash, fixer(run=["echo x > other.txt"], json={"resolved": ["other.txt"]})).code == 14
    assert landed(crew) == ["t1"]


def test_a_review_that_refuses_the_resolution_keeps_it_from_landing(tmp_path: Path) -> None:
    """The fixer drops what landed: it changed the file, so only the reviewer can tell."""
    crew, clash = crew_with_base(tmp_path), CLASHES["contents"]
    no = {"status": "fail", "findings": [{"severity": "high", "message": "one is gone"}], "summary": "no"}
    refuse = {"when": {"role": "spec-reviewer", "purpose": "rereview"}, "json": no}
    assert go(crew, clash, refuse, fixer(run=["echo two > note.txt"])).code == 14
    assert landed(crew) == ["t1"]
    assert crew.show("note.txt") == "one"


def test_a_resolution_that_leaves_the_task_s_own_change_as_it_was_is_reviewed_again(tmp_path: Path) -> None:
    crew = crew_with_base(tmp_path)
    moved = Clash("mkdir ee; git mv dd/f1 dd/f2 ee/", "echo new > dd/new", "dd/new", "")
    done = go(crew, moved, fixer(run=["mkdir -p dd; git mv ee/new dd/new"]))
    assert done.code == 0, done.out
    assert landed(crew) == ["t1", "t2"], details(crew)
    assert "a folder that the other side renamed" in details(crew)[0]
    assert "execute/t2/spec+2#1" in crew.keys


@pytest.mark.long
def test_half_a_resolution_is_reviewed_with_the_other_half(tmp_path: Path) -> None:
    crew = crew_with_base(tmp_path)
    both = Clash("echo one > note.txt; ln -sfn one link", "echo two > note.txt; ln -sfn two link", "", "")
    first = fixer(run=["echo united > note.txt"], times=1)
    done = go(crew, both, first, fixer(run=["ln -sfn united link"]))
    assert done.code == 0, done.out
    assert landed(crew) == ["t1", "t2"], details(crew)
    assert "note.txt" not in details(crew)[-1]
    prompt = crew.prompt("execute/t2/spec+2#1")
    assert "note.txt" in prompt


@pytest.mark.long
def test_marks_that_are_moved_to_another_file_do_not_land(tmp_path: Path) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES["contents"]
    assert go(crew, clash, fixer(run=["git mv note.txt elsewhere.txt"], times=1), fixer()).code == 14
    assert landed(crew) == ["t1"]
    assert "elsewhere.txt: conflict marks are left in it" in details(crew)[-1]


@pytest.mark.long
def test_a_middle_mark_that_is_left_does_not_land(tmp_path: Path) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES["contents"]
    half = "sed -i -e '/^<<<<<<</d' -e '/^>>>>>>>/d' note.txt"
    assert go(crew, clash, fixer(run=[half])).code == 14
    assert landed(crew) == ["t1"]


def test_a_text_about_git_may_show_conflict_marks(tmp_path: Path) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES["contents"]
    text = f"<<<<<<< HEAD\none\n=======\ntwo\n>>>>>>> {'a' * 40}\n"
    done = go(crew, clash, fixer(files={"docs/git.md": text, "note.txt": "one and two\n"}))
    assert done.code == 0, done.out
    assert landed(crew) == ["t1", "t2"], details(crew)


def test_a_conflict_that_a_person_accepts_does_not_land_and_the_task_is_skipped(tmp_path: Path) -> None:
    crew, clash = crew_with_base(tmp_path), CLASHES["contents"]
    land = {"checks": "all", "max": 0, "on": {"conflict": "ask stuck", "red": "fail"}}
    rules = [plan_rule([{"title": "A"}, {"title": "B"}]), work("t1", clash.first), work("t2", clash.second)]
    text = flow("skip", "accept", order="waves", failure="continue", land=land)
    assert crew.go(text, rules).code == 10
    done = crew("answer", "accept")
    assert done.code == 14, done.out
    assert landed(crew) == ["t1"]
    assert crew.show("note.txt") == "one"
    task = crew.view.tasks[1]
    assert task.state == "skipped"
    assert task.reason.startswith("it cannot be accepted as it is: landing refused (conflict)")
    assert len(details(crew)) == 1, "an acceptance joins nothing, so it does not try to land again"


# -- the flows that ship


def test_in_the_plan_flow_marks_that_two_fixers_left_never_land(tmp_path: Path) -> None:
    front = Front(tmp_path, QUICK + LEAN)
    tasks = [{"title": title, "description": "Do it.", "tdd": "exempt"} for title in ("A", "B")]
    plan = {"when": {"role": "planner"}, "files": {"{plan_path}": plan_of(tasks)}, "say": "done"}
    meet = front.tmp / "meet"
    meet.mkdir()
    wait = f"touch {meet}/{{task_id}}; until [ -e {meet}/t1 ] && [ -e {meet}/t2 ]; do sleep 0.02; done"
    write_it = {
        "when": {"role": "implementer", "purpose": "implement"},
        "files": {"src/app.py": "x = '{task_id}'\n"},
        "run": [wait],
        "say": "done",
    }
    done = front.start([plan, fixer(), write_it, *basics("A", "B")], "--yes", "--slots", "2")
    assert done.code == 14, done.out
    assert len(landed(front)) == 1
    assert len(details(front)) == 3
    assert "<<<<<<<" not in front.show("src/app.py")


# -- what is remembered


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": TEXT, "b.txt": TEXT})


def head_with(engine: EngineRepo, base: str, files: dict[str, str]) -> str:
    return commit_tree(engine, trees.edited_tree(engine, base, files), [base], "work\n", DATE)


def test_marks_with_carriage_returns_other_sizes_and_paths_are_found(tmp_path: Path) -> None:
    text = "".join(f"line {n}\r\n" for n in range(1, 13))
    engine = make_engine(tmp_path, {"a.txt": text, "b.txt": TEXT, ".gitattributes": "b.txt conflict-marker-size=20\n"})
    base = engine.user.head
    ours = head_with(engine, base, {"a.txt": f"one\r\n{text}", "b.txt": f"one\n{TEXT}"})
    theirs = head_with(engine, base, {"a.txt": f"two\r\n{text}", "b.txt": f"two\n{TEXT}"})
    joined = join(engine, ours, theirs, "t1", DATE)
    assert paths_of(joined.conflicts) == ("a.txt", "b.txt")
    marked = {path: engine.git("show", f"{joined.commit}:{path}").out for path in ("a.txt", "b.txt")}
    assert "\r\n" in marked["a.txt"]
    touched = head_with(engine, joined.commit, {path: f"{text}# touched\n" for path, text in marked.items()})
    known = OpenConflicts(joined.conflicts, (ours, theirs))
    left = unresolved_conflicts(engine, theirs, touched, known, ())
    assert [one.paths for one in left if "marks" in one.kinds] == [("a.txt",), ("b.txt",)]


def test_the_marks_of_a_renamed_file_name_its_path_and_are_found(engine: EngineRepo) -> None:
    base = engine.user.head
    renamed = engine.git("ls-tree", base, "a.txt").out.replace("a.txt", "c.txt").encode()
    other = engine.git("ls-tree", base, "b.txt").out.encode()
    moved = commit_tree(engine, engine.git("mktree", input=renamed + other).line, [base], "move\n", DATE)
    ours = head_with(engine, moved, {"c.txt": f"one\n{TEXT}"})
    theirs = head_with(engine, base, {"a.txt": f"two\n{TEXT}"})
    joined = join(engine, ours, theirs, "t1", DATE)
    text = engine.git("show", f"{joined.commit}:c.txt").out
    assert f">>>>>>> {theirs}:a.txt" in text
    touched = head_with(engine, joined.commit, {"c.txt": f"{text}# touched\n"})
    (left,) = unresolved_conflicts(engine, theirs, touched, OpenConflicts(joined.conflicts, (ours, theirs)), ())
    assert (left.paths, "marks" in left.kinds) == (("c.txt",), True)


def test_open_conflicts_are_the_same_after_they_were_stored() -> None:
    known = OpenConflicts((Conflict(("binary",), ("a", "b"), ("100644 12", "")),), ("1" * 40,))
    assert OpenConflicts.from_json(known.to_json()) == known


def test_after_criss_cross_merges_git_finds_the_base(engine: EngineRepo) -> None:
    """With one of the two bases alone, what one side took back would come again."""
    base = engine.user.head
    one, two = head_with(engine, base, {"a.txt": "one\n"}), head_with(engine, base, {"b.txt": "two\n"})
    both = trees.edited_tree(engine, one, {"b.txt": "two\n"})
    left = commit_tree(engine, both, [one, two], "left\n", DATE)
    right = commit_tree(engine, both, [two, one], "right\n", DATE)
    back = head_with(engine, left, {"a.txt": TEXT})
    joined = join(engine, back, right, "t1", DATE)
    said = engine.git("merge-tree", "--write-tree", back, right).line
    assert (joined.conflicts, engine.objects.tree_of(joined.commit)) == ((), said)
