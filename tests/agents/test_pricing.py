from __future__ import annotations

import pytest

from windlass.agents.prices import cost, price_date
from windlass.model import Usage


def test_cached_tokens_have_their_own_price() -> None:
    assert cost("gpt-5", Usage(1_000_000, 0, 0)) == pytest.approx(1.25)
    assert cost("gpt-5", Usage(1_000_000, 0, 1_000_000)) == pytest.approx(0.125)
    assert cost("gpt-5", Usage(0, 1_000_000, 0)) == pytest.approx(10.0)


def test_tokens_written_to_a_cache_cost_more() -> None:
    plain = cost("claude-sonnet-4-5", Usage(1000, 0, 0))
    written = cost("claude-sonnet-4-5", Usage(1000, 0, 0), written=1000)
    assert plain == pytest.approx(0.003)
    assert written == pytest.approx(0.00375)


def test_a_providers_name_before_the_model_is_allowed() -> None:
    assert cost("openai/gpt-5", Usage(1000, 100)) == cost("gpt-5", Usage(1000, 100))


@pytest.mark.parametrize("model", ["", "a-model-of-my-own", "/"])
def test_a_model_without_a_price_costs_the_unknown_not_0(model: str) -> None:
    assert cost(model, Usage(1000, 100)) is None


def test_more_cached_than_sent_is_nonsense_and_unknown() -> None:
    assert cost("gpt-5", Usage(10, 0, 1000)) is None


def test_the_date_of_the_prices_is_not_in_the_future() -> None:
    assert "2025-01-01" < price_date("2026-11-15") <= "2026-11-15"
    assert price_date("1999-01-01") == ""
