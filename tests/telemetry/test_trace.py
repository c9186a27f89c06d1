"""Parsing of trace headers. The cases are those of W3C's test suite for Trace Context."""

import asyncio
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.telemetry.trace import (
    NONE,
    StartedTrace,
    Trace,
    current,
    enter,
    entered,
    headers_for,
    new_request_id,
    sent,
    trace_of,
)

TRACE, SPAN = "12345678901234567890123456789012", "1234567890123456"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_valid_traceparent_is_taken_as_it_is() -> None:
    assert trace_of(PARENT) == Trace(PARENT)
    assert trace_of(PARENT).trace_id == TRACE


@pytest.mark.parametrize("padded", [f" {PARENT}", f"\t{PARENT}", f"{PARENT} ", f"{PARENT}\t", f"\t {PARENT} \t"])
def test_space_around_a_traceparent_does_not_matter(padded: str) -> None:
    assert trace_of(padded).traceparent == PARENT


@pytest.mark.parametrize(
    "wrong",
    [
        f"{PARENT}.",
        f"{PARENT}-what-the-future-will-be-like",
        f"cc-{TRACE}-{SPAN}-01.what-the-future-will-be-like",
        f"ff-{TRACE}-{SPAN}-01",
        f".0-{TRACE}-{SPAN}-01",
        f"0.-{TRACE}-{SPAN}-01",
        f"000-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-.{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}3-{SPAN}-01",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-.{SPAN[1:]}-01",
        f"00-{TRACE}-{SPAN}7-01",
        f"00-{TRACE}-{SPAN[1:]}-01",
        f"00-{TRACE}-{SPAN}-.0",
        f"00-{TRACE}-{SPAN}-0.",
        f"00-{TRACE}-{SPAN}-001",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{'ABCDEF' * 5}ab-{SPAN}-01",
        f"{PARENT}\n",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 300}",
        "",
    ],
)
def test_an_invalid_traceparent_is_ignored_and_its_tracestate_with_it(wrong: str) -> None:
    assert trace_of(wrong, "foo=1") is NONE
    assert trace_of(wrong, "foo=1", "r-1") == Trace(request_id="r-1")


@pytest.mark.parametrize("later", [f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-09-what-the-future-will-be-like"])
def test_a_later_version_is_read_as_far_as_it_is_known(later: str) -> None:
    assert trace_of(later).traceparent == PARENT


CHARACTERS = string.ascii_lowercase + string.digits + "_-*/"
VALUE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in ",=")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("foo=1,bar=2", "foo=1,bar=2"),
        ("foo=1,", "foo=1"),
        (",foo=1", "foo=1"),
        ("foo=1,,bar=2", "foo=1,bar=2"),
        ("foo=1 \t , \t bar=2, \t baz=3", "foo=1,bar=2,baz=3"),
        ("\t foo=1 \t", "foo=1"),
        ("foo=1,foo=2", "foo=1,foo=2"),
        (f"{CHARACTERS}={VALUE}", f"{CHARACTERS}={VALUE}"),
        (f"{CHARACTERS}@a-z0-9_-*/={VALUE}", f"{CHARACTERS}@a-z0-9_-*/={VALUE}"),
        ("foo@=1,bar=2", "foo@=1,bar=2"),
        ("foo@bar@baz=1,bar=2", "foo@bar@baz=1,bar=2"),
        (",".join(f"k{number}=1" for number in range(32)), ",".join(f"k{number}=1" for number in range(32))),
        ("", ""),
        (" , ", ""),
        ("foo =1", ""),
        ("FOO=1", ""),
        ("foo.bar=1", ""),
        ("@foo=1,bar=2", ""),
        ("foo=bar=baz", ""),
        ("foo=,bar=3", ""),
        ("foo=1\n", ""),
        (",".join(f"k{number}=1" for number in range(33)), ""),
        (f"foo={'x' * 257}", ""),
        (f"{'f' * 257}=1", ""),
        (",".join(f"k{number}={'x' * 100}" for number in range(6)), ""),
    ],
)
def test_a_tracestate_is_kept_whole_or_not_at_all(given: str, kept: str) -> None:
    assert trace_of(PARENT, given) == Trace(PARENT, kept)


@pytest.mark.parametrize(
    ("given", "kept"),
    [("r-1", "r-1"), (" r-1 ", "r-1"), ("x" * 128, "x" * 128), ("x" * 129, ""), ("a b", ""), ("ä", ""), ("a\x7f", "")],
)
def test_a_request_id_is_short_and_printable(given: str, kept: str) -> None:
    assert trace_of(request_id=given).request_id == kept


@given(st.text(), st.text(), st.text())
def test_whatever_is_believed_can_be_a_header_and_metadata_of_grpc(parent: str, state: str, request_id: str) -> None:
    for value in headers_for(trace_of(parent, state, request_id)).values():
        assert value.isascii()
        assert value.isprintable()


@given(st.text("ab=, \t@", max_size=600))
def test_a_tracestate_is_judged_in_no_time(state: str) -> None:
    assert len(trace_of(PARENT, state).tracestate) <= 512


def test_only_what_is_there_becomes_a_header() -> None:
    assert headers_for(NONE) == {}
    assert headers_for(Trace(PARENT, "a=1", "r")) == {"traceparent": PARENT, "tracestate": "a=1", "x-request-id": "r"}


def test_a_trace_holds_for_its_block_and_for_what_is_started_there() -> None:
    async def seen() -> Trace:
        return current()

    async def scenario() -> None:
        with entered(Trace(PARENT)):
            task = asyncio.get_running_loop().create_task(seen())
            assert sent() == Trace(PARENT)
        assert (current(), sent()) == (NONE, None)
        assert await task == Trace(PARENT)

    asyncio.run(scenario())


def test_an_id_that_was_made_here_is_current_but_not_sent() -> None:
    async def scenario() -> None:
        enter(StartedTrace(request_id=new_request_id()))
        assert len(current().request_id) == 32
        assert sent() is None

    asyncio.run(scenario())
    assert current() is NONE
