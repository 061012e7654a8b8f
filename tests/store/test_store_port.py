"""What every store must do, whatever database is behind it. A new store adds one opener to `STORES`.

The verbs are found by introspection: a verb without an example in `CALLS` fails, and so does one that writes without
comparing the epoch and is not listed in `UNFENCED`.
"""

from __future__ import annotations

import ast
import inspect
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace

from stores import CLAIM, RUN, Clock, intent
from windlass.errors import LostAttemptError, StoreError, TakenOverError
from windlass.events import PhaseEntered, Recorded, RunStarted, Warned
from windlass.model import RunState
from windlass.store import port
from windlass.store.epoch import EpochClaim, Person, Writer
from windlass.store.port import Store
from windlass.store.rows import AdoptionRow, Intent
from windlass.store.sqlite.store import SqliteStore

KEY = "plan/scout"
PAUSES = (5.0, 10.0)
#: writes that carry no epoch: a new run, a new epoch, and what people ask
UNFENCED = {"runs.add", "runs.take", "runs.request", "messages.add"}
#: writes of a driver that a person may make as well
SHARED = {"runs.set_budget", "runs.set_options", "events.add", "questions.answer"}


#: of the driver that was replaced; equal to no claim of the examples, so that they prepare nothing as the live driver
CLAIM_OF_BEFORE = EpochClaim("r1", 1, require_lock=lambda: None)


