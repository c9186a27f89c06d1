"""Who asks: decided once per request, before any face sees it. Faces find the answer in `scope["principal"]`."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.core.access import Principal, demand
from parley.core.access import Scope as Right
from parley.errors import ParleyError, Unauthenticated
from parley.faces.http import MAX_BODY, Headers, answer, headers_of, read_body
from parley.faces.local import is_local
from parley.faces.refusals import refuse
from parley.security.credentials import Auth
from parley.security.signatures import (
    BODY_SHA256,
    GUEST,
    KEY_ID,
    SIGNATURE,
    USER,
    Carried,
    Claims,
    Signatures,
    guest_scope_of,
    mismatch,
    principal_of,
    user_id_of,
)
from parley.telemetry import tell

RUNTIME = "/internal/v1"
"""Where every request is signed, and bound to more than its headers: that face checks for itself."""
_OPEN = frozenset({"/", "/healthz", "/readyz"})
_PUBLIC = ("/.well-known/", "/api/exports/")
"""Discovery; and files whose links are credentials themselves, which their face checks."""
_PAIRED = ("/agent-runtimes/", "/agent-accounts/", "/task-runs/")
"""Where paired runtimes call: they have tokens of their own, which their face asks for."""
_NODES = ("/registry/", "/workspaces")
"""Where nodes call: who shows none of our credentials may have a token of theirs, which that face asks for."""
_CONSOLE = "/console"
"""Where browsers come, who show what they have in a cookie: that face asks for it."""
_CREDENTIALS = frozenset(
    (b"authorization", b"x-api-key", b"x-runtime-token", b"x-workspace-id", SIGNATURE, USER, GUEST)
)
_FOREIGN = {"code": "foreign_origin", "message": "This server answers only requests from its own machine."}

Seen = dict[bytes, bytes]
Owner = Callable[[str | None, str | None], Awaitable[Principal | None]]
"""The owner of the credential in `Authorization` or `X-API-Key`, also where none is needed; None without one."""
Refuse = Callable[[Send, ParleyError, Headers], Awaitable[None]]


class Entrance(Protocol):
    """Who may pass, by what they show: None for somebody who should have shown something."""

    @property
    def auth(self) -> Auth: ...

    async def principal(self, authorization: str | None, api_key: str | None) -> Principal | None: ...


class Identified:
    """Lets a request pass with its principal, or refuses it."""

    def __init__(
        self,
        app: ASGIApp,
        gate: Entrance,
        origins: frozenset[str] = frozenset(),
        signatures: Signatures | None = None,
        max_body: int = MAX_BODY,
        voices: Mapping[str, Refuse] | None = None,
        owner: Owner | None = None,
    ) -> None:
        """`owner` serves operations that need a credential even with `auth = "none"`, where principals are not
        looked up; they find it in `scope["owner"]`."""
        self._app = app
        self._owner = owner if gate.auth == "none" else None
        self._gate = gate
        self._signatures = signatures
        self._max_body = max_body
        self._voices = voices or {}
        self._local = gate.auth == "local"
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        seen = headers_of(scope)
        if self._local and not is_local(seen.get(b"host", b""), seen.get(b"origin"), self._origins):
            return await answer(send, 403, {"error": _FOREIGN})
        if len(seen) != len(scope["headers"]) and (twice := _twice(scope)):
            error = Unauthenticated(f"The header {twice.decode()} appears more than once.")
            return await self._voice(scope["path"])(send, error, challenge(error, seen))
        if _is_below(scope["path"], RUNTIME) or scope["path"].startswith(_PAIRED):
            scope["principal"] = None
            return await self._app(scope, receive, send)
        try:
            if self._signatures is not None and SIGNATURE in seen:
                principal, receive = await self._signed(self._signatures, seen, receive)
            else:
                shown = _text(seen, b"authorization"), _text(seen, b"x-api-key")
                principal = await self._gate.principal(*shown)
                if self._owner is not None:
                    scope["owner"] = partial(self._owner, *shown)
            if principal is None and not _is_open(scope, seen) and not _is_below(scope["path"], _CONSOLE):
                raise Unauthenticated("This server needs credentials: Authorization: Bearer, or X-API-Key.")
        except ParleyError as error:
            if not (isinstance(error, Unauthenticated) and scope["path"].startswith(_NODES)):
                tell("auth.refused", code=error.code)
                return await self._voice(scope["path"])(send, error, challenge(error, seen))
            principal = None
        scope["principal"] = principal
        return await self._app(scope, receive, send)

    def _voice(self, path: str) -> Refuse:
        """How the face that was asked says no, where it has a way of its own."""
        return next((voice for prefix, voice in self._voices.items() if path.startswith(f"{prefix}/")), refuse)

    async def _signed(self, signatures: Signatures, seen: Seen, receive: Receive) -> tuple[Principal, Receive]:
        """On whose behalf a signed request is made, and its body, which is read here if its digest was sent."""
        claims = signatures.check(_text(seen, SIGNATURE), _text(seen, KEY_ID))
        if (digest := _text(seen, BODY_SHA256)) is not None:
            body = await read_body(receive, self._max_body)
            signatures.check_body(digest, body)
            receive = _read_again(body, receive)
        principal = _bound(signatures, claims, _text(seen, USER), _text(seen, GUEST))
        await signatures.burn(claims)
        return principal, receive


def _bound(signatures: Signatures, claims: Claims, user: str | None, guest: str | None) -> Principal:
    """A token for one run or thread is for the runtime's face alone: nobody here could hold its bearer to it."""
    if claims.run_id is not None:
        raise mismatch("run_id")
    if claims.thread_id is not None:
        raise mismatch("thread_id")
    signatures.bind(claims, Carried(user_id=user_id_of(user), guest_scope=guest_scope_of(guest)))
    principal = principal_of(user, guest)
    if principal is None:
        raise Unauthenticated("missing or invalid principal headers")
    return principal


