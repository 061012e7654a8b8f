"""Waits that all runs of a login obey, whatever repository they are in, whatever the clocks do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench import Bench, make_bench
from processes_for_tests import until
from windlass.config.schema import RetrySettings
from windlass.store.epoch import EpochClaim
from windlass.store.port import PROBE_S
from windlass.store.sqlite.quota import CALM_S, QuotaTable
from windlass.store.sqlite.store import SqliteStore

#: there is no run here, and so no driver that could be replaced
CLAIM = EpochClaim("none", 0)
PAUSES = (5.0, 10.0, 20.0)


class Clocks:
    """The machine's two clocks. Time passes on both; only the wall clock can be set."""

    def __init__(self) -> None:
        self.wall, self.up = 1_000_000.0, 50.0
        self.stores: list[SqliteStore] = []

    def go(self, seconds: float) -> None:
        self.wall += seconds
        self.up += seconds


@pytest.fixture
def clocks() -> Iterator[Clocks]:
    clocks = Clocks()
    yield clocks
    for store in clocks.stores:
        store.close()


def waits(tmp_path: Path, clocks: Clocks, boot: str = "b1") -> QuotaTable:
    store = SqliteStore.open(tmp_path / "windlass.db", lambda: clocks.wall, create=True)
    clocks.stores.append(store)
    return QuotaTable(tmp_path / "state" / "waits.db", store.database, lambda: clocks.up, boot)


@pytest.fixture
def book(tmp_path: Path, clocks: Clocks) -> QuotaTable:
    return waits(tmp_path, clocks)


def turned_away(book: QuotaTable, clocks: Clocks, retry_in: float | None = None) -> float:
    """A probe that is turned away; how long the login waits then."""
    retry_at = None if retry_in is None else clocks.wall + retry_in
    wait = book.hold(CLAIM, "claude", "429", PAUSES, retry_at=retry_at, begun=clocks.up)
    clocks.go(wait.left_s)
    return wait.left_s


def test_pauses_grow_while_nothing_gets_through(book: QuotaTable, clocks: Clocks) -> None:
    assert [turned_away(book, clocks) for _ in range(5)] == [5.0, 10.0, 20.0, 20.0, 20.0]


def test_a_server_that_says_a_second_each_time_is_believed_once(book: QuotaTable, clocks: Clocks) -> None:
    assert [turned_away(book, clocks, 1.0) for _ in range(4)] == [1.0, 10.0, 20.0, 20.0]


def test_a_reset_that_is_later_than_our_pause_counts(book: QuotaTable, clocks: Clocks) -> None:
    assert [turned_away(book, clocks, 3600.0) for _ in range(2)] == [3600.0, 3600.0]


def test_an_answer_ends_the_wait_and_the_pauses_begin_anew(book: QuotaTable, clocks: Clocks) -> None:
    turned_away(book, clocks)
    turned_away(book, clocks)
    book.clear(CLAIM, "claude", clocks.up)
    assert book.find("claude") is None
    assert book.probe(CLAIM, "claude")
    clocks.go(CALM_S + 1)
    assert turned_away(book, clocks) == 5.0


def test_an_answer_between_two_refusals_opens_the_way_and_still_lets_the_pauses_grow(
    book: QuotaTable, clocks: Clocks
) -> None:
    found = []
    for _ in range(4):
        found.append(turned_away(book, clocks, 1.0))
        book.clear(CLAIM, "claude", clocks.up)
        clocks.go(2)
    assert found == [1.0, 10.0, 20.0, 20.0]


def test_dispatches_that_were_under_way_neither_lengthen_nor_end_a_wait(book: QuotaTable, clocks: Clocks) -> None:
    begun = clocks.up
    clocks.go(1)
    first = book.hold(CLAIM, "claude", "429", PAUSES, begun=begun)
    clocks.go(1)
    assert book.hold(CLAIM, "claude", "429", PAUSES, begun=begun).failures == first.failures == 1
    book.clear(CLAIM, "claude", begun)
    found = book.find("claude")
    assert found is not None
    assert found.left_s == 4.0


def test_a_dispatch_that_was_under_way_may_bring_the_reset(book: QuotaTable, clocks: Clocks) -> None:
    begun = clocks.up
    clocks.go(1)
    book.hold(CLAIM, "claude", "429", PAUSES, begun=begun)
    assert book.hold(CLAIM, "claude", "429", PAUSES, retry_at=clocks.wall + 60, begun=begun).left_s == 60.0


def test_after_the_wait_one_tries_and_the_others_wait_for_it(tmp_path: Path, clocks: Clocks) -> None:
    one, other = waits(tmp_path, clocks), waits(tmp_path, clocks)
    one.hold(CLAIM, "claude", "429", PAUSES, begun=clocks.up)
    assert not one.probe(CLAIM, "claude")
    clocks.go(6)
    assert [one.probe(CLAIM, "claude"), other.probe(CLAIM, "claude")] == [True, False]
    one.release(CLAIM, "claude")
    assert other.probe(CLAIM, "claude")


