"""Nonces, stored beside the log: waiting claims are written together, and a used nonce affects only its own caller."""

import asyncio
import secrets
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from parley.errors import KeyTaken, ParleyError, StoreUnavailable
from parley.runs.store import Done
from parley.stores.postgres_pool import Pool
from parley.telemetry import tell

MAX_BATCH = 512
FORGET_BATCH = 500

_CLAIM_ONE = "INSERT INTO nonces (nonce, until) VALUES (?, ?) ON CONFLICT (nonce) DO NOTHING"
_FORGET_SOME = """
DELETE FROM nonces WHERE nonce IN (SELECT nonce FROM nonces WHERE until < ? ORDER BY until LIMIT ?)"""
# In the order of the nonces, so that two replicas with the same nonces cannot deadlock.
_CLAIM_ALL = """
INSERT INTO nonces (nonce, until)
SELECT nonce, until FROM unnest($1::bytea[], $2::bigint[]) AS row (nonce, until) ORDER BY nonce
ON CONFLICT (nonce) DO NOTHING RETURNING nonce"""
_FORGET_SOME_THERE = """
DELETE FROM nonces WHERE nonce IN (SELECT nonce FROM nonces WHERE until < $1 ORDER BY until LIMIT $2) RETURNING 1"""


# Why: docs/decisions/stores.md#claim-nonces-in-the-writers-transactions
class NonceClaim(Struct, frozen=True):
    """A claim. The nonce is stored as bytes: any text is allowed, and no collation applies."""

    nonce: bytes
    until: int


Claiming = tuple[NonceClaim, Done]


def claiming(hand_in: Callable[[NonceClaim, Done], None], nonce: str, until: int) -> "asyncio.Future[bool]":
    """Hand in a claim; await the future for the decision."""
    future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    hand_in(NonceClaim(nonce.encode(), until), partial(_decided, future))
    return future


async def check_committing(
    claim: Callable[[str, int], Awaitable[bool]], patience_s: float, committed: Callable[[], int] = int, size: int = 16
) -> None:
    """Check that the store commits, by claiming a nonce that expires soon. A writer that commits other work meanwhile
    is busy, not stuck."""
    before = committed()
    try:
        async with asyncio.timeout(patience_s):
            await claim(secrets.token_hex(size), 0)
    except TimeoutError:
        if committed() == before:
            raise StoreUnavailable("The store cannot write at the moment.") from None


def _decided(future: "asyncio.Future[bool]", error: ParleyError | None) -> None:
    if future.done():
        return
    if error is None or isinstance(error, KeyTaken):
        future.set_result(error is None)
    else:
        future.set_exception(error)


def write_claims(connection: sqlite3.Connection, claims: list[Claiming]) -> list[tuple[Done, ParleyError | None]]:
    """Write claims within a transaction, one by one, since SQLite does not say which row of many it skipped."""
    return [
        (done, None if connection.execute(_CLAIM_ONE, (claim.nonce, claim.until)).rowcount else known())
        for claim, done in claims
    ]


async def in_batches(forget: Callable[[], Awaitable[int]]) -> int:
    """Delete batch after batch until one is not full; return the total number. Other writes can run between two
    batches."""
    gone = batch = await forget()
    while batch == FORGET_BATCH:
        batch = await forget()
        gone += batch
    return gone


def forget_some(connection: sqlite3.Connection, before: int) -> int:
    """Delete at most one batch, so that the writer does not wait long."""
    return connection.execute(_FORGET_SOME, (before, FORGET_BATCH)).rowcount


class PostgresNonces:
    """Nonces in PostgreSQL: one statement for all waiting claims, independent of the log's writer."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: list[Claiming] = []
        self._wake = asyncio.Event()
        self._closed = False
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def claim(self, nonce: str, until: int) -> bool:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        return await claiming(self._hand_in, nonce, until)

    async def forget_nonces(self, before: int) -> int:
        return await in_batches(lambda: self._forget_some(before))

    async def _forget_some(self, before: int) -> int:
        return len(await self._pool.fetch(_FORGET_SOME_THERE, before, FORGET_BATCH))

    async def close(self) -> None:
        """Decide everything that was handed in, then stop."""
        self._closed = True
        self._wake.set()
        await self._writer

    def _hand_in(self, claim: NonceClaim, done: Done) -> None:
        self._waiting.append((claim, done))
        self._wake.set()

    async def _write(self) -> None:
        while not (self._closed and not self._waiting):
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            for done, error in await self._settled(batch):
                done(error)

    async def _settled(self, batch: list[Claiming]) -> list[tuple[Done, ParleyError | None]]:
        try:
            rows = await self._pool.fetch(_CLAIM_ALL, *zip(*((one.nonce, one.until) for one, _ in batch), strict=True))
        except Exception as error:  # noqa: BLE001 - if the writer died silently, all callers would wait forever
            tell("claim.failed", error=error)
            reason = StoreUnavailable("The database refused the write; nothing was saved.")
            return [(done, reason) for _, done in batch]
        fresh = {row[0] for row in rows}
        return [(done, None if _took(fresh, claim.nonce) else known()) for claim, done in batch]


def _took(fresh: set[bytes], nonce: bytes) -> bool:
    """Return whether this claim gets the nonce: the first claim of a batch for a new nonce does."""
    if nonce not in fresh:
        return False
    fresh.remove(nonce)
    return True


def known() -> KeyTaken:
    return KeyTaken("The nonce was used before.")
