from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitrepo import DATE, commit, make_engine, make_repo, sh, write
from windlass.errors import GitError
from windlass.git import run as git
from windlass.git import trees, user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt
from windlass.git.merge import Candidate, Joined, Landing, candidate, join, make_candidate
from windlass.git.publish import publish
from windlass.git.slots import Slots
from windlass.git.trees import commit_tree, harvest


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n", "b.txt": "1\n"})


def _head(engine: EngineRepo, base: str, files: dict[str, str]) -> str:
    """A task's commit on `base`, as an agent would make it."""
    return commit_tree(engine, trees.edited_tree(engine, base, files), [base], "work\n", DATE)


def _land(engine: EngineRepo, task: str, head: str) -> Candidate:
    made = make_candidate(engine, engine.refs.tip("r1"), task, f"Task {task}", head, DATE)
    assert _show(engine, made)
    return made


def _show(engine: EngineRepo, made: Candidate) -> bool:
    """What the engine does when the journal has it."""
    return made.kind is Landing.ALREADY or engine.refs.set_tip("r1", made.commit, made.tip)


def test_a_head_on_the_tip_lands_with_its_own_tree_as_a_merge(engine: EngineRepo) -> None:
    base = engine.user.head
    head = _head(engine, base, {"a.txt": "2\n", "n\new": "x"})
    made = _land(engine, "t1", head)
    assert made == Candidate(
        Landing.MERGED, engine.refs.tip("r1"), engine.objects.tree_of(head), base, ("a.txt", "n\new")
    )
    assert engine.git("rev-parse", f"{made.commit}^1", f"{made.commit}^2").out.split() == [base, head]


def test_in_a_sha256_repository_two_tasks_land_beside_each_other(tmp_path: Path) -> None:
    sh(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "user")
    commit(tmp_path / "user", {"a.txt": "1\n", "d/b.txt": "1\n"})
    engine = EngineRepo.open(user_repo.discover(tmp_path / "user"), tmp_path / "state")
    base = engine.user.head
    assert engine.refs.set_tip("r1", base, "")
    _land(engine, "t1", _head(engine, base, {"d/b.txt": "2\n"}))
    made = _land(engine, "t2", _head(engine, base, {"d/c.txt": "3\n"}))
    assert made.files == ("d/c.txt",)
    listed = engine.git("ls-tree", "-r", "--name-only", made.commit).out.split()
    assert (listed, engine.git("show", f"{made.commit}:d/b.txt").out) == (["a.txt", "d/b.txt", "d/c.txt"], "2\n")
    assert engine.git("fsck", "--strict").code == 0


def test_a_commit_made_without_git_is_the_one_git_would_have_made(engine: EngineRepo) -> None:
    base, message = engine.user.head, "Add limits\n\nWindlass-Task: t1\n"
    made = commit_tree(engine, engine.objects.tree_of(base), [base], message, DATE)
    command = ["commit-tree", engine.objects.tree_of(base), "-p", base, "-F", "-"]
    assert engine.git(*command, input=message, env=git.date_variables(DATE)).line == made


def test_the_commit_names_its_task_and_has_the_stored_date(engine: EngineRepo) -> None:
    head = _head(engine, engine.user.head, {"a.txt": "2\n"})
    made = make_candidate(engine, engine.refs.tip("r1"), "t3", "Add\nlimits \x1b[31m", head, DATE)
    shown = engine.git("log", "-1", "--format=%s|%(trailers:key=Windlass-Task,valueonly)|%at %ct", made.commit).line
    assert shown.split("\n") == ["Add limits|t3", f"|{int(DATE)} {int(DATE)}"]


def test_a_candidate_made_again_is_the_same_commit(tmp_path: Path, engine: EngineRepo) -> None:
    base = engine.user.head
    _land(engine, "t1", _head(engine, base, {"a.txt": "2\n"}))
    head = _head(engine, base, {"b.txt": "2\n"})
    first = make_candidate(engine, engine.refs.tip("r1"), "t2", "Two", head, DATE)
    afresh = EngineRepo.open(engine.user, tmp_path / "state")
    again = make_candidate(afresh, afresh.refs.tip("r1"), "t2", "Two", head, DATE)
    assert again == first


