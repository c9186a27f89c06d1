"""Checks whether a caller may call a node, by the pair token that the caller got from discovery.

    app = PairGuarded(app, PairVerifier("https://parley.example", node_id, token=node_token))

checks each request with the public keys of the server that issued the token, and asks that server whether the token is
still valid: a pair that was moved or revoked is refused at once. Without `token`, the node's own token, the server is
not asked, and such a pair is refused within five minutes. Refused tokens are logged as `node.token_refused`, with the
reason.
"""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpx2
import msgspec
from joserfc.errors import InvalidKeyIdError

from parley.errors import IssuerUnavailable, OutboundRefused, ParleyError, Unauthenticated
from parley.nodes.tokens import PairClaims, PairRefused, check_pair
from parley.security.credentials import bearer
from parley.security.netguard import Guard, Outbound, own_places
from parley.security.tokens import IssuerKeys, fetcher
from parley.telemetry import tell

__all__ = ["CALLER", "PairGuarded", "PairVerifier"]

CALLER = "parley.caller"
"""Key of the ASGI scope that holds the id of the calling node."""
OPEN = ("/.well-known/",)
ASK_S = 3.0
"""Timeout for asking the server about one token."""
RETRY_S = 1
"""Value of Retry-After for callers while the server cannot be reached."""
EVERY_S = 10.0
"""Refused tokens are logged once in this time for each reason, so that callers cannot fill the log."""

Issuer = str | Callable[[], str]
Token = str | Callable[[], str | None]


class _Introspected(msgspec.Struct, frozen=True):
    active: bool


class RefusalLog:
    """Logs why tokens were refused, never the tokens: one line per reason in ten seconds, which counts the others."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._quiet_until: dict[str, float] = {}
        self._not_logged: dict[str, int] = {}

    def note(self, reason: str, **more: object) -> None:
        now = time.monotonic()
        if now < self._quiet_until.get(reason, 0.0):
            self._not_logged[reason] = self._not_logged.get(reason, 0) + 1
            return
        self._quiet_until[reason] = now + EVERY_S
        if count := self._not_logged.pop(reason, 0):
            more["not_logged"] = count
        tell("node.token_refused", node=self._node, reason=reason, **more)


class PairVerifier:
    """Checks pair tokens for one node. `issuer` is the URL of the server, as in its tokens; `at` is the URL for asking
    it, if that differs; `node` is the id of the called node. `issuer` and `token` may be functions, for a node that
    gets them later."""

    def __init__(
        self, issuer: Issuer, node: str, *, token: Token | None = None, allow: Iterable[str] = (), at: str | None = None
    ) -> None:
        self._issuer = issuer
        self._at = (at or self.issuer).rstrip("/")
        self._node = node
        self._token = token
        self._refusals = RefusalLog(node)
        self._outbound = Outbound(Guard([*allow, *own_places(self._at)]))
        self._keys = IssuerKeys(self._at, f"{self._at}/.well-known/jwks.json", fetcher(self._outbound), time.monotonic)

    @property
    def issuer(self) -> str:
        """URL of the server that issues the tokens."""
        return (self._issuer() if callable(self._issuer) else self._issuer).rstrip("/")

    # Why: docs/decisions/nodes.md#ask-the-platform-about-every-pair-token
    async def check(self, token: str) -> PairClaims:
        """Return the token's claims. Raises Unauthenticated if the token is not valid, and IssuerUnavailable if that
        cannot be checked: then the call is refused, because the token may have been revoked."""
        try:
            claims = await self._signed(token)
            if self._token is not None and not await self._counts(token, self._own(self._token)):
                raise PairRefused("The pair token is no longer valid.", "revoked", claims)
        except PairRefused as error:
            self._refusals.note(error.reason, **self._told(error))
            raise
        except IssuerUnavailable as error:
            self._refusals.note("not_checked", why=_cause(error))
            raise
        return claims

    async def _signed(self, token: str) -> PairClaims:
        keys = await self._keys.get()
        try:
            return check_pair(token, keys, self.issuer, self._node, now=time.time())
        except InvalidKeyIdError:
            keys = await self._keys.renewed(keys)
        try:
            return check_pair(token, keys, self.issuer, self._node, now=time.time())
        except InvalidKeyIdError:
            raise PairRefused("The pair token was not issued by this issuer.", "unknown_key") from None

    def _told(self, error: PairRefused) -> dict[str, object]:
        """Return the fields of the log line. Claims are known only for tokens that the server has signed."""
        if error.claims is None:
            return {}
        issuers = {"issuer": error.claims.iss, "expected": self.issuer} if error.reason == "wrong_issuer" else {}
        return {"caller": error.claims.sub, **issuers}

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._outbound.close()

    def _own(self, token: Token) -> str:
        found = token() if callable(token) else token
        if found is None:
            raise IssuerUnavailable("This node is not registered yet.", retry_after=RETRY_S)
        return found

    async def _counts(self, token: str, own: str) -> bool:
        headers = {
            "content-type": "application/json",
            "x-workspace-id": self._node,
            "authorization": f"Bearer {own}",
        }
        try:
            reply = await self._outbound.send(
                "POST",
                f"{self._at}/registry/introspect",
                headers=headers,
                content=json.dumps({"token": token}).encode(),
                timeout_s=ASK_S,
            )
            if reply.status != 200:
                raise ValueError(f"status {reply.status}")
            return msgspec.json.decode(reply.body, type=_Introspected).active
        except (OSError, ValueError, OutboundRefused, httpx2.HTTPError) as error:
            message = "The platform cannot be asked whether the pair token is valid; try again later."
            raise IssuerUnavailable(message, retry_after=RETRY_S) from error


class PairGuarded:
    """An ASGI application that only nodes with a pair token can call. Cards can be read without a token."""

    def __init__(self, app: Any, verifier: PairVerifier, open_paths: Iterable[str] = OPEN) -> None:
        self._app = app
        self._verifier = verifier
        self._open = tuple(open_paths)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or self._is_open(scope):
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        try:
            authorization = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            claims = await self._verifier.check(bearer(authorization))
        except ParleyError as error:
            return await _refuse(send, error)
        return await self._app({**scope, CALLER: claims.sub}, receive, send)

    def _is_open(self, scope: Any) -> bool:
        return scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and scope["path"].startswith(self._open)


def _cause(error: IssuerUnavailable) -> str:
    cause = error.__cause__
    return error.message if cause is None else f"{type(cause).__name__} {cause}".strip()[:200]


async def _refuse(send: Any, error: ParleyError) -> None:
    status = 401 if isinstance(error, Unauthenticated) else 503
    body = json.dumps({"error": error.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="pair"'))
    else:
        headers.append((b"retry-after", b"%d" % RETRY_S))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
