"""What happens to nodes, for those who follow it: replayed from any number, then live, from whichever replica."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager

from parley.core.nodes import NodeEvent
from parley.engine.bells import Bells
from parley.engine.ports.nodes import EventQuery, NodeStore
from parley.errors import CursorBeyondEnd, ParleyError
from parley.telemetry import tell

BELL = "~nodes"
"""Rung where agents' work is offered, under a name that no agent can have: it reaches the other replicas too."""
LOOK_S = 1.0
PAGE = 256
KEPT = 1024
MAX_PASSING = 256


class _Follower:
    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.passing: deque[NodeEvent] = deque(maxlen=MAX_PASSING)
        """Events that are not stored; one who is too slow for them misses some."""


class NodeFeed:
    def __init__(self, store: NodeStore, bells: Bells, ring: Callable[[str], None]) -> None:
        self._store = store
        self._bells = bells
        self._ring = ring
        self._recent: deque[NodeEvent] = deque(maxlen=KEPT)
        self._head: int | None = None
        """The last number that was looked for; None while nobody follows."""
        self._followers: set[_Follower] = set()
        self._looking: asyncio.Task[None] | None = None

    def grown(self) -> None:
        """Something was stored here."""
        self._ring(BELL)

    @property
    def followed(self) -> bool:
        return bool(self._followers)

    def say(self, event: NodeEvent) -> None:
        """Tell those who follow at this replica of something that is not stored."""
        for follower in self._followers:
            follower.passing.append(event)
            follower.bell.set()

    async def head(self) -> int:
        newest = await self._store.events(EventQuery(newest=True, limit=1))
        return newest[0].seq if newest else 0

    async def follow(self, after: int | None, silence_s: float) -> AsyncGenerator[list[NodeEvent], None]:
        """From after a number, or from now; an empty list after so many seconds of silence."""
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
        self._followers.add(follower)
        if self._head is None:
            self._head = cursor
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    async def _since(self, cursor: int) -> list[NodeEvent]:
        recent = self._recent
        if recent and recent[0].seq <= cursor + 1:
            return [event for event in recent if event.seq > cursor][:PAGE]
        return await self._store.events(EventQuery(after=cursor, limit=PAGE))

    async def _look(self) -> None:
        """One read for all followers when the bell rings, and one a second: a lost ring only delays."""
        with self._bells.hung([BELL]) as bell:
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