def test_tasks_that_do_not_meet_are_merged(engine: EngineRepo) -> None:
    base = engine.user.head
    _land(engine, "t1", _head(engine, base, {"a.txt": "2\n"}))
    made = _land(engine, "t2", _head(engine, base, {"b.txt": "2\n"}))
    assert made.files == ("b.txt",)
    assert engine.git("show", f"{made.commit}:a.txt").out == "2\n"


def test_a_conflict_names_its_files_and_moves_nothing(engine: EngineRepo) -> None:
    base = engine.user.head
    tip = _land(engine, "t1", _head(engine, base, {"a.txt": "one\n", "b.txt": "one\n"})).commit
    head = _head(engine, base, {"a.txt": "two\n", "b.txt": "two\n"})
    made = make_candidate(engine, tip, "t2", "Two", head, DATE)
    told = "\n".join(f"- {path}: both sides changed the same lines" for path in ("a.txt", "b.txt"))
    reason = f"it conflicts with what has landed:\n{told}"
    assert made == Candidate(Landing.CONFLICT, "", "", tip, ("a.txt", "b.txt"), reason)
    assert engine.refs.tip("r1") == tip


def test_a_head_that_is_in_the_tip_is_already_landed_and_by_which_commit(engine: EngineRepo) -> None:
    base = engine.user.head
    head = _head(engine, base, {"a.txt": "2\n"})
    landed = _land(engine, "t1", head).commit
    tip = _land(engine, "t2", _head(engine, base, {"b.txt": "2\n"})).commit
    again = make_candidate(engine, engine.refs.tip("r1"), "t1", "Task t1", head, DATE)
    assert again == Candidate(Landing.ALREADY, landed, engine.objects.tree_of(tip), tip, ())
    assert _show(engine, again)
    assert engine.refs.tip("r1") == tip


def test_a_head_that_two_merges_name_was_brought_in_by_the_first(engine: EngineRepo) -> None:
    head = _head(engine, engine.user.head, {"a.txt": "2\n"})
    landed = _land(engine, "t1", head).commit
    again = commit_tree(engine, engine.objects.tree_of(landed), [landed, head], "again\n", DATE)
    assert make_candidate(engine, again, "t1", "Task t1", head, DATE).commit == landed


def test_what_the_tip_has_already_is_joined_without_a_commit(engine: EngineRepo) -> None:
    base = engine.user.head
    head = _head(engine, base, {"a.txt": "2\n"})
    tip = _land(engine, "t1", head).commit
    assert join(engine, head, tip, "t1", DATE) == Joined(tip)
    assert join(engine, tip, head, "t1", DATE) == Joined(tip)
    other = _head(engine, base, {"b.txt": "2\n"})
    joined = join(engine, other, tip, "t2", DATE)
    assert engine.git("rev-parse", f"{joined.commit}^1", f"{joined.commit}^2").out.split() == [other, tip]


def test_a_task_that_changed_nothing_is_already_landed(engine: EngineRepo) -> None:
    made = make_candidate(engine, engine.refs.tip("r1"), "t1", "None", engine.user.head, DATE)
    assert (made.kind, made.commit) == (Landing.ALREADY, engine.user.head)


def test_a_candidate_for_an_older_tip_is_refused(engine: EngineRepo) -> None:
    base = engine.user.head
    late = make_candidate(engine, engine.refs.tip("r1"), "t1", "Late", _head(engine, base, {"a.txt": "2\n"}), DATE)
    _land(engine, "t2", _head(engine, base, {"b.txt": "2\n"}))
    assert not _show(engine, late)


