"""API keys: a token is shown once, and only its hash is stored."""

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.audit.service import record
from parley.cache import ExpiringCache
from parley.clock import Clock, now_ms
from parley.errors import Invalid, NameTaken, NotFound, ParleyError, Unauthenticated
from parley.records import Record, Records
from parley.runs.rules.access import ALL_SCOPES, ROLES, USER_SCOPES, Principal, Role, Scope
from parley.runs.rules.agents import SLUG
from parley.security.groups import group_names
from parley.telemetry import tell

PREFIX = "parley_"
LIFE_S = 2.0
"""Seconds for which a server that has just seen a key still accepts it after it was revoked."""
NOTE_USE_MS = 60_000

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_TOKEN = re.compile(r"parley_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")
_KEY, _HOLDER, _USE = "api_key", "api_key.name", "api_key.use"


class ApiKey(Struct, frozen=True):
    id: str
    name: str
    digest: bytes
    scopes: frozenset[Scope]
    agents: frozenset[str]
    created_at: int
    expires_at: int | None = None
    last_used_at: int | None = None
    """To the minute; may be older if a write failed."""
    role: str = ""
    """Role that older versions do not know; `scopes` then holds the rights that those give the key. Else empty."""
    groups: frozenset[str] = frozenset()

    @property
    def principal(self) -> Principal:
        scopes = ROLES["operator"] if self.role == "operator" else self.scopes
        return Principal("service", self.name, scopes, self.agents, self.groups)

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ApiKey).decode


class ApiKeys:
    def __init__(self, records: Records, clock: Clock = now_ms, life_s: float = LIFE_S) -> None:
        self._records = records
        self._clock = clock
        self._recent: ExpiringCache[bytes, Principal] = ExpiringCache(life_s)
        self._lookups: dict[bytes, asyncio.Task[Principal | None]] = {}
        self._noted: dict[str, int] = {}

    async def create(
        self,
        name: str,
        scopes: Iterable[str] | None = None,
        agents: Iterable[str] = (),
        expires_at: int | None = None,
        *,
        role: str | None = None,
        groups: Iterable[str] = (),
    ) -> tuple[ApiKey, str]:
        """Create a key with a role, or with scopes; by default it may read and send. Return it and its token, which
        cannot be read again."""
        now, id_ = self._clock(), secrets.token_hex(8)
        token = f"{PREFIX}{id_}_{secrets.token_urlsafe(32)}"
        rights, stored_role, limited = *_rights(scopes, role), _agents(agents)
        if stored_role and limited:
            raise Invalid("A key with the role operator cannot be limited to agents.", field="agents")
        key = ApiKey(id_, _name(name), _digest(token), rights, limited, now, expires_at)
        key = replace(key, role=stored_role, groups=group_names(groups))
        if key.expired(now):
            raise Invalid("expiresAt must be in the future.", field="expiresAt")
        await self._records.put(Record(_KEY, "", id_, _encode(key), now))
        if not await self._take_name(key):
            await self._records.delete(_KEY, "", id_)
            raise NameTaken(f"A key named {name!r} already exists; revoke it first, or choose another name.")
        await record("key.created", "key", key.name)
        return key, token

    async def list(self) -> "list[ApiKey]":
        """Return all keys in the order of their names, with the time of their last use."""
        uses = {record.id: record.at for record in await self._all(_USE)}
        keys = [_decode(record.body) for record in await self._all(_KEY)]
        keys = [replace(key, last_used_at=uses.get(key.id)) for key in keys]
        return sorted(keys, key=lambda key: (key.name, key.created_at))

    async def revoke(self, id_or_name: str) -> ApiKey:
        """Revoke a key: here at once, and within two seconds in other processes."""
        key = await self._find(id_or_name)
        if key is None:
            raise NotFound("There is no such API key.")
        await self._records.delete(_KEY, "", key.id)
        held = await self._records.get(_HOLDER, "", key.name)
        if held is not None and held.body == key.id.encode():
            await self._records.delete(_HOLDER, "", key.name)
        await self._records.delete(_USE, "", key.id)
        self._recent.forget()
        await record("key.revoked", "key", key.name)
        return key

    # Why: docs/decisions/security.md#accept-a-revoked-key-for-up-to-two-seconds
    async def principal_for(self, token: str) -> Principal:
        """Return the principal of a token. A token that was seen a moment ago costs no query."""
        digest = _digest(token)
        principal = self._recent.get(digest)
        if principal is None:
            principal = await self._looked_up(token, digest)
        if principal is None:
            raise Unauthenticated("The API key is not valid: unknown, revoked or expired.")
        return principal

    async def _looked_up(self, token: str, digest: bytes) -> Principal | None:
        """Look up a token. Concurrent requests with the same token share one lookup, which none of them can cancel."""
        lookup = self._lookups.get(digest)
        if lookup is None:
            lookup = asyncio.get_running_loop().create_task(self._look_up(token, digest))
            self._lookups[digest] = lookup
            lookup.add_done_callback(lambda _: self._lookups.pop(digest, None))
        return await asyncio.shield(lookup)

    async def _look_up(self, token: str, digest: bytes) -> Principal | None:
        parsed = _TOKEN.fullmatch(token)
        key = await self._get(parsed[1]) if parsed else None
        now = self._clock()
        if key is None or not hmac.compare_digest(key.digest, digest) or key.expired(now):
            return None
        left_s = None if key.expires_at is None else (key.expires_at - now) / 1000
        self._recent.put(digest, key.principal, left_s)
        await self._note_use(key.id, now)
        return key.principal

    async def _note_use(self, id_: str, now: int) -> None:
        """Store the time of use beside the key and not in it, so that it can never restore a key that was just
        revoked."""
        if now - self._noted.get(id_, 0) < NOTE_USE_MS:
            return
        self._noted[id_] = now
        try:
            await self._records.put(Record(_USE, "", id_, b"", now))
        except ParleyError as error:
            tell("key.use_not_noted", key=id_, error=error)

    async def _take_name(self, key: ApiKey) -> bool:
        """Reserve the name of a key. A name is free if no key has it, or the key that had it is deleted or expired."""
        holder = Record(_HOLDER, "", key.name, key.id.encode(), key.created_at)
        if await self._records.add(holder):
            return True
        held = await self._records.get(_HOLDER, "", key.name)
        other = await self._get(held.body.decode()) if held else None
        if other is not None and not other.expired(key.created_at):
            return False
        await self._records.put(holder)
        return True

    async def _find(self, id_or_name: str) -> ApiKey | None:
        held = await self._records.get(_HOLDER, "", id_or_name)
        return await self._get(held.body.decode() if held else id_or_name)

    async def _get(self, id_: str) -> ApiKey | None:
        record = await self._records.get(_KEY, "", id_)
        return _decode(record.body) if record else None

    async def _all(self, kind: str) -> "list[Record]":
        found: list[Record] = []
        while page := await self._records.list(kind, "", ("", found[-1].id) if found else ("", ""), 500):
            found += page
        return found


