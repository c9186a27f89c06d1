"""A rate with bursts, as values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import Invalid
from parley.limits import Bucket, Rate, filled, rate_of, taken, wait_s
from parley.runs.rules.agents import Agent, Limits, check_agent


def admitted(rate: Rate, times: list[int]) -> list[int]:
    """The moments at which one more request is admitted."""
    bucket: Bucket | None = None
    let_in: list[int] = []
    for now in times:
        bucket = filled(bucket, rate, now)
        if not wait_s(bucket, rate):
            bucket = taken(bucket)
            let_in.append(now)
    return let_in


def test_a_burst_passes_at_once_and_then_only_the_rate() -> None:
    rate = Rate(10, 3)
    assert admitted(rate, [0] * 5) == [0] * 3
    assert len(admitted(rate, list(range(10_000)))) == pytest.approx(103, abs=1)


def test_the_wait_is_as_long_as_it_takes_and_at_least_a_second() -> None:
    assert wait_s(Bucket(0.0, 0), Rate(0.1, 1)) == 10
    assert wait_s(Bucket(0.0, 0), Rate(50, 50)) == 1
    assert wait_s(Bucket(1.0, 0), Rate(50, 50)) == 0


def test_who_waits_as_told_is_let_in() -> None:
    rate = Rate(0.3, 1)
    bucket = taken(filled(None, rate, 0))
    later = filled(bucket, rate, wait_s(bucket, rate) * 1000)
    assert wait_s(later, rate) == 0


def test_a_clock_that_is_set_back_gives_nothing_away() -> None:
    bucket = taken(filled(None, Rate(1, 1), 10_000))
    assert filled(bucket, Rate(1, 1), 0) == bucket
    assert filled(filled(bucket, Rate(1, 1), 0), Rate(1, 1), 10_500).left == 0.5


def test_without_a_burst_a_second_may_come_at_once_and_never_less_than_one() -> None:
    assert rate_of(None, 5) is None
    assert rate_of(50, None) == Rate(50, 50)
    assert rate_of(0.1, None) == Rate(0.1, 1)
    assert rate_of(0.1, 7) == Rate(0.1, 7)


def test_replicas_share_a_rate() -> None:
    assert Rate(50, 20).shared(1) == Rate(50, 20)
    assert Rate(50, 20).shared(4) == Rate(12.5, 5)
    assert Rate(1, 1).shared(4) == Rate(0.25, 1)


@given(
    st.floats(0.1, 1000), st.floats(1, 100), st.lists(st.integers(0, 400), min_size=1, max_size=200).map(sorted),
)  # fmt: skip
def test_no_span_of_time_lets_in_more_than_the_burst_and_its_rate(
    per_second: float, burst: float, times: list[int]
) -> None:
    let_in = admitted(Rate(per_second, burst), times)
    for index, first in enumerate(let_in):
        for count, last in enumerate(let_in[index:], 1):
            assert count <= burst + (last - first) / 1000 * per_second + 1e-6


@pytest.mark.parametrize("limits", [Limits(max_per_second=0), Limits(max_burst=0), Limits(max_per_second=-1)])
def test_a_rate_of_nothing_is_no_limit(limits: Limits) -> None:
    with pytest.raises(Invalid, match="limit max_"):
        check_agent(Agent("echo", "Echo", "Says.", limits=limits))
