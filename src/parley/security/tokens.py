"""Tokens of an OpenID Connect issuer: JWTs, checked with the keys that the issuer publishes."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

import httpx2
import msgspec
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry

from parley.cache import ExpiringCache
from parley.errors import IssuerUnavailable, OutboundRefused, Unauthenticated
from parley.runs.rules.access import ALL_SCOPES, Principal, Scope
from parley.security.groups import DEFAULT_GROUPS, GroupMembers, GroupRules, claimed_groups
from parley.security.netguard import Guard, Outbound, own_places
from parley.telemetry import tell

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519", "Ed448",
)  # fmt: skip
"""Asymmetric algorithms only: a party that can check a token must not be able to make one."""

LEEWAY_S = 30
KEEP_KEYS_S = 3600.0
REFETCH_S = 30.0
RETRY_S = 2.0
TIMEOUT_S = 5.0
MAX_BYTES = 1024 * 1024
MAX_TOKEN = 16 * 1024
KEEP_TOKEN_S = 60.0

DISCOVERY = "/.well-known/openid-configuration"

FETCH_TROUBLE = (
    OSError, ValueError, TypeError, KeyError, AttributeError, JoseError, httpx2.HTTPError, OutboundRefused,
)  # fmt: skip
"""Errors that an issuer's answer can cause."""

Fetch = Callable[[str], Awaitable[bytes]]


class Registry(JWSRegistry):
    """Accepts issuers that put more into headers than RFC 7515 defines, or, as most do, write EdDSA for Ed25519."""

    max_header_length = 8 * 1024

    def __init__(self, algorithms: Sequence[str] = ALGORITHMS) -> None:
        super().__init__(algorithms=list(algorithms), strict_check_header=False)

    def get_alg(self, name: str) -> Any:
        return self.algorithms[name] if name == "EdDSA" else super().get_alg(name)


class IssuerKeys:
    """The issuer's public keys, fetched when needed and cached for an hour, or longer while the issuer cannot be
    reached."""

    def __init__(self, issuer: str, jwks_url: str | None, fetch: Fetch, clock: Callable[[], float]) -> None:
        self._issuer = issuer
        self._url = jwks_url
        self._fetch = fetch
        self._clock = clock
        self._keys: KeySet | None = None
        self._fresh_until = 0.0
        self._next_try = 0.0
        self._fetching = asyncio.Lock()

    async def get(self) -> KeySet:
        if self._keys is None or self._clock() >= self._fresh_until:
            await self._renew(self._keys)
        if self._keys is None:
            raise IssuerUnavailable("The token issuer's keys cannot be fetched at the moment; try again later.")
        return self._keys

    async def renewed(self, known: KeySet) -> KeySet:
        """Fetch the keys again, because a token names an unknown key; not too often."""
        await self._renew(known)
        return self._keys or known

    async def _renew(self, known: KeySet | None) -> None:
        """Fetch the keys, unless another request has done so while this one waited."""
        async with self._fetching:
            if self._keys is not known or self._clock() < self._next_try:
                return
            try:
                self._keys = await self._fetched()
                self._fresh_until = self._clock() + KEEP_KEYS_S
                self._next_try = self._clock() + REFETCH_S
            except FETCH_TROUBLE as error:
                self._next_try = self._clock() + (RETRY_S if self._keys is None else REFETCH_S)
                tell("issuer.unavailable", issuer=self._issuer, reason=type(error).__name__)

    async def _fetched(self) -> KeySet:
        url = self._url or str((await discovered(self._issuer, self._fetch))["jwks_uri"])
        return KeySet.import_key_set(cast(Any, _object(await self._fetch(url))))


async def discovered(issuer: str, fetch: Fetch) -> dict[str, Any]:
    """Return the discovery document of an issuer; raise ValueError if it belongs to another one."""
    document = _object(await fetch(issuer.rstrip("/") + DISCOVERY))
    if document.get("issuer") != issuer:
        raise ValueError("The discovery document belongs to another issuer.")
    return document


