"""Writes down what was asked without a run of its own, in batches: nobody waits for it."""

import asyncio
from contextlib import suppress

from parley.core.documents import Operation
from parley.engine.ports import Library
from parley.errors import ParleyError
from parley.telemetry import tell

FLUSH_S = 0.5
BATCH = 1000
MOST = 20_000
"""Held in memory while the store is slow or away; beyond that the oldest are given up."""


class Ledger:
    def __init__(self, library: Library, flush_s: float = FLUSH_S, most: int = MOST) -> None:
        self._library = library
        self._flush_s = flush_s
        self._most = most
        self._waiting: dict[str, Operation] = {}
        self._dropped = 0
        self._writing: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    def note(self, operation: Operation) -> None:
        """Take it; within a second it is kept. Never waits and never fails."""
        self._waiting[operation.id] = operation
        if len(self._waiting) > self._most:
            del self._waiting[next(iter(self._waiting))]
            self._dropped += 1
        if self._writing is None and not self._closed.is_set():
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def find(self, id_: str) -> Operation | None:
        """What was noted, here a moment ago or long since."""
        return self._waiting.get(id_) or await self._library.operation(id_)

    async def close(self) -> None:
        """What waits is written first."""
        self._closed.set()
        if self._writing is not None:
            await self._writing
        while self._waiting and await self._flush():
            pass

    async def _write(self) -> None:
        """Lives while there is something to write: a server that nobody asks has no timer."""
        while self._waiting and not self._closed.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closed.wait(), self._flush_s)
            while await self._flush() and len(self._waiting) >= BATCH:
                pass
        self._writing = None

    async def _flush(self) -> bool:
        """One batch; whether it was kept. What was not is tried again with the next."""
        batch = [operation for operation, _ in zip(self._waiting.values(), range(BATCH), strict=False)]
        if not batch:
            return False
        try:
            await self._library.note(batch)
        except ParleyError as error:
            tell("ledger.failed", operations=len(batch), code=error.code)
            return False
        except Exception as error:  # noqa: BLE001 - a record that is lost must not end those that follow
            tell("ledger.broken", operations=len(batch), error=error)
            return False
        for operation in batch:
            self._waiting.pop(operation.id, None)
        if self._dropped:
            tell("ledger.dropped", operations=self._dropped)
            self._dropped = 0
        return True
