"""Who asks: decided once per request, before any face sees it. Faces find the answer in `scope["principal"]`."""

from typing import Literal

from starlette.types import ASGIApp, Receive, Scope, Send

from parley.core.access import LOCAL, Principal
from parley.errors import ParleyError, Unauthenticated
from parley.faces.http import Headers, answer
from parley.faces.local import is_local
from parley.faces.refusals import refuse
from parley.security.credentials import Credentials, bearer
from parley.telemetry import tell

Auth = Literal["local", "required", "none"]

ANONYMOUS = Principal("guest", "anonymous")
_OPEN = frozenset({"/healthz", "/readyz"})
_WANTED = frozenset({b"host", b"origin", b"authorization", b"x-api-key", b"access-control-request-method"})
_FOREIGN = {"code": "foreign_origin", "message": "This server answers only requests from its own machine."}

Seen = dict[bytes, bytes]


class Identified:
    """`local`: this machine needs no credentials. `required`: everybody does. `none`: nobody is asked."""

    def __init__(
        self, app: ASGIApp, auth: Auth, credentials: Credentials, origins: frozenset[str] = frozenset()
    ) -> None:
        self._app = app
        self._auth = auth
        self._credentials = credentials
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        seen: Seen = {name: value for name, value in scope["headers"] if name in _WANTED}
        if self._auth == "local" and not is_local(seen.get(b"host", b""), seen.get(b"origin"), self._origins):
            return await answer(send, 403, {"error": _FOREIGN})
        try:
            scope["principal"] = await self._principal(scope, seen)
        except ParleyError as error:
            tell("auth.refused", code=error.code)
            return await refuse(send, error, _challenge(error, seen))
        return await self._app(scope, receive, send)

    async def _principal(self, scope: Scope, seen: Seen) -> Principal | None:
        if self._auth == "none":
            return ANONYMOUS
        if b"x-api-key" in seen:
            return await self._credentials.principal_for(seen[b"x-api-key"].decode("latin-1").strip())
        if b"authorization" in seen:
            return await self._credentials.principal_for(bearer(seen[b"authorization"].decode("latin-1").strip()))
        if self._auth == "local":
            return LOCAL
        if not _is_open(scope, seen):
            raise Unauthenticated("This server needs credentials: Authorization: Bearer, or X-API-Key.")
        return None


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
