"""Pair tokens: what discovery hands out. One caller, one target, five minutes; checked offline with our public keys.

A JWT, signed with EdDSA by keys that sign nothing else. `gen` is the generation of the pair: it changes when one of the
two is moved or removed, and whoever asks us (`/registry/introspect`) learns of it at once.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from parley.core.nodes import PLATFORM, Node, pair_generation
from parley.errors import Unauthenticated
from parley.ids import new_id
from parley.security.signing import SigningKeys
from parley.security.tokens import MAX_TOKEN, Registry

ALGORITHMS = ("EdDSA", "Ed25519")
TYPE = "pair+jwt"
LIFE_S = 300
LEEWAY_S = 5
KEEP_KEYS_S = 30.0
LOOK_AGAIN_S = 0.5

_REGISTRY = Registry(ALGORITHMS)


class PairClaims(Struct, frozen=True):
    iss: str
    sub: str
    """The caller."""
    aud: str
    """The target."""
    iat: int
    exp: int
    jti: str
    gen: str


class Pairs:
    """Issues pair tokens, and knows its own again."""

    def __init__(
        self, keys: SigningKeys, issuer: str, clock: Callable[[], float] = time.time, life_s: int = LIFE_S
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._life_s = life_s
        self._clock = clock
        self._known: KeySet | None = None
        self._looked_at = 0.0

    async def issue(self, caller: Node | None, target: Node) -> tuple[str, int]:
        """The token, and when it expires (seconds). Without a caller it is the platform's own."""
        now = int(self._clock())
        claims = PairClaims(
            self._issuer, caller.id if caller else PLATFORM, target.id, now, now + self._life_s, new_id(),
            pair_generation(caller, target),
        )  # fmt: skip
        return await self._keys.sign_whole(msgspec.json.encode(claims), {"typ": TYPE}), claims.exp

    async def claims_of(self, token: str) -> PairClaims:
        """Of a token that any replica issued, under whatever address: the keys are ours."""
        try:
            return check_pair(token, await self._known_keys(KEEP_KEYS_S), None, now=self._clock())
        except InvalidKeyIdError:
            # A new key may be in use since a moment ago.
            keys = await self._known_keys(LOOK_AGAIN_S)
        try:
            return check_pair(token, keys, None, now=self._clock())
        except InvalidKeyIdError:
            raise Unauthenticated("The pair token is not valid.") from None

    async def _known_keys(self, at_most_s: float) -> KeySet:
        """Not older than so many seconds."""
        now = self._clock()
        if self._known is None or now - self._looked_at >= at_most_s:
            self._known = KeySet.import_key_set(await self._keys.jwks())
            self._looked_at = now
        return self._known


def check_pair(token: str, keys: KeySet, issuer: str | None, audience: str | None = None, *, now: float) -> PairClaims:
    """What a pair token claims, if all of it holds; Unauthenticated otherwise, and InvalidKeyIdError when its key is
    not among those known."""
    if len(token) > MAX_TOKEN:
        raise Unauthenticated("The pair token is too long.")
    try:
        decoded = jwt.decode(token, keys, registry=_REGISTRY)
        claims = msgspec.convert(decoded.claims, PairClaims)
    except InvalidKeyIdError:
        raise
    except (JoseError, msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError):
        raise Unauthenticated("The pair token is not valid.") from None
    _check_claims(decoded.header, claims, issuer, audience, now)
    return claims


def _check_claims(
    header: dict[str, Any], claims: PairClaims, issuer: str | None, audience: str | None, now: float
) -> None:  # fmt: skip
    if header.get("typ") != TYPE or "kid" not in header or issuer not in (None, claims.iss):
        raise Unauthenticated("The pair token is not one of this issuer.")
    if audience is not None and claims.aud != audience:
        raise Unauthenticated("The pair token is for another target.")
    if claims.exp - claims.iat > LIFE_S or now > claims.exp + LEEWAY_S or now < claims.iat - LEEWAY_S:
        raise Unauthenticated("The pair token has expired.")
