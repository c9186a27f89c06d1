"""Usage of models: tokens and money, of one model call and in total."""

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

MAX_MODELS = 16
"""Models that the totals of a run name. The totals are part of the run's row, which is written at every step."""
MAX_NAME = 128
MAX_TOKENS = 1 << 53
OTHER = "other"
"""Name under which usage of further models is added up."""
_MILLION = 1_000_000


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens that one or more calls of a model used, and their cost in USD.

    `cached_tokens` is the part of `input_tokens` that the vendor read from its cache. Without a `cost`, the server
    calculates it from its setting `prices`.
    """

    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None


class ModelTotals(Struct, frozen=True, omit_defaults=True):
    """Total usage of one model. `cost` is None if no call had a cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float | None = None


Totals = Mapping[str, ModelTotals]
"""Usage by model."""


def problem(usage: Usage) -> str | None:
    """Return why a value cannot be recorded; None if it can."""
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    if type(usage.model) is not str or not usage.model or not usage.model.isprintable():
        return "model must be the name of a model."
    if any(type(count) is not int or not 0 <= count <= MAX_TOKENS for count in counts):
        return "the numbers of tokens must be whole numbers from zero."
    if usage.cached_tokens > usage.input_tokens:
        return "cached_tokens are a part of input_tokens and cannot be more."
    if usage.cost is not None and not (type(usage.cost) in (int, float) and 0 <= usage.cost < math.inf):
        return "cost must be a number from zero, in USD."
    return None


def added(totals: Totals, usage: Usage) -> dict[str, ModelTotals]:
    """Return the totals with one more usage."""
    one = ModelTotals(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cost)
    return merged(totals, {usage.model[:MAX_NAME]: one})


def merged(totals: Totals, more: Totals, most: int = MAX_MODELS) -> dict[str, ModelTotals]:
    """Return the sum of two totals. More than `most` models are added up as OTHER."""
    result = dict(totals)
    for model, one in more.items():
        name = model if model in result or len(result) < most else OTHER
        result[name] = plus(result[name], one) if name in result else one
    return result


def total(totals: Totals) -> ModelTotals:
    """Return the sum over all models."""
    result = ModelTotals()
    for one in totals.values():
        result = plus(result, one)
    return result


def shown(totals: Totals) -> dict[str, object]:
    """Return totals as clients see them: over all models, and of each model."""
    return {**_shown(total(totals)), "models": {model: _shown(one) for model, one in totals.items()}}


def _shown(one: ModelTotals) -> dict[str, object]:
    counts: dict[str, object] = {
        "inputTokens": one.input_tokens,
        "outputTokens": one.output_tokens,
        "cachedTokens": one.cached_tokens,
    }
    return counts if one.cost is None else {**counts, "cost": round(one.cost, 9)}


def missing(reported: Totals, known: Totals) -> Iterable[Usage]:
    """Yield the usage by which reported totals exceed the known ones."""
    for model, one in reported.items():
        had = known.get(model, ModelTotals())
        counts = (
            max(0, one.input_tokens - had.input_tokens),
            max(0, one.output_tokens - had.output_tokens),
            max(0, one.cached_tokens - had.cached_tokens),
        )
        cost = None if one.cost is None else max(0.0, one.cost - (had.cost or 0.0))
        if any(counts) or cost:
            yield Usage(model, counts[0], counts[1], min(counts[2], counts[0]), cost)


def plus(one: ModelTotals, two: ModelTotals) -> ModelTotals:
    """Return the sum of the totals of one model."""
    costs = [cost for cost in (one.cost, two.cost) if cost is not None]
    return ModelTotals(
        one.input_tokens + two.input_tokens,
        one.output_tokens + two.output_tokens,
        one.cached_tokens + two.cached_tokens,
        sum(costs) if costs else None,
    )


# Prices, as the operator sets them.


class Price(Struct, frozen=True):
    """Prices of a model in USD per million tokens. Cached tokens cost as much as others unless `cached` is set."""

    input: float
    output: float
    cached: float | None = None


Prices = Mapping[str, Price]
"""Prices by the name of a model; `*` in a name matches any characters."""


def priced(usage: Usage, prices: Prices) -> Usage:
    """Return the usage with a cost: its own, or that of the price list, or none if no price applies."""
    if usage.cost is not None or (price := price_of(usage.model, prices)) is None:
        return usage
    cached = price.input if price.cached is None else price.cached
    cost = (
        (usage.input_tokens - usage.cached_tokens) * price.input
        + usage.cached_tokens * cached
        + usage.output_tokens * price.output
    )
    return replace(usage, cost=cost / _MILLION)


def price_of(model: str, prices: Prices) -> Price | None:
    """Return the price of a model: of its own name, or else of the longest pattern that matches."""
    if model in prices:
        return prices[model]
    matching = [pattern for pattern in prices if fnmatchcase(model, pattern)]
    return prices[max(matching, key=len)] if matching else None
