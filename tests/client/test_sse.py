"""The reader of server-sent events."""

from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.client.sse import read_events


async def read(*chunks: bytes) -> list[tuple[int | None, str]]:
    async def sent() -> AsyncGenerator[bytes, None]:
        for chunk in chunks:
            yield chunk

    return [event async for event in read_events(sent())]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("id: 3\ndata: a\n\n", [(3, "a")]),
        ("id:3\ndata:a\n\ndata: b\n\n", [(3, "a"), (None, "b")]),
        ("data: a\ndata: b\n\n", [(None, "a\nb")]),
        (": a comment\n\nevent: message\nid: 4\ndata: a\n\n", [(4, "a")]),
        ("id: 5\n\ndata: a\n\n", [(None, "a")]),
        ("id: word\ndata: a\n\n", [(None, "a")]),
        ("id: 6\ndata: a", [(6, "a")]),
        ("data:  two spaces\n\n", [(None, " two spaces")]),
        ("id: 7\r\ndata: a\r\n\r\n", [(7, "a")]),
        ("", []),
    ],
)
async def test_events_are_read_as_the_standard_says(text: str, events: list[tuple[int | None, str]]) -> None:
    assert await read(text.encode()) == events
    assert await read(*(text.encode()[at : at + 1] for at in range(len(text)))) == events


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1)
"""Also with the characters at which `str.splitlines` would cut."""


@given(st.lists(st.tuples(st.none() | st.integers(0, 10**15 - 1), TEXTS)), st.integers(1, 9))
async def test_what_is_written_is_read_again(events: list[tuple[int | None, str]], size: int) -> None:
    text = "".join(("" if number is None else f"id: {number}\n") + f"data: {data}\n\n" for number, data in events)
    sent = text.encode()
    assert await read(*(sent[at : at + size] for at in range(0, len(sent), size))) == events
