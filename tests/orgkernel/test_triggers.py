"""Trigger expressions, for any numbers."""

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import Invalid
from parley.orgkernel.definitions import TriggerMetrics, fired, parse_trigger

OPS = {">=": operator.ge, "<=": operator.le, "==": operator.eq, ">": operator.gt, "<": operator.lt}
names = st.sampled_from(["failures", "consecutive_tool_failures", "tool_failures_consecutive"])
counts = st.integers(0, 50)


@given(names, st.sampled_from(sorted(OPS)), counts, counts, st.sampled_from(["", " ", "  "]))
def test_a_condition_compares_whatever_the_spaces_and_the_name(
    name: str, op: str, bound: int, value: int, space: str
) -> None:
    trigger = parse_trigger(f"{name}{space}{op}{space}{bound}")
    assert bool(fired(trigger, TriggerMetrics(failures=value))) == OPS[op](value, bound)


@given(counts, st.floats(0, 1), counts, st.floats(0, 1))
def test_one_of_several_conditions_is_enough(bound: int, share: float, value: int, fill: float) -> None:
    trigger = parse_trigger(f"failures>={bound} OR context_fill>{share:.4f}")
    expected = value >= bound or fill > float(f"{share:.4f}")
    assert bool(fired(trigger, TriggerMetrics(failures=value, context_fill=fill))) == expected


def test_the_shipped_and_the_specified_expressions_are_all_understood() -> None:
    contingent = parse_trigger("consecutive_tool_failures >= 5 OR context_fill > 0.85")
    assert fired(contingent, TriggerMetrics(context_fill=0.9)) is not None
    assert fired(contingent, TriggerMetrics(failures=4, context_fill=0.85)) is None
    emergency = parse_trigger("critical_failure OR context_exhausted")
    assert fired(emergency, TriggerMetrics(unrecoverable_error=True)) is not None
    assert fired(emergency, TriggerMetrics(context_fill=1.0)) is not None
    assert fired(emergency, TriggerMetrics(failures=100)) is None
    stuck = parse_trigger("unrecoverable_error OR turns_without_progress > max*1.5")
    assert fired(stuck, TriggerMetrics(turns_without_progress=18)) is None
    found = fired(stuck, TriggerMetrics(turns_without_progress=19))
    assert found is not None
    assert found.written == "turns_without_progress > max*1.5"
    assert fired(parse_trigger("context_fill > 85%"), TriggerMetrics(context_fill=0.86)) is not None


def test_nothing_never_fires() -> None:
    assert fired(parse_trigger("  "), TriggerMetrics(failures=99, unrecoverable_error=True)) is None


@pytest.mark.parametrize("text", ["failures", "failures >= many", "mood > 3", "failures >= 3 OR", "__import__('os')"])
def test_what_is_no_condition_is_named(text: str) -> None:
    with pytest.raises(Invalid):
        parse_trigger(text)


@given(st.text(max_size=60))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        fired(parse_trigger(text), TriggerMetrics())
    except Invalid:
        return