class Place:
    """Where one store's data is: opens connections to it, and tells everything that is stored there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.clock = Clock()
        self._stack = stack

    def open(self) -> Store:
        raise NotImplementedError

    def contents(self) -> object:
        raise NotImplementedError


class SqlitePlace(Place):
    def open(self) -> Store:
        store = SqliteStore.open(
            self.folder / "windlass.db", self.clock, waits=self.folder / "state" / "waits.db", create=True
        )
        return self._stack.enter_context(closing(store))

    def contents(self) -> object:
        files = [self.folder / "windlass.db", self.folder / "state" / "waits.db"]
        return [_dump(path) for path in files if path.exists()]


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


STORES: dict[str, type[Place]] = {"sqlite": SqlitePlace}


@pytest.fixture(params=sorted(STORES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as stack:
        yield STORES[request.param](tmp_path, stack)


@pytest.fixture
def store(place: Place) -> Store:
    """With run r1, driven in epoch 1, and something in every table."""
    store = place.open()
    with store.transaction():
        new = store.runs.add(RUN)
        store.events.add(new, RunStarted("Add sub", "plan", RUN.base, RUN.branch, None, None))
        store.tips.add(new, "sha0", "", "")
        claim = store.runs.take("r1", "me")
        store.runs.add(replace(RUN, id="r2", started_at=2.0))
        store.runs.take("r2")
        source = EpochClaim("r2", 1)
        for one in (claim, source):
            store.steps.add(one, "plan", "f", '{"n":1}', "null", '"done"')
            store.events.add(one, PhaseEntered("plan", "plan", "produce"), "plan|mark")
            store.questions.open(one, "plan!ok", "ok", {"text": "Ok?"})
            store.adoptions.add(one, AdoptionRow(0, "plan", "plan-draft", "old", "new", "Ada", frozenset({"execute"})))
        store.attempts.begin(claim, intent(KEY, 1))
        store.attempts.begin(claim, intent(KEY, 2))
        store.attempts.finish(claim, KEY, 2, state="done", cost_usd=0.5)
        store.messages.add("r1", "hurry", "Ada")
        store.blobs.put(claim, "blob0", "text")
        store.checks.put(claim, "tree0", "make", "", {"ok": True})
        store.quota.hold(claim, "claude", "429", (0.0,))
    return store


Verb = Callable[[Store, Any], object]
#: one example of each verb; `who` is the driver's claim, or whoever else writes
CALLS: dict[str, Verb] = {
    "runs.add": lambda store, who: store.runs.add(replace(RUN, id="r3")),
    "runs.take": lambda store, who: store.runs.take("r1", "you"),
    "runs.get": lambda store, who: store.runs.get("r1"),
    "runs.all": lambda store, who: store.runs.all(),
    "runs.set_state": lambda store, who: store.runs.set_state(who, RunState.FINISHED, "late"),
    "runs.set_budget": lambda store, who: store.runs.set_budget(who, 20.0, 5.0),
    "runs.set_options": lambda store, who: store.runs.set_options(who, {"slots": 4}),
    "runs.request": lambda store, who: store.runs.request("r1", "pause"),
    "tips.all": lambda store, who: store.tips.all("r1"),
    "tips.add": lambda store, who: store.tips.add(who, "sha1", "plan", "sha0"),
    "steps.all": lambda store, who: store.steps.all("r1"),
    "steps.superseded": lambda store, who: store.steps.superseded("r1"),
    "steps.add": lambda store, who: store.steps.add(who, "execute", "f", "null", "null", '"late"'),
    "steps.supersede": lambda store, who: store.steps.supersede(who, "plan", 0),
    "steps.copy": lambda store, who: (
        store.steps.add(EpochClaim("r2", 1), "extra", "f", "null", "null", "1") if who == CLAIM else None,
        store.steps.copy(who, "r2", ["extra"]),
    ),
    "adoptions.all": lambda store, who: store.adoptions.all("r1"),
    "adoptions.add": lambda store, who: store.adoptions.add(
        who, AdoptionRow(0, "plan", "p", "a", "b", "Ada", frozenset())
    ),
    "adoptions.copy": lambda store, who: store.adoptions.copy(who, "r2", [row.id for row in store.adoptions.all("r2")]),
    "attempts.begin": lambda store, who: store.attempts.begin(who, intent(KEY, 3)),
    "attempts.finish": lambda store, who: store.attempts.finish(who, KEY, 1, state="done"),
    "attempts.interrupt": lambda store, who: store.attempts.interrupt(who, KEY, 1),
    "attempts.note_session": lambda store, who: store.attempts.note_session(who, KEY, 1, "s1"),
    "attempts.note_usage": lambda store, who: store.attempts.note_usage(who, KEY, 1, {"input": 5}),
    "attempts.settle_cost": lambda store, who: store.attempts.settle_cost(who, KEY, 2, {"input": 5}, 0.7),
    "attempts.all": lambda store, who: store.attempts.all("r1", KEY),
    "attempts.running": lambda store, who: store.attempts.running("r1"),
    "attempts.done_since": lambda store, who: store.attempts.done_since("r1", 1),
    "attempts.spend": lambda store, who: store.attempts.spend("r1"),
    "events.add": lambda store, who: store.events.add(who, Warned("a", "late")),
    "events.all": lambda store, who: store.events.all("r1"),
    "events.pages": lambda store, who: list(store.events.pages("r1")),
    "events.last": lambda store, who: store.events.last("r1", RunStarted),
    "events.of_kinds": lambda store, who: store.events.of_kinds("r1", RunStarted, PhaseEntered),
    "events.last_number": lambda store, who: store.events.last_number("r1"),
    "events.marks": lambda store, who: store.events.marks("r1"),
    "events.drop_marks": lambda store, who: store.events.drop_marks(who, ["plan|mark"]),
    "events.copy": lambda store, who: (
        store.events.add(EpochClaim("r2", 1), Warned("a", "extra")) if who == CLAIM else None,
        store.events.copy(who, "r2", [store.events.last_number("r2")]),
    ),
    "questions.open": lambda store, who: store.questions.open(who, "execute!ok", "ok", {}),
    "questions.replace": lambda store, who: store.questions.replace(who, "plan!ok", {"text": "Sure?"}),
    "questions.answer": lambda store, who: store.questions.answer(who, "plan!ok", "yes", "", "Ada"),
    "questions.find": lambda store, who: store.questions.find("r1", "plan!ok"),
    "questions.all": lambda store, who: store.questions.all("r1", pending=True),
    "questions.copy": lambda store, who: (
        store.questions.open(EpochClaim("r2", 1), "extra!ok", "ok", {}) if who == CLAIM else None,
        store.questions.copy(who, "r2", ["extra!ok"]),
    ),
    "messages.add": lambda store, who: store.messages.add("r1", "wait", "Ada"),
    "messages.waiting": lambda store, who: store.messages.waiting("r1", [""]),
    "messages.deliver": lambda store, who: store.messages.deliver(who, f"{KEY}@1", [""]),
    "blobs.put": lambda store, who: store.blobs.put(who, "blob1", "late"),
    "blobs.get": lambda store, who: store.blobs.get("blob0"),
    "checks.put": lambda store, who: store.checks.put(who, "tree1", "make", "", {"ok": True}),
    "checks.get": lambda store, who: store.checks.get("tree0", "make", ""),
    "quota.find": lambda store, who: store.quota.find("claude"),
    "quota.hold": lambda store, who: store.quota.hold(who, "codex", "429", PAUSES),
    "quota.probe": lambda store, who: store.quota.probe(who, "claude"),
    "quota.release": lambda store, who: (
        store.quota.probe(who, "claude") if who == CLAIM else None,
        store.quota.release(who, "claude"),
    ),
    "quota.clear": lambda store, who: store.quota.clear(who, "claude", 1e12),
}


def verbs() -> dict[str, Callable[..., object]]:
    """Every verb of every gateway, as `gateway.verb`."""
    gateways = {name: kind for name, kind in get_type_hints(Store).items() if kind.__module__ == port.__name__}
    return {
        f"{name}.{verb}": function
        for name, kind in gateways.items()
        for verb, function in vars(kind).items()
        if inspect.isfunction(function) and not verb.startswith("_")
    }


def writer_of(verb: str) -> object:
    """The type of the parameter that says who writes; None when there is none."""
    hints = get_type_hints(verbs()[verb])
    return hints.get("claim") or hints.get("writer")


DRIVERS_WRITES = sorted(verb for verb in verbs() if writer_of(verb) is not None)


def test_every_verb_has_an_example() -> None:
    assert set(CALLS) == set(verbs())
    assert {verb for verb in verbs() if writer_of(verb) == Writer} == SHARED
    assert {writer_of(verb) for verb in DRIVERS_WRITES} == {EpochClaim, Writer}


def test_no_gateway_has_more_than_fifteen_verbs() -> None:
    names = [verb.split(".")[0] for verb in verbs()]
    assert max(names.count(name) for name in names) <= 15


@pytest.mark.parametrize("verb", DRIVERS_WRITES)
def test_a_driver_writes_while_its_epoch_is_the_run_s(verb: str, store: Store, place: Place) -> None:
    before = place.contents()
    place.clock.now += 1
    CALLS[verb](store, CLAIM)
    assert place.contents() != before
    assert not store.in_transaction


@pytest.mark.parametrize("verb", DRIVERS_WRITES)
def test_a_driver_that_was_replaced_writes_nothing(verb: str, store: Store, place: Place) -> None:
    """It was stopped, another driver took over through a connection of its own, and it goes on."""
    place.open().runs.take("r1", "you")
    before = place.contents()
    for synced in (True, False):
        with pytest.raises(TakenOverError, match=r"another driver \(epoch 2\) took over run r1"):
            CALLS[verb](store, CLAIM_OF_BEFORE)
        with pytest.raises(TakenOverError):
            _write_after_another(verb, store, synced)
    assert place.contents() == before
    assert not store.in_transaction


def _write_after_another(verb: str, store: Store, synced: bool) -> None:
    with store.transaction(synced=synced):
        store.messages.add("r1", "rolled back with it", "Ada")
        CALLS[verb](store, CLAIM_OF_BEFORE)


@pytest.mark.parametrize("verb", sorted(set(verbs()) - set(DRIVERS_WRITES)))
def test_a_verb_without_a_writer_is_a_reader_or_on_the_list(verb: str, store: Store, place: Place) -> None:
    before = place.contents()
    CALLS[verb](store, None)
    assert (place.contents() != before) == (verb in UNFENCED)


@pytest.mark.parametrize("verb", sorted(SHARED))
def test_a_person_writes_whoever_drives(verb: str, store: Store, place: Place) -> None:
    store.runs.take("r1", "you")
    before = place.contents()
    CALLS[verb](store, Person("r1"))
    assert place.contents() != before


def test_the_port_says_which_writes_carry_no_epoch() -> None:
    said = port.__doc__ or ""
    assert {verb for verb in UNFENCED | SHARED if f"`{verb}`" not in said} == set()


def test_nothing_that_drives_a_run_writes_as_a_person() -> None:
    package = Path(port.__file__).parent.parent
    for path in (path for name in ("engine", "dispatch", "tasks", "driver") for path in (package / name).rglob("*.py")):
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        assert "Person" not in names, path


def test_a_driver_whose_lock_is_lost_writes_nothing(store: Store, place: Place) -> None:
    def lost() -> None:
        raise TakenOverError("the lock is gone")

    before = place.contents()
    with pytest.raises(TakenOverError, match="the lock is gone"):
        store.steps.add(EpochClaim("r1", 1, lost), "late", "f", "null", "null", "1")
    assert place.contents() == before


def test_a_claim_is_compared_again_after_the_run_was_taken_in_the_same_transaction(store: Store) -> None:
    with suppress(TakenOverError), store.transaction():
        store.runs.set_state(CLAIM, RunState.PAUSED)
        store.runs.take("r1")
        store.runs.set_state(CLAIM, RunState.FINISHED)
        raise AssertionError("it was not compared")
    row = store.runs.get("r1")
    assert (row.state, row.epoch) == (RunState.RUNNING, 1)


def test_a_claim_to_a_run_that_is_gone_is_refused(store: Store) -> None:
    with pytest.raises(TakenOverError):
        store.events.add(EpochClaim("never", 1), Warned("a", "late"))


# -- transactions


def test_an_error_inside_a_transaction_leaves_nothing_of_it(store: Store, place: Place) -> None:
    before = place.contents()
    with suppress(ZeroDivisionError), store.transaction():
        store.events.add(CLAIM, Warned("a", "half"))
        with store.transaction():
            store.runs.set_state(CLAIM, RunState.FINISHED)
        raise ZeroDivisionError
    assert place.contents() == before


def test_what_is_not_synced_is_seen_by_others_at_once_and_is_pending(store: Store, place: Place) -> None:
    other = place.open()
    with store.transaction(synced=False):
        assert store.in_transaction
        store.attempts.note_session(CLAIM, KEY, 1, "s1")
    assert store.pending
    assert [row.session for row in other.attempts.running("r1")] == ["s1"]
    store.sync()
    assert not store.pending


def test_another_process_sees_by_a_number_that_something_was_committed(store: Store, place: Place) -> None:
    other = place.open()
    seen = other.data_version()
    assert other.data_version() == seen
    store.runs.request("r1", "pause")
    assert other.data_version() != seen
    assert other.runs.get("r1").wanted == "pause"


def test_no_driver_can_take_over_while_the_fence_is_held(store: Store, place: Place) -> None:
    with closing(store.fence(CLAIM)) as fence:
        with fence.held(), fence.held():
            assert place.open().runs.get("r1").epoch == 1
        store.runs.take("r1")
        with pytest.raises(TakenOverError, match=r"another driver \(epoch 2\) took over run r1"), fence.held():
            raise AssertionError("it was held")
    with pytest.raises(TakenOverError):
        store.require(CLAIM)
    store.require(EpochClaim("r1", 2))


# -- one verb after the other


def test_runs_are_kept_as_they_were_given_and_listed_newest_first(store: Store) -> None:
    assert [row.id for row in store.runs.all()] == ["r2", "r1"]
    row = store.runs.get("r1")
    assert replace(row, epoch=0, driver="") == RUN
    assert (row.epoch, row.driver) == (1, "me")
    with pytest.raises(StoreError, match="no run 'r9'"):
        store.runs.get("r9")
    store.runs.set_state(CLAIM, RunState.STOPPED, "why", "what to do")
    store.runs.set_budget(CLAIM, 20.0, 5.0)
    store.runs.set_options(CLAIM, {"slots": 4})
    row = store.runs.get("r1")
    assert (row.state, row.reason, row.hint) == (RunState.STOPPED, "why", "what to do")
    assert (row.budget_usd, row.warn_usd, row.options) == (20.0, 5.0, {"slots": 4})


def test_a_new_driver_drops_a_requested_pause_and_keeps_a_requested_abort(store: Store) -> None:
    for wanted, left in (("pause", ""), ("abort", "abort")):
        store.runs.request("r1", wanted)
        store.runs.take("r1")
        assert store.runs.get("r1").wanted == left


def test_a_new_run_belongs_to_its_creator_until_a_driver_takes_it(store: Store) -> None:
    new = store.runs.add(replace(RUN, id="r3"))
    assert store.tips.add(new, "base", "", "")
    claim = store.runs.take("r3")
    assert claim.epoch == 1
    with pytest.raises(TakenOverError):
        store.tips.add(new, "other", "", "base")


def test_the_tip_is_moved_from_where_it_is_and_from_nowhere_else(store: Store) -> None:
    assert store.tips.add(CLAIM, "sha1", "plan", "sha0")
    assert not store.tips.add(CLAIM, "sha2", "plan", "sha0")
    assert store.tips.all("r1") == ["sha0", "sha1"]


def test_a_superseded_step_is_not_done_and_its_result_is_kept(store: Store) -> None:
    first = store.steps.all("r1")[0]
    assert (first.key, first.fingerprint, first.inputs, first.result) == ("plan", "f", {"n": 1}, "done")
    assert store.steps.add(CLAIM, "execute", "f", "null", "null", "2") > first.seq
    store.steps.supersede(CLAIM, "plan", 0)
    assert [row.key for row in store.steps.all("r1")] == ["execute"]
    assert [row.result for row in store.steps.superseded("r1")] == ["done"]


def test_a_fork_begins_with_what_is_copied(store: Store) -> None:
    fork = store.runs.add(replace(RUN, id="r3", parent="r1"))
    marked = next(one.seq for one in store.events.all("r1") if isinstance(one.event, PhaseEntered))
    store.steps.copy(fork, "r1", ["plan"])
    store.questions.copy(fork, "r1", ["plan!ok"])
    store.adoptions.copy(fork, "r1", [row.id for row in store.adoptions.all("r1")])
    store.events.copy(fork, "r1", [marked])
    assert [row.result for row in store.steps.all("r3")] == ["done"]
    assert [row.key for row in store.questions.all("r3")] == ["plan!ok"]
    assert [row.covers for row in store.adoptions.all("r3")] == [frozenset({"execute"})]
    assert [one.event for one in store.events.all("r3")] == [PhaseEntered("plan", "plan", "produce")]
    assert store.events.marks("r3") == {"plan|mark"}


def test_an_attempt_is_ended_once_and_by_the_driver_that_began_it(store: Store) -> None:
    assert [row.intent.n for row in store.attempts.running("r1")] == [1]
    store.attempts.note_session(CLAIM, KEY, 1, "s1")
    store.attempts.note_usage(CLAIM, KEY, 1, {"input": 5})
    found = store.attempts.running("r1")[0]
    assert (found.session, found.usage, found.epoch, found.intent) == ("s1", {"input": 5}, 1, intent(KEY, 1))
    newer = store.runs.take("r1")
    with pytest.raises(LostAttemptError):
        store.attempts.finish(newer, KEY, 1, state="done")
    assert store.attempts.interrupt(newer, KEY, 1, {"input": 9}, 0.25)
    assert not store.attempts.interrupt(newer, KEY, 1)
    store.attempts.begin(newer, intent(KEY, 3))
    store.attempts.finish(newer, KEY, 3, state="failed", error="crashed", reason="boom")
    with pytest.raises(LostAttemptError):
        store.attempts.finish(newer, KEY, 3, state="done")
    ends = {row.intent.n: (row.state, row.error, row.cost_usd) for row in store.attempts.all("r1")}
    assert ends == {1: ("interrupted", "driver_lost", 0.25), 2: ("done", "", 0.5), 3: ("failed", "crashed", None)}
    assert [row.intent.n for row in store.attempts.done_since("r1", 1)] == [2]
    assert store.attempts.done_since("r1", 2) == []
    store.attempts.settle_cost(newer, KEY, 3, {"assumed_usd": 0.0}, 0.1)
    assert store.attempts.all("r1", KEY)[-1].cost_usd == 0.1


def test_what_attempts_cost_is_known_or_assumed_and_running_ones_do_not_count(store: Store) -> None:
    for n, cost in ((3, None), (4, 0.25)):
        store.attempts.begin(CLAIM, intent(KEY, n))
        usage = {"input": 10, "output": 5} if cost is None else None
        store.attempts.finish(CLAIM, KEY, n, state="done", cost_usd=cost, usage=usage)
    store.attempts.begin(CLAIM, Intent("check", 1, "checks", "here", "boot"))
    store.attempts.finish(CLAIM, "check", 1, state="done")
    spend = store.attempts.spend("r1")
    assert (spend.known_usd, spend.unknown, spend.by_role) == (0.75, 1, {"scout": 0.5})
    assert spend.assumed_usd > 0
    assert spend.unpriced_tokens == 15


def test_events_come_back_in_order_by_kind_and_in_pages(store: Store) -> None:
    for n in range(250):
        store.events.add(CLAIM, Warned("a", str(n)))
    everything = store.events.all("r1")
    assert [one.event.text for one in everything if isinstance(one.event, Warned)] == [str(n) for n in range(250)]
    pages = list(store.events.pages("r1"))
    assert [one for page in pages for one in page] == everything
    assert len(pages[0]) < len(everything)
    last = store.events.last_number("r1")
    assert everything[-1] == Recorded(last, "r1", 100.0, Warned("a", "249"))
    assert store.events.all("r1", everything[-2].seq) == everything[-1:]
    assert store.events.last("r1", Warned) == Warned("a", "249")
    assert store.events.last("r2", Warned) is None
    kinds = store.events.of_kinds("r1", RunStarted, PhaseEntered)
    assert [type(event) for event in kinds] == [RunStarted, PhaseEntered]
    assert store.events.last_number("never") == 0


def test_a_mark_is_recorded_once_until_it_is_dropped(store: Store) -> None:
    assert store.events.marks("r1") == {"plan|mark"}
    with pytest.raises(StoreError):
        store.events.add(CLAIM, Warned("a", "twice"), "plan|mark")
    store.events.drop_marks(CLAIM, ["plan|mark"])
    store.events.add(CLAIM, Warned("a", "again"), "plan|mark")
    assert store.events.marks("r1") == {"plan|mark"}


def test_the_first_of_two_answers_wins(store: Store) -> None:
    assert not store.questions.open(CLAIM, "plan!ok", "ok", {})
    store.questions.replace(CLAIM, "plan!ok", {"text": "Sure?"})
    assert [row.data for row in store.questions.all("r1", pending=True)] == [{"text": "Sure?"}]
    assert store.questions.answer(Person("r1"), "plan!ok", "yes", "why not", "Ada")
    assert not store.questions.answer(CLAIM, "plan!ok", "no", "", "Bob")
    store.questions.replace(CLAIM, "plan!ok", {"text": "too late"})
    row = store.questions.find("r1", "plan!ok")
    assert row is not None
    assert (row.answer, row.comment, row.by, row.state) == ("yes", "why not", "Ada", "answered")
    assert row.data == {"text": "Sure?"}
    assert store.questions.all("r1", pending=True) == []
    assert store.questions.find("r1", "never!asked") is None


def test_a_message_waits_for_its_role_and_is_delivered_once(store: Store) -> None:
    store.messages.add("r1", "mind the docs", "Ada", "planner")
    assert store.messages.waiting("r1", ["", "coder"]) == ["hurry"]
    assert store.messages.waiting("r1", ["", "planner"]) == ["hurry", "mind the docs"]
    store.messages.deliver(CLAIM, f"{KEY}@1", ["planner"])
    assert store.messages.waiting("r1", ["", "planner"]) == ["hurry"]


def test_content_comes_back_as_it_was(store: Store) -> None:
    odd = "a\x00b\ud800 ä"
    store.blobs.put(CLAIM, "odd", odd)
    store.blobs.put(CLAIM, "odd", odd)
    assert store.blobs.get("odd") == odd
    with pytest.raises(StoreError, match="missing"):
        store.blobs.get("never")
    store.checks.put(CLAIM, "tree0", "make", "", {"ok": False})
    assert store.checks.get("tree0", "make", "") == {"ok": False}
    assert store.checks.get("tree0", "make", "other set-up") is None


def test_a_login_waits_until_one_probe_got_an_answer(store: Store) -> None:
    wait = store.quota.hold(CLAIM, "codex", "429", PAUSES)
    assert (wait.left_s, wait.failures) == (5.0, 1)
    assert not store.quota.probe(CLAIM, "codex")
    found = store.quota.find("claude")
    assert found is not None
    assert found.left_s <= 0
    assert store.quota.probe(CLAIM, "claude")
    assert not store.quota.probe(EpochClaim("r2", 1), "claude")
    store.quota.release(CLAIM, "claude")
    assert store.quota.probe(EpochClaim("r2", 1), "claude")
    store.quota.clear(EpochClaim("r2", 1), "claude", 1e12)
    assert store.quota.find("claude") is None


def test_quota_waits_are_shared_with_other_connections(store: Store, place: Place) -> None:
    assert place.open().quota.find("claude") is not None
