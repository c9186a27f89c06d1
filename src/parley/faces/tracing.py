"""Where a request comes from, and how it was answered: the outermost layer, so that no answer goes past it."""

from collections.abc import Awaitable, Callable
from time import perf_counter

from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.faces.http import Headers, headers_of
from parley.telemetry.trace import NONE, Made, Trace, entered, headers_for, new_request_id, trace_of

Answered = Callable[[str, int, float], None]
"""Told the template of the path, the status, and how many seconds it took until the answer began."""

ROUTE = "parley.route"
"""Where in a scope a face that finds its paths by hand puts the template of the one it found."""
OTHER = "other"


class Traced:
    """The trace of a request holds while it is answered, and is echoed in the answer; one without an id gets one."""

    def __init__(self, app: ASGIApp, answered: Answered | None = None) -> None:
        self._app = app
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        began = perf_counter()
        trace, echoed = _read(scope)

        def traced(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *echoed]
                if self._answered is not None:
                    self._answered(_route(scope), message["status"], perf_counter() - began)
            return send(message)

        with entered(trace):
            return await self._app(scope, receive, traced)


def _read(scope: Scope) -> tuple[Trace, Headers]:
    seen = headers_of(scope)
    trace = _sent(scope) if b"traceparent" in seen or b"x-request-id" in seen else NONE
    if trace is NONE:
        id_ = new_request_id()
        return Made("", "", id_), [(b"x-request-id", id_.encode())]
    if not trace.request_id:
        trace = replace(trace, request_id=new_request_id())
    return trace, [(name.encode(), value.encode()) for name, value in headers_for(trace).items()]


def _sent(scope: Scope) -> Trace:
    """More than one traceparent is none; of tracestate, which is a list, there may be several."""
    found: dict[bytes, list[str]] = {b"traceparent": [], b"tracestate": [], b"x-request-id": []}
    for name, value in scope["headers"]:
        if name in found:
            found[name].append(value.decode("latin-1"))
    parents, states, ids = found.values()
    return trace_of(parents[0] if len(parents) == 1 else "", ",".join(states), ids[0] if len(ids) == 1 else "")


def _route(scope: Scope) -> str:
    """What a router found, or a face; never the path itself, of which there is no end."""
    route = scope.get("route")
    return scope.get(ROUTE) or getattr(route, "path", OTHER)