def test_a_probe_that_hangs_does_not_hold_the_others_for_ever(book: QuotaTable, clocks: Clocks) -> None:
    turned_away(book, clocks)
    assert book.probe(CLAIM, "claude")
    clocks.go(PROBE_S - 1)
    assert not book.probe(CLAIM, "claude")
    clocks.go(2)
    assert book.probe(CLAIM, "claude")


def test_a_probe_whose_process_died_is_given_again(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from windlass.store.epoch import EpochClaim;"
        "from windlass.store.sqlite.store import SqliteStore; claim = EpochClaim('none', 0);"
        "book = SqliteStore.open(Path(sys.argv[1]), time.time, create=True).quota;"
        "book.hold(claim, 'claude', '429', (0.0,)); sys.exit(not book.probe(claim, 'claude'))"
    )
    database = tmp_path / "windlass.db"
    subprocess.run([sys.executable, "-c", program, str(database)], check=True, env=dict(os.environ))
    with closing(SqliteStore.open(database, time.time)) as store:
        assert [store.quota.probe(CLAIM, "claude"), store.quota.probe(CLAIM, "claude")] == [True, False]


def test_a_clock_set_back_does_not_stretch_a_wait(book: QuotaTable, clocks: Clocks) -> None:
    book.hold(CLAIM, "claude", "429", PAUSES, retry_at=clocks.wall + 60, begun=clocks.up)
    clocks.wall -= 86_400
    clocks.go(20)
    found = book.find("claude")
    assert found is not None
    assert (found.left_s, found.until) == (40.0, clocks.wall + 40)
    clocks.go(41)
    assert book.probe(CLAIM, "claude")


def test_time_that_the_machine_slept_counts(book: QuotaTable, clocks: Clocks) -> None:
    book.hold(CLAIM, "claude", "429", PAUSES, retry_at=clocks.wall + 3600, begun=clocks.up)
    clocks.wall += 4000
    assert book.probe(CLAIM, "claude")


def test_after_a_restart_with_the_clock_set_back_a_wait_is_at_most_what_was_asked_for(
    tmp_path: Path, clocks: Clocks
) -> None:
    waits(tmp_path, clocks).hold(CLAIM, "claude", "429", PAUSES, retry_at=clocks.wall + 60, begun=clocks.up)
    clocks.wall -= 86_400
    clocks.up = 3.0
    found = waits(tmp_path, clocks, boot="b2").find("claude")
    assert found is not None
    assert found.left_s == 60.0


def test_logins_do_not_wait_for_each_other(book: QuotaTable, clocks: Clocks) -> None:
    book.hold(CLAIM, "claude", "429", PAUSES, begun=clocks.up)
    assert book.find("codex") is None


def test_nobody_waits_and_nothing_is_written_where_nothing_happened(book: QuotaTable, tmp_path: Path) -> None:
    assert book.find("claude") is None
    book.clear(CLAIM, "claude", 0.0)
    book.release(CLAIM, "claude")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("attempt_s", [0.1, 1.0, 5.0, 10.0, 25.0])
def test_after_an_outage_of_two_minutes_a_run_is_back_within_one(
    attempt_s: float, book: QuotaTable, clocks: Clocks
) -> None:
    """Whatever an attempt takes until it is turned away, with the pauses that are the default."""
    pauses, began = RetrySettings().pauses, clocks.up
    while clocks.up - began < 120:
        begun = clocks.up
        clocks.go(attempt_s)
        clocks.go(book.hold(CLAIM, "claude", "503", pauses, begun=begun).left_s)
    assert clocks.up - began - 120 <= 60


def test_pauses_grow_to_minutes_in_a_long_outage() -> None:
    pauses = RetrySettings().pauses
    assert list(pauses) == sorted(pauses)
    assert pauses[-1] >= 300


def test_a_dispatch_that_tells_a_usage_without_a_token_does_not_end_the_wait(tmp_path: Path) -> None:
    """A CLI whose request failed says what it used, which is nothing, before it ends."""
    refused = {"when": {"role": "scout", "attempt": 1}, "stderr": "429 Too Many Requests", "exit": 1}
    nothing = {"input": 0, "output": 0}
    failing = {"when": {"role": "scout"}, "usage": nothing, "usage_steps": [0.0, 0.0], "hang": True, "exit": 1}
    bench = make_bench(tmp_path, script=[refused, failing], config='[retries]\npauses = ["1ms"]\n')
    with bench.first_driver() as driver:
        # When the second report is on record, the first one has had its effect.
        until(lambda: _usage_reports(bench) >= 2 or driver.poll() is not None, 60.0)
        assert driver.poll() is None
        shared = bench.state / "windlass" / "waits.db"
        with closing(SqliteStore.open(bench.home / "windlass.db", time.time, waits=shared)) as store:
            assert store.quota.find("scripted") is not None


def _usage_reports(bench: Bench) -> int:
    logs = bench.home.glob("runs/*/attempts/**/events.jsonl")
    return sum(path.read_text().count('"type": "Spent"') for path in logs)
