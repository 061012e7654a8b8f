"""Keyed steps: what has a result is not done twice, and nothing changes what a step stands for in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import CLAIM, intent, journal, stored
from windlass.engine.attempts import AttemptFailure
from windlass.engine.journal import Journal, refuse_unknown
from windlass.errors import JournalMismatchError, LostAttemptError, StoppedError, TakenOverError
from windlass.events import PhaseEntered, Recorded, Warned
from windlass.model import ErrorClass, Json, Key, Usage
from windlass.store.epoch import Person
from windlass.store.port import Store
from windlass.store.rows import AdoptionRow
from windlass.store.sqlite.store import SqliteStore

KEY = Key.parse("execute/t1/implement")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with stored(tmp_path) as opened:
        yield opened


def _step(book: Journal, key: Key, inputs: Json, result: Json) -> tuple[Json, list[Json]]:
    """The step's result, and the superseded results that fn was given when it ran."""
    ran: list[Json] = []

    async def work(previous: Json) -> Json:
        ran.append(previous)
        return result

    return asyncio.run(book.step(key, inputs, work)), ran


def _adopt(store: Store, *covers: str) -> None:
    store.adoptions.add(CLAIM, AdoptionRow(0, "plan", "execute", "old", "new", "Ada", frozenset(covers)))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=8,
)


