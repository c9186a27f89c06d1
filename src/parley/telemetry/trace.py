"""The trace of a request (W3C Trace Context), and the request id that its sender uses.

A trace is data: it is stored with the input that it came with, so that work which waits, or moves to another process,
still belongs to it.
"""

import re
from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from random import getrandbits

from msgspec import Struct

__all__ = ["Trace", "current", "headers_for"]

MAX_TRACEPARENT = 256
"""Long enough for future versions, of which only the beginning is read."""
MAX_TRACESTATE = 512
MAX_REQUEST_ID = 128

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_KNOWN_FLAGS = 0x03
"""The flags sampled and random."""
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
_MOST_MEMBERS = 32
_REQUEST_ID = re.compile(rf"[\x21-\x7e]{{1,{MAX_REQUEST_ID}}}")


class Trace(Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """The trace that a caller sent with its request; fields that it did not send are empty."""

    traceparent: str = ""
    tracestate: str = ""
    request_id: str = ""

    @property
    def trace_id(self) -> str:
        """Id of the trace; empty without one."""
        return self.traceparent[3:35]


class StartedTrace(Trace, frozen=True, omit_defaults=True, gc=False):
    """The trace of a request that came without one. Its id was created here for the response and the log, and is not
    stored with the input."""


NONE = Trace()

_PROCESS = f"{getrandbits(96):024x}"
_requests = count(1)

_current: ContextVar[Trace] = ContextVar("trace", default=NONE)


def trace_of(traceparent: str = "", tracestate: str = "", request_id: str = "") -> Trace:
    """Return a trace with the valid values. A tracestate is ignored without a valid traceparent."""
    parent = _valid_parent(traceparent.strip(" \t")) if traceparent else ""
    state = _valid_state(tracestate) if parent and tracestate else ""
    request_id = request_id.strip(" \t")
    id_ = request_id if request_id and _REQUEST_ID.fullmatch(request_id) else ""
    return Trace(parent, state, id_) if parent or id_ else NONE


def _valid_parent(text: str) -> str:
    """Return a valid traceparent in version 00; empty if it is not valid. Of later versions only the part that they
    share with version 00 is used."""
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
    """Return a unique request id. It need not be hard to guess, because it gives access to nothing."""
    return f"{_PROCESS}{next(_requests):08x}"


current: Callable[[], Trace] = _current.get
"""Return the trace of the current request or turn; empty when there is none."""

enter: Callable[[Trace], object] = _current.set
"""Make a trace the current one for the rest of this asyncio task."""


def sent() -> Trace | None:
    """Return the current trace to store with an input; None when the caller sent none."""
    trace = _current.get()
    return None if trace is NONE or type(trace) is StartedTrace else trace


def entered(trace: Trace | None) -> "_Entered":
    """Make a trace the current one within a `with` block, and in the tasks that are started there."""
    return _Entered(trace or NONE)


class _Entered:
    """Restores the previous trace by value, not by token: a generator may be closed in another context than the one
    in which it started."""

    __slots__ = ("_before", "_trace")

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __enter__(self) -> None:
        self._before = _current.get()
        _current.set(self._trace)

    def __exit__(self, *_: object) -> None:
        _current.set(self._before)


def headers_for(trace: Trace) -> dict[str, str]:
    """Return the headers that pass a trace on to another server; the same names are used as gRPC metadata."""
    named = {"traceparent": trace.traceparent, "tracestate": trace.tracestate, "x-request-id": trace.request_id}
    return {name: value for name, value in named.items() if value}
