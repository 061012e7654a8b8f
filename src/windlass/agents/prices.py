"""Prices tokens, for CLIs that report only tokens. The prices come from the genai-prices package."""

from __future__ import annotations

from functools import cache

from windlass.model import Usage


def cost(model: str, usage: Usage, *, written: int = 0) -> float | None:
    """`usage.input` counts all input tokens. Of these, `usage.cached` were read from a cache and `written` put into it.

    None: the model has no known price.
    """
    if not model:
        return None
    from genai_prices import Usage as Tokens
    from genai_prices import calc_price

    tokens = Tokens(
        input_tokens=usage.input,
        cache_read_tokens=usage.cached,
        cache_write_tokens=written,
        output_tokens=usage.output,
    )
    try:
        return float(calc_price(tokens, model_ref=model.rpartition("/")[2]).total_price)
    except (LookupError, ValueError):
        return None


def price_date(today: str) -> str:
    """The newest dated price in force, as YYYY-MM-DD; the package does not say when it was made."""
    return max((date for date in _dates() if date <= today), default="")


@cache
def _dates() -> frozenset[str]:
    from genai_prices.data_snapshot import get_snapshot

    models = [model for provider in get_snapshot().providers for model in provider.models]
    priced = [one for model in models if isinstance(model.prices, list) for one in model.prices]
    variants = [one for model in models for one in getattr(model, "price_variants", None) or ()]
    starts = (getattr(one.constraint, "start_date", None) for one in (*priced, *variants))
    return frozenset(start.isoformat() for start in starts if start is not None)
