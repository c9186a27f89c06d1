"""Streams: follow a run from a cursor, first stored events, then new ones, without gaps or duplicates."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import NamedTuple

from parley.errors import CursorBeyondEnd, Invalid, InvalidCursor, ParleyError, RunNotFound, StaleCursor, Stopping
from parley.ids import RunId
from parley.runs.rules.events import Event, content_of
from parley.runs.rules.state import Run, evolve
from parley.runs.store import READ_BYTES, Readable
from parley.telemetry import tell

PAGE = 128
"""Number of stored events that a follower reads, and its caller renders, at a time."""
MAX_BUFFERED = 1024
PORTION_BYTES = 256 * 1024
"""Bytes of content that a follower returns at a time, unless a single event has more."""
MAX_BUFFERED_BYTES = 1 << 20
TICK_S = 0.1
"""Followers whose time is up within the same tick share a timer."""
READERS = 4
"""Number of followers in a process that read stored events at the same time; the others wait."""


class Follower:
    """One reader of one run. It may be slow: events that exceed its buffer are read again from the store."""

    __slots__ = (
        "_batches",
        "_buffered",
        "_bytes",
        "_head",
        "_streams",
        "_tick",
        "_until",
        "_waiter",
        "cursor",
        "run",
        "run_id",
    )

    def __init__(self, streams: "Streams", run_id: RunId, after: int) -> None:
        self.run_id = run_id
        self.cursor = after
        self.run: Run | None = None
        """The run at the cursor, if it is known: events that were committed here come with it. Followers share it."""
        self._streams = streams
        self._head = 0
        self._batches: list[Portion] = []
        self._buffered = 0
        self._bytes = 0
        self._waiter: asyncio.Future[bool] | None = None
        self._until: float | None = None
        self._tick: int | None = None
        """The tick at which the follower checks whether its time is up."""

    def offer(self, portion: "Portion") -> None:
        """Add events that were just committed. Called by the streams; never blocks."""
        self._head = max(self._head, portion.events[-1].seq)
        if self._buffered < MAX_BUFFERED and self._bytes < MAX_BUFFERED_BYTES:
            self._batches.append(portion)
            self._buffered += len(portion.events)
            self._bytes += portion.size
        self.wake()

    def start(self, run: Run) -> None:
        """Note the last known run, before the first events are read."""
        if run.version == self.cursor:
            self.run = run

    def reach(self, head: int) -> None:
        """Note that the log has at least this many events."""
        self._head = max(self._head, head)
        self.wake()

    async def next(self, timeout: float | None = None) -> list[Event]:
        """Return the next events, as soon as there are any; an empty list if none came within `timeout` seconds."""
        while True:
            if self._batches and (events := self._buffer_next()):
                break
            self.run = None
            if self.cursor < self._head:
                events = await self._read()
                break
            if self._streams.stopping:
                raise Stopping(
                    "This server is about to stop; connect again to continue.", retry_after=1, task=self.run_id
                )
            if not await self._waiting(timeout):
                return []
        self.cursor = events[-1].seq
        return events

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            for event in await self.next():
                yield event

    def close(self) -> None:
        self._plan(None)
        self._streams.leave(self)

    def __enter__(self) -> "Follower":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _buffer_next(self) -> list[Event]:
        while self._batches:
            portion = self._batches.pop(0)
            batch = portion.events
            self._buffered -= len(batch)
            self._bytes -= portion.size
            fresh = batch if batch[0].seq > self.cursor else [e for e in batch if e.seq > self.cursor]
            if fresh and fresh[0].seq == self.cursor + 1:
                self.run = portion.run
                return fresh
            if fresh:
                # An earlier event was not buffered: the store has all of them.
                self._clear()
        return []

    def _clear(self) -> None:
        self._batches.clear()
        self._buffered = self._bytes = 0

    async def _read(self) -> list[Event]:
        """Read the next stored events. Called only when the caller has processed the events before them."""
        async with self._streams.reading:
            events = await self._streams.store.read(self.run_id, self.cursor, PAGE)
        if not events or events[0].seq != self.cursor + 1:
            raise await self._streams.stale(self.run_id, self.cursor)
        first, *rest = portions(events)
        if rest:
            # Events that were offered meanwhile are in the store too.
            self._clear()
            for portion in rest:
                self.offer(portion)
        return first.events

    def _waiting(self, timeout: float | None) -> "asyncio.Future[bool]":
        """Wait: the result is True when events are offered, False when the time is up. A planned check is kept: one
        that comes too early is planned again, which happens less often than an event."""
        loop = asyncio.get_running_loop()
        if timeout is None:
            self._until = None
        else:
            self._until = loop.time() + timeout
            tick = tick_after(self._until)
            if self._tick is None or self._tick > tick:
                self._plan(tick)
        self._waiter = loop.create_future()
        return self._waiter

    def wake(self) -> None:
        """Make the follower check again for events or a stop."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)

    def check_time(self, now: float) -> None:
        """Check whether the time is up."""
        self._tick = None
        if self._waiter is None or self._waiter.done() or self._until is None:
            return
        if now < self._until:
            self._plan(tick_after(self._until))
        else:
            self._waiter.set_result(False)

    def _plan(self, tick: int | None) -> None:
        if self._tick is not None:
            self._streams.timers.remove(self, self._tick)
        self._tick = tick
        if tick is not None:
            self._streams.timers.add(self, tick)


