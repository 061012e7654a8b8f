"""Tokens into money, for CLIs that tell tokens only. The prices are those of the genai-prices package."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from windlass.model import Usage


def cost(model: str, usage: Usage, *, written: int = 0) -> float | None:
    """`usage.input` holds all input tokens: those of `usage.cached` were read from a cache, `written` put into it.

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


@cache
def price_date() -> str:
    """The newest dated price that is known, as YYYY-MM-DD; the package does not say when it was made."""
    return max(_dates(), default="")


def _dates() -> Iterator[str]:
    from genai_prices.data_snapshot import get_snapshot

    for provider in get_snapshot().providers:
        for model in provider.models:
            prices = model.prices if isinstance(model.prices, list) else []
            for one in (*prices, *(getattr(model, "price_variants", None) or ())):
                start = getattr(one.constraint, "start_date", None)
                if start is not None:
                    yield start.isoformat()
