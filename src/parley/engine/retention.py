"""Forget what is old: the events of runs that ended long ago. What could be seen of them is kept, and the chain."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from parley.clock import Clock, now_ms
from parley.core.events import Event
from parley.core.runs import Run
from parley.core.transcripts import Said, Transcript
from parley.core.views import View, talk_in
from parley.engine.commands import KEY_LIFE_MS
from parley.engine.ports import Head, LogStore, Trim
from parley.engine.streams import PAGE
from parley.errors import ParleyError
from parley.ids import RunId
from parley.telemetry import tell

BATCH = 50
LONG = 1000
"""Events of a run that is not trimmed together with others."""
NONCE_GRACE_MS = 60_000
"""How far the clocks of two replicas may differ: what has expired for one of them may be believed by another."""
LONGEST_PAUSE_S = 1.0


class _Fold:
    """What can be seen of a run, folded page by page in a thread: a log may be long."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._view = View()
        self._talk: list[Said] = []
        self._transcript = Transcript()

    def feed(self, events: list[Event], upto: int) -> bytes | None:
        """The snapshot, if the events go up to this one."""
        if self._head.snapshot and events[0].seq == self._head.floor + 1:
            self._view, self._talk = View.restored(self._head.snapshot), list(talk_in(self._head.snapshot))
        self._view.feed(events)
        for event in events:
            self._talk += self._transcript.feed(event)
        return self._view.snapshot(self._talk) if events[-1].seq == upto else None


class Retention:
    def __init__(self, store: LogStore, keep_ms: int | None, clock: Clock = now_ms) -> None:
        self._store = store
        self._keep_ms = keep_ms
        self._clock = clock
        self.forget_too: Callable[[RunId], Awaitable[None]] | None = None
        """Called before a run's events are forgotten, for what is kept beside the log as long as they are."""

    async def tick(self) -> None:
        """One round: batch after batch until nothing is left that is old enough, at most half of the time."""
        await self._store.forget_keys(self._clock() - KEY_LIFE_MS)
        await self._store.forget_nonces(self._clock() - NONCE_GRACE_MS)
        if self._keep_ms is None:
            return
        before = self._clock() - self._keep_ms
        tried, skipped = 0, set[RunId]()
        try:
            while True:
                began = time.monotonic()
                operations = await self._store.library.forget_operations(before)
                found = await self._store.expired(before, BATCH + len(skipped))
                runs = [run for run in found if run.id not in skipped]
                await self._trim(runs, skipped)
                tried += len(runs)
                if not operations and len(runs) < BATCH:
                    break
                await asyncio.sleep(min(time.monotonic() - began, LONGEST_PAUSE_S))
        finally:
            if tried > len(skipped):
                tell("retention.trimmed", runs=tried - len(skipped))

    async def _trim(self, runs: list[Run], skipped: set[RunId]) -> None:
        """Trim a batch of runs. One whose log is damaged must not keep all others from being forgotten."""
        trims: list[Trim] = []
        for run in runs:
            try:
                of_run = await self._trims(run.id)
            except ParleyError:
                raise
            except Exception as error:  # noqa: BLE001 - a damaged log may raise anything
                skipped.add(run.id)
                tell("retention.failed", run=run.id, agent=run.agent, error=error)
                continue
            if len(of_run) > 1:
                await self._store.trim_all(of_run)
            else:
                trims += of_run
        await self._store.trim_all(trims)

    async def _trims(self, run: RunId) -> list[Trim]:
        """How to trim a run; a long one in two steps. Its events are deleted piece by piece, and a process that ends in
        between leaves the last one: so the next round finds the run again, and the pieces that are left."""
        head = await self._store.head(run)
        if head is None:
            return []
        if self.forget_too is not None:
            await self.forget_too(run)
        fold, seq, version = _Fold(head), head.floor, head.run.version
        trims = [Trim(run, head.floor, head.snapshot)] if head.floor else []
        last = version - 1 if version - head.floor > LONG else version
        for upto in sorted({last, version}):
            while seq < upto:
                events = await self._store.read(run, seq, min(PAGE, upto - seq))
                if not events:
                    raise LookupError(f"Events after {seq} are missing.")
                seq = events[-1].seq
                snapshot = await asyncio.to_thread(fold.feed, events, upto)
                trims += [Trim(run, upto, snapshot)] if snapshot is not None else ()
        return trims

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
