"""Equal values have one hash; it is the SHA-256 of RFC 8785, so that anybody can compute it."""

import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import Invalid
from parley.json_values import Json, canonical_json, stable_hash

values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


def shuffled(value: Json) -> Json:
    if isinstance(value, dict):
        items = list(value.items())
        random.Random(7).shuffle(items)
        return {name: shuffled(one) for name, one in reversed(items)}
    return [shuffled(one) for one in value] if isinstance(value, list) else value


@given(values)
def test_the_order_of_members_does_not_matter_and_json_carries_it(value: Json) -> None:
    assert stable_hash(shuffled(value)) == stable_hash(value)
    assert stable_hash(json.loads(json.dumps(value))) == stable_hash(value)


def test_it_can_be_computed_by_hand() -> None:
    value: Json = {"b": [1, 2.0, None], "a": "é", "c": {"z": True, "y": 1e30}}
    written = '{"a":"é","b":[1,2,null],"c":{"y":1e+30,"z":true}}'.encode()
    assert canonical_json(value) == written
    assert stable_hash(value) == hashlib.sha256(written).hexdigest()


def test_a_large_number_is_what_a_double_makes_of_it() -> None:
    assert stable_hash(2**53 + 1) == stable_hash(float(2**53)) == stable_hash(2**53)
    assert stable_hash(2**53 - 1) != stable_hash(2**53 - 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, {"a": float("-inf")}, "\ud800"])
def test_what_has_no_form_is_refused(value: Json) -> None:
    with pytest.raises(Invalid):
        stable_hash(value)


def test_a_value_without_end_is_refused() -> None:
    deep: Json = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(Invalid, match="deeper"):
        stable_hash(deep)