def _read_again(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return first.pop() if first else await receive()

    return replayed


def _twice(scope: Scope) -> bytes | None:
    """A credential that two might read as two: whoever stands before this server, and this server itself."""
    names = [name for name, _ in scope["headers"] if name in _CREDENTIALS]
    return next((name for name in names if names.count(name) > 1), None)


def _is_below(path: str, place: str) -> bool:
    return path.startswith(place) and path[len(place) :][:1] in ("", "/")


def demanded(scope: Scope, right: Right | None = None) -> Principal:
    """Whoever asks, if there is somebody and they have the right."""
    principal: Principal | None = scope["principal"]
    if principal is None:
        raise Unauthenticated("This needs credentials.")
    if right is not None:
        demand(principal, right)
    return principal


def _text(seen: Seen, name: bytes) -> str | None:
    value = seen.get(name)
    return None if value is None else value.decode("latin-1")


def _is_open(scope: Scope, seen: Seen) -> bool:
    """Whether a request may come from anybody: probes, discovery, links, and a browser that asks whether it may ask."""
    if scope["method"] == "OPTIONS":
        return b"access-control-request-method" in seen
    path: str = scope["path"]
    if scope["method"] not in ("GET", "HEAD"):
        return False
    if path in _OPEN or path.startswith(_PUBLIC):
        return True
    _, agents, slug, rest = (*path.split("/", 3), "", "", "")[:4]
    return agents == "agents" and bool(slug) and (not rest or rest.startswith(".well-known/"))


def challenge(error: ParleyError, seen: Seen) -> Headers:
    """The `WWW-Authenticate` header of a 401."""
    if not isinstance(error, Unauthenticated):
        return []
    given = b"x-api-key" in seen or b"authorization" in seen
    return [(b"www-authenticate", b'Bearer realm="parley"' + (b', error="invalid_token"' if given else b""))]