def test_candidates_can_be_chained_and_swapped_in_at_once(engine: EngineRepo) -> None:
    base = engine.user.head
    one = make_candidate(engine, engine.refs.tip("r1"), "t1", "One", _head(engine, base, {"a.txt": "2\n"}), DATE)
    two = make_candidate(engine, one.commit, "t2", "Two", _head(engine, base, {"b.txt": "2\n"}), DATE)
    assert two.tip == one.commit
    assert engine.refs.set_tip("r1", two.commit, base)
    assert engine.git("show", f"{engine.refs.tip('r1')}:a.txt").out == "2\n"


def test_the_asynchronous_one_does_the_same(engine: EngineRepo) -> None:
    async def scenario() -> bool:
        head = _head(engine, engine.user.head, {"a.txt": "2\n"})
        return _show(engine, await candidate(engine, engine.refs.tip("r1"), "t1", "One", head, DATE))

    assert asyncio.run(scenario())
    assert engine.git("show", f"{engine.refs.tip('r1')}:a.txt").out == "2\n"


def test_attributes_of_the_tip_decide_how_files_merge(tmp_path: Path) -> None:
    files = {"docs/.gitattributes": "CHANGES.md merge=union\n", "docs/CHANGES.md": "top\n"}
    engine = make_engine(tmp_path, files)
    base = engine.user.head
    _land(engine, "t1", _head(engine, base, {"docs/CHANGES.md": "top\none\n"}))
    made = _land(engine, "t2", _head(engine, base, {"docs/CHANGES.md": "top\ntwo\n"}))
    assert set(engine.git("show", f"{made.commit}:docs/CHANGES.md").out.split()) == {"top", "one", "two"}


def test_a_file_marked_as_binary_is_never_merged_line_by_line(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, {".gitattributes": "*.dat -merge\n", "x.dat": "1\n\n\n\n\n\n2\n"})
    base = engine.user.head
    _land(engine, "t1", _head(engine, base, {"x.dat": "one\n\n\n\n\n\n2\n"}))
    made = make_candidate(
        engine, engine.refs.tip("r1"), "t2", "Two", _head(engine, base, {"x.dat": "1\n\n\n\n\n\ntwo\n"}), DATE
    )
    assert made.kind is Landing.CONFLICT


def test_merge_drivers_of_the_user_do_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repo(tmp_path / "user", {".gitattributes": "*.txt merge=mine\n", "a.txt": "1\n"})
    driver = f"touch '{tmp_path}/ran'; exit 0"
    sh(root, "config", "merge.mine.driver", driver)
    sh(root, "config", "--file", str(tmp_path / "personal"), "merge.mine.driver", driver)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "personal"))
    engine = EngineRepo.open(user_repo.discover(root), tmp_path / "state")
    engine.refs.set_tip("r1", engine.user.head, "")
    base = engine.user.head
    _land(engine, "t1", _head(engine, base, {"a.txt": "one\n"}))
    made = make_candidate(engine, engine.refs.tip("r1"), "t2", "Two", _head(engine, base, {"a.txt": "two\n"}), DATE)
    assert made.kind is Landing.CONFLICT
    assert not (tmp_path / "ran").exists()


def test_a_missing_tip_or_head_is_an_error_and_not_a_landing(engine: EngineRepo) -> None:
    with pytest.raises(GitError):
        make_candidate(engine, "e" * 40, "t1", "x", engine.user.head, DATE)
    with pytest.raises(GitError):
        make_candidate(engine, engine.refs.tip("r1"), "t1", "x", "f" * 40, DATE)


def test_a_head_without_common_history_is_a_conflict_that_says_so(engine: EngineRepo) -> None:
    orphan = commit_tree(engine, engine.objects.tree_of(engine.user.head), [], "orphan\n", DATE)
    made = make_candidate(engine, engine.refs.tip("r1"), "t1", "x", orphan, DATE)
    assert (made.kind, made.files) == (Landing.CONFLICT, ())
    assert "no history in common" in made.reason


class KilledError(Exception):
    """The driver died here."""


