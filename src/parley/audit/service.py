"""Audit log of a server: collects acts, writes them in batches, and reads, verifies, erases and trims them."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from parley.audit.rules import (
    Anchor,
    AuditAct,
    AuditAction,
    AuditEntry,
    AuditQuery,
    AuditResult,
    check,
    is_erased,
    shortened,
)
from parley.clock import Clock, now_ms
from parley.errors import ParleyError, StoreUnavailable
from parley.telemetry import tell

MAX_WAITING = 10_000
"""Acts that wait to be written. More are counted, and one entry tells their number."""
MAX_BATCH = 200
REPEAT_S = 60.0
"""Time for which equal refusals are counted into one entry after the first."""
MAX_REPEATED = 1000
"""Different refusals that are counted at the same time. Others share one entry without actor and address."""
RETRY_S = 1.0
DAY_MS = 24 * 3600 * 1000
PAGE = 500


class AuditStore(Protocol):
    """Store of the audit log. `parley.testing.records` has the tests for it."""

    async def append(self, acts: Sequence[AuditAct]) -> None:
        """Append entries in one transaction. Processes that append at the same moment take turns, so that there is one
        chain."""
        ...

    async def read(self, query: AuditQuery) -> list[AuditEntry]: ...

    async def floor(self) -> Anchor:
        """Return the last entry that retention has deleted: the chain starts after it."""
        ...

    async def erase(self, principal: str) -> int:
        """Delete a principal from all entries, with its addresses. Return the number of changed entries."""
        ...

    async def trim(self, before: int, limit: int = 1000) -> int:
        """Delete at most `limit` of the oldest entries that were made before a time. Return the number of deleted
        entries."""
        ...

    async def close(self) -> None: ...


class AuditSummary(Struct, frozen=True):
    """Outcome of a verification."""

    checked: int
    erased: int
    """Entries without a person that they once had."""
    floor: Anchor
    head: Anchor


class _Waiting(Struct, frozen=True):
    act: AuditAct
    done: "asyncio.Future[None] | None" = None


class _Repeated(Struct, frozen=True):
    act: AuditAct
    count: int = 0


class AuditLog:
    """Acts are written in the order in which they are noted. `note` never waits and never raises; `record` returns when
    the act is stored."""

    def __init__(
        self, store: AuditStore, clock: Clock = now_ms, *, keep_ms: int | None = None, repeat_s: float = REPEAT_S
    ) -> None:
        self.store = store
        self._clock = clock
        self._keep_ms = keep_ms
        self._repeat_s = repeat_s
        self._waiting: deque[_Waiting] = deque()
        self._dropped = 0
        self._repeated: dict[tuple[str, ...], _Repeated] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False

    def act(
        self,
        action: AuditAction,
        actor: str = "",
        *,
        address: str = "",
        result: AuditResult = "done",
        code: str = "",
        kind: str = "",
        target: str = "",
        count: int = 1,
        person: str = "",
    ) -> AuditAct:
        """Return an act of now."""
        texts = code, kind, shortened(target), count, shortened(actor), shortened(address), shortened(person)
        return AuditAct(action, self._clock(), result, *texts)

    def note(self, act: AuditAct) -> None:
        """Queue an act. It is lost if the process dies before the next batch is written."""
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._enqueue(_Waiting(act))

    async def record(self, act: AuditAct) -> None:
        """Write an act, together with all acts that wait. Raise StoreUnavailable if it cannot be written."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(_Waiting(act, done))
        await done

    def refused(self, act: AuditAct) -> None:
        """Note a refusal. Further equal ones in the next minute are counted, and make one more entry."""
        key = act.actor, act.address, act.code, act.kind, act.target
        known = self._repeated.get(key)
        if known is None and len(self._repeated) >= MAX_REPEATED:
            key = ("", "", act.code, "", "")
            act = replace(act, actor="", address="", kind="", target="")
            known = self._repeated.get(key)
        if known is not None:
            self._repeated[key] = _Repeated(act, known.count + 1)
            return
        self._repeated[key] = _Repeated(act)
        self.note(act)
        timer: asyncio.TimerHandle

        def end() -> None:
            self._timers.discard(timer)
            self._end_repeat(key)

        timer = asyncio.get_running_loop().call_later(self._repeat_s, end)
        self._timers.add(timer)

    def _end_repeat(self, key: tuple[str, ...]) -> None:
        found = self._repeated.pop(key, None)
        if found is not None and found.count:
            self.note(replace(found.act, count=found.count))

    def _enqueue(self, waiting: _Waiting) -> None:
        if self._closing:
            if waiting.done is not None:
                waiting.done.set_exception(StoreUnavailable("The audit log is closed."))
            return
        self._waiting.append(waiting)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Write batches until nothing waits. Acts are kept while the store cannot be written."""
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                if not await self._written(batch):
                    await asyncio.sleep(RETRY_S)
        finally:
            self._writer = None

    async def _written(self, batch: list[_Waiting]) -> bool:
        acts, dropped = [one.act for one in batch], self._dropped
        if dropped:
            acts.append(self.act("audit.dropped", count=dropped))
        try:
            await self.store.append(acts)
        except ParleyError as error:
            tell("audit.not_written", code=error.code, count=len(batch))
            # Callers that wait get the error; the other acts are tried again.
            for one in batch:
                if one.done is not None and not one.done.done():
                    one.done.set_exception(error)
            self._waiting.extendleft(one for one in reversed(batch) if one.done is None)
            return False
        self._dropped -= dropped
        for one in batch:
            if one.done is not None and not one.done.done():
                one.done.set_result(None)
        return True

    async def read(self, query: AuditQuery) -> list[AuditEntry]:
        return await self.store.read(query)

    async def entries(self, query: AuditQuery) -> AsyncGenerator[AuditEntry, None]:
        """Yield all entries that match, the oldest first."""
        query = replace(query, oldest=True, limit=PAGE)
        while page := await self.store.read(query):
            for entry in page:
                yield entry
            query = replace(query, after=page[-1].seq)

    async def verify(self) -> AuditSummary:
        """Check the chain from the floor to the end. Raise BrokenChain at the first wrong entry."""
        floor = head = await self.store.floor()
        erased = 0
        while page := await self.store.read(AuditQuery(oldest=True, after=head.seq, limit=PAGE)):
            head = check(head, page)
            erased += sum(map(is_erased, page))
        return AuditSummary(head.seq - floor.seq, erased, floor, head)

    async def erase(self, principal: str) -> int:
        """Delete a principal from all entries. Acts that wait are written first."""
        await self.flush()
        return await self.store.erase(principal)

    async def trim(self) -> int:
        """Delete entries that are older than the retention period."""
        if self._keep_ms is None:
            return 0
        before, count = self._clock() - self._keep_ms, 0
        while found := await self.store.trim(before):
            count += found
        if count:
            await self.record(self.act("audit.trimmed", count=count))
        return count

    async def flush(self) -> None:
        """Wait until everything that was noted so far is written, or could not be written."""
        while self._writer is not None:
            await asyncio.shield(self._writer)

    async def close(self) -> None:
        """Write what waits, and close the store."""
        for timer in self._timers:
            timer.cancel()
        for key in list(self._repeated):
            self._end_repeat(key)
        self._closing = True
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self.flush()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        await self.store.close()


# The request in whose course something is done: services note acts without knowing the wire.

Client = Sequence[Any] | None
"""Address and port at the other end of a connection, as ASGI names them."""
COMMAND: Client = ("command line", 0)
"""The client of what a command does to the database itself."""

_current: ContextVar[tuple[AuditLog, Client, object] | None] = ContextVar("parley_audit", default=None)


def enter(log: AuditLog, client: Client = None, principal: object = None) -> None:
    """Record the acts of this task from now on in a log. It is not reset, because each request is a task of its own.
    Keeps nothing else of the request: tasks that it starts may live long."""
    _current.set((log, client, principal))


def note(action: AuditAction, actor: object, kind: str = "", target: str = "", **given: Any) -> None:
    """Note an act of the current request, without waiting. Acts outside of a request are not noted."""
    found = _act(action, actor, kind, target, given)
    if found is not None:
        found[0].note(found[1])


async def record(action: AuditAction, kind: str = "", target: str = "", *, actor: object = None, **given: Any) -> None:
    """Record an act of the current request, and wait until it is stored. The actor is its caller, unless given."""
    found = _act(action, actor, kind, target, given)
    if found is not None:
        await found[0].record(found[1])


def _act(
    action: AuditAction, actor: object, kind: str, target: str, given: dict[str, Any]
) -> tuple[AuditLog, AuditAct] | None:
    current = _current.get()
    if current is None:
        return None
    log, client, principal = current
    name = principal if actor is None else actor
    return log, log.act(
        action, "" if name is None else str(name), kind=kind, target=target, address=address_of(client), **given
    )


def address_of(client: Client) -> str:
    return str(client[0]) if client else ""
