"""Money: a reservation estimates, and only what would pass the run's limit is refused or stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import CLAIM, intent, journal, stored
from windlass.cost import Cost
from windlass.engine.budget import LEAST_USD, Budget, Prices
from windlass.errors import OverBudgetError
from windlass.events import Warned
from windlass.model import Usage
from windlass.store.epoch import Person
from windlass.store.port import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with stored(tmp_path, budget=1.0) as opened:
        yield opened


def _spend(store: Store, usd: float | None, role: str = "scout", state: str = "done", assumed: float = 0.0) -> None:
    n = len(store.attempts.all("r1")) + 1
    usage = Usage(100, 10, 0, usd).to_json(assumed if usd is not None else None)
    with store.transaction():
        store.attempts.begin(CLAIM, intent("plan-draft/scout", n, role))
        store.attempts.finish(CLAIM, "plan-draft/scout", n, state=state, usage=usage, cost_usd=usd)


def _budget(store: Store, **prices: float) -> Budget:
    return Budget(journal(store), Prices(**prices))  # type: ignore[arg-type]


def _reserve(store: Store, role: str = "scout", cap: float | None = None, *, reports: bool = True) -> float:
    return asyncio.run(_budget(store).reserve("t", role, cap, reports=reports))


# -- starting


@pytest.mark.req("S0-88")
def test_with_nothing_left_no_dispatch_starts(store: Store) -> None:
    for _ in range(2):
        _spend(store, 0.5)
    with pytest.raises(OverBudgetError, match=r"\$1\.00 of \$1\.00 are spent") as refused:
        _reserve(store)
    assert "--budget" in refused.value.hint


def test_while_something_is_left_a_dispatch_that_can_be_stopped_in_time_starts(store: Store) -> None:
    _spend(store, 0.9)
    assert _reserve(store) == pytest.approx(0.1)
    assert _reserve(store, "architect") == pytest.approx(0.1)


def test_an_agent_that_reports_nothing_while_it_works_starts_only_if_what_is_expected_of_it_fits(store: Store) -> None:
    _spend(store, 0.6)
    with pytest.raises(OverBudgetError):
        _reserve(store, reports=False)
    _spend(store, 0.2, "architect")
    assert _reserve(store, "architect", reports=False) == pytest.approx(0.2)


def test_a_known_role_reserves_what_its_dearest_dispatch_cost(store: Store) -> None:
    _spend(store, 0.1)
    _spend(store, 0.3)
    assert _reserve(store) == pytest.approx(0.3)


def test_what_a_failed_dispatch_cost_says_nothing_about_the_next(store: Store) -> None:
    _spend(store, 0.3)
    _spend(store, 0.001, state="failed")
    assert _reserve(store) == pytest.approx(0.3)
    _spend(store, 0.001, "architect", state="failed")
    assert _reserve(store, "architect") == pytest.approx(0.3)


def test_a_role_s_own_limit_bounds_what_is_reserved_for_it(store: Store) -> None:
    assert _reserve(store, cap=0.25) == pytest.approx(0.25)


def test_a_cost_that_nobody_told_counts_for_an_estimate(store: Store) -> None:
    _spend(store, None)
    assert _reserve(store, "architect") == pytest.approx(0.5)
    _spend(store, None)
    with pytest.raises(OverBudgetError, match=r"\(\$1\.00 of it assumed for 2 dispatches of unknown cost\)"):
        _reserve(store, "architect")


def test_a_dispatch_waits_for_what_another_one_holds(store: Store) -> None:
    async def two() -> list[str]:
        budget, order = _budget(store), ["first"]
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


# -- at work


def test_a_reservation_grows_while_the_run_has_money(store: Store) -> None:
    async def grow() -> None:
        _spend(store, 0.02)
        budget = _budget(store)
        assert await budget.reserve("t", "scout") == pytest.approx(0.02)
        for usd in (0.02, 0.4, 0.97):
            assert budget.spend("t", Usage(cost_usd=usd)) == ""
        assert "$1.01 of $1.00 are spent" in budget.spend("t", Usage(cost_usd=0.99))

    asyncio.run(grow())


def test_what_others_merely_hold_stops_nobody(store: Store) -> None:
    async def both() -> None:
        budget = _budget(store, dispatch_usd=0.5)
        await budget.reserve("a", "scout")
        await budget.reserve("b", "architect")
        assert budget.spend("a", Usage(cost_usd=0.9)) == ""
        assert budget.spend("b", Usage(cost_usd=0.1)) == ""
        assert budget.spend("b", Usage(cost_usd=0.2)) != ""

    asyncio.run(both())


def test_tokens_that_have_no_price_are_bounded_for_a_dispatch_and_for_a_run(store: Store) -> None:
    async def use() -> None:
        budget = _budget(store, dispatch_tokens=1000, run_tokens=1200, unknown_usd=0.01)
        await budget.reserve("a", "scout")
        assert budget.spend("a", Usage(900, 100)) == ""
        assert "budget.dispatch_tokens = 1000" in budget.spend("a", Usage(900, 101))
        budget.release("a")
        for _ in range(4):
            _spend(store, None)  # 110 tokens each
        budget = _budget(store, dispatch_tokens=1000, run_tokens=1200, unknown_usd=0.01)
        store.runs.set_budget(Person("r1"), 20.0, 5.0)
        await budget.reserve("b", "scout")
        assert budget.spend("b", Usage(700, 60)) == ""
        assert "budget.run_tokens = 1200" in budget.spend("b", Usage(700, 61))
        assert budget.spend("b", Usage(90_000, 61, 0, 0.2)) == "", "what has a price is bounded by money"

    asyncio.run(use())


# -- the properties

COSTS = st.lists(st.floats(0.0, 0.4), min_size=1, max_size=12)


@given(costs=COSTS, roles=st.lists(st.sampled_from("abc"), min_size=12, max_size=12))
def test_a_series_of_dispatches_whose_sum_stays_below_the_limit_is_never_stopped(
    costs: list[float], roles: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    limit = sum(costs) + LEAST_USD

    async def run_all(store: Store) -> None:
        budget = _budget(store)
        for n, (cost, role) in enumerate(zip(costs, roles, strict=False)):
            await budget.reserve(str(n), role)
            for part in (cost / 3, cost * 2 / 3, cost):
                assert budget.spend(str(n), Usage(cost_usd=part)) == ""
            _spend(store, cost, role)
            budget.release(str(n))

    with stored(tmp_path_factory.mktemp("db"), budget=limit) as store:
        asyncio.run(run_all(store))


@given(
    costs=st.lists(st.lists(st.floats(0.01, 0.3), min_size=1, max_size=4), min_size=1, max_size=8),
    slots=st.integers(1, 4),
)
def test_with_several_slots_the_limit_is_passed_by_no_more_than_a_report_of_each(
    costs: list[list[float]], slots: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`costs`: what each response of each dispatch costs. Below the limit nobody is stopped; beyond it each at once."""
    whole, limit = sum(map(sum, costs)), 1.0

    async def run_all(store: Store) -> tuple[float, int]:
        budget, free, spent, stopped = _budget(store), asyncio.Semaphore(slots), [0.0], [0]

        async def dispatch(n: int, parts: list[float]) -> None:
            async with free:
                await budget.reserve(str(n), "a")
                so_far = 0.0
                for part in parts:
                    await asyncio.sleep(0)
                    so_far += part
                    spent[0] += part
                    if budget.spend(str(n), Usage(cost_usd=so_far)):
                        stopped[0] += 1
                        break
                _spend(store, so_far, "a")
                budget.release(str(n))

        await asyncio.gather(*(dispatch(n, parts) for n, parts in enumerate(costs)), return_exceptions=True)
        return spent[0], stopped[0]

    with stored(tmp_path_factory.mktemp("db"), budget=limit) as store:
        spent, stopped = asyncio.run(run_all(store))
    assert spent <= limit + slots * max(map(max, costs)) + 1e-6
    if whole <= limit - LEAST_USD:
        assert (spent, stopped) == (pytest.approx(whole), 0)


