"""Forget what is old: the events of runs that ended long ago. What could be seen of them is kept, and the chain."""

from collections.abc import Awaitable, Callable

from parley.clock import Clock, now_ms
from parley.core.transcripts import transcript_of
from parley.core.views import View, talk_in
from parley.engine.commands import KEY_LIFE_MS
from parley.engine.ports import Head, LogStore
from parley.engine.streams import read_all
from parley.ids import RunId
from parley.telemetry import tell

BATCH = 200
MAX_BATCHES = 100
NONCE_GRACE_MS = 60_000
"""How far the clocks of two replicas may differ: what has expired for one of them may be believed by another."""


class Retention:
    def __init__(self, store: LogStore, keep_ms: int | None, clock: Clock = now_ms) -> None:
        self._store = store
        self._keep_ms = keep_ms
        self._clock = clock
        self.forget_too: Callable[[RunId], Awaitable[None]] | None = None
        """Called before a run's events are forgotten, for what is kept beside the log as long as they are."""

    async def tick(self) -> None:
        """One round: at most a batch, so that a long past is forgotten bit by bit."""
        await self._store.forget_keys(self._clock() - KEY_LIFE_MS)
        await self._store.forget_nonces(self._clock() - NONCE_GRACE_MS)
        if self._keep_ms is None:
            return
        before = self._clock() - self._keep_ms
        await self._forget_operations(before)
        runs = await self._store.expired(before, BATCH)
        for run in runs:
            head = await self._store.head(run.id)
            if head is None:
                continue
            if self.forget_too is not None:
                await self.forget_too(run.id)
            await self._store.trim(run.id, head.run.version, await self._snapshot(head))
        if runs:
            tell("retention.trimmed", runs=len(runs))

    async def _forget_operations(self, before: int) -> None:
        """There may be many more reads than runs: batch after batch, as long as there are any, but not for ever."""
        for _ in range(MAX_BATCHES):
            if not await self._store.library.forget_operations(before):
                return

    async def erase(self, run: RunId) -> None:
        """Forget a run that has ended at its owner's wish: nothing of it can be seen afterwards. The runs of an
        orchestration's steps are part of it, wherever they are."""
        head = await self._store.head(run)
        for child in head.run.children if head is not None and head.run.orchestration is not None else ():
            step = await self._store.head(child)
            if step is not None and step.run.ended:
                await self.erase(child)
        if self.forget_too is not None:
            await self.forget_too(run)
        await self._store.erase(run)

    async def _snapshot(self, head: Head) -> bytes:
        events = await read_all(self._store, head.run.id, head.floor)
        view = View.restored(head.snapshot) if head.snapshot else View()
        view.feed(events)
        return view.snapshot([*(talk_in(head.snapshot) if head.snapshot else ()), *transcript_of(events)])