def tick_after(at: float) -> int:
    """Return the number of the first tick after a time of the event loop."""
    return int(at / TICK_S) + 1


class _TimerWheel:
    """Timers of followers. Thousands wait at once, so those whose time is up in the same tenth of a second share
    one timer."""

    def __init__(self) -> None:
        self._planned: dict[int, dict[Follower, None]] = {}

    def add(self, follower: Follower, tick: int) -> None:
        planned = self._planned.get(tick)
        if planned is None:
            planned = self._planned[tick] = {}
            asyncio.get_running_loop().call_at(tick * TICK_S, self._fire, tick)
        planned[follower] = None

    def remove(self, follower: Follower, tick: int) -> None:
        planned = self._planned.get(tick)
        if planned is not None:
            planned.pop(follower, None)

    def _fire(self, tick: int) -> None:
        now = asyncio.get_running_loop().time()
        for follower in self._planned.pop(tick):
            follower.check_time(now)


class Portion(NamedTuple):
    """Events that are rendered and written together, the size of their content, and the run after them if it is
    known."""

    events: list[Event]
    size: int
    run: Run | None = None


def portions(events: list[Event], run: Run | None = None) -> list[Portion]:
    """Split events into portions of at most a page, with not much more content than PORTION_BYTES. `run` is the run
    after all of them."""
    made: list[Portion] = []
    begin = size = 0
    for index, event in enumerate(events):
        weight = _size(event)
        if index > begin and (size + weight > PORTION_BYTES or index - begin == PAGE):
            made.append(Portion(events[begin:index], size))
            begin, size = index, 0
        size += weight
    made.append(Portion(events[begin:] if begin else events, size, run))
    return made


def _size(event: Event) -> int:
    """Return the size of a rendered event in bytes: its own, and that of its blobs."""
    beside = sum(part.blob.size for part in content_of(event.payload) if part.blob is not None)
    return len(event.body or b"") + beside


class _Turns:
    """Admits a few readers at a time, first come, first served.

    A place becomes free in the next round of the event loop. Until then its reader renders the page that it has read,
    so the number of pages rendered in one round is bounded too, however many streams catch up.
    """

    def __init__(self, places: int) -> None:
        self._places = asyncio.Semaphore(places)

    async def __aenter__(self) -> None:
        await self._places.acquire()

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().call_soon(self._places.release)


class _Watch:
    """A followed run: its followers in this process, and the known length of its log."""

    __slots__ = ("fetching", "followers", "head", "run", "wanted")

    def __init__(self) -> None:
        self.followers: dict[Follower, None] = {}
        self.run: Run | None = None
        """The last run that was read for one of the followers."""
        self.head = 0
        self.wanted = 0
        self.fetching: asyncio.Task[None] | None = None

    def extend(self, head: int) -> None:
        """Note that the log has at least this many events. Followers that were not offered all of them read the rest
        themselves, because after this nothing fetches those events for them."""
        if head > self.head:
            self.head = head
            for follower in self.followers:
                follower.reach(head)


