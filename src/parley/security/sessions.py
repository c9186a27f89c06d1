"""Stored sessions of the console: they expire, end when they are not used, and can be revoked on all replicas."""

import hashlib
import hmac
import re
import secrets
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.audit.service import record
from parley.clock import Clock, now_ms
from parley.errors import NotFound, ParleyError, SessionEnded
from parley.records import Record, Records
from parley.runs.rules.access import Principal, Scope
from parley.telemetry import tell

SESSION = "session"
NOTE_USE_MS = 60_000
MAX_READ = 10_000
"""Sessions that are read to list or revoke them."""
PAGE = 500

_TOKEN = re.compile(r"([0-9a-f]{16})\.[A-Za-z0-9_-]{43}")

SignInMethod = Literal["provider", "credential"]
"""Place where a session began: at the identity provider, or with an API key or a token."""


class StoredSession(Struct, frozen=True):
    id: str
    digest: bytes
    """Hash of the token that the browser keeps."""
    principal: str
    created_at: int
    expires_at: int
    issuer: str = ""
    """Issuer that the user signed in at; empty for a session of a credential, which is checked with each request."""
    scopes: frozenset[Scope] = frozenset()
    """Scopes that the issuer named; without them, the role of the groups counts."""
    groups: frozenset[str] = frozenset()
    id_token: bytes = b""
    """The issuer's token, encrypted: the provider asks for it at sign-out."""
    seen_at: int = 0
    """Time of the last request, to the minute. Stored as the time of the record."""

    @property
    def method(self) -> SignInMethod:
        return "provider" if self.issuer else "credential"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredSession).decode


class StoredSessions:
    def __init__(self, records: Records, life_s: int, idle_s: int | None = None, clock: Clock = now_ms) -> None:
        """`idle_s` is the time after which a session that is not used ends; None for never."""
        self._records = records
        self._life_ms = life_s * 1000
        self._idle_ms = None if idle_s is None else idle_s * 1000
        self._clock = clock

    async def begin(
        self, principal: Principal, issuer: str = "", scopes: frozenset[Scope] = frozenset(), id_token: bytes = b""
    ) -> str:
        """Store a new session and return its token, which cannot be read again."""
        now, id_ = self._clock(), secrets.token_hex(8)
        token = f"{id_}.{secrets.token_urlsafe(32)}"
        groups = principal.groups if issuer else frozenset[str]()
        session = StoredSession(
            id_, _digest(token), str(principal), now, now + self._life_ms, issuer, scopes, groups, id_token
        )
        await self._records.put(_record(session, now))
        await record("session.started", "console", issuer, actor=principal)
        return token

    async def check(self, token: str) -> StoredSession:
        """Return the session of a token; raise SessionEnded if it has ended."""
        found = await self._find(token)
        now = self._clock()
        if found is None or self._has_ended(found, now):
            raise SessionEnded("Your session has ended. Sign in again.")
        if now - found.seen_at >= NOTE_USE_MS:
            await self._note_use(found, now)
        return found

    async def end(self, token: str) -> StoredSession | None:
        """End a session because its user signs out. Return it; None if it had ended before."""
        found = await self._find(token)
        if found is None or not await self._records.delete(SESSION, "", found.id):
            return None
        await record("session.ended", "console", found.issuer, actor=found.principal)
        return found

    async def list(self, principal: str | None = None) -> "list[StoredSession]":
        """Return the sessions that have not ended, of one principal or of all, the last used first."""
        now = self._clock()
        found = [one for one in await self._all() if not self._has_ended(one, now)]
        found = [one for one in found if principal in (None, one.principal)]
        return sorted(found, key=lambda one: (-one.seen_at, one.id))

    async def revoke(self, id_or_principal: str) -> "list[StoredSession]":
        """End one session, or all sessions of a principal, at once on all replicas. Return those that have ended."""
        known = [one for one in await self._all() if id_or_principal in (one.id, one.principal)]
        ended = [one for one in known if await self._records.delete(SESSION, "", one.id)]
        if not ended:
            raise NotFound("There is no such session.")
        for one in ended:
            await record("session.revoked", "session", one.id, person=one.principal)
        return ended

    async def forget(self, principal: str) -> None:
        """Delete the sessions of a principal, without a word of it in the audit log."""
        found = [("", one.id) for one in await self._all() if one.principal == principal]
        await self._records.delete_all(SESSION, found)

    async def clean(self) -> None:
        """Delete sessions that have expired."""
        while overdue := await self._records.due(SESSION, self._clock(), PAGE):
            await self._records.delete_all(SESSION, [(one.scope, one.id) for one in overdue])

    def _has_ended(self, session: StoredSession, now: int) -> bool:
        idle = self._idle_ms is not None and now - session.seen_at >= self._idle_ms
        return idle or now >= session.expires_at

    async def _note_use(self, session: StoredSession, now: int) -> None:
        """Store the time of use, unless the session was revoked in between."""
        try:
            await self._records.swap(_record(session, session.seen_at), _record(session, now))
        except ParleyError as error:
            tell("session.use_not_noted", session=session.id, error=error)

    async def _find(self, token: str) -> StoredSession | None:
        parsed = _TOKEN.fullmatch(token)
        found = await self._records.get(SESSION, "", parsed[1]) if parsed else None
        session = None if found is None else _session(found)
        return session if session is not None and hmac.compare_digest(session.digest, _digest(token)) else None

    async def _all(self) -> "list[StoredSession]":
        found: list[Record] = []
        for _ in range(0, MAX_READ, PAGE):
            page = await self._records.list(SESSION, "", ("", found[-1].id) if found else ("", ""), PAGE)
            found += page
            if len(page) < PAGE:
                break
        return [_session(one) for one in found]


def _digest(token: str) -> bytes:
    # The token holds 256 random bits, so a plain hash is enough: see docs/decisions/security.md.
    return hashlib.sha256(token.encode()).digest()


def _record(session: StoredSession, seen_at: int) -> Record:
    body = _encode(replace(session, seen_at=0))
    return Record(SESSION, "", session.id, body, seen_at, session.expires_at)


def _session(found: Record) -> StoredSession:
    return replace(_decode(found.body), seen_at=found.at)
