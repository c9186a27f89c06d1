"""Outermost ASGI layer: traces of requests, metrics of responses, and the response to a crash."""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from time import perf_counter

from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.http.requests import ClientGone, Headers, answer, headers_of
from parley.telemetry import Span, exporting, span, tell
from parley.telemetry.trace import NONE, StartedTrace, Trace, enter, headers_for, new_request_id, trace_of

Answered = Callable[[str, int, float], None]
"""Called with the path template, the status, and the seconds until the response started."""
Refused = Callable[[Scope, str, int], None]
"""Called with the request, its path template and the status when a request is refused with 401 or 403."""

ROUTE = "parley.route"
"""Key of the scope in which a face that matches paths itself stores the path template."""
REFUSAL = "parley.refusal"
"""Key of the scope in which a face stores the error code of a refusal that its status does not tell."""
OTHER = "other"
REFUSALS = frozenset((401, 403))
WATCHED = frozenset(("/healthz", "/metrics", "/readyz"))
"""Paths that monitoring requests again and again; they are not traced."""
_UNSEEN = nullcontext()


class Traced:
    """Middleware that sets the trace of a request while it is handled and echoes it in the response; a request without
    an id gets one.

    A defect is logged with its details for the operator; the client only gets "Internal error." All of this is one
    layer because every event of every stream passes through each layer. The trace is not reset at the end, because
    each request is a task with a context of its own.
    """

    def __init__(self, app: ASGIApp, answered: Answered | None = None, refused: Refused | None = None) -> None:
        self._app = app
        self._answered = answered
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        came, begun, echoed = perf_counter(), False, _taken_up(scope)

        def traced(message: Message) -> Awaitable[None]:
            nonlocal begun
            if not begun:
                begun = True
                message["headers"] = [*message.get("headers", ()), *echoed]
                if face is not None:
                    _note(face, _route(scope), message["status"])
                if self._answered is not None:
                    self._answered(_route(scope), message["status"], perf_counter() - came)
                if message["status"] in REFUSALS and self._refused is not None:
                    self._refused(scope, _route(scope), message["status"])
            return send(message)

        seen = exporting() and scope["path"] not in WATCHED
        with span("face.http", method=scope["method"]) if seen else _UNSEEN as face:
            try:
                return await self._app(scope, receive, traced)
            except ClientGone:
                return None
            except Exception as error:  # noqa: BLE001 - the last line of defence
                tell("http.crashed", path=scope["path"], error=error)
                if not begun:
                    await answer(traced, 500, {"error": {"code": "internal", "message": "Internal error."}})
            return None


def _note(face: Span, route: str, status: int) -> None:
    face.note(route=route, status=status)
    face.outcome = "error" if status >= 500 else "refused" if status >= 400 else ""


def _taken_up(scope: Scope) -> Headers:
    """Enter the trace of a request and return the headers that echo it."""
    seen = headers_of(scope)
    trace = _sent(scope) if b"traceparent" in seen or b"x-request-id" in seen else NONE
    if trace is NONE:
        id_ = new_request_id()
        enter(StartedTrace("", "", id_))
        return [(b"x-request-id", id_.encode())]
    if not trace.request_id:
        trace = replace(trace, request_id=new_request_id())
    enter(trace)
    return [(name.encode(), value.encode()) for name, value in headers_for(trace).items()]


def _sent(scope: Scope) -> Trace:
    """Read the trace headers. More than one traceparent counts as none; tracestate is a list and may be repeated."""
    found: dict[bytes, list[str]] = {b"traceparent": [], b"tracestate": [], b"x-request-id": []}
    for name, value in scope["headers"]:
        if name in found:
            found[name].append(value.decode("latin-1"))
    parents, states, ids = found.values()
    return trace_of(parents[0] if len(parents) == 1 else "", ",".join(states), ids[0] if len(ids) == 1 else "")


def _route(scope: Scope) -> str:
    """Return the path template that a face or the router found; never the path itself, because metric labels need a
    limited set of values."""
    found: str | None = scope.get(ROUTE)
    return getattr(scope.get("route"), "path", OTHER) if found is None else found
