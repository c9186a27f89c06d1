"""Group commit: everything that waits is committed together, and what comes meanwhile waits for the next time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from parley.engine.ports import Append, Done
from parley.errors import ParleyError, StoreUnavailable
from parley.ids import RunId
from parley.telemetry import tell

MAX_BATCH = 512

Waiting = tuple[Append, Done]
Settled = tuple[Done, ParleyError | None]
Commit = Callable[[list[Append]], Awaitable[dict[RunId, ParleyError]]]
"""Writes a batch in which each run occurs once; what could not be written, and why."""


class Writer:
    def __init__(self, commit: Commit, most: int = MAX_BATCH) -> None:
        self._commit = commit
        self._most = most
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()
        self._closed = False
        self._since: float | None = None
        """When the commit that is under way began."""
        self._task = asyncio.get_running_loop().create_task(self._write())

    def take(self, append: Append, done: Done) -> None:
        self._waiting.append((append, done))
        self._wake.set()

    def stuck(self, patience_s: float) -> bool:
        """Whether it has ended, or its commit takes longer than this."""
        return self._task.done() or (self._since is not None and time.monotonic() - self._since > patience_s)

    async def close(self) -> None:
        """Everything that was handed in is committed first."""
        self._closed = True
        self._wake.set()
        await self._task

    async def _write(self) -> None:
        while not (self._closed and not self._waiting):
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch, self._waiting = parted(self._waiting, self._most)
            self._since = time.monotonic()
            try:
                failed = await self._commit([append for append, _ in batch])
            except Exception as error:  # noqa: BLE001 - a writer that dies silently would hang everyone
                tell("append.failed", error=error)
                reason = StoreUnavailable("The database refused the write; nothing of it was kept.")
                failed = dict.fromkeys((append.run.id for append, _ in batch), reason)
            self._since = None
            answer([(done, failed.get(append.run.id)) for append, done in batch])


def answer(settled: list[Settled]) -> None:
    """Call everyone back, also when one of them raises: the others would wait for ever."""
    for done, error in settled:
        try:
            done(error)
        except Exception as broken:  # noqa: BLE001 - as above
            tell("append.unanswered", error=broken)


def parted(waiting: list[Waiting], most: int) -> tuple[list[Waiting], list[Waiting]]:
    """A batch in which each run occurs once, and what has to wait for the next."""
    batch: dict[RunId, Waiting] = {}
    rest: list[Waiting] = []
    for one in waiting:
        run_id = one[0].run.id
        if run_id in batch or len(batch) == most:
            rest.append(one)
        else:
            batch[run_id] = one
    return list(batch.values()), rest