# Why: docs/decisions/security.md#store-api-keys-as-a-plain-sha-256
def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise Invalid(
            "A key's name must have 1 to 63 lower-case letters, digits, _, . or -, and start with a letter or digit.",
            field="name",
        )
    return name


def _rights(scopes: Iterable[str] | None, role: str | None) -> tuple[frozenset[Scope], str]:
    """Return the scopes of a new key, and its role if the scopes do not say it."""
    if role is None:
        return _scopes(USER_SCOPES if scopes is None else scopes), ""
    if scopes is not None:
        raise Invalid("A key has either a role or scopes, not both.", field="role")
    known: Role | None = next((one for one in ROLES if one == role), None)
    if known is None:
        raise Invalid(f"role must be one of: {', '.join(ROLES)}.", field="role")
    # Replicas of an older version read the key too. They do not know the scope operate: to them it is a user's key.
    return (USER_SCOPES, known) if known == "operator" else (ROLES[known], "")


def _scopes(names: Iterable[str]) -> frozenset[Scope]:
    given = frozenset(names)
    known: frozenset[Scope] = frozenset(scope for scope in ALL_SCOPES if scope in given)
    if not given or known != given:
        raise Invalid(f"scopes must name at least one of: {', '.join(sorted(ALL_SCOPES))}.", field="scopes")
    return known


def _agents(slugs: Iterable[str]) -> frozenset[str]:
    given = frozenset(slugs)
    if wrong := sorted(slug for slug in given if SLUG.fullmatch(slug) is None):
        raise Invalid(f"{wrong[0]!r} is not an agent's slug.", field="agents")
    return given
