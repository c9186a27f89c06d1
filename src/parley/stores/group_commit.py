"""Group commit: all waiting appends are committed together; appends that arrive meanwhile wait for the next commit."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from parley.clock import Monotonic
from parley.errors import ParleyError, StoreUnavailable
from parley.ids import RunId
from parley.runs.store import Append, Done
from parley.telemetry import tell

MAX_BATCH = 512

Waiting = tuple[Append, Done]
Settled = tuple[Done, ParleyError | None]
Commit = Callable[[list[Append]], Awaitable[dict[RunId, ParleyError]]]
"""Writes a batch in which each run occurs once; returns the errors of the runs that could not be written."""


class Writer:
    def __init__(self, commit: Commit, most: int = MAX_BATCH, monotonic: Monotonic = time.monotonic) -> None:
        self._commit = commit
        self._most = most
        self._monotonic = monotonic
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()
        self._closed = False
        self._since: float | None = None
        """Start time of the running commit."""
        self._task = asyncio.get_running_loop().create_task(self._write())

    def take(self, append: Append, done: Done) -> None:
        self._waiting.append((append, done))
        self._wake.set()

    def stuck(self, patience_s: float) -> bool:
        """Return whether the writer has ended, or its commit takes longer than this."""
        return self._task.done() or (self._since is not None and self._monotonic() - self._since > patience_s)

    async def close(self) -> None:
        """Commit everything that was handed in, then stop."""
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
            self._since = self._monotonic()
            try:
                failed = await self._commit([append for append, _ in batch])
            except Exception as error:  # noqa: BLE001 - if the writer died silently, all callers would wait forever
                tell("append.failed", error=error)
                reason = StoreUnavailable("The database refused the write; nothing was saved.")
                failed = dict.fromkeys((append.run.id for append, _ in batch), reason)
            self._since = None
            answer([(done, failed.get(append.run.id)) for append, done in batch])


def answer(settled: list[Settled]) -> None:
    """Call all callbacks, even if one raises: the other callers would wait forever."""
    for done, error in settled:
        try:
            done(error)
        except Exception as broken:  # noqa: BLE001 - as above
            tell("append.unanswered", error=broken)


# Why: docs/decisions/stores.md#split-batches-by-a-setting-not-by-a-shard-map
def parted(waiting: list[Waiting], most: int) -> tuple[list[Waiting], list[Waiting]]:
    """Return a batch in which each run occurs once, and the rest for the next batch."""
    batch: dict[RunId, Waiting] = {}
    rest: list[Waiting] = []
    for one in waiting:
        run_id = one[0].run.id
        if run_id in batch or len(batch) == most:
            rest.append(one)
        else:
            batch[run_id] = one
    return list(batch.values()), rest