class Streams:
    """The followers of runs in this process."""

    def __init__(self, store: Readable, followed: Callable[[RunId], None] = lambda _: None) -> None:
        """`followed` is called with each run that gets its first follower in this process."""
        self.store = store
        self._begun = followed
        self._watches: dict[RunId, _Watch] = {}
        self.reading = _Turns(READERS)
        self.timers = _TimerWheel()
        self.stopping = False

    def stop(self) -> None:
        """Wake followers; those that have caught up raise Stopping."""
        self.stopping = True
        for watch in self._watches.values():
            for follower in watch.followers:
                follower.wake()

    @property
    def followed(self) -> list[RunId]:
        return list(self._watches)

    @property
    def followers(self) -> int:
        return sum(len(watch.followers) for watch in self._watches.values())

    def publish(self, run_id: RunId, events: list[Event], run: Run | None = None) -> None:
        """Offer committed events, from any replica, to the followers of their run. `run` is the run after them, if it
        is known."""
        watch = self._watches.get(run_id)
        if watch is not None:
            watch.head = max(watch.head, events[-1].seq)
            for portion in portions(events, run):
                for follower in watch.followers:
                    follower.offer(portion)

    def reach(self, run_id: RunId, version: int) -> None:
        """Handle growth of a run at another replica: read the new events once for all its followers."""
        watch = self._watches.get(run_id)
        if watch is not None and version > watch.head:
            watch.wanted = max(watch.wanted, version)
            if watch.fetching is None:
                watch.fetching = asyncio.get_running_loop().create_task(self._fetch(run_id, watch))

    def begin(self, run_id: RunId, after: int) -> Follower:
        """Follow a run whose current version is `after`, so that nothing needs to be replayed."""
        follower = Follower(self, run_id, after)
        watch = self._watches.get(run_id)
        if watch is None:
            watch = self._watches[run_id] = _Watch()
            self._begun(run_id)
        watch.extend(after)
        watch.followers[follower] = None
        return follower

    async def follow(self, run_id: RunId, after: int = 0) -> Follower:
        """Follow a run from a cursor: the seq of the last event already seen."""
        if after < 0:
            raise InvalidCursor("A cursor must be zero or the number of an event.", cursor=after)
        follower = self.begin(run_id, after)
        try:
            head = await self.store.head(run_id)
            if head is None:
                raise RunNotFound("Task not found.")
            if after > head.run.version:
                raise CursorBeyondEnd(
                    f"The log ends at {head.run.version}; there is no event {after}.",
                    cursor=after,
                    end=head.run.version,
                )
            if after < head.floor:
                raise _stale(after, head.floor)
        except BaseException:
            follower.close()
            raise
        follower.reach(head.run.version)
        watch = self._watches[run_id]
        watch.extend(head.run.version)
        if watch.run is None or watch.run.version < head.run.version:
            watch.run = head.run
        follower.start(watch.run)
        return follower

    async def stale(self, run_id: RunId, cursor: int) -> StaleCursor:
        head = await self.store.head(run_id)
        return _stale(cursor, head.floor if head else 0)

    def leave(self, follower: Follower) -> None:
        watch = self._watches.get(follower.run_id)
        if watch is not None:
            watch.followers.pop(follower, None)
            if not watch.followers:
                del self._watches[follower.run_id]

    async def _fetch(self, run_id: RunId, watch: _Watch) -> None:
        try:
            while watch.followers and watch.head < watch.wanted:
                async with self.reading:
                    events = await self.store.read(run_id, watch.head, PAGE)
                if not events:
                    break
                self.publish(run_id, events)
        except ParleyError as error:
            tell("stream.behind", run=run_id, code=error.code)
        finally:
            watch.fetching = None


def _stale(cursor: int, floor: int) -> StaleCursor:
    return StaleCursor(f"Events up to {floor} are no longer kept.", cursor=cursor, floor=floor)


async def pages(
    store: Readable, run_id: RunId, after: int = 0, types: Collection[str] | None = None
) -> AsyncGenerator[list[Event], None]:
    """Yield the events of a run that are still kept, after a cursor, in pages that the event loop can handle."""
    read = store.read if types is None else partial(_read_types, store, types)
    while page := await read(run_id, after, PAGE):
        yield page
        if len(page) < PAGE and sum(len(event.body or b"") for event in page) < READ_BYTES:
            break
        after = page[-1].seq
        # A store in memory never suspends, so let other tasks run.
        await asyncio.sleep(0)


def _read_types(
    store: Readable, types: Collection[str], run_id: RunId, after: int, limit: int
) -> Awaitable[list[Event]]:
    return store.read_types(run_id, types, after, limit)


async def read_all(store: Readable, run_id: RunId, after: int = 0) -> list[Event]:
    """Return all events of a run that are still kept, after a cursor."""
    return [event async for page in pages(store, run_id, after) for event in page]


async def entries_upto(store: Readable, run_id: RunId, at: int | None) -> list[Event]:
    """Return the log from its beginning up to an event, or up to its last one. Raise StaleCursor if a part of it was
    deleted."""
    head = await store.head(run_id)
    if head is None:
        raise RunNotFound("Task not found.")
    upto = head.run.version if at is None else at
    if upto < 1:
        raise Invalid("The event to fork at must be 1 or more.", field="at")
    if upto > head.run.version:
        raise CursorBeyondEnd(f"The task has {head.run.version} events; there is no event {upto}.", field="at")
    entries: list[Event] = []
    async for page in pages(store, run_id):
        entries += [entry for entry in page if entry.seq <= upto]
        if page[-1].seq >= upto:
            break
    if len(entries) < upto or any(entry.payload is None for entry in entries):
        raise StaleCursor(
            "The log of this task is no longer kept from its beginning, so it cannot be forked.", floor=head.floor
        )
    return entries


async def outgrown(streams: Streams, run: Run, generation: int, limit_s: float | None) -> Run:
    """Wait until a run has a higher generation than this one, for at most `limit_s` seconds if given. Return the run as
    it is then. A run that has ended gets no further generation, so there is nothing to wait for."""
    now = asyncio.get_running_loop().time
    until = None if limit_s is None else now() + limit_s
    if run.generation > generation or run.ended:
        return run
    with await streams.follow(run.id, run.version) as follower, suppress(Stopping, StaleCursor):
        while run.generation <= generation and not run.ended:
            if not (events := await follower.next(None if until is None else max(0.0, until - now()))):
                break
            for event in events:
                if event.payload is not None:
                    run = evolve(run, run.id, event.seq, event.at, event.payload)
    return run
