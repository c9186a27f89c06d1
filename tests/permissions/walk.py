"""Everything that the application answers, found in the application itself: one line for each thing to ask for."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from starlette.routing import Mount, Route, Router

from parley.faces.a2a.grpc import SERVICES
from parley.faces.a2a.jsonrpc import METHODS
from parley.faces.a2a.routing import CARD_PATHS, Addresses
from parley.faces.a2a.v03rest import V03Rest
from parley.faces.a2a.v1 import V1
from parley.faces.actions.face import ActionsFace
from parley.faces.actions.table import ACTIONS
from parley.faces.mcp.face import METHODS as MCP_METHODS
from parley.faces.mcp.mount import PATHS
from parley.http.face import Operation

_AT_AGENTS = {"_exchange", "_rpc", "_rest", "_discovery", "_downloads", "_others", "_passed"}
"""Routes below an agent's address; add new ones here too."""


def asked_of(app: Any) -> list[str]:
    """`METHOD /path` for HTTP; `MCP method`, `RPC method`, `REST version operation`, `002 mode.action`, `gRPC method`
    for what shares one path."""
    addresses = _addresses(app)
    assert set(vars(addresses)) == _AT_AGENTS, (
        "tests/permissions/walk.py does not know what else is below /agents/{slug}"
    )
    return [*_agents(), *_grpc(), *_routes(addresses._others)]


def routes_of(app: Any) -> dict[str, Any]:
    """Handlers by request line: an endpoint, or the whole face if the face does its own routing."""
    return dict(_answering(_addresses(app)._others))


def row_of(endpoint: Any) -> Operation | None:
    """The row of a face's table behind an endpoint."""
    handler = getattr(endpoint, "_handler", None)
    return handler.args[0] if isinstance(handler, partial) and isinstance(handler.args[0], Operation) else None


def _answering(router: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    for route in router.routes:
        if isinstance(route, Route):
            yield from ((one, route.endpoint) for one in _route(route, at))
        elif isinstance(route, Mount) and hasattr(route.app, "routes"):
            yield from _answering(route.app, at + route.path)
        elif isinstance(route, Mount):
            yield from ((one, route.app) for one in _mount(route, at + route.path))


def _addresses(app: Any) -> Addresses:
    while not isinstance(app, Addresses):
        app = getattr(app, "_app", None) or app.app
    return app


def _agents() -> Iterator[str]:
    yield from (f"RPC {method}" for method in METHODS)
    for version, dialect in (("1.0", V1()), ("0.3", V03Rest())):
        # In 0.3 over HTTP there is neither a list nor a fork.
        missing = () if version == "1.0" else ("list", "fork")
        yield from (f"REST {version} {operation}" for operation in dialect.params if operation not in missing)
    for path in CARD_PATHS:
        yield f"GET {path}"
        yield f"GET /agents/{{slug}}{path}"
    yield "GET /agents/{slug}"
    yield "GET /agents/{slug}/tasks/{task}/artifacts/{artifact}"


def _grpc() -> Iterator[str]:
    for service, (_, methods) in SERVICES.items():
        yield from (f"gRPC {service}/{method}" for method in methods)


def _routes(router: Any, at: str = "") -> Iterator[str]:
    for route in router.routes:
        if isinstance(route, Route):
            yield from _route(route, at)
        elif isinstance(route, Mount):
            yield from _mount(route, at + route.path)
        else:
            yield f"{type(route).__name__} {at}{getattr(route, 'path', '')}"


def _route(route: Route, at: str) -> Iterator[str]:
    face, row = operation_of(route.endpoint)
    if row is not None:
        yield from _operation(face, row)
        return
    # Starlette answers HEAD wherever it answers GET, by the same function.
    for method in sorted((route.methods or {"ANY"}) - {"HEAD"}):
        yield f"{method} {at}{route.path.replace(':id}', '}')}"
    if route.path == PATHS[0]:
        yield from (f"MCP {method}" for method in sorted(MCP_METHODS))


def operation_of(endpoint: Any) -> tuple[Any, Operation | None]:
    """The face that answers at a route, and the row of its table."""
    handler = getattr(endpoint, "_handler", None)
    if isinstance(handler, partial) and isinstance(handler.args[0], Operation):
        return handler.func.__self__, handler.args[0]
    return None, None


def _operation(face: Any, row: Operation) -> Iterator[str]:
    if isinstance(face, ActionsFace) and row.name == "performAction":
        yield from (f"002 {one.mode}.{one.name}" for one in ACTIONS if (one.mode, one.name) in face.handlers)
    elif row in face.operations():
        # Any other row answers what is at no path of the face.
        yield f"{row.method} {row.template}"


def _mount(mount: Mount, at: str) -> Iterator[str]:
    face: Any = mount.app
    if isinstance(face, Router) or hasattr(face, "routes"):
        yield from _routes(face, at)
    else:
        yield f"GET {at}/{{path}}"
