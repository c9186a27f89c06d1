import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from parley.errors import BrokenChain
from parley.ids import RunId
from parley.runs.rules.content import Message, Part, text_part
from parley.runs.rules.events import _TYPES as TYPES
from parley.runs.rules.events import (
    EVENT_TYPES,
    GENESIS,
    Event,
    InputReceived,
    Progress,
    decode,
    encode,
    sealed,
    type_of,
    verify,
)

RUN = RunId("run")


def chain(length: int) -> list[Event]:
    events: list[Event] = []
    for seq in range(1, length + 1):
        previous = events[-1].hash if events else GENESIS
        events.append(sealed(RUN, seq, 1000 + seq, Progress((text_part(f"step {seq}"),)), previous))
    return events


def test_every_event_type_is_named() -> None:
    assert sorted(TYPES.values()) == sorted(EVENT_TYPES)


def test_a_number_in_data_keeps_its_spelling() -> None:
    data = b'{"count":42,"big":123456789012345678901234567890,"float":1.0,"tiny":1e-400}'
    event = InputReceived(Message("m", (Part(data=Raw(data)),)))
    stored = encode(event)
    assert data in stored
    back = decode(stored)
    assert isinstance(back, InputReceived)
    assert bytes(back.message.parts[0].data) == data  # type: ignore[arg-type]


def test_a_null_in_data_is_not_the_same_as_no_data() -> None:
    back = decode(encode(InputReceived(Message("m", (Part(data=Raw(b"null")),)))))
    assert isinstance(back, InputReceived)
    assert back.message.parts[0].data == Raw(b"null")


@given(st.integers(0, 20))
def test_a_chain_verifies_to_its_end(length: int) -> None:
    events = chain(length)
    assert verify(events) == (length, events[-1].hash if events else GENESIS)


def test_a_chain_verifies_from_a_floor() -> None:
    events = chain(5)
    assert verify(events[3:], 3, events[2].hash)[0] == 5


def test_an_erased_payload_leaves_the_chain_whole() -> None:
    events = chain(3)
    events[1] = replace(events[1], body=None, payload=None)
    assert verify(events)[0] == 3


LIES = {
    "payload": lambda e: replace(e, body=encode(Progress((text_part("forged"),)))),
    "digest": lambda e: replace(e, body=None, digest=bytes(32)),
    "time": lambda e: replace(e, at=e.at + 1),
    "type": lambda e: replace(e, type="completed"),
    "number": lambda e: replace(e, seq=e.seq + 1),
    "hash": lambda e: replace(e, hash=bytes(32)),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_changed_event_is_found(lie: str) -> None:
    events = chain(3)
    events[1] = LIES[lie](events[1])
    with pytest.raises(BrokenChain) as found:
        verify(events)
    assert found.value.details["seq"] in (2, 3)


def test_a_missing_event_is_found() -> None:
    events = chain(3)
    with pytest.raises(BrokenChain):
        verify([events[0], events[2]])


def test_the_type_is_part_of_the_bytes() -> None:
    assert type_of(decode(encode(Progress((text_part("x"),))))) == "progress"
