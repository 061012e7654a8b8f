"""The journal says what a run's tip is; the ref only shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench import CONFIG, Bench, default_script, go_on_until_done, make_bench
from gitrepo import DATE, make_engine, reachable, sh
from processes_for_tests import until
from stores import CLAIM, RUN, Clock, journal, put_run
from windlass.engine.journal import Journal
from windlass.engine.tip import Tip
from windlass.errors import StoppedError
from windlass.events import Warned
from windlass.git.engine_repo import EngineRepo
from windlass.git.run_refs import tip_ref
from windlass.git.trees import commit_tree
from windlass.model import Key
from windlass.store.port import Store
from windlass.store.sqlite.store import SqliteStore
from windlass.store.tips import tip_of_run

SMALL = CONFIG + '[roles.security-reviewer]\nagent = "none"\n[roles.performance-reviewer]\nagent = "none"\n'
# A commit that nobody checked becomes what the ref shows; it is written into the engine's own repository.
FORGE = """
for g in {state}/windlass/*/repo.git; do
  ref=$(git --git-dir=$g for-each-ref --format='%(refname)' 'refs/windlass/*/tip')
  blob=$(echo forged | git --git-dir=$g hash-object -w --stdin)
  tree=$( (git --git-dir=$g ls-tree $ref; printf '100644 blob %s\\tforged.py\\n' $blob) | git --git-dir=$g mktree)
  new=$(git --git-dir=$g -c user.name=E -c user.email=e@e commit-tree $tree -p $ref -m forged)
  git --git-dir=$g update-ref $ref $new
  echo $new > {made}
