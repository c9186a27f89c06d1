"""Authentication of each request, once and before any face sees it. Faces read the result in `scope["principal"]`."""

from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from typing import Protocol
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parley.audit.service import AuditLog, enter
from parley.errors import Forbidden, ParleyError, Unauthenticated
from parley.http.requests import MAX_BODY, Headers, answer, headers_of, read_body
from parley.http.table import OperationTable
from parley.runs.rules.access import Principal
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

# Without credentials, only requests from this machine are accepted, and none that a web page sends through its browser.

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


@lru_cache(maxsize=256)
def is_local(host: bytes, origin: bytes | None, allowed_origins: frozenset[str]) -> bool:
    """Return True if neither `Host` (DNS rebinding) nor `Origin` (a page of another site) is foreign."""
    if _name(host.decode("latin-1").strip()) not in _LOOPBACK:
        return False
    if origin is None:
        return True
    text = origin.decode("latin-1").strip()
    return text in allowed_origins or _origin_name(text) in _LOOPBACK


def _name(host: str) -> str:
    """Return the host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _origin_name(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


_CREDENTIALS = frozenset(
    (b"authorization", b"x-api-key", b"x-runtime-token", b"x-workspace-id", SIGNATURE, USER, GUEST)
)
_FOREIGN = {"code": "foreign_origin", "message": "This server accepts requests only from its own machine."}

Seen = dict[bytes, bytes]
Owner = Callable[[str | None, str | None], Awaitable[Principal | None]]
"""Finds the owner of the credential in `Authorization` or `X-API-Key`, even where none is required; None without
one."""


class Entrance(Protocol):
    """Finds the principal of a credential; None when a credential is required and missing."""

    @property
    def auth(self) -> Auth: ...

    async def principal(self, authorization: str | None, api_key: str | None) -> Principal | None: ...


class Identified:
    """Middleware that adds the principal to each request, or refuses the request."""

    def __init__(
        self,
        app: ASGIApp,
        table: OperationTable,
        gate: Entrance,
        origins: frozenset[str] = frozenset(),
        signatures: Signatures | None = None,
        max_body: int = MAX_BODY,
        owner: Owner | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """`table` holds the credential that each path requires. `owner` is for operations that require a credential
        even with `auth = "none"`, where principals are not looked up; they find it in `scope["owner"]`."""
        self._app = app
        self._audit = audit
        self._table = table
        self._owner = owner if gate.auth == "none" else None
        self._gate = gate
        self._signatures = signatures
        self._max_body = max_body
        self._local = gate.auth == "local"
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        seen = headers_of(scope)
        if self._local and not is_local(seen.get(b"host", b""), seen.get(b"origin"), self._origins):
            return await self._refuse_foreign(scope, send)
        if len(seen) != len(scope["headers"]) and (twice := _twice(scope)):
            error = Unauthenticated(f"The header {twice.decode()} appears more than once.")
            return await self._table.refuse(scope, send, error, challenge(error, seen))
        proof = self._table.proof(scope["path"])
        if proof in ("runtime", "signature"):
            scope["principal"] = None
            self._enter(scope)
            return await self._app(scope, receive, send)
        try:
            if self._signatures is not None and SIGNATURE in seen:
                principal, receive = await self._signed(self._signatures, seen, receive)
            else:
                shown = _text(seen, b"authorization"), _text(seen, b"x-api-key")
                principal = await self._gate.principal(*shown)
                if self._owner is not None:
                    scope["owner"] = partial(self._owner, *shown)
            if principal is None and proof != "session" and not self._is_open(scope, seen):
                raise Unauthenticated("Credentials are required: send Authorization: Bearer, or X-API-Key.")
        except ParleyError as error:
            if not (isinstance(error, Unauthenticated) and proof == "node"):
                tell("auth.refused", code=error.code)
                return await self._table.refuse(scope, send, error, challenge(error, seen))
            principal = None
        scope["principal"] = principal
        self._enter(scope)
        return await self._app(scope, receive, send)

    def _enter(self, scope: Scope) -> None:
        """Let services record what this request does."""
        if self._audit is not None:
            enter(self._audit, scope.get("client"), scope["principal"])

    async def _refuse_foreign(self, scope: Scope, send: Send) -> None:
        if self._table.has_format(scope["path"]):
            return await self._table.refuse(scope, send, Forbidden(_FOREIGN["message"]), [])
        return await answer(send, 403, {"error": _FOREIGN})

    def _is_open(self, scope: Scope, seen: Seen) -> bool:
        """Return True for operations without credentials, and for a browser's CORS preflight."""
        if scope["method"] == "OPTIONS":
            return b"access-control-request-method" in seen
        return self._table.is_open(scope["method"], scope["path"])

    async def _signed(self, signatures: Signatures, seen: Seen, receive: Receive) -> tuple[Principal, Receive]:
        """Return the principal that a signed request acts for, and its body, read here if a digest was sent."""
        claims = signatures.check(_text(seen, SIGNATURE), _text(seen, KEY_ID))
        if (digest := _text(seen, BODY_SHA256)) is not None:
            body = await read_body(receive, self._max_body)
            signatures.check_body(digest, body)
            receive = _read_again(body, receive)
        principal = _bound(signatures, claims, _text(seen, USER), _text(seen, GUEST))
        await signatures.claim_nonce(claims)
        return principal, receive


# Why: docs/decisions/security.md#accept-tokens-for-one-run-or-thread-only-under-internalv1
def _bound(signatures: Signatures, claims: Claims, user: str | None, guest: str | None) -> Principal:
    """Return the principal of a signed token. Refuse tokens bound to one run or thread: only the face of the runtime
    control plane (003) can enforce that bound."""
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
    """Return the name of a credential header that appears twice: a proxy and this server might each read a different
    one."""
    names = [name for name, _ in scope["headers"] if name in _CREDENTIALS]
    return next((name for name in names if names.count(name) > 1), None)


def _text(seen: Seen, name: bytes) -> str | None:
    value = seen.get(name)
    return None if value is None else value.decode("latin-1")


def challenge(error: ParleyError, seen: Seen) -> Headers:
    """Return the `WWW-Authenticate` header of a 401."""
    if not isinstance(error, Unauthenticated):
        return []
    given = b"x-api-key" in seen or b"authorization" in seen
    return [(b"www-authenticate", b'Bearer realm="parley"' + (b', error="invalid_token"' if given else b""))]
