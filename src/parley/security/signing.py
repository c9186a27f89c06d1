"""Keys that this server signs with, and detached signatures (RFC 7515, appendix F).

The newest key signs. Replaced keys stay published for a while, so that their signatures can be checked; two replicas
that make a key at the same moment publish both.
"""

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc.jwk import ECKey, KeySetSerialization, OKPKey
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, now_ms
from parley.errors import ConfigurationError
from parley.records import Record, Records
from parley.security.cards import Card, readings
from parley.security.secrets import Secrets
from parley.telemetry import tell

ALGORITHM = "ES256"
Algorithm = Literal["ES256", "EdDSA"]
LOOK_AGAIN_S = 60.0
"""Seconds for which a replica may go on using a key that another replica has replaced."""

_DAY_MS = 24 * 3600 * 1000
_KINDS: dict[Algorithm, str] = {"ES256": "signing_key", "EdDSA": "signing_key.eddsa"}
Pair = ECKey | OKPKey


class SigningKey(Struct, frozen=True):
    """A key: the public part as a JWK, the private part encrypted."""

    kid: str
    public: dict[str, Any]
    private: bytes
    created_at: int
    retired_at: int | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SigningKey).decode


class SigningKeys:
    def __init__(
        self,
        records: Records,
        secrets: Secrets,
        *,
        algorithm: Algorithm = ALGORITHM,
        beside: "SigningKeys | None" = None,
        jku: str | None = None,
        rotate_days: float | None = 90,
        keep_days: float = 30,
        clock: Clock = now_ms,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self._secrets = secrets
        self._algorithm: Algorithm = algorithm
        self._kind = _KINDS[algorithm]
        self.beside = beside
        """Keys for another purpose, published and replaced together with these."""
        self._jku = jku
        self._rotate_ms = None if rotate_days is None else rotate_days * _DAY_MS
        self._keep_ms = keep_days * _DAY_MS
        self._clock = clock
        self._ticks = ticks
        self._current: SigningKey | None = None
        self._private: tuple[str, Pair] | None = None
        self._look_again = 0.0
        self._looking = asyncio.Lock()

    async def current(self) -> SigningKey:
        """Return the key to sign with; create one if there is none, or the newest is too old."""
        if self._current is not None and self._ticks() < self._look_again:
            return self._current
        async with self._looking:
            if self._current is None or self._ticks() >= self._look_again:
                self._current = await self._chosen()
            return self._current

    async def rotate(self) -> SigningKey:
        """Create a new key, retire the others, and delete those that were retired long ago."""
        older = await self.list()
        key = self._made()
        await self._put(key)
        for one in older:
            if one.retired_at is None:
                await self._put(replace(one, retired_at=key.created_at))
            elif one.retired_at < key.created_at - self._keep_ms:
                await self._records.delete(self._kind, "", one.kid)
        tell("signing.rotated", kid=key.kid)
        self._use(key)
        if self.beside is not None:
            await self.beside.rotate()
        return key

    async def list(self) -> "list[SigningKey]":
        """Return all stored keys, newest first."""
        keys = [_decode(record.body) for record in await self._records.list(self._kind, "", limit=1000)]
        return sorted(keys, key=lambda key: (key.created_at, key.kid), reverse=True)

    async def jwks(self) -> KeySetSerialization:
        """Return the public keys with which others check our signatures."""
        await self.current()
        since = self._clock() - self._keep_ms
        shown = [key for key in await self.list() if key.retired_at is None or key.retired_at >= since]
        others = [] if self.beside is None else (await self.beside.jwks())["keys"]
        return cast(KeySetSerialization, {"keys": [*(key.public for key in shown), *others]})

    async def sign(self, payload: bytes, header: dict[str, Any] | None = None) -> tuple[str, str]:
        """Return the protected header and the signature, both in base64url; the payload is not included."""
        key = await self.current()
        protected: dict[str, Any] = {"alg": self._algorithm, "kid": key.kid, "typ": "JOSE", **(header or {})}
        if self._jku is not None:
            protected.setdefault("jku", self._jku)
        protected_b64 = _b64(msgspec.json.encode(protected))
        signature = _signature(self._private_part(key), protected_b64 + b"." + _b64(payload))
        return protected_b64.decode(), _b64(signature).decode()

    async def sign_whole(self, payload: bytes, header: dict[str, Any]) -> str:
        """Return a complete JWS, with its payload."""
        protected, signature = await self.sign(payload, header)
        return f"{protected}.{_b64(payload).decode()}.{signature}"

    async def sign_card(self, card: Card) -> Card:
        """Return the card with a signature for each of its readings: the part that 1.0 knows, and all of it."""
        signed = [await self.sign(payload) for payload in readings(card).values()]
        signatures = [{"protected": protected, "signature": signature} for protected, signature in signed]
        return {**card, "signatures": signatures}

    async def _chosen(self) -> SigningKey:
        """Return the newest key that this process can decrypt; replicas that do not share a key file have one each."""
        live = [key for key in await self.list() if key.retired_at is None]
        mine = next((key for key in live if self._readable(key)), None)
        if mine is not None and not self._too_old(mine):
            return self._use(mine)
        if mine is not None or not live:
            return await self.rotate()
        tell("signing.key_unreadable", kid=live[0].kid)
        await self._put(key := self._made())
        return self._use(key)

    def _made(self) -> SigningKey:
        pair: Pair = ECKey.generate_key("P-256") if self._algorithm == ALGORITHM else OKPKey.generate_key("Ed25519")
        kid = pair.thumbprint()
        public = {**pair.as_dict(private=False), "kid": kid, "use": "sig", "alg": self._algorithm}
        private = self._secrets.encrypt(msgspec.json.encode(pair.as_dict(private=True)))
        return SigningKey(kid, public, private, self._clock())

    async def _put(self, key: SigningKey) -> None:
        await self._records.put(Record(self._kind, "", key.kid, _encode(key), key.created_at))

    def _use(self, key: SigningKey) -> SigningKey:
        self._current = key
        self._look_again = self._ticks() + LOOK_AGAIN_S
        return key

    def _too_old(self, key: SigningKey) -> bool:
        return self._rotate_ms is not None and self._clock() - key.created_at >= self._rotate_ms

    def _readable(self, key: SigningKey) -> bool:
        try:
            self._private_part(key)
        except ConfigurationError:
            return False
        return True

    def _private_part(self, key: SigningKey) -> Pair:
        if self._private is None or self._private[0] != key.kid:
            kind = ECKey if self._algorithm == ALGORITHM else OKPKey
            self._private = (key.kid, kind.import_key(msgspec.json.decode(self._secrets.decrypt(key.private))))
        return self._private[1]


def _signature(key: Pair, signed: bytes) -> bytes:
    """Return a deterministic signature (RFC 6979, RFC 8032): the same card has the same signature on every replica, so
    that caches can compare."""
    if isinstance(key, OKPKey):
        assert isinstance(key.private_key, Ed25519PrivateKey)
        return key.private_key.sign(signed)
    assert key.private_key is not None
    der = key.private_key.sign(signed, ECDSA(SHA256(), deterministic_signing=True))
    r, s = decode_dss_signature(der)
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _b64(value: bytes) -> bytes:
    return urlsafe_b64encode(value).rstrip(b"=")
