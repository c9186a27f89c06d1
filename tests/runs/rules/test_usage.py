"""Totals and prices of model calls."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.runs.rules.usage import (
    MAX_MODELS,
    MAX_NAME,
    OTHER,
    ModelTotals,
    Price,
    Usage,
    added,
    merged,
    missing,
    price_of,
    priced,
    problem,
    shown,
    total,
)

names = st.sampled_from([f"model-{number}" for number in range(MAX_MODELS + 4)])
tokens = st.integers(0, 1000)
costs = st.none() | st.integers(0, 100).map(float)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    given_tokens = draw(tokens)
    return Usage(draw(names), given_tokens, draw(tokens), draw(st.integers(0, given_tokens)), draw(costs))


many = st.lists(usages(), max_size=30)


def summed(calls: list[Usage]) -> dict[str, ModelTotals]:
    totals: dict[str, ModelTotals] = {}
    for usage in calls:
        totals = added(totals, usage)
    return totals


@given(many)
def test_totals_lose_nothing_and_name_a_limited_number_of_models(calls: list[Usage]) -> None:
    totals = summed(calls)
    whole = total(totals)
    assert whole.input_tokens == sum(usage.input_tokens for usage in calls)
    assert whole.output_tokens == sum(usage.output_tokens for usage in calls)
    assert whole.cached_tokens == sum(usage.cached_tokens for usage in calls)
    told = [usage.cost for usage in calls if usage.cost is not None]
    assert whole.cost == (sum(told) if told else None)
    assert len(totals) <= MAX_MODELS + 1
    assert (len(totals) > MAX_MODELS) <= (OTHER in totals)


@given(many, many)
def test_the_sum_of_two_totals_is_the_total_of_both(one: list[Usage], two: list[Usage]) -> None:
    assert total(merged(summed(one), summed(two))) == total(summed([*one, *two]))
    assert total(merged(summed(one), summed(two), most=1)) == total(summed([*one, *two]))


@given(many, many)
def test_what_is_missing_of_a_report_completes_what_is_known(known: list[Usage], later: list[Usage]) -> None:
    reported = summed([*known, *later])
    have = summed(known)
    for usage in missing(reported, have):
        assert problem(usage) is None
        have = added(have, usage)
    assert (total(have).input_tokens, total(have).output_tokens) == (
        total(reported).input_tokens,
        total(reported).output_tokens,
    )
    assert list(missing(reported, reported)) == []


@given(usages())
def test_every_usage_that_makes_sense_is_accepted(usage: Usage) -> None:
    assert problem(usage) is None


@pytest.mark.parametrize(
    ("usage", "reason"),
    [
        (("",), "the name of a model"),
        ((7,), "the name of a model"),
        (("a\n",), "the name of a model"),
        (("a", -1), "whole numbers"),
        (("a", 1.5), "whole numbers"),
        (("a", True), "whole numbers"),
        (("a", 1 << 60), "whole numbers"),
        (("a", 1, 0, 2), "cannot be more"),
        (("a", 1, 0, 0, -0.1), "cost must be a number"),
        (("a", 1, 0, 0, math.nan), "cost must be a number"),
        (("a", 1, 0, 0, math.inf), "cost must be a number"),
        (("a", 1, 0, 0, "1"), "cost must be a number"),
    ],
)
def test_a_usage_that_makes_no_sense_is_refused_with_the_reason(usage: tuple[Any, ...], reason: str) -> None:
    assert reason in (problem(Usage(*usage)) or "")


def test_a_long_name_is_cut() -> None:
    assert list(added({}, Usage("m" * 1000, 1))) == ["m" * MAX_NAME]


def test_a_price_is_that_of_the_name_or_of_the_longest_pattern() -> None:
    prices = {"gpt-*": Price(1, 10), "gpt-5*": Price(2, 20), "gpt-5-mini": Price(3, 30), "*": Price(9, 9)}
    found = {model: price_of(model, prices) for model in ("gpt-4", "gpt-5-nano", "gpt-5-mini", "claude")}
    assert found == {
        "gpt-4": Price(1, 10),
        "gpt-5-nano": Price(2, 20),
        "gpt-5-mini": Price(3, 30),
        "claude": Price(9, 9),
    }
    assert price_of("claude", {"gpt-*": Price(1, 1)}) is None


def test_a_cost_counts_cached_tokens_at_their_own_price() -> None:
    usage = Usage("a", 1_000_000, 500_000, 400_000)
    assert priced(usage, {"a": Price(1, 10, 0.5)}).cost == pytest.approx(0.6 + 0.2 + 5)
    assert priced(usage, {"a": Price(1, 10)}).cost == pytest.approx(1 + 5)
    assert priced(usage, {}).cost is None
    assert priced(Usage("a", 5, cost=0.25), {"a": Price(1, 1)}).cost == 0.25


@given(usages())
def test_a_reported_cost_is_never_changed_and_a_calculated_one_never_negative(usage: Usage) -> None:
    found = priced(usage, {"*": Price(1, 2, 0.1)})
    assert found.cost is not None
    assert found.cost >= 0
    assert usage.cost in (None, found.cost)


def test_clients_see_the_sum_and_each_model() -> None:
    totals = summed([Usage("a", 10, 1, 5, 0.1), Usage("a", 1, 1, 0, 0.2), Usage("b", 3)])
    assert shown(totals) == {
        "inputTokens": 14, "outputTokens": 2, "cachedTokens": 5, "cost": 0.3,
        "models": {
            "a": {"inputTokens": 11, "outputTokens": 2, "cachedTokens": 5, "cost": 0.3},
            "b": {"inputTokens": 3, "outputTokens": 0, "cachedTokens": 0},
        },
    }  # fmt: skip