@dataclass
class Driver:
    """Lands tasks as the engine does: every effect may be the last one before a kill; only `landed` survives."""

    root: Path
    kills: Iterator[bool]
    landed: dict[str, str] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    published: str = ""

    def point(self) -> None:
        if next(self.kills, False):
            raise KilledError

    def run(self, tasks: dict[str, dict[str, str]]) -> None:
        engine = EngineRepo.open(user_repo.discover(self.root / "user"), self.root / "state")
        slots = Slots(engine)
        for lease in slots.leases_of("r1"):
            slots.retire(slots.slot(lease.n), Attempt("r1", lease.key, 1), DATE)
        for task, files in tasks.items():
            if task not in self.landed:
                self.land(engine, slots, task, files, engine.user.head)

    def land(self, engine: EngineRepo, slots: Slots, task: str, files: dict[str, str], base: str) -> None:
        slot = slots.take("r1", task, base)
        self.point()
        write(slot.path, files)
        head = harvest(engine, slot, f"work of {task}\n", DATE)
        self.heads.append(head)
        self.point()
        engine.refs.hold("r1", task, head)
        self.point()
        made = make_candidate(engine, engine.refs.tip("r1"), task, task, head, DATE)
        self.point()
        slots.release(slot, Attempt("r1", task, 1), DATE)
        self.point()
        if made.kind is Landing.CONFLICT:
            return self.land(engine, slots, task, files, made.tip)
        assert _show(engine, made)
        self.point()
        self.landed[task] = made.commit
        self.published = publish(engine, "r1", "windlass/r1", engine.refs.tip("r1"), self.published).commit
        return self.point()


FILES = st.dictionaries(st.sampled_from(["a.txt", "b.txt", "c/d.txt"]), st.sampled_from("xyz"), min_size=1, max_size=3)


@pytest.mark.long
@settings(max_examples=12)
@given(tasks=st.lists(FILES, min_size=2, max_size=4), kills=st.lists(st.booleans(), max_size=25))
def test_whatever_is_killed_every_task_lands_exactly_once_and_every_commit_stays_reachable(
    tasks: list[dict[str, str]], kills: list[bool]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        engine = make_engine(root, {"a.txt": "1\n", "b.txt": "1\n"})
        plan = {f"t{n}": files for n, files in enumerate(tasks)}
        driver = Driver(root, iter(kills))
        while True:
            try:
                driver.run(plan)
                break
            except KilledError:
                continue
        tip = engine.refs.tip("r1")
        options = ("--first-parent", "--merges", "--format=%(trailers:key=Windlass-Task,valueonly,separator=)")
        seen = engine.git("log", *options, tip).out.split()
        changed = [task for task in plan if engine.git("log", "--format=%H", f"--grep=work of {task}$", tip).out]
        assert sorted(seen) == sorted(set(seen))
        assert set(seen) == set(changed)
        assert sh(root / "user", "rev-parse", "windlass/r1") == tip
        engine_refs = {*engine.refs.all().values(), *git.read_refs(root / "user").values()}
        lost = engine.git("rev-list", *driver.heads, "--not", *engine_refs).out
        assert lost == ""
        assert sh(root / "user", "fsck", "--connectivity-only") == ""


def test_a_landed_task_starts_few_gits(engine: EngineRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(engine)
    started: list[str] = []
    counts = []
    published = ""
    run_raw = git.run_raw

    def counted(args: Sequence[str], *rest: Any, **more: Any) -> Any:
        started.append(args[0])
        return run_raw(args, *rest, **more)

    monkeypatch.setattr(git, "run_raw", counted)
    for n in range(6):
        slot = slots.take("r1", f"t{n}", engine.refs.tip("r1"))
        write(slot.path, {f"f{n}": "x"})
        head = harvest(engine, slot, "work\n", DATE)
        started.clear()
        _land(engine, f"t{n}", head)
        published = publish(engine, "r1", "windlass/r1", engine.refs.tip("r1"), published).commit
        counts.append(len(started))
        engine.refs.hold("r1", f"t{n}", head)
        slots.release(slot, Attempt("r1", f"t{n}", 1), DATE)
    assert max(counts[1:]) <= 3, started
