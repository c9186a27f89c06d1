"""Nesting depth of JSON, measured without recursion."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley import json_values
from parley.errors import NestedTooDeep
from parley.json_values import MARK, check_depth, is_deeper, readable

TEXTS = st.text(st.sampled_from('[]{}"\\a\n'), max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=30,
)


def depth(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max((depth(one) for one in (value.values() if isinstance(value, dict) else value)), default=0)


@given(VALUES, st.sampled_from([1, 2, 3, 5, 16 * 1024]))
def test_the_depth_is_exact_whatever_texts_hold_and_wherever_pieces_end(value: Any, chunk: int) -> None:
    body, levels = json.dumps(value).encode(), depth(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "_CHUNK", chunk)
        assert not is_deeper(body, levels)
        assert levels == 0 or is_deeper(body, levels - 1)


@given(VALUES, st.integers(1, 4))
def test_what_is_too_deep_is_replaced_and_the_rest_stays(value: Any, most: int) -> None:
    def short(one: Any, left: int) -> Any:
        if not isinstance(one, list | dict):
            return one
        if left == 0:
            return json.loads(MARK)
        if isinstance(one, dict):
            return {name: short(inner, left - 1) for name, inner in one.items()}
        return [short(inner, left - 1) for inner in one]

    assert json.loads(readable(json.dumps(value).encode(), most)) == short(value, most)


@pytest.mark.parametrize(
    "body",
    [b"[" * 1_000_000, b'{"a":' * 300_000, b'["' + b"\\" * 999_999, b'"' * 999_999, b"]" * 200 + b"[" * 200],
    ids=["lists", "objects", "backslashes", "quotes", "closed first"],
)
def test_what_is_no_json_is_read_to_its_end_too(body: bytes) -> None:
    is_deeper(body, 100)
    readable(body, 100)


def test_one_level_too_many_is_refused() -> None:
    check_depth(b"[" * 100 + b"]" * 100)
    with pytest.raises(NestedTooDeep, match="at most 100 levels"):
        check_depth(b"[" * 101 + b"]" * 101)
