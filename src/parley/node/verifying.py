"""For the one who is called: whether a caller may call it, by the pair token that discovery gave the caller.

    app = PairGuarded(app, PairVerifier("https://parley.example", node_id))

checks every request offline, with the public keys of the server that issued the token. With `token`, the node's own,
that server is asked each time too: then a hierarchy that has changed counts at once, and not within five minutes.
"""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpx2
import msgspec
from joserfc.errors import InvalidKeyIdError

from parley.errors import IssuerUnavailable, OutboundRefused, ParleyError, Unauthenticated
from parley.security.credentials import bearer
from parley.security.netguard import Guard, Outbound, own_places
from parley.security.pairs import PairClaims, check_pair
from parley.security.tokens import IssuerKeys, fetcher

CALLER = "parley.caller"
"""Where in a scope the id of the calling node is."""
OPEN = ("/.well-known/",)
TIMEOUT_S = 5.0

Token = str | Callable[[], str | None]


class _Introspected(msgspec.Struct, frozen=True):
    active: bool


class PairVerifier:
    """`issuer` is the address of the server, as its tokens say it; `at` where it is asked, if that differs; `node` the
    id of the one who is called. `token` may be a function, for one whose token is not known yet."""

    def __init__(
        self, issuer: str, node: str, *, token: Token | None = None, allow: Iterable[str] = (), at: str | None = None
    ) -> None:
        self._issuer = issuer.rstrip("/")
        self._at = (at or issuer).rstrip("/")
        self._node = node
        self._token = token
        self._outbound = Outbound(Guard([*allow, *own_places(self._at)]))
        self._keys = IssuerKeys(
            self._issuer, f"{self._at}/.well-known/jwks.json", fetcher(self._outbound), time.monotonic
        )  # fmt: skip

    async def check(self, token: str) -> PairClaims:
        """What the token claims: Unauthenticated when it does not count, IssuerUnavailable when nobody can tell."""
        keys = await self._keys.get()
        try:
            claims = check_pair(token, keys, self._issuer, self._node, now=time.time())
        except InvalidKeyIdError:
            keys = await self._keys.renewed(keys)
            try:
                claims = check_pair(token, keys, self._issuer, self._node, now=time.time())
            except InvalidKeyIdError:
                raise Unauthenticated("The pair token is not one of this issuer.") from None
        if self._token is not None and not await self._counts(token, self._own(self._token)):
            raise Unauthenticated("The pair token does not count any more.")
        return claims

    async def close(self) -> None:
        await self._outbound.close()

    def _own(self, token: Token) -> str:
        found = token() if callable(token) else token
        if found is None:
            raise IssuerUnavailable("This node is not registered yet.")
        return found

    async def _counts(self, token: str, own: str) -> bool:
        headers = {
            "content-type": "application/json", "x-workspace-id": self._node, "authorization": f"Bearer {own}",
        }  # fmt: skip
        try:
            reply = await self._outbound.send(
                "POST", f"{self._at}/registry/introspect", headers=headers,
                content=json.dumps({"token": token}).encode(), timeout_s=TIMEOUT_S,
            )  # fmt: skip
            if reply.status != 200:
                raise ValueError(reply.status)
            return msgspec.json.decode(reply.body, type=_Introspected).active
        except (OSError, ValueError, OutboundRefused, httpx2.HTTPError) as error:
            raise IssuerUnavailable("Whether the pair token counts cannot be found out at the moment.") from error


class PairGuarded:
    """An ASGI application that only nodes with a pair token reach; cards may be read by everybody."""

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


async def _refuse(send: Any, error: ParleyError) -> None:
    status = 401 if isinstance(error, Unauthenticated) else 503
    body = json.dumps({"error": error.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="pair"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
