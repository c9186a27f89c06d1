"""Event feed of nodes: replays events after any number, then follows live, on every replica."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager

from parley.errors import CursorBeyondEnd, ParleyError
from parley.nodes.rules import NodeEvent
from parley.nodes.store import EventQuery, NodeStore
from parley.runs.wakeups import Wakeups
from parley.telemetry import tell

BELL = "~nodes"
"""Name of the wakeup for node events, which also reaches other replicas. No agent can have this name."""
LOOK_S = 1.0
PAGE = 256
KEPT = 1024
MAX_PASSING = 256


class _Follower:
    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.passing: deque[NodeEvent] = deque(maxlen=MAX_PASSING)
        """Events that are not stored; a slow follower misses some."""


class NodeFeed:
    def __init__(self, store: NodeStore, bells: Wakeups, ring: Callable[[str], None]) -> None:
        self._store = store
        self._bells = bells
        self._ring = ring
        self._recent: deque[NodeEvent] = deque(maxlen=KEPT)
        self._head: int | None = None
        """The last event number that was read; None while there is no follower."""
        self._followers: dict[_Follower, None] = {}
        self._looking: asyncio.Task[None] | None = None

    def grown(self) -> None:
        """Wake followers on all replicas: an event was stored here."""
        self._ring(BELL)

    @property
    def followed(self) -> bool:
        return bool(self._followers)

    def say(self, event: NodeEvent) -> None:
        """Send an event that is not stored to the followers at this replica."""
        for follower in self._followers:
            follower.passing.append(event)
            follower.bell.set()

    async def head(self) -> int:
        newest = await self._store.events(EventQuery(newest=True, limit=1))
        return newest[0].seq if newest else 0

    async def follow(self, after: int | None, silence_s: float) -> AsyncGenerator[list[NodeEvent], None]:
        """Yield events after a number, or from now on; an empty list after `silence_s` seconds without events."""
        head = await self.head()
        if after is not None and after > head:
            raise CursorBeyondEnd("Last-Event-ID is after the last event.")
        return self._following(head if after is None else after, silence_s)

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _following(self, cursor: int, silence_s: float) -> AsyncGenerator[list[NodeEvent], None]:
        with self._joined(cursor) as follower:
            while True:
                follower.bell.clear()
                events = await self._since(cursor)
                if events:
                    cursor = events[-1].seq
                passing = [follower.passing.popleft() for _ in range(len(follower.passing))]
                if events or passing:
                    yield [*events, *passing]
                    continue
                try:
                    await asyncio.wait_for(follower.bell.wait(), silence_s)
                except TimeoutError:
                    yield []

    @contextmanager
    def _joined(self, cursor: int) -> Generator[_Follower, None, None]:
        follower = _Follower()
        self._followers[follower] = None
        if self._head is None:
            self._head = cursor
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        try:
            yield follower
        finally:
            del self._followers[follower]

    async def _since(self, cursor: int) -> list[NodeEvent]:
        recent = self._recent
        if recent and recent[0].seq <= cursor + 1:
            return [event for event in recent if event.seq > cursor][:PAGE]
        return await self._store.events(EventQuery(after=cursor, limit=PAGE))

    async def _look(self) -> None:
        """Read for all followers on each wakeup and once per second, so that a lost wakeup only causes a delay."""
        with self._bells.subscribed([BELL]) as bell:
            while True:
                try:
                    await asyncio.wait_for(bell.wait(), LOOK_S)
                except TimeoutError:
                    pass
                bell.clear()
                try:
                    await self._catch_up()
                except ParleyError as error:
                    tell("nodes.not_read", error=error)

    async def _catch_up(self) -> None:
        if not self._followers:
            self._head, self._recent = None, deque(maxlen=KEPT)
            return
        head = self._head or 0
        while events := await self._store.events(EventQuery(after=head, limit=PAGE)):
            self._recent.extend(events)
            self._head = head = events[-1].seq
            for follower in self._followers:
                follower.bell.set()
