"""A plan that a person edits while the run rests: adopted, kept aside or restored, never silently followed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import CONFIG, PLAN, Bench, default_script, edit, go_on_until_done, make_bench, plan_path, writer
from flow_files import load
from gitrepo import sh
from windlass.driver.adoption import ArtifactEdit, propose
from windlass.engine.journal import Journal
from windlass.model import Json, Key, Task
from windlass.store.epoch import EpochClaim
from windlass.store.port import Store
from windlass.store.sqlite.store import SqliteStore

SMALL = CONFIG + '[roles.security-reviewer]\nagent = "none"\n[roles.performance-reviewer]\nagent = "none"\n'
EDITED = PLAN.replace("Add mul(a, b).", "Add mul(a, b), with the zero case.").replace(
    "- title: Subtract", "- title: Divide\n  description: Add div(a, b).\n  files: [src/div.py]\n- title: Subtract"
)


def _resting(tmp_path: Path) -> Bench:
    """A run that rests at its first checkpoint: the first task has landed."""
    bench = Bench(tmp_path)
    div = writer(bench, {"role": "implementer", "task": "Divide"}, "div", "def div(a, b):\n    return a / b\n")
    make_bench(tmp_path, script=[div, *default_script(bench)], config=SMALL)
    said = bench.run("--yes", "--set", "execution_mode=checkpoint")
    assert said.code == 11, str(said)
    return bench


def _by_task(bench: Bench) -> Counter[str]:
    return Counter(line["task"] for line in bench.dispatches() if line["task"])


def _to_the_end(bench: Bench) -> None:
    for _ in range(4):
        said = bench.windlass()
        if said.code == 0:
            return
        assert said.code == 11, str(said)
    raise AssertionError(str(said))


def test_an_edit_raises_one_question_that_names_what_would_run_again_and_pays_for_nothing(tmp_path: Path) -> None:
    bench = _resting(tmp_path)
    before = len(bench.dispatches())
    edit(bench, plan_path(bench), EDITED)
    said = bench.windlass()
    assert said.code == 10, str(said)
    assert "was edited after it was recorded" in said.out
    assert len(bench.dispatches()) == before
    assert len(bench.rows("SELECT 1 FROM question WHERE state = 'pending'")) == 1


def test_an_adopted_plan_goes_on_without_doing_the_landed_task_again(tmp_path: Path) -> None:
    bench = _resting(tmp_path)
    landed = _by_task(bench)["t1"]
    edit(bench, plan_path(bench), EDITED)
    assert bench.windlass().code == 10
    bench.windlass("answer", "adopt")
    _to_the_end(bench)
    assert _by_task(bench)["t1"] == landed
    assert "src/div.py" in bench.tree()
    branch = bench.rows("SELECT branch FROM run")[0]["branch"]
    assert sh(bench.root, "show", f"{branch}:{plan_path(bench)}").strip() == EDITED.strip()


@pytest.mark.long
@pytest.mark.parametrize(
    ("place", "when", "number"),
    [
        ("windlass.store.sqlite.steps:StepTable.supersede", "after", 1),
        ("windlass.driver.adoption:record", "before", 1),
        ("windlass.driver.adoption:record", "after", 1),
        ("windlass.driver.artifacts:commit_artifacts", "after", 1),
    ],
)
def test_killed_while_it_adopts_it_still_does_not_do_the_landed_task_again(
    place: str, when: str, number: int, tmp_path: Path
) -> None:
    bench = _resting(tmp_path)
    landed = _by_task(bench)["t1"]
    edit(bench, plan_path(bench), EDITED)
    assert bench.windlass().code == 10
    assert bench.killed_at(place, when, number, "answer", "adopt").killed
    _to_the_end(bench)
    assert _by_task(bench)["t1"] == landed
    assert {"src/sub.py", "src/mul.py", "src/div.py"} <= set(bench.tree())
    tasks = bench.rows("SELECT result FROM step WHERE key = 'execute/tasks'")[0]["result"]
    assert [title in tasks for title in ("Subtract", "Multiply", "Divide")] == [True] * 3


@pytest.mark.long
@pytest.mark.parametrize("choice", ["aside", "restore"])
def test_an_edit_that_is_not_adopted_changes_nothing(choice: str, tmp_path: Path) -> None:
    bench = _resting(tmp_path)
    path = plan_path(bench)
    edit(bench, path, EDITED)
    assert bench.windlass().code == 10
    bench.windlass("answer", choice)
    _to_the_end(bench)
    assert "src/div.py" not in bench.tree()
    assert (bench.run_folder / "files" / path).read_text() == PLAN
    kept = [file.read_text() for file in (bench.run_folder / "files" / path).parent.glob("*.mine-*")]
    assert kept == ([EDITED] if choice == "aside" else [])


@pytest.mark.long
def test_a_plan_that_drops_a_landed_task_cannot_be_adopted(tmp_path: Path) -> None:
    bench = _resting(tmp_path)
    without = PLAN.replace("- title: Subtract\n  description: Add sub(a, b).\n  files: [src/sub.py]\n", "")
    edit(bench, plan_path(bench), without)
    said = bench.windlass()
    assert said.code == 10
    assert "cannot be adopted" in said.out
    assert "Subtract" in said.out
    refused = bench.windlass("answer", "adopt")
    assert refused.code == 1
    assert bench.windlass("answer", "restore").code in (0, 11)


@pytest.mark.long
def test_a_landed_task_that_the_plan_changed_is_done_as_a_follow_up_on_the_tip(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    more = "def sub(a, b):\n    return a - b  # exact\n"
    files = {"src/sub.py": more, "tests/test_sub.py": "from sub import sub\n\n\ndef test_exact(): ...\n"}
    follow = writer(bench, {"role": "implementer", "task": "t1"}, "sub", more) | {"files": files}
    first = writer(bench, {"role": "implementer", "task": "t1"}, "sub", "def sub(a, b):\n    return a - b\n", times=1)
    make_bench(tmp_path, script=[first, follow, *default_script(bench)], config=SMALL)
    assert bench.run("--yes", "--set", "execution_mode=checkpoint").code == 11
    edit(bench, plan_path(bench), PLAN.replace("Add sub(a, b).", "Add sub(a, b), exactly."))
    assert bench.windlass().code == 10
    bench.windlass("answer", "adopt")
    _to_the_end(bench)
    keys = [row["key"] for row in bench.rows("SELECT DISTINCT key FROM attempt WHERE key LIKE 'execute/t1%implement'")]
    assert sorted(keys) == ["execute/t1+2/implement", "execute/t1/implement"]
    branch = bench.rows("SELECT branch FROM run")[0]["branch"]
    assert "exact" in sh(bench.root, "show", f"{branch}:src/sub.py")


@pytest.mark.long
def test_without_an_edit_a_resume_asks_nothing(tmp_path: Path) -> None:
    bench = _resting(tmp_path)
    go_on_until_done(bench)
    assert not bench.rows("SELECT 1 FROM question WHERE id = 'adopt'")


# -- any edit at all, over a journal in which some tasks have landed and some have begun

FLOW = load("plan")
TITLES = ("Subtract", "Multiply", "Divide", "Negate")
entries = st.lists(
    st.tuples(st.sampled_from(TITLES), st.sampled_from(["as it was", "changed"])), unique_by=lambda e: e[0], max_size=4
)


def _plan(items: list[tuple[str, str]]) -> str:
    lines = [
        f"- title: {title}\n  description: {title} {text}\n  files: [src/{title.lower()}.py]\n" for title, text in items
    ]
    return f"# Plan\n\n```superteam-tasks\n{''.join(lines)}```\n"


def _journal(store: Store, states: list[str]) -> tuple[Journal, dict[str, str]]:
    """t1.. in these states: landed, begun or untouched."""
    journal, phase = Journal(store, EpochClaim("r", 0)), Key().child("execute")
    tasks = [
        Task(f"t{n}", title, f"{title} as it was", (f"src/{title.lower()}.py",))
        for n, (title, _) in enumerate(zip(TITLES, states, strict=False), 1)
    ]
    listed: Json = [task.to_json() for task in tasks]
    _put(journal, phase.child("tasks"), {"plan": "sha"}, listed)
    for task, state in zip(tasks, states, strict=True):
        if state != "untouched":
            _put(journal, phase.child(task.id).child("implement"), {"task": task.id}, {"ok": True})
        if state == "landed":
            _put(journal, phase.child(task.id).child("land", cycle=1), {"task": task.id}, {"kind": "landed"})
    return journal, {task.title: task.id for task in tasks}


def _put(journal: Journal, key: Key, inputs: Json, result: Json) -> None:
    with journal.writing(key.text):
        journal.add(key, inputs, None, result)


@given(states=st.lists(st.sampled_from(["landed", "begun", "untouched"]), min_size=1, max_size=4), items=entries)
def test_whatever_is_edited_no_landed_task_is_proposed_to_run_again(
    states: list[str], items: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = SqliteStore.open(tmp_path_factory.mktemp("db") / "w.db", lambda: 1.0, create=True)
    try:
        journal, ids = _journal(store, states)
        proposal = propose(store, "r", FLOW, journal, ArtifactEdit("plan", "p.md", "plan-draft", "old", _plan(items)))
        by_state = dict(zip(TITLES, states, strict=False))
        again = {Key.parse(key).parts[1].id for key in proposal.again if key != "execute/tasks"}
        named = dict(items)
        if proposal.problem:
            assert not again
        else:
            # Exactly the tasks that had begun, have not landed, and say something else now.
            assert again == {
                ids[t] for t, s in by_state.items() if s == "begun" and named.get(t, "as it was") == "changed"
            }
        missing = [t for t, s in by_state.items() if s in ("begun", "landed") and t not in named]
        assert bool(proposal.problem) == bool(missing or not items)
    finally:
        store.close()