@given(inputs=json_values, result=json_values)
def test_a_replay_returns_what_the_step_returned_and_does_not_run_it(
    inputs: Json, result: Json, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with stored(tmp_path_factory.mktemp("db")) as store:
        first, ran = _step(journal(store), KEY, inputs, result)
        assert ran == [None]
        again, ran = _step(journal(store, 2), KEY, inputs, "another")
        assert (again, ran) == (first, [])


def test_other_inputs_stop_the_run_and_show_the_difference(store: Store) -> None:
    _step(journal(store), KEY, {"task": "Subtract", "role": "implementer"}, "done")
    with pytest.raises(JournalMismatchError, match=r'task: "Subtract" -> "Multiply"') as refused:
        _step(journal(store, 2), KEY, {"task": "Multiply", "role": "implementer"}, "done")
    assert "role" not in refused.value.message.partition(":")[2]


def test_other_inputs_that_were_adopted_run_the_step_again_with_what_it_replaced(store: Store) -> None:
    _step(journal(store), KEY, {"task": 1}, "old result")
    _adopt(store, "execute/t1")
    book = journal(store, 2)
    assert _step(book, KEY, {"task": 2}, "new result") == ("new result", ["old result"])
    assert _step(journal(store, 3), KEY, {"task": 2}, "third") == ("new result", [])
    assert [row.result for row in store.steps.superseded("r1")] == ["old result"]


def test_a_driver_killed_after_superseding_still_gives_the_next_one_the_old_result(store: Store) -> None:
    _step(journal(store), KEY, {"task": 1}, "old result")
    _adopt(store, KEY.text)
    assert journal(store, 2).find(KEY, {"task": 2}) is None
    assert _step(journal(store, 3), KEY, {"task": 2}, "new") == ("new", ["old result"])


def test_an_adoption_covers_no_sibling_whose_name_begins_alike(store: Store) -> None:
    _step(journal(store), Key.parse("execute/t10/implement"), {"task": 1}, "done")
    _adopt(store, "execute/t1")
    with pytest.raises(JournalMismatchError):
        _step(journal(store, 2), Key.parse("execute/t10/implement"), {"task": 2}, "again")


def test_an_equal_value_in_another_order_of_keys_is_the_same_step(store: Store) -> None:
    _step(journal(store), KEY, {"a": 1, "b": 2}, "done")
    assert _step(journal(store, 2), KEY, {"b": 2, "a": 1}, "again") == ("done", [])


def test_a_step_whose_work_failed_leaves_nothing_and_runs_again(store: Store) -> None:
    async def broken(previous: Json) -> Json:
        raise StoppedError("no network")

    with pytest.raises(StoppedError):
        asyncio.run(journal(store).step(KEY, None, broken))
    assert _step(journal(store, 2), KEY, None, "done") == ("done", [None])


def test_recorded_steps_that_nobody_asks_for_stop_the_run(store: Store) -> None:
    _step(journal(store), Key.parse("plan-draft/summary"), None, "from a newer version")
    book = journal(store, 2)
    _step(book, Key.parse("plan-draft/scout"), None, "known")
    with pytest.raises(StoppedError, match="plan-draft/summary"):
        refuse_unknown(book, Key.parse("plan-draft"))


def test_steps_of_another_visit_or_phase_are_not_unknown(store: Store) -> None:
    for key in ("plan-draft+2/scout", "plan-drafts/scout", "plan-draft/scout"):
        _step(journal(store), Key.parse(key), None, "done")
    book = journal(store, 2)
    assert book.find(Key.parse("plan-draft/scout"), None)
    refuse_unknown(book, Key.parse("plan-draft"))


def test_what_a_later_visit_took_the_place_of_is_not_unknown(store: Store) -> None:
    _step(journal(store), Key.parse("execute/t1/implement"), None, "done")
    _step(journal(store), Key.parse("execute/t10/implement"), None, "done")
    book = journal(store, 2)
    book.pass_over(Key.parse("execute/t1"))
    with pytest.raises(StoppedError, match="execute/t10/implement"):
        refuse_unknown(book, Key.parse("execute"))
    assert book.unknown_under(Key.parse("execute")) == ["execute/t10/implement"]


# -- fencing


def test_an_attempt_of_an_older_driver_cannot_be_finished(store: Store) -> None:
    old = journal(store, 1)
    old.attempts.begin(intent(KEY.text))
    young = journal(store, 2)
    with pytest.raises(LostAttemptError):
        young.attempts.finish(KEY, 1, inputs=None, result="not its own")
    store.attempts.interrupt(young.claim, KEY.text, 1)
    young.attempts.begin(intent(KEY.text, 2))
    with pytest.raises(TakenOverError):
        old.attempts.finish(KEY, 1, inputs=None, result="too late")
    assert journal(store, 2).recorded(KEY) is None
    young.attempts.finish(KEY, 2, inputs=None, result="in time")
    assert [row.result for row in store.steps.all("r1")] == ["in time"]


def test_a_driver_that_was_replaced_records_nothing_at_all(tmp_path: Path) -> None:
    with stored(tmp_path) as store:
        _assert_records_nothing(store)


def _assert_records_nothing(store: SqliteStore) -> None:
    old = journal(store, 1)
    old.attempts.begin(intent(KEY.text))
    store.runs.take("r1")
    before = "\n".join(store.database.connection.iterdump())
    writes: list[Callable[[], object]] = [
        lambda: _step(old, Key.parse("another"), None, "late"),
        lambda: old.attempts.begin(intent(KEY.text, 2)),
        lambda: old.attempts.finish(KEY, 1, inputs=None, result="late"),
        lambda: old.attempts.note_session(KEY, 1, "s1"),
        lambda: old.attempts.note_usage(KEY, 1, Usage(cost_usd=1.0)),
        lambda: old.give_up((), (), "late"),
        lambda: (old.emit("here", Warned("a", "late")), old.flush()),
    ]
    for write in writes:
        with pytest.raises(TakenOverError, match=r"another driver \(epoch 2\) took over run r1"):
            write()
    assert "\n".join(store.database.connection.iterdump()) == before
    assert not store.in_transaction


def test_an_attempt_is_finished_once(store: Store) -> None:
    book = journal(store)
    book.attempts.begin(intent(KEY.text))
    book.attempts.finish(
        KEY, 1, inputs=None, failure=AttemptFailure(ErrorClass.CRASHED, "boom"), usage=Usage(cost_usd=0.1)
    )
    with pytest.raises(LostAttemptError):
        book.attempts.finish(KEY, 1, inputs=None, result="again")
    assert [(row.state, row.error, row.cost_usd) for row in store.attempts.all("r1")] == [("failed", "crashed", 0.1)]


def test_the_result_its_attempt_and_its_events_are_one_transaction(store: Store) -> None:
    """Killed just before it, none of them is there; just after it, all of them are."""

    class Killed(BaseException):
        pass

    def die_at(point: str) -> Journal:
        def crash(reached: str) -> None:
            if reached == point:
                raise Killed

        return journal(store, crash=crash)

    events = [Warned("role", "said once")]
    for point, there in ((f"before {KEY}@1.finish", 0), (f"after {KEY}@2.finish", 1)):
        book = die_at(point)
        n = book.attempts.next(KEY)
        book.attempts.begin(intent(KEY.text, n))
        with pytest.raises(Killed):
            book.attempts.finish(KEY, n, inputs=None, result="done", events=events)
        assert len(store.steps.all("r1")) == there
        assert len([r for r in store.events.all("r1") if isinstance(r.event, Warned)]) == there
        assert len([row for row in store.attempts.all("r1") if row.state == "done"]) == there


# -- events


def test_a_replay_does_not_repeat_what_was_said(store: Store) -> None:
    seen: list[Recorded] = []
    for epoch in (1, 2, 3):
        book = journal(store, epoch, publish=seen.append)
        book.emit("execute", PhaseEntered("execute", "execute", "tasks"))
        book.flush()
    assert [type(r.event) for r in seen] == [PhaseEntered]
    assert len([r for r in store.events.all("r1") if isinstance(r.event, PhaseEntered)]) == 1


def test_the_same_words_at_another_place_are_said(store: Store) -> None:
    book = journal(store)
    for place in ("execute/t1", "execute/t2"):
        book.emit(place, Warned("role", "same words"))
    book.flush()
    assert len([r for r in store.events.all("r1") if isinstance(r.event, Warned)]) == 2


def test_what_was_said_but_never_written_is_said_again_after_a_crash(store: Store) -> None:
    journal(store).emit("execute", Warned("role", "lost with its driver"))
    book = journal(store, 2)
    book.emit("execute", Warned("role", "lost with its driver"))
    book.flush()
    assert len([r for r in store.events.all("r1") if isinstance(r.event, Warned)]) == 1


def test_events_are_shown_only_when_they_are_on_record(store: Store) -> None:
    shown: list[int] = []
    book = journal(store, publish=lambda recorded: shown.append(len(store.events.all("r1"))))
    before = len(store.events.all("r1"))
    with book.writing("two", Warned("a", "1"), Warned("a", "2")):
        assert shown == []
    assert shown == [before + 2] * 2


def test_what_another_process_recorded_is_caught_up_with_once(store: Store) -> None:
    seen: list[str] = []
    book = journal(store, publish=lambda r: seen.append(getattr(r.event, "text", "")))
    with book.writing("own", Warned("a", "own")):
        pass
    store.events.add(Person("r1"), Warned("a", "theirs"))
    book.events.catch_up()
    book.events.catch_up()
    assert seen == ["own", "theirs"]


def test_a_result_of_ten_megabytes_comes_back_as_it_was(store: Store) -> None:
    big = "ä" * 5_000_000
    _step(journal(store), KEY, None, big)
    assert _step(journal(store, 2), KEY, None, "") == (big, [])
