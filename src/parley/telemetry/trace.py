"""Where a request comes from, in the words of W3C Trace Context, and the id by which its sender knows it.

A trace is data: it is kept with the input it came with, so that work which waits, or is taken up elsewhere, belongs to
it all the same.
"""

import re
from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from random import getrandbits

from msgspec import Struct

MAX_TRACEPARENT = 256
"""Of versions to come, of which only the beginning is read."""
MAX_TRACESTATE = 512
MAX_REQUEST_ID = 128

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_KNOWN_FLAGS = 0x03
"""Sampled, and random."""
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_MOST_MEMBERS = 32
_REQUEST_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_REQUEST_ID}}}")


class Trace(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """What a caller says about the work that its request is part of; empty where it says nothing."""

    traceparent: str = ""
    tracestate: str = ""
    request_id: str = ""

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]


class Made(Trace, frozen=True, omit_defaults=True, gc=False):
    """Of a request that came without a trace: its id was made here, for its answer and what is logged, and is not kept
    with what it asks for."""


NONE = Trace()

_PROCESS = f"{getrandbits(96):024x}"
_requests = count(1)

_current: ContextVar[Trace] = ContextVar("trace", default=NONE)


def trace_of(traceparent: str = "", tracestate: str = "", request_id: str = "") -> Trace:
    """What of it is valid. A tracestate means nothing without its traceparent."""
    parent = _valid_parent(traceparent.strip(" \t")) if traceparent else ""
    state = _valid_state(tracestate) if parent and tracestate else ""
    request_id = request_id.strip(" \t")
    id_ = request_id if request_id and _REQUEST_ID.fullmatch(request_id) else ""
    return Trace(parent, state, id_) if parent or id_ else NONE


def _valid_parent(text: str) -> str:
    """As the version known here writes it: of a later one only what it has in common with this is known."""
    found = _PARENT.fullmatch(text) if len(text) <= MAX_TRACEPARENT else None
    if found is None:
        return ""
    version, trace, parent, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not trace.strip("0") or not parent.strip("0"):
        return ""
    return text if version == "00" else f"00-{trace}-{parent}-{int(flags, 16) & _KNOWN_FLAGS:02x}"


def _valid_state(text: str) -> str:
    text = text.strip(" \t,")
    if not text or len(text) > MAX_TRACESTATE:
        return ""
    members = [member for member in (one.strip(" \t") for one in text.split(",")) if member]
    return ",".join(members) if len(members) <= _MOST_MEMBERS and all(map(_MEMBER.fullmatch, members)) else ""


def new_request_id() -> str:
    """Of no use to anybody who guesses it, so that it need only be unlike all others."""
    return f"{_PROCESS}{next(_requests):08x}"


current: Callable[[], Trace] = _current.get
"""Of the request or the turn that is under way here; empty when there is none."""

enter: Callable[[Trace], object] = _current.set
"""Make a trace the current one for the rest of this task."""


def sent() -> Trace | None:
    """The same, as it is to be kept with an input: None when nobody sent one."""
    trace = _current.get()
    return None if trace is NONE or type(trace) is Made else trace


def entered(trace: Trace | None) -> "_Entered":
    """While the block runs, and in what is started there."""
    return _Entered(trace or NONE)


class _Entered:
    """Left by setting, not by token: a generator may be closed in another context than it was begun in."""

    __slots__ = ("_before", "_trace")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __enter__(self) -> None:
        self._before = _current.get()
        _current.set(self._trace)

    def __exit__(self, *_: object) -> None:
        _current.set(self._before)


def headers_for(trace: Trace) -> dict[str, str]:
    """What a call to somebody else carries on; the same names serve as metadata of gRPC."""
    named = {"traceparent": trace.traceparent, "tracestate": trace.tracestate, "x-request-id": trace.request_id}
    return {name: value for name, value in named.items() if value}
