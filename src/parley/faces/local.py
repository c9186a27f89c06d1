"""Without credentials only this machine may ask, and no web page through it."""

from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from parley.core.access import LOCAL
from parley.faces.http import answer, header

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class LocalOnly:
    """Refuse a foreign `Host` (a rebound name) and a foreign `Origin` (a page of another site)."""

    def __init__(self, app: ASGIApp, allowed_hosts: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._allowed = _LOOPBACK | allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_local(scope):
            error = {
                "code": "foreign_origin",
                "message": "This server answers only requests from its own machine.",
            }
            return await answer(send, 403, {"error": error})
        return await self._app({**scope, "principal": LOCAL}, receive, send)

    def _is_local(self, scope: Scope) -> bool:
        if _name(header(scope, b"host") or "") not in self._allowed:
            return False
        origin = header(scope, b"origin")
        return origin is None or (urlsplit(origin).hostname or "") in self._allowed


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()
