"""Pair tokens, which discovery issues: for one caller and one target, valid for five minutes, checked offline with our
public keys.

A JWT, signed with EdDSA by keys that sign nothing else. `gen` is the generation of the pair. It changes when one of the
two is moved or removed; a node that calls `/registry/introspect` learns of it at once.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from parley.errors import Unauthenticated
from parley.ids import new_id
from parley.nodes.rules import PLATFORM, NodeToken, RegisteredNode, pair_generation
from parley.security.signing import SigningKeys
from parley.security.tokens import MAX_TOKEN, Registry

ALGORITHMS = ("EdDSA", "Ed25519")
TYPE = "pair+jwt"
LIFE_S = 300
LEEWAY_S = 5
KEEP_KEYS_S = 30.0
LOOK_AGAIN_S = 0.5

_REGISTRY = Registry(ALGORITHMS)


class PairRefused(Unauthenticated):
    """The pair token is not valid. `reason` and `claims`, known if the signature is valid, are for the target's log;
    the caller sees only the message."""

    def __init__(self, message: str, reason: str, claims: "PairClaims | None" = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.claims = claims


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
    """Issues and checks pair tokens."""

    def __init__(
        self, keys: SigningKeys, issuer: str, clock: Callable[[], float] = time.time, life_s: int = LIFE_S
    ) -> None:
        self._keys = keys
        self.issuer = issuer
        self._life_s = life_s
        self._clock = clock
        self._known: KeySet | None = None
        self._looked_at = 0.0

    async def issue(self, caller: RegisteredNode | None, target: RegisteredNode) -> tuple[str, int]:
        """Return the token, and when it expires (Unix seconds). Without a caller it is the platform's own."""
        now = int(self._clock())
        claims = PairClaims(
            self.issuer,
            caller.id if caller else PLATFORM,
            target.id,
            now,
            now + self._life_s,
            new_id(),
            pair_generation(caller, target),
        )
        return await self._keys.sign_whole(msgspec.json.encode(claims), {"typ": TYPE}), claims.exp

    async def claims_of(self, token: str) -> PairClaims:
        """Return the claims of a token that any replica issued, under any address: the keys are shared."""
        try:
            return check_pair(token, await self._known_keys(KEEP_KEYS_S), None, now=self._clock())
        except InvalidKeyIdError:
            # The token may be signed with a key that was made a moment ago.
            keys = await self._known_keys(LOOK_AGAIN_S)
        try:
            return check_pair(token, keys, None, now=self._clock())
        except InvalidKeyIdError:
            raise Unauthenticated("The pair token is not valid.") from None

    async def _known_keys(self, at_most_s: float) -> KeySet:
        """Return keys that are at most this many seconds old."""
        now = self._clock()
        if self._known is None or now - self._looked_at >= at_most_s:
            self._known = KeySet.import_key_set(await self._keys.jwks())
            self._looked_at = now
        return self._known


def check_pair(token: str, keys: KeySet, issuer: str | None, audience: str | None = None, *, now: float) -> PairClaims:
    """Return the claims of a pair token if all of them are valid. Raise Unauthenticated otherwise, and
    InvalidKeyIdError if its key is unknown."""
    if len(token) > MAX_TOKEN:
        raise PairRefused("The pair token is too long.", "too_long")
    try:
        decoded = jwt.decode(token, keys, registry=_REGISTRY)
        claims = msgspec.convert(decoded.claims, PairClaims)
    except InvalidKeyIdError:
        raise
    except (JoseError, msgspec.ValidationError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = "bad_signature" if isinstance(error, BadSignatureError) else "malformed"
        raise PairRefused("The pair token is not valid.", reason) from None
    _check_claims(decoded.header, claims, issuer, audience, now)
    return claims


def _check_claims(
    header: dict[str, Any], claims: PairClaims, issuer: str | None, audience: str | None, now: float
) -> None:
    if header.get("typ") != TYPE or "kid" not in header:
        raise PairRefused("The pair token was not made by this issuer.", "wrong_type", claims)
    if issuer not in (None, claims.iss):
        raise PairRefused("The pair token was not made by this issuer.", "wrong_issuer", claims)
    if audience is not None and claims.aud != audience:
        raise PairRefused("The pair token is for another target.", "wrong_audience", claims)
    if claims.exp - claims.iat > LIFE_S or now > claims.exp + LEEWAY_S:
        raise PairRefused("The pair token has expired.", "expired", claims)
    if now < claims.iat - LEEWAY_S:
        raise PairRefused("The pair token is not valid yet.", "not_yet_valid", claims)


# Node tokens: shown once, stored as a hash, invalid when their node is removed. Also the token for a node's first
# registration.

PREFIX_LENGTH = 8


def new_token(now: int) -> tuple[str, NodeToken]:
    """Return 32 random bytes as 43 characters, and the part of them that is stored."""
    text = secrets.token_urlsafe(32)
    return text, NodeToken(text[:PREFIX_LENGTH], digest(text), now)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def check_token(node: RegisteredNode | None, token: str | None) -> None:
    """Raise unless the token belongs to the node; the error is the same if the node does not exist."""
    if not token:
        raise Unauthenticated("missing workspace auth token")
    shown = digest(token)
    held = () if node is None or node.removed else node.tokens
    if not any(hmac.compare_digest(one.digest, shown) for one in held):
        raise Unauthenticated("invalid workspace auth token")


def admits(node: RegisteredNode, token: str | None) -> bool:
    """Return whether this is the unused token that was issued when the node was created."""
    return bool(token and node.admission) and hmac.compare_digest(node.admission, digest(token or ""))
