"""Who asks: decided once per request, before any face sees it. Faces find the answer in `scope["principal"]`."""

from starlette.types import ASGIApp, Receive, Scope, Send

from parley.errors import ParleyError, Unauthenticated
from parley.faces.http import Headers, answer, headers_of
from parley.faces.local import is_local
from parley.faces.refusals import refuse
from parley.security.credentials import Gate
from parley.telemetry import tell

_OPEN = frozenset({"/healthz", "/readyz"})
_RUNTIMES = ("/agent-runtimes/", "/agent-accounts/", "/task-runs/")
"""Where runtimes call: they have tokens of their own, which their face asks for."""
_FOREIGN = {"code": "foreign_origin", "message": "This server answers only requests from its own machine."}

Seen = dict[bytes, bytes]


class Identified:
    """Lets a request pass with its principal, or refuses it."""

    def __init__(self, app: ASGIApp, gate: Gate, origins: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._gate = gate
        self._local = gate.auth == "local"
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        seen = headers_of(scope)
        if self._local and not is_local(seen.get(b"host", b""), seen.get(b"origin"), self._origins):
            return await answer(send, 403, {"error": _FOREIGN})
        if scope["path"].startswith(_RUNTIMES):
            scope["principal"] = None
            return await self._app(scope, receive, send)
        try:
            principal = await self._gate.principal(_text(seen, b"authorization"), _text(seen, b"x-api-key"))
            if principal is None and not _is_open(scope, seen):
                raise Unauthenticated("This server needs credentials: Authorization: Bearer, or X-API-Key.")
        except ParleyError as error:
            tell("auth.refused", code=error.code)
            return await refuse(send, error, _challenge(error, seen))
        scope["principal"] = principal
        return await self._app(scope, receive, send)


def _text(seen: Seen, name: bytes) -> str | None:
    value = seen.get(name)
    return None if value is None else value.decode("latin-1")


def _is_open(scope: Scope, seen: Seen) -> bool:
    """Whether a request may come from anybody: probes, discovery, and a browser that asks whether it may ask."""
    if scope["method"] == "OPTIONS":
        return b"access-control-request-method" in seen
    path: str = scope["path"]
    if scope["method"] not in ("GET", "HEAD"):
        return False
    if path in _OPEN or path.startswith("/.well-known/"):
        return True
    _, agents, slug, rest = (*path.split("/", 3), "", "", "")[:4]
    return agents == "agents" and bool(slug) and rest.startswith(".well-known/")


def _challenge(error: ParleyError, seen: Seen) -> Headers:
    if not isinstance(error, Unauthenticated):
        return []
    given = b"x-api-key" in seen or b"authorization" in seen
    return [(b"www-authenticate", b'Bearer realm="parley"' + (b', error="invalid_token"' if given else b""))]
