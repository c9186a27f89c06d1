"""Which agent a path belongs to, and which binding: found by hand, because no path is asked as often as these."""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from parley.engine.exchange import Exchange
from parley.faces.a2a.discovery import CARD_PATHS, Discovery
from parley.faces.a2a.jsonrpc import JsonRpc
from parley.faces.a2a.rest import Rest
from parley.faces.downloads import Downloads, artifact_of
from parley.faces.tracing import OTHER, ROUTE

_PREFIX = "/agents/"
_OPERATIONS = frozenset(("message:send", "message:stream", "tasks", "extendedAgentCard"))
_VERBS = frozenset(("cancel", "fork", "subscribe"))
_HOOKS = "pushNotificationConfigs"


class Addresses:
    """`/agents/{slug}` and what is below it; the same at the root for the default agent; `/{tenant}/…` over HTTP."""

    def __init__(self, exchange: Exchange, rpc: JsonRpc, rest: Rest, discovery: Discovery, others: ASGIApp) -> None:
        self._exchange = exchange
        self._rpc = rpc
        self._rest = rest
        self._discovery = discovery
        self._downloads = Downloads(exchange)
        self._others = others

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Hands the request on and is gone: a layer that waited for the answer would be one more to wake for each
        event of each stream."""
        path: str = scope["path"] if scope["type"] == "http" else ""
        if path.startswith(_PREFIX):
            slug, _, rest = path[len(_PREFIX) :].partition("/")
        else:
            slug, rest = self._at_root(path)
        if slug == "" or rest is None:
            return self._others(scope, receive, send)
        method: str = scope["method"]
        if slug is None and not rest and method != "POST":
            return self._others(scope, receive, send)
        scope[ROUTE] = _template(slug, rest)
        scope = {**scope, "path_params": {"slug": slug, "rest": rest}}
        if not rest and method == "POST":
            return self._rpc(scope, receive, send)
        if not rest and slug is not None and method in ("GET", "HEAD"):
            return self._discovery.agent(scope, receive, send)
        if f"/{rest}" in CARD_PATHS and method in ("GET", "HEAD"):
            return self._discovery.card(scope, receive, send)
        if method == "GET" and artifact_of(rest) is not None:
            return self._downloads(scope, receive, send)
        return self._rest(scope, receive, send)

    def _at_root(self, path: str) -> tuple[str | None, str | None]:
        """The agent that a path without the prefix names, if any, and what is asked of it; None: not our path."""
        if path == "/" or path in CARD_PATHS:
            return None, path[1:]
        head, _, rest = path[1:].partition("/")
        if head in _OPERATIONS or (head == "v1" and rest):
            return None, path[1:]
        if rest.partition("/")[0] in _OPERATIONS and head in self._exchange.agents:
            return head, rest
        return None, None


def _template(slug: str | None, rest: str) -> str:
    """What a path is counted as: nothing in it comes from the client."""
    if not rest:
        return "/" if slug is None else "/agents/{slug}"
    steps = rest.split("/")
    old = "/v1" if steps[0] == "v1" else ""
    below = rest if f"/{rest}" in CARD_PATHS else _below(steps[1:] if old else steps)
    return f"{'' if slug is None else '/agents/{slug}'}{old}/{below}"


def _below(steps: list[str]) -> str:
    match steps:
        case [name] if name in _OPERATIONS or name == "card":
            return name
        case ["tasks", task]:
            verb = task.rpartition(":")[2]
            return f"tasks/{{id}}:{verb}" if verb in _VERBS else "tasks/{id}"
        case ["tasks", _, hooks] if hooks == _HOOKS:
            return f"tasks/{{id}}/{_HOOKS}"
        case ["tasks", _, hooks, _] if hooks == _HOOKS:
            return f"tasks/{{id}}/{_HOOKS}/{{config}}"
        case ["tasks", _, "artifacts", _, *_]:
            return "tasks/{id}/artifacts/{artifact}"
        case _:
            return OTHER
