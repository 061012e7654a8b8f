"""Money: spent, reserved and the next dispatch's own reservation never pass the limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import intent, journal, stored
from windlass.engine.budget import HEADROOM, Budget, Prices
from windlass.errors import OverBudgetError
from windlass.events import Warned
from windlass.store.sqlite import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with stored(tmp_path, budget=1.0) as opened:
        yield opened


def _spend(store: Store, usd: float | None, role: str = "scout") -> None:
    n = len(store.attempts("r1")) + 1
    with store.tx():
        store.begin_attempt("r1", 1, intent("plan-draft/scout", n, role))
        store.end_attempt("r1", "plan-draft/scout", n, 1, state="done", cost_usd=usd)


def _reserve(store: Store, role: str = "scout", cap: float | None = None, prices: Prices | None = None) -> float:
    return asyncio.run(Budget(journal(store), prices or Prices()).reserve("t", role, cap))


@pytest.mark.req("S0-88")
def test_a_role_whose_dearest_dispatch_would_not_fit_is_refused(store: Store) -> None:
    for _ in range(3):
        _spend(store, 0.3)
    with pytest.raises(OverBudgetError, match=r"\$0\.90 of \$1\.00") as refused:
        _reserve(store)
    assert "--budget" in refused.value.hint


def test_a_role_not_seen_yet_is_taken_to_cost_what_the_others_did(store: Store) -> None:
    for _ in range(3):
        _spend(store, 0.3)
    with pytest.raises(OverBudgetError):
        _reserve(store, "architect")


def test_what_fits_exactly_is_let_in(store: Store) -> None:
    for _ in range(9):
        _spend(store, 0.1)
    assert _reserve(store) == pytest.approx(0.1)


def test_a_known_role_reserves_some_more_than_its_dearest(store: Store) -> None:
    _spend(store, 0.1)
    assert _reserve(store) == pytest.approx(0.1 * HEADROOM)


def test_nothing_is_reserved_beyond_what_is_left(store: Store) -> None:
    _spend(store, 0.4)
    assert _reserve(store) == pytest.approx(0.6)


def test_a_cost_that_nobody_told_counts_for_an_estimate(store: Store) -> None:
    _spend(store, None)
    assert _reserve(store, "architect") == pytest.approx(0.5)
    _spend(store, None)
    with pytest.raises(OverBudgetError):
        _reserve(store, "architect")


def test_a_dispatch_waits_for_what_another_one_holds(store: Store) -> None:
    async def two() -> list[str]:
        budget, order = Budget(journal(store), Prices()), ["first"]
        await budget.reserve("a", "scout")

        async def second() -> None:
            await budget.reserve("b", "architect")
            order.append("second")

        waiting = asyncio.create_task(second())
        await asyncio.sleep(0)
        order.append("freed")
        budget.release("a")
        await waiting
        return order

    assert asyncio.run(two()) == ["first", "freed", "second"]


@pytest.mark.req("S0-92")
def test_the_warning_is_said_once(store: Store) -> None:
    book = journal(store)
    budget = Budget(book, Prices())
    _spend(store, 0.6)
    for token in ("a", "b"):
        budget.release(token)
        book.flush()
    assert len([r for r in store.events("r1") if isinstance(r.event, Warned)]) == 1


@pytest.mark.req("S0-92")
def test_dispatches_of_unknown_cost_do_not_repeat_the_warning_and_the_limits_nearness_is_told_once(
    tmp_path: Path,
) -> None:
    with stored(tmp_path, budget=5.0) as store:
        # A new driver every time: what was said is known from the journal.
        for _ in range(9):
            _spend(store, None)
            book = journal(store)
            Budget(book, Prices()).release("t")
            book.flush()
        told = [r.event.text for r in store.events("r1") if isinstance(r.event, Warned)]
    assert told == [
        "more than $2.50 are spent (limit $5.00, 6 dispatches of unknown cost taken as $0.50 each)",
        "more than $4.00 are spent (limit $5.00, 9 dispatches of unknown cost taken as $0.50 each)",
    ]


@given(costs=st.lists(st.floats(0.0, 0.4), max_size=8), roles=st.lists(st.sampled_from("abc"), min_size=1, max_size=6))
def test_what_is_spent_and_reserved_never_passes_the_limit(
    costs: list[float], roles: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with stored(tmp_path_factory.mktemp("db"), budget=1.0) as store:
        for cost in costs:
            _spend(store, cost, "a")
        spent = sum(costs)

        async def reserve_all() -> float:
            budget, held = Budget(journal(store), Prices()), 0.0
            for n, role in enumerate(roles):
                try:
                    held += await asyncio.wait_for(budget.reserve(str(n), role), 0.001)
                except (OverBudgetError, TimeoutError):
                    break
            return held

        held = asyncio.run(reserve_all())
        assert held == 0.0 or spent + held <= 1.0 + 1e-6
