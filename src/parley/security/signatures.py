"""Signed requests (the runtime control plane, 003): `v1.<claims>.<HMAC-SHA256>`, each valid for one request and a short
time."""

import hashlib
import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.errors import ClaimMismatch, SignatureRefused
from parley.ids import new_id
from parley.runs.rules.access import Principal
from parley.runs.store import Nonces

__all__ = ["Claims", "claims_for", "sign"]

SIGNATURE = b"x-oa-runtime-signature"
KEY_ID = b"x-oa-runtime-key-id"
BODY_SHA256 = b"x-oa-runtime-body-sha256"
USER = b"x-oa-user-id"
GUEST = b"x-oa-guest-scope"

DEVELOPMENT_KEYS: dict[str, str] = {"runtime-v1": "dev-runtime-signature-secret"}
"""Key id and secret that both sides of the contract use until others are configured. They are publicly known."""
TTL_S = 60
MAX_TTL_S = 300
MAX_NONCE = 256
SKEW_S = 30
"""Seconds by which an issuer's clock may be ahead of ours."""
MAX_TOKEN = 8192

_VERSION = "v1"
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_MAX_INTEGER = 1 << 63


class Claims(Struct, frozen=True, omit_defaults=True):
    """Claims of a signature. Times are in seconds; None means not claimed."""

    iat: int
    exp: int
    nonce: str
    run_id: str | None = None
    thread_id: str | None = None
    user_id: int | None = None
    guest_scope: str | None = None


_decode = msgspec.json.Decoder(Claims).decode


class Carried(Struct, frozen=True):
    """Values in a request's path, query, body and headers, which its claims must therefore name."""

    run_ids: tuple[str, ...] = ()
    thread_ids: tuple[str, ...] = ()
    user_id: int | None = None
    guest_scope: str | None = None


class Signatures:
    """Checks signed requests in the contract's order: `check`, `check_body`, `bind`, and `claim_nonce` last, so that a
    refused token does not use up its nonce."""

    def __init__(
        self,
        keys: Mapping[str, bytes | str],
        nonces: Nonces,
        clock: Clock = now_ms,
        max_ttl_s: int = MAX_TTL_S,
    ) -> None:
        self._keys = {id_: _bytes(secret) for id_, secret in keys.items()}
        self._nonces = nonces
        self._clock = clock
        self._max_ttl_s = max_ttl_s

    def check(self, token: str | None, key_id: str | None = None) -> Claims:
        """Return the claims of a valid token. `key_id` names the key to check with; without it all our keys are
        tried."""
        if not token:
            raise SignatureRefused("missing runtime signature")
        segment, mac = _parts(token)
        if not self._signed(segment, mac, key_id):
            _check_encoding(segment, mac)
            raise SignatureRefused("invalid token signature")
        claims = _claims(segment)
        if not 1 <= len(claims.nonce) <= MAX_NONCE or not 0 < claims.exp - claims.iat <= self._max_ttl_s:
            raise SignatureRefused("invalid token claims")
        now = self._clock()
        if claims.exp * 1000 <= now:
            raise SignatureRefused("token expired")
        if claims.iat * 1000 > now + SKEW_S * 1000:
            raise SignatureRefused("token issued in the future")
        return claims

    def check_body(self, sent: str | None, body: bytes) -> None:
        """Raise if a digest was sent and does not match the body."""
        if sent is None:
            return
        digest = hashlib.sha256(body).hexdigest()
        if not hmac.compare_digest(sent.strip().lower().encode(), digest.encode()):
            raise SignatureRefused("body hash mismatch")

    def bind(self, claims: Claims, carried: Carried) -> None:
        """Raise unless every value of the request is claimed, and is the same."""
        if any(run_id != claims.run_id for run_id in carried.run_ids):
            raise mismatch("run_id")
        if any(thread_id != claims.thread_id for thread_id in carried.thread_ids):
            raise mismatch("thread_id")
        if carried.user_id is not None and carried.user_id != claims.user_id:
            raise mismatch("user_id")
        if carried.guest_scope is not None and carried.guest_scope != claims.guest_scope:
            raise mismatch("guest_scope")

    async def claim_nonce(self, claims: Claims) -> None:
        """Use up a nonce; raise if any replica has seen it before."""
        if not await self._nonces.claim(claims.nonce, claims.exp * 1000):
            raise SignatureRefused("token nonce already used")

    def _signed(self, segment: bytes, mac: bytes, key_id: str | None) -> bool:
        """Return whether a key signed the segment. MACs are compared as text, since each has only one form."""
        tried = self._keys if key_id is None else [key_id]
        return any(id_ in self._keys and hmac.compare_digest(_mac(self._keys[id_], segment), mac) for id_ in tried)


