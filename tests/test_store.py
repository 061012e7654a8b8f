"""The database: migrated when old, refused when new, kept when broken, and never half written."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from processes_for_tests import until
from stores import RUN, Clock, intent, put_run, stored
from unwritable import unwritable
from windlass.errors import LockHeldError, StoppedError, StoreError, TakenOverError
from windlass.events import Warned
from windlass.locks import DriverId, driver_lock, holder, is_driven
from windlass.model import RunState
from windlass.store.database import Store
from windlass.store.fence import EpochClaim, Fence
from windlass.store.opening import MIGRATIONS, VERSION

HOLD = """
import sys
from pathlib import Path
from windlass.locks import driver_lock
with driver_lock(Path(sys.argv[1]), "r1"):
    print("held", flush=True)
    sys.stdin.read()
"""


def _open(path: Path) -> Store:
    return Store.open(path, Clock())


def test_a_database_of_a_newer_windlass_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    with stored(tmp_path):
        pass
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(StoreError, match="newer Windlass") as refused:
        _open(path)
    assert "upgrade" in refused.value.hint
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == VERSION + 1


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_database_of_an_older_windlass_is_migrated_with_its_runs(version: int, tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    with closing(sqlite3.connect(path)) as db:
        for script in MIGRATIONS[:version]:
            db.executescript(script.read_text())
        db.execute(f"PRAGMA user_version = {version}")
        db.execute(
            "INSERT INTO run (id, request, flow, flow_text, slug, date, base, branch, settings, options, state,"
            " started_at, updated_at) VALUES ('r1','Add','plan','','add','d','b','w','{}','{}','paused',1,1)"
        )
        db.commit()
    store = _open(path)
    assert store.run("r1").state is RunState.PAUSED
    assert store.db.execute("PRAGMA user_version").fetchone()[0] == VERSION
    store.close()


@pytest.mark.req("S0-79")
def test_an_unreadable_database_is_kept_and_reported_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError) as refused:
        _open(path)
    assert str(path) in refused.value.message
    assert path.read_bytes() == before


def test_a_database_with_a_torn_page_is_reported_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    with stored(tmp_path) as store:
        for n in range(200):
            with store.tx():
                store.add_event("r1", Warned("a", f"{n} " + "x" * 500))
    data = bytearray(path.read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 2048] = b"\xff" * 2048
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError) as refused, closing(_open(path)) as store:
        store.events("r1")
    assert str(path) in refused.value.message
    assert path.read_bytes() == bytes(data)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with unwritable(tmp_path), pytest.raises(StoreError, match="cannot write"):
        Store.open(tmp_path / "windlass.db", Clock(), create=True)


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        Store.open(tmp_path / "file" / "windlass.db", Clock(), create=True)


def test_a_full_disk_stops_the_run_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        pages = store.db.execute("PRAGMA page_count").fetchone()[0]
        store.db.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(StoppedError, match="no space left") as refused, store.tx():
            store.add_step("r1", "k", "f", "null", "null", '"' + "x" * 1_000_000 + '"')
        assert "free some disk space" in refused.value.hint
        assert store.steps("r1") == []
        store.db.execute("PRAGMA max_page_count = 100000")
        with store.tx():
            store.add_step("r1", "k", "f", "null", "null", '"ok"')
        assert [row.result for row in store.steps("r1")] == ["ok"]


def _half_a_transaction(store: Store) -> None:
    with store.tx():
        store.add_event("r1", Warned("a", "half"))
        with store.tx():
            store.set_state("r1", RunState.FINISHED)
        raise ZeroDivisionError


def test_what_is_not_synced_is_seen_by_others_at_once_and_synced_with_what_follows(tmp_path: Path) -> None:
    with stored(tmp_path) as store, closing(_open(tmp_path / "windlass.db")) as other:
        with store.tx(synced=False):
            store.set_wanted("r1", "pause")
        assert (store.pending, other.run("r1").wanted) == (True, "pause")
        with store.tx():
            store.set_wanted("r1", "")
        assert not store.pending
        with pytest.raises(ZeroDivisionError), store.tx(synced=False):
            raise ZeroDivisionError
        assert store.db.execute("PRAGMA synchronous").fetchone() == (2,)
        with store.tx(synced=False):
            store.set_wanted("r1", "abort")
        store.sync()
        assert not store.pending


def test_an_error_inside_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        before = store.events("r1")
        with pytest.raises(ZeroDivisionError):
            _half_a_transaction(store)
        assert store.events("r1") == before
        assert store.run("r1").state is RunState.RUNNING


def test_another_process_sees_by_a_number_that_something_was_committed(tmp_path: Path) -> None:
    with stored(tmp_path) as store, closing(_open(tmp_path / "windlass.db")) as other:
        seen = other.data_version()
        assert other.data_version() == seen
        with store.tx():
            store.set_wanted("r1", "pause")
        assert other.data_version() != seen
        assert other.run("r1").wanted == "pause"


def test_the_first_of_two_answers_wins(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        with store.tx():
            assert store.add_question("r1", "q!a", "a", {})
            assert not store.add_question("r1", "q!a", "a", {})
        assert store.answer("r1", "q!a", "yes", "", "Ada")
        assert not store.answer("r1", "q!a", "no", "", "Bob")
        row = store.question("r1", "q!a")
        assert row
        assert (row.answer, row.by) == ("yes", "Ada")


def test_a_cost_that_nobody_told_is_counted_apart(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        for n, cost in ((1, 0.25), (2, None), (3, 0.5)):
            store.begin_attempt("r1", 1, intent("plan/scout", n))
            store.end_attempt("r1", "plan/scout", n, 1, state="done", cost_usd=cost)
        store.begin_attempt("r1", 1, intent("plan/planner", 1, "planner"))
        spend = store.spend("r1")
    assert (spend.known_usd, spend.unknown, spend.by_role) == (0.75, 1, {"scout": 0.5})


def test_two_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from windlass.store.database import Store;"
        "Store.open(Path(sys.argv[1]), lambda: 1.0, create=True).close()"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "new" / "windlass.db")]
    both = [subprocess.Popen(argv) for _ in range(3)]
    assert [process.wait(60) for process in both] == [0, 0, 0]


def test_a_run_begun_while_another_process_reads_is_seen_by_it(tmp_path: Path) -> None:
    first = Store.open(tmp_path / "windlass.db", Clock(), create=True)
    with closing(first), closing(_open(tmp_path / "windlass.db")) as second:
        assert second.runs() == []
        put_run(first)
        assert [row.id for row in second.runs()] == [RUN.id]


# -- the fence


def test_no_driver_can_take_over_while_the_fence_is_held(tmp_path: Path) -> None:
    with stored(tmp_path) as store, closing(Fence(store.path, EpochClaim("r1", 1))) as fence:
        store.db.execute("PRAGMA busy_timeout = 0")
        with fence.held(), fence.held(), pytest.raises(sqlite3.OperationalError, match="locked"):
            store.db.execute("BEGIN IMMEDIATE")
        with store.tx():
            store.next_epoch("r1")
        with pytest.raises(TakenOverError, match=r"another driver \(epoch 2\) took over run r1"), fence.held():
            raise AssertionError("it was held")
        # Refused, it is not held either.
        with store.tx():
            store.set_state("r1", RunState.ABORTED)
        with pytest.raises(TakenOverError, match="the run is aborted"), fence.held():
            raise AssertionError("it was held")


def test_writes_of_others_are_not_bound_to_the_driver(tmp_path: Path) -> None:
    with stored(tmp_path) as store, closing(_open(store.path)) as other:
        store.claim = EpochClaim("r1", 1)
        with other.tx():
            other.set_wanted("r1", "pause")
        with store.tx():
            assert store.run("r1").wanted == "pause"


def test_a_wish_to_pause_was_for_the_driver_before_and_a_wish_to_abort_is_for_whoever_comes(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        for wanted, left in (("pause", ""), ("abort", "abort")):
            store.set_wanted("r1", wanted)
            store.next_epoch("r1")
            assert store.run("r1").wanted == left


# -- the lock


@pytest.mark.parametrize("again", [False, True])
def test_a_lock_whose_file_is_gone_or_another_one_is_lost(again: bool, tmp_path: Path) -> None:
    path = tmp_path / "r1.lock"
    with driver_lock(path, "r1") as lock:
        lock.require()
        path.unlink()
        if again:
            path.write_text("")
        with pytest.raises(TakenOverError, match="another file now" if again else "is gone"):
            lock.require()
        with driver_lock(path, "r1") as other:
            other.require()


def test_a_driver_is_told_from_another_process_with_its_number() -> None:
    own = DriverId.own()
    assert DriverId.parse(own.to_json()) == own
    assert own.here
    assert own.may_live
    assert not replace(own, start=own.start + 1).may_live
    assert not replace(own, boot="an earlier one").may_live
    assert replace(own, host="elsewhere", pid=2**22 + 1).may_live, "nobody here can know"
    assert DriverId.parse("") is None


def test_a_second_driver_is_refused_with_the_holders_pid_until_kill_9_frees_it(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "r1.lock"
    argv = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout
        assert first.stdout.readline() == b"held\n"
        assert is_driven(path)
        with pytest.raises(LockHeldError, match=f"process {first.pid}"), driver_lock(path, "r1"):
            pass
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    until(lambda: not is_driven(path))
    with driver_lock(path, "r1"):
        assert holder(path) == os.getpid()
    assert not is_driven(path)