done
"""


@pytest.mark.long
def test_a_tip_that_an_agent_forged_before_the_driver_died_is_put_back_and_reported(tmp_path: Path) -> None:
    bench, made = Bench(tmp_path), tmp_path / "forged"
    script = default_script(bench)
    first = next(rule for rule in script if rule["when"].get("task") == "t1")
    forging = {**first, "when": {**first["when"], "attempt": 1}, "hang": True}
    forging["run"] = [FORGE.format(state=bench.state, made=made)]
    make_bench(tmp_path, script=[forging, *script], config=SMALL)
    with bench.first_driver("--yes"):
        until(lambda: made.exists() and made.read_text().strip() != "")
    go_on_until_done(bench)
    forged = made.read_text().strip()
    row = bench.rows("SELECT id, branch FROM run")[0]
    history = sh(bench.root, "rev-list", row["branch"]).split()
    assert forged not in history
    assert "forged.py" not in sh(bench.root, "ls-tree", "-r", "--name-only", row["branch"])
    (last,) = bench.rows("SELECT sha FROM tip ORDER BY seq DESC LIMIT 1")
    assert sh(bench.engine, "rev-parse", f"refs/windlass/{row['id']}/tip") == last["sha"] == history[0]
    assert reachable(bench.engine, forged), "what it led to is kept"
    warned = [one["data"] for one in bench.rows("SELECT data FROM event WHERE type = 'warned'")]
    assert any(forged in text and "where this run never put it" in text for text in warned), warned


# -- the parts


@pytest.fixture
def engine(tmp_path: Path) -> EngineRepo:
    return make_engine(tmp_path, {"a.txt": "1\n"})


@pytest.fixture
def store(tmp_path: Path, engine: EngineRepo) -> Iterator[Store]:
    store = SqliteStore.open(tmp_path / "windlass.db", Clock(), create=True)
    put_run(store, replace(RUN, base=engine.user.head))
    yield store
    store.close()


def child(engine: EngineRepo, parent: str, text: str) -> str:
    return commit_tree(engine, engine.objects.tree_of(parent), [parent], f"{text}\n", DATE)


def put(record: Journal, sha: str, key: str = "execute/t1/land#1") -> None:
    with record.writing("land"):
        record.tips.put(key, sha)


def warnings(store: Store, record: Journal) -> list[str]:
    record.flush()
    return [one.event.text for one in store.events.all("r1") if isinstance(one.event, Warned)]


def test_a_ref_that_lags_behind_is_moved_without_a_word(store: Store, engine: EngineRepo) -> None:
    record, base = journal(store), engine.user.head
    put(record, base, "")
    put(record, child(engine, base, "landed"))
    assert engine.refs.tip("r1") == base, "killed before the ref was moved"
    again = journal(store)
    Tip(again, engine).restore()
    assert engine.refs.tip("r1") == record.tips.now == again.tips.now
    assert warnings(store, again) == []


@pytest.mark.parametrize("how", ["commit", "symbolic", "nonsense", "folder"])
def test_a_ref_that_shows_what_the_journal_does_not_know_is_put_back(
    how: str, store: Store, engine: EngineRepo
) -> None:
    record, base = journal(store), engine.user.head
    put(record, base, "")
    tip, forged = child(engine, base, "landed"), child(engine, base, "forged")
    put(record, tip)
    ref = tip_ref("r1")
    if how == "commit":
        engine.git("update-ref", ref, forged)
    elif how == "symbolic":
        engine.git("update-ref", "refs/heads/elsewhere", forged)
        engine.git("symbolic-ref", ref, "refs/heads/elsewhere")
    elif how == "nonsense":
        (engine.path / ref).write_text("f" * 40 + "\n")
    else:
        engine.git("update-ref", "-d", ref)
        engine.git("update-ref", f"{ref}/below", forged)
    Tip(record, engine).restore()
    assert engine.git("rev-parse", ref).line == tip
    assert (engine.path / ref).read_text().strip() == tip
    assert len(warnings(store, record)) == 1
    if how != "nonsense":
        held = [sha for name, sha in engine.refs.all().items() if name.startswith("refs/windlass/r1/hold/stray")]
        assert held == [forged]


def test_a_ref_that_is_gone_comes_back(store: Store, engine: EngineRepo) -> None:
    record = journal(store)
    put(record, engine.user.head, "")
    engine.git("update-ref", "-d", tip_ref("r1"))
    Tip(record, engine).restore()
    assert engine.refs.tip("r1") == record.tips.now


def test_a_run_without_recorded_tips_takes_the_last_that_a_step_recorded(store: Store, engine: EngineRepo) -> None:
    """A database of the schema before."""
    record, base = journal(store), engine.user.head
    landed, forged = child(engine, base, "landed"), child(engine, base, "forged")
    assert tip_of_run(store, "r1") == base
    key = Key.parse("execute/t1/land#1")
    result = f'{{"kind": "landed", "detail": "", "files": [], "tip": "{landed}"}}'
    store.steps.add(CLAIM, key.text, "f", "{}", "null", result)
    engine.git("update-ref", tip_ref("r1"), forged)
    assert tip_of_run(store, "r1", shown=forged) == landed
    assert tip_of_run(store, "r1", shown=base) == landed
    Tip(record, engine).restore()
    assert (engine.refs.tip("r1"), store.tips.all("r1")) == (landed, [landed])
    assert len(warnings(store, record)) == 1


def test_two_drivers_cannot_both_move_the_tip(store: Store, engine: EngineRepo) -> None:
    base = engine.user.head
    one = journal(store)
    put(one, base, "")
    two = journal(store)
    put(one, child(engine, base, "one"))
    with pytest.raises(StoppedError, match="another driver"):
        put(two, child(engine, base, "two"))
    assert store.tips.all("r1") == one.tips.all
    assert two.tips.now == base, "what was rolled back does not count"


def test_an_undone_tip_is_the_one_that_landed_last_not_the_one_that_was_seen_before(engine: EngineRepo) -> None:
    base = engine.user.head
    before, mark = engine.refs.all(), engine.audit.mark()
    landed, forged = child(engine, base, "landed"), child(engine, base, "forged")
    assert engine.refs.show_tip("r1", landed, [base, landed]) == ""
    engine.git("update-ref", tip_ref("r1"), forged)
    changes = engine.audit.changes("r1", before, engine.refs.all(), mark)
    engine.audit.undo(changes)
    assert engine.refs.tip("r1") == landed