def mismatch(claim: str) -> ClaimMismatch:
    return ClaimMismatch(f"claim mismatch for {claim}", claim=claim)


def sign(secret: bytes | str, claims: Claims) -> str:
    """Return the token that an issuer sends."""
    segment = _base64url(msgspec.json.encode(claims))
    return f"{_VERSION}.{segment.decode()}.{_mac(_bytes(secret), segment).decode()}"


def claims_for(
    now_ms: int,
    ttl_s: int = TTL_S,
    *,
    run_id: str | None = None,
    thread_id: str | None = None,
    user_id: int | None = None,
    guest_scope: str | None = None,
) -> Claims:
    """Return the claims for one request, with a new nonce."""
    iat = now_ms // 1000
    return Claims(iat, iat + ttl_s, f"nonce-{new_id()}", run_id, thread_id, user_id, guest_scope)


def user_id_of(header: str | None) -> int | None:
    """Return the integer in `x-oa-user-id`; any other value counts as absent."""
    text = (header or "").strip()
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -_MAX_INTEGER <= number < _MAX_INTEGER else None


def guest_scope_of(header: str | None) -> str | None:
    """Return the value of `x-oa-guest-scope`; an empty one counts as absent."""
    return (header or "").strip() or None


def principal_of(user_header: str | None, guest_header: str | None) -> Principal | None:
    """Return the principal on whose behalf a signed request is made. A user's id has priority over a guest's scope."""
    user_id, guest_scope = user_id_of(user_header), guest_scope_of(guest_header)
    if user_id is not None:
        return Principal("user", str(user_id))
    return None if guest_scope is None else Principal("guest", guest_scope)


def _parts(token: str) -> tuple[bytes, bytes]:
    """Return the signed segment and its MAC, as they were sent."""
    parts = token.encode().split(b".") if len(token) <= MAX_TOKEN and token.isascii() else []
    if len(parts) != 3 or parts[0] != _VERSION.encode():
        raise SignatureRefused("invalid token encoding")
    return parts[1], parts[2]


def _check_encoding(segment: bytes, mac: bytes) -> None:
    """Raise if a token cannot be decoded, whatever its signature."""
    try:
        _unbase64url(mac)
        msgspec.json.decode(_unbase64url(segment))
    except (ValueError, RecursionError):
        raise SignatureRefused("invalid token encoding") from None


def _claims(segment: bytes) -> Claims:
    try:
        return _decode(_unbase64url(segment))
    except (ValueError, RecursionError):
        # The decoder stops at the first value of a wrong type, possibly before the place where the JSON is invalid.
        _check_encoding(segment, b"")
        raise SignatureRefused("invalid token claims") from None


def _unbase64url(text: bytes) -> bytes:
    """Decode only the one form that encoding produces: no padding, no other alphabet, no stray bits at the end."""
    content = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    if _base64url(content) != text:
        raise ValueError(text)
    return content


def _base64url(content: bytes) -> bytes:
    return urlsafe_b64encode(content).rstrip(b"=")


def _mac(key: bytes, segment: bytes) -> bytes:
    return _base64url(hmac.digest(key, segment, "sha256"))


def _bytes(secret: bytes | str) -> bytes:
    return secret.encode() if isinstance(secret, str) else secret
