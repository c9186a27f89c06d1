"""Audit entries and their hash chain.

The chain covers the digests of the personal fields and not the fields themselves: these are stored apart, each part
with a random salt, and can be erased without breaking the chain."""

import hashlib
from collections.abc import Iterable
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from parley.errors import BrokenChain

AuditAction = Literal[
    "session.started",
    "session.ended",
    "session.revoked",
    "key.created",
    "key.revoked",
    "signing.rotated",
    "agent.added",
    "agent.removed",
    "agents.reloaded",
    "runtime.paired",
    "runtime.revoked",
    "run.canceled",
    "run.answered",
    "run.resumed",
    "conversation.exported",
    "conversation.deleted",
    "orchestration.deleted",
    "document.deleted",
    "version.deleted",
    "node.created",
    "node.changed",
    "node.removed",
    "node.token_created",
    "node.tokens_revoked",
    "work.stopped",
    "work.allowed",
    "limit.set",
    "limit.removed",
    "request.refused",
    "audit.erased",
    "audit.trimmed",
    "audit.dropped",
]
ACTIONS: tuple[str, ...] = get_args(AuditAction)
AuditResult = Literal["done", "refused"]
Part = Literal["actor", "person"]
"""Personal parts of an entry: the actor with its address, and another person that the act was about."""

START = b"\0" * 32
SALT_BYTES = 16
MAX_TEXT = 256


class AuditAct(Struct, frozen=True):
    """An act that is to be recorded."""

    action: AuditAction
    at: int
    result: AuditResult = "done"
    code: str = ""
    """Error code of a refusal."""
    kind: str = ""
    """Kind of the target: key, agent, task, path, …"""
    target: str = ""
    count: int = 1
    """Number of equal acts that the entry stands for."""
    actor: str = ""
    """Principal; empty if it is not known."""
    address: str = ""
    person: str = ""
    """Principal that the act was about."""

    def personal(self) -> dict[Part, tuple[str, str]]:
        return {"actor": (self.actor, self.address), "person": (self.person, "")}


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A stored act. `actor`, `address` and `person` are None after they were erased."""

    seq: int
    at: int
    action: str
    result: str
    code: str
    kind: str
    target: str
    count: int
    actor: str | None
    address: str | None
    person: str | None
    actor_digest: bytes
    person_digest: bytes
    actor_salt: bytes = b""
    person_salt: bytes = b""
    hash: bytes = b""


class Anchor(Struct, frozen=True):
    """A position in the chain: the number of an entry and its hash."""

    seq: int = 0
    hash: bytes = START


class AuditQuery(Struct, frozen=True):
    """A filter for entries; a field that is None is not used."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None
    result: str | None = None
    since: int | None = None
    until: int | None = None
    after: int | None = None
    """Continue after the entry with this number, in the order of the query."""
    oldest: bool = False
    """Oldest first, instead of newest first."""
    limit: int = 50


def part_digest(salt: bytes, values: tuple[str, str]) -> bytes:
    return hashlib.sha256(salt + msgspec.msgpack.encode(values)).digest()


def entry_hash(previous: bytes, entry: AuditEntry) -> bytes:
    what = entry.seq, entry.at, entry.action, entry.result, entry.code, entry.kind, entry.target, entry.count
    covered = *what, entry.actor_digest, entry.person_digest
    return hashlib.sha256(previous + msgspec.msgpack.encode(covered)).digest()


def shortened(text: str) -> str:
    """Return a text that every store takes and that cannot make an entry large."""
    return text.replace("\0", "")[:MAX_TEXT]


def chained(anchor: Anchor, acts: Iterable[AuditAct], salts: Iterable[bytes]) -> list[AuditEntry]:
    """Return the entries of some acts after a position. Each entry takes two salts."""
    found: list[AuditEntry] = []
    left = iter(salts)
    for act in acts:
        actor_salt, person_salt = next(left), next(left)
        parts = act.personal()
        entry = AuditEntry(
            seq=anchor.seq + 1,
            at=act.at,
            action=act.action,
            result=act.result,
            code=act.code,
            kind=act.kind,
            target=act.target,
            count=act.count,
            actor=act.actor,
            address=act.address,
            person=act.person,
            actor_digest=part_digest(actor_salt, parts["actor"]),
            person_digest=part_digest(person_salt, parts["person"]),
            actor_salt=actor_salt,
            person_salt=person_salt,
        )
        entry = msgspec.structs.replace(entry, hash=entry_hash(anchor.hash, entry))
        anchor = Anchor(entry.seq, entry.hash)
        found.append(entry)
    return found


def check(anchor: Anchor, entries: Iterable[AuditEntry]) -> Anchor:
    """Check entries that follow a position, the oldest first. Return the position of the last one."""
    for entry in entries:
        if entry.seq != anchor.seq + 1:
            raise BrokenChain(f"Audit entry {anchor.seq + 1} is missing.", seq=anchor.seq + 1)
        if entry_hash(anchor.hash, entry) != entry.hash:
            raise BrokenChain(f"Audit entry {entry.seq} was changed, or the one before it.", seq=entry.seq)
        _check_parts(entry)
        anchor = Anchor(entry.seq, entry.hash)
    return anchor


def _check_parts(entry: AuditEntry) -> None:
    """Compare the personal parts that are still stored with their digests."""
    if entry.actor is not None:
        given = entry.actor, entry.address or ""
        if part_digest(entry.actor_salt, given) != entry.actor_digest:
            raise BrokenChain(f"The actor of audit entry {entry.seq} was changed.", seq=entry.seq)
    if entry.person is not None and part_digest(entry.person_salt, (entry.person, "")) != entry.person_digest:
        raise BrokenChain(f"The person of audit entry {entry.seq} was changed.", seq=entry.seq)


def is_erased(entry: AuditEntry) -> bool:
    """Return whether a person was erased from an entry."""
    return entry.actor is None or entry.person is None
