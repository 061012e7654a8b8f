from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.agents.base import AgentEvent, Spent
from windlass.agents.cli.tally import Tally
from windlass.model import Usage

ONE = Usage(100, 10, 0, 0.5, True)
TWO = Usage(200, 20, 0, 1.0, True)


def total(events: list[AgentEvent]) -> Usage:
    [spent] = events
    assert isinstance(spent, Spent)
    assert spent.total
    return spent.usage


def test_responses_add_up_and_one_that_is_told_again_is_not_counted_again() -> None:
    tally = Tally()
    assert total(tally.response("a", ONE)) == ONE
    assert tally.response("a", ONE) == []
    assert total(tally.response("b", ONE)) == TWO


def test_a_response_without_a_name_or_without_tokens_is_none() -> None:
    tally = Tally()
    assert tally.response("", ONE) == []
    assert tally.response("a", Usage()) == []
    assert total(tally.response("a", ONE)) == ONE


def test_a_response_without_a_price_makes_the_cost_unknown() -> None:
    tally = Tally()
    tally.response("a", ONE)
    assert total(tally.response("b", Usage(100, 10))).cost_usd is None


def test_a_last_word_that_tells_more_counts_and_what_comes_late_is_not_added_to_it() -> None:
    tally = Tally()
    tally.response("a", ONE)
    assert total(tally.final_total(TWO)) == TWO
    assert tally.response("b", Usage(50, 5, 0, 0.3)) == []


def test_a_last_word_that_leaves_out_what_helpers_spent_does_not_take_it_back() -> None:
    tally = Tally()
    tally.response("a", TWO)
    assert tally.final_total(ONE) == []


def test_without_single_responses_the_last_word_is_all_there_is() -> None:
    assert total(Tally().final_total(Usage())) == Usage()
    assert total(Tally().final_total(ONE)) == ONE


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50)), max_size=20), st.integers(0, 300), st.integers(0, 20))
def test_whatever_order_they_are_read_in_the_larger_of_both_totals_is_told(
    responses: list[tuple[int, int]], final: int, place: int
) -> None:
    tally, told = Tally(), 0
    steps = [lambda n=n, size=size: tally.response(f"r{n}", Usage(size)) for n, size in responses]
    steps.insert(place, lambda: tally.final_total(Usage(final)))
    for step in steps:
        told = next((total([event]).input for event in step()), told)
    first = dict(reversed(responses))
    assert told == max(final, sum(first.values()))
