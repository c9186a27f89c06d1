"""Log of actions that have no run of their own. Entries are written in batches, so that no caller waits for the
store."""

import asyncio
from contextlib import suppress

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.documents.rules import DocumentChange
from parley.documents.store import Library
from parley.errors import ParleyError, RunNotFound
from parley.ids import new_id
from parley.runs.rules.access import Principal, may_see
from parley.telemetry import tell

FLUSH_S = 0.5
BATCH = 1000
MOST = 20_000
"""Entries kept in memory while the store is slow or unreachable. Beyond this number the oldest are dropped."""


class ActionAttempt(Struct):
    """A request for an action, as far as it has been understood."""

    principal: Principal
    conversation: str
    started_at: int
    agent: str = ""
    mode: str = ""
    action: str = ""

    def choose(self, mode: str, action: str) -> None:
        self.mode, self.action = mode, action

    def address(self, agent: str) -> None:
        self.agent = agent


# Why: docs/decisions/faces.md#record-reads-and-refusals-without-a-run
class ActionLog:
    def __init__(self, library: Library, flush_s: float = FLUSH_S, most: int = MOST, clock: Clock = now_ms) -> None:
        self._library = library
        self._clock = clock
        self._flush_s = flush_s
        self._most = most
        self._waiting: dict[str, DocumentChange] = {}
        self._dropped = 0
        self._writing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    def record(self, attempt: ActionAttempt, code: str = "", message: str = "") -> DocumentChange:
        """Log that an action was done, or why it was refused."""
        operation = DocumentChange(
            new_id(),
            str(attempt.principal),
            attempt.conversation,
            attempt.agent,
            attempt.mode,
            attempt.action,
            code,
            message,
            attempt.started_at,
            self._clock(),
        )
        self.note(operation)
        return operation

    def note(self, operation: DocumentChange) -> None:
        """Queue an entry; it is stored within a second. Never waits and never fails."""
        self._waiting[operation.id] = operation
        if len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]
            self._dropped += 1
        if self._writing is None and not self._closed.is_set():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def find(self, id_: str) -> DocumentChange | None:
        """Return an entry by its id, from the queue or from the store."""
        return self._waiting.get(id_) or await self._library.operation(id_)

    async def visible(self, id_: str, principal: Principal) -> DocumentChange | None:
        """Return the action with this id, or None. Raise RunNotFound for actions of other users."""
        found = await self.find(id_)
        if found is not None and not may_see(principal, found.principal):
            raise RunNotFound("There is no such task.")
        return found

    async def close(self) -> None:
        """Write the queued entries, then stop."""
        self._closed.set()
        if self._writing is not None:
            await self._writing
        while self._waiting and await self._flush():
            pass

    async def _write(self) -> None:
        """Write batches while there are entries. The task ends when the queue is empty, so an idle server has no
        timer."""
        while self._waiting and not self._closed.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), self._flush_s)
            while await self._flush() and len(self._waiting) >= BATCH:
                pass
        self._writing = None

    async def _flush(self) -> bool:
        """Write one batch. Return whether it was stored; a batch that was not is retried with the next."""
        batch = [operation for operation, _ in zip(self._waiting.values(), range(BATCH), strict=False)]
        if not batch:
            return False
        try:
            await self._library.note(batch)
        except ParleyError as error:
            tell("ledger.failed", operations=len(batch), code=error.code)
            return False
        except Exception as error:  # noqa: BLE001 - a lost record must not stop the records that follow
            tell("ledger.broken", operations=len(batch), error=error)
            return False
        for operation in batch:
            self._waiting.pop(operation.id, None)
        if self._dropped:
            tell("ledger.dropped", operations=self._dropped)
            self._dropped = 0
        return True
