"""Content of frames, as values."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from parley.runs.rules.content import text_of
from parley.runs.rules.frames import FRAME, Effect, Frame, message_of

json_values = st.recursive(
    st.none() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(st.text(), json_values, max_size=4)


@pytest.mark.parametrize(
    ("type_", "effect"),
    [("cancel", "cancel"), ("cancel_requested", "cancel"), ("finish", "finish"), ("complete", "finish"),
     ("run_complete", "finish"), ("fail", "fail"), ("error", "fail"), ("user_message", "input"), ("Cancel", "input")],
)  # fmt: skip
def test_the_type_of_a_frame_decides_what_it_does(type_: str, effect: Effect) -> None:
    assert Frame("f", type_, {}).effect == effect


@pytest.mark.parametrize("name", ["text", "delta"])
def test_an_agent_reads_the_words_of_a_frame(name: str) -> None:
    message = message_of(Frame("f1", "user_message", {name: "hi", "lang": "en"}, "2026-02-18T12:30:00Z"))
    assert (message.id, text_of(message.parts)) == ("f1", "hi")
    assert message.metadata is not UNSET
    about = msgspec.json.decode(message.metadata)[FRAME]
    assert about == {"type": "user_message", "occurred_at": "2026-02-18T12:30:00Z", "payload": {"lang": "en"}}


@pytest.mark.parametrize("payload", [{}, {"text": ""}, {"text": 7}, {"approved": True}])
def test_a_frame_without_words_is_data(payload: dict[str, object]) -> None:
    [part] = message_of(Frame("f", "approval", payload)).parts
    assert part.data is not UNSET
    assert msgspec.json.decode(part.data) == payload


@given(payloads)
def test_the_order_of_members_makes_no_other_frame(payload: dict[str, object]) -> None:
    turned = dict(reversed(payload.items()))
    assert Frame("a", "t", payload).digest == Frame("b", "t", turned).digest


@given(payloads, payloads, st.text(), st.text())
def test_another_payload_or_type_is_another_frame(
    one: dict[str, object], other: dict[str, object], type_: str, other_type: str
) -> None:
    same = one == other and type_ == other_type
    assert (Frame("f", type_, one).digest == Frame("f", other_type, other).digest) == same
