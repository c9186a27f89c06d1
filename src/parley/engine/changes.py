"""Changes of nodes that wait are committed together: a thousand nodes that come back at once are a few commits."""

import asyncio
from collections.abc import Callable, Sequence

from parley.core.nodes import NodeChange
from parley.engine.ports.nodes import NodeStore
from parley.errors import ParleyError, StoreUnavailable
from parley.telemetry import tell

MAX_BATCH = 500

Waiting = tuple[NodeChange, "asyncio.Future[bool]"]


class Changes:
    def __init__(self, store: NodeStore, grown: Callable[[], None]) -> None:
        self._store = store
        self._grown = grown
        self._waiting: list[Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def apply(self, change: NodeChange) -> bool:
        """Whether it was kept; False when somebody else was first. Durable when it returns."""
        return (await self.apply_all([change]))[0]

    async def apply_all(self, changes: Sequence[NodeChange]) -> list[bool]:
        loop = asyncio.get_running_loop()
        waiting: list[Waiting] = [(change, loop.create_future()) for change in changes]
        self._waiting += waiting
        if self._writer is None or self._writer.done():
            self._writer = loop.create_task(self._write())
        return [await future for _, future in waiting]

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            try:
                verdicts = await self._store.apply([change for change, _ in batch])
            except Exception as error:  # noqa: BLE001 - a writer that dies silently would hang everyone
                _fail(batch, error)
                continue
            for (_, future), kept in zip(batch, verdicts, strict=True):
                if not future.done():
                    future.set_result(kept)
            self._grown()


def _fail(batch: list[Waiting], error: Exception) -> None:
    if not isinstance(error, ParleyError):
        tell("nodes.not_kept", error=error)
    for _, future in batch:
        if not future.done():
            future.set_exception(StoreUnavailable("The store did not take the change; nothing of it was kept."))
