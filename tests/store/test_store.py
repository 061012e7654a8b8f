"""The SQLite file: migrated when old, refused when new, kept when broken, and never half written.

What every store must do is in test_store_port.py.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from stores import CLAIM, Clock, stored
from unwritable import unwritable
from windlass.errors import LockHeldError, StoppedError, StoreError, TakenOverError
from windlass.events import Warned
from windlass.locks import DriverId, driver_lock, holder, is_driven
from windlass.model import RunState
from windlass.store.epoch import Person
from windlass.store.sqlite.schema import MIGRATIONS, VERSION
from windlass.store.sqlite.store import SqliteStore

HOLD = """
import sys
from pathlib import Path
from windlass.locks import driver_lock
with driver_lock(Path(sys.argv[1]), "r1"):
    print("held", flush=True)
    sys.stdin.read()
"""


HOLD_WITH_CHILD = """
import os, sys
from pathlib import Path
from windlass.locks import driver_lock
with driver_lock(Path(sys.argv[1]), "r1"):
    if os.fork():
        print("held", flush=True)
    sys.stdin.read()
    os._exit(0)
"""


def _open(path: Path) -> SqliteStore:
    return SqliteStore.open(path, Clock())


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
    assert store.runs.get("r1").state is RunState.PAUSED
    assert store.database.connection.execute("PRAGMA user_version").fetchone()[0] == VERSION
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
            store.events.add(Person("r1"), Warned("a", f"{n} " + "x" * 500))
    data = bytearray(path.read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 2048] = b"\xff" * 2048
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError) as refused, closing(_open(path)) as store:
        store.events.all("r1")
    assert str(path) in refused.value.message
    assert path.read_bytes() == bytes(data)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with unwritable(tmp_path), pytest.raises(StoreError, match="cannot write"):
        SqliteStore.open(tmp_path / "windlass.db", Clock(), create=True)


def test_a_place_where_no_folder_can_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        SqliteStore.open(tmp_path / "file" / "windlass.db", Clock(), create=True)


def test_a_full_disk_stops_the_run_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        pages = store.database.connection.execute("PRAGMA page_count").fetchone()[0]
        store.database.connection.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(StoppedError, match="no space left") as refused:
            store.steps.add(CLAIM, "k", "f", "null", "null", '"' + "x" * 1_000_000 + '"')
        assert "free some disk space" in refused.value.hint
        assert store.steps.all("r1") == []
        store.database.connection.execute("PRAGMA max_page_count = 100000")
        store.steps.add(CLAIM, "k", "f", "null", "null", '"ok"')
        assert [row.result for row in store.steps.all("r1")] == ["ok"]


def test_what_is_not_synced_is_seen_by_others_at_once_and_synced_with_what_follows(tmp_path: Path) -> None:
    with stored(tmp_path) as store, closing(_open(tmp_path / "windlass.db")) as other:
        with store.transaction(synced=False):
            store.runs.request("r1", "pause")
        assert (store.pending, other.runs.get("r1").wanted) == (True, "pause")
        with store.transaction():
            store.runs.request("r1", "")
        assert not store.pending
        with pytest.raises(ZeroDivisionError), store.transaction(synced=False):
            raise ZeroDivisionError
        assert store.database.connection.execute("PRAGMA synchronous").fetchone() == (2,)
        with store.transaction(synced=False):
            store.runs.request("r1", "abort")
        store.sync()
        assert not store.pending


def test_two_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from windlass.store.sqlite.store import SqliteStore;"
        "SqliteStore.open(Path(sys.argv[1]), lambda: 1.0, create=True).close()"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "new" / "windlass.db")]
    both = [subprocess.Popen(argv) for _ in range(3)]
    assert [process.wait(300) for process in both] == [0, 0, 0]


# -- the fence


def test_no_driver_can_take_over_while_the_fence_is_held(tmp_path: Path) -> None:
    with stored(tmp_path) as store, closing(store.fence(CLAIM)) as fence:
        store.database.connection.execute("PRAGMA busy_timeout = 0")
        with fence.held(), fence.held(), pytest.raises(sqlite3.OperationalError, match="locked"):
            store.database.connection.execute("BEGIN IMMEDIATE")
        newer = store.runs.take("r1")
        with pytest.raises(TakenOverError, match=r"another driver \(epoch 2\) took over run r1"), fence.held():
            raise AssertionError("it was held")
        # Refused, it is not held either.
        store.runs.set_state(newer, RunState.ABORTED)
        with pytest.raises(TakenOverError, match="the run is aborted"), fence.held():
            raise AssertionError("it was held")


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
    assert not is_driven(path)
    with driver_lock(path, "r1"):
        assert holder(path) == os.getpid()
    assert not is_driven(path)
    assert holder(path) is None


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What happens, one after the other, while a process waits for a lock."""
    happens: list[Callable[[], None]] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        if happens:
            happens.pop(0)()
        real(seconds)

    monkeypatch.setattr("windlass.locks.time.sleep", sleep)
    return happens


def _try_to_drive(path: Path) -> bool:
    with driver_lock(path, "r1"):
        return False


@pytest.mark.parametrize("ask", [is_driven, _try_to_drive])
def test_a_child_that_a_killed_driver_was_starting_does_not_drive_the_run(
    ask: Callable[[Path], bool], tmp_path: Path, waited: list[Callable[[], None]]
) -> None:
    path = tmp_path / "r1.lock"
    argv = [sys.executable, "-c", HOLD_WITH_CHILD, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdin
        assert driver.stdout
        assert driver.stdout.readline() == b"held\n"
        driver.kill()
        driver.wait()
        waited.append(driver.stdin.close)  # the child ends
        assert not ask(path)
    assert not waited, "the child held the lock"


def test_a_driver_starts_while_another_process_looks_whether_the_run_is_driven(
    tmp_path: Path, waited: list[Callable[[], None]]
) -> None:
    path = tmp_path / "r1.lock"
    path.write_text("")
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        waited.append(looking.close)
        assert not _try_to_drive(path)
    assert not waited


def test_a_lock_that_is_held_for_long_counts_as_a_driver_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.locks.LOCK_LOOK_S", 0.01)
    path = tmp_path / "r1.lock"
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_driven(path)
        with pytest.raises(LockHeldError, match="process unknown"):
            _try_to_drive(path)