# -- what is said


def test_one_account_tells_what_is_known_what_is_assumed_and_what_is_at_work(store: Store) -> None:
    async def look() -> Cost:
        _spend(store, 0.2)
        _spend(store, 0.1, assumed=0.05)
        _spend(store, None)
        budget = _budget(store)
        await budget.reserve("t", "scout")
        budget.spend("t", Usage(cost_usd=0.01))
        return budget.cost

    cost = asyncio.run(look())
    assert cost == (pytest.approx(0.31), pytest.approx(0.55), 2, 1.0)
    assert cost.left == pytest.approx(0.14)


@pytest.mark.req("S0-92")
def test_the_warning_is_said_once(store: Store) -> None:
    book = journal(store)
    budget = Budget(book, Prices())
    _spend(store, 0.6)
    for token in ("a", "b"):
        budget.release(token)
        book.flush()
    assert len([r for r in store.events.all("r1") if isinstance(r.event, Warned)]) == 1


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
        told = [r.event.text for r in store.events.all("r1") if isinstance(r.event, Warned)]
    assert told == [
        "more than $2.50 are spent: $3.00 of $5.00 ($3.00 of it assumed for 6 dispatches of unknown cost), $2.00 left",
        "more than $4.00 are spent: $4.50 of $5.00 ($4.50 of it assumed for 9 dispatches of unknown cost), $0.50 left",
    ]
