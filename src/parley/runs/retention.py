"""Retention: deletes the events of runs that ended long ago. Their visible state and their last hash are kept."""

import asyncio
import time
from collections.abc import Iterable

from parley.clock import Clock, Monotonic, now_ms
from parley.errors import ParleyError
from parley.ids import RunId
from parley.runs.listeners import ForgetListener
from parley.runs.log import KEY_LIFE_MS
from parley.runs.rules.events import Event
from parley.runs.rules.state import Run
from parley.runs.rules.transcript import Transcript, TranscriptMessage
from parley.runs.rules.view import View, snapshot_messages
from parley.runs.store import Head, LogStore, Trim
from parley.runs.streams import PAGE
from parley.telemetry import tell

BATCH = 50
LONG = 1000
"""Number of events above which a run is trimmed alone, not together with others."""
NONCE_GRACE_MS = 60_000
"""Maximum clock difference between two replicas: a nonce that has expired for one may still be valid for another."""
LONGEST_PAUSE_S = 1.0


class _Fold:
    """The visible state of a run, folded page by page in a thread, because a log may be long."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._view = View()
        self._talk: list[TranscriptMessage] = []
        self._transcript = Transcript()

    def feed(self, events: list[Event], upto: int) -> bytes | None:
        """Add events. Return the snapshot when event `upto` is reached."""
        if self._head.snapshot and events[0].seq == self._head.floor + 1:
            self._view, self._talk = View.restored(self._head.snapshot), list(snapshot_messages(self._head.snapshot))
        self._view.feed(events)
        for event in events:
            self._talk += self._transcript.feed(event)
        return self._view.snapshot(self._talk) if events[-1].seq == upto else None


class Retention:
    def __init__(
        self,
        store: LogStore,
        keep_ms: int | None,
        clock: Clock = now_ms,
        forget: Iterable[ForgetListener] = (),
        monotonic: Monotonic = time.monotonic,
    ) -> None:
        self._store = store
        self._keep_ms = keep_ms
        self._clock = clock
        self._forget = forget
        self._monotonic = monotonic

    async def tick(self) -> None:
        """Do one round: trim batch after batch until no run is old enough; pauses keep it to half of the time."""
        await self._store.forget_keys(self._clock() - KEY_LIFE_MS)
        await self._store.forget_nonces(self._clock() - NONCE_GRACE_MS)
        await self._store.forget_spent(self._clock())
        if self._keep_ms is None:
            return
        before = self._clock() - self._keep_ms
        tried, skipped = 0, set[RunId]()
        try:
            while True:
                began = self._monotonic()
                operations = await self._store.library.forget_operations(before)
                found = await self._store.expired(before, BATCH + len(skipped))
                runs = [run for run in found if run.id not in skipped]
                await self._trim(runs, skipped)
                tried += len(runs)
                if not operations and len(runs) < BATCH:
                    break
                await asyncio.sleep(min(self._monotonic() - began, LONGEST_PAUSE_S))
        finally:
            if tried > len(skipped):
                tell("retention.trimmed", runs=tried - len(skipped))

    async def _trim(self, runs: list[Run], skipped: set[RunId]) -> None:
        """Trim a batch of runs. A run whose log is damaged must not prevent the others from being trimmed."""
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
        """Return the steps to trim a run: one, or two for a long run. Events are deleted in pieces; the first step
        keeps the last event, so that after a crash the next round finds the run and its remaining pieces again."""
        head = await self._store.head(run)
        if head is None:
            return []
        for forget in self._forget:
            await forget(run)
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
        """Erase a run that has ended, at its owner's request: nothing of it is visible afterwards. The runs of an
        orchestration's steps are erased with it, in whichever conversation they are."""
        head = await self._store.head(run)
        for child in head.run.children if head is not None and head.run.orchestration is not None else ():
            step = await self._store.head(child)
            if step is not None and step.run.ended:
                await self.erase(child)
        for forget in self._forget:
            await forget(run)
        await self._store.erase(run)
