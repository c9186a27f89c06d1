"""Numbers of events, found in the bytes of a stream however they are cut."""

from collections.abc import AsyncIterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from parley.drivers.remote.bridge import Numbers, numbered, tidy

STREAM = (
    ': keep-alive\n\nid: 3\ndata: {"a": "x\u2028y"}\n\nevent: message\r\nid: 4\r\ndata: {}\r\n\r\n'
    "id: 5\n\ndata: {}\n\nid: x\ndata: {}\n\n"
).encode()


@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
async def test_numbers_are_found_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        places = [0, *sorted(cuts), len(STREAM)]
        for begin, end in pairwise(places):
            yield STREAM[begin:end]

    numbers: Numbers = Numbers()
    text = b"".join([chunk async for chunk in numbered(chunks(), numbers)])
    assert list(numbers) == [3, 4, None, None]
    assert "\u2028" not in text.decode()
    assert len(text.decode().splitlines()) == len(STREAM.decode().replace("\u2028", "").splitlines())


def test_numbers_and_order_are_as_they_were_meant() -> None:
    assert tidy({"b": 42.0, "a": [1.5, {"z": 1e300, "y": True}]}) == b'{"a":[1.5,{"y":true,"z":1e300}],"b":42}'