class Tokens:
    """Returns principals for the tokens of one issuer."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        jwks_url: str | None = None,
        *,
        also: Iterable[str] = (),
        allow: Iterable[str] = (),
        groups: GroupRules = DEFAULT_GROUPS,
        members: GroupMembers | None = None,
        fetch: Fetch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`also` are further audiences that a token may name instead of `audience`."""
        # The operator configured this issuer, so its address is allowed, wherever it is.
        self.outbound = Outbound(Guard([*allow, *own_places(issuer, jwks_url)]))
        self.issuer = issuer
        self.audiences = list(dict.fromkeys((audience, *also)))
        self.fetch = fetch or fetcher(self.outbound)
        self._keys = IssuerKeys(issuer, jwks_url, self.fetch, clock)
        self._registry = Registry()
        self.groups = groups
        self._members = members
        self._claims = JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "values": self.audiences},
            sub={"essential": True},
            exp={"essential": True},
        )
        self._recent: ExpiringCache[bytes, Principal] = ExpiringCache(KEEP_TOKEN_S)

    async def principal_for(self, token: str) -> Principal:
        if len(token) > MAX_TOKEN:
            raise Unauthenticated("The token is too long.")
        digest = hashlib.sha256(token.encode()).digest()
        principal = self._recent.get(digest)
        if principal is None:
            claims = (await self.checked(token, self._claims)).claims
            principal = self.principal_of(claims)
            await self.note(principal)
            self._recent.put(digest, principal, float(claims["exp"]) + LEEWAY_S - time.time())
        return principal

    def principal_of(self, claims: dict[str, Any]) -> Principal:
        """Return the user that checked claims describe. Scopes that the issuer granted by name count; without them,
        the role of the user's groups."""
        groups = claimed_groups(claims, self.groups)
        return self.user(str(claims["sub"]), named_scopes(claims), groups)

    def user(self, subject: str, named: frozenset[Scope], groups: frozenset[str]) -> Principal:
        """Return a user with the scopes that were named for it, or else with those of its groups' highest role."""
        return Principal("user", subject, named or self.groups.scopes(groups), groups=groups)

    async def note(self, principal: Principal) -> None:
        """Store the groups of a user that was seen."""
        if self._members is not None:
            await self._members.note(principal)

    async def checked(self, token: str, rules: JWTClaimsRegistry) -> jwt.Token:
        """Check the signature of a token by the issuer's keys, and its claims by some rules."""
        keys = await self._keys.get()
        try:
            try:
                found = self._decode(token, keys)
            except InvalidKeyIdError:
                found = self._decode(token, await self._keys.renewed(keys))
            rules.validate(found.claims)
        except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
            reason = error.error if isinstance(error, JoseError) else "malformed"
            raise Unauthenticated(f"The token is not valid ({reason}).") from None
        return found

    def _decode(self, token: str, keys: KeySet) -> jwt.Token:
        return jwt.decode(token, keys, registry=self._registry)


def named_scopes(claims: dict[str, Any]) -> frozenset[Scope]:
    """Return the scopes that the issuer granted by name; none if it names none of ours."""
    granted = set[str]()
    for claim in (claims.get("scope"), claims.get("scp")):
        if isinstance(claim, str):
            granted.update(claim.split())
        elif isinstance(claim, list):
            granted.update(str(one) for one in cast(list[object], claim))
    return frozenset(scope for scope in (*ALL_SCOPES, "operate") if f"parley:{scope}" in granted)


def fetcher(outbound: Outbound) -> Fetch:
    """Return a function that makes one GET without redirects, limited to five seconds and one megabyte."""

    async def fetch(url: str) -> bytes:
        return await outbound.get(url, timeout_s=TIMEOUT_S, max_bytes=MAX_BYTES)

    return fetch


def _object(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])
