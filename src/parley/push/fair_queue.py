"""Bounded concurrent work, shared fairly: every lane gets its turn, and no lane can use all slots."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class FairQueue(Generic[Key]):
    """Calls `work(key)` for each key that is put: one call at a time per key, and one more if it was put meanwhile.

    `work` returns whether there is more to do. If so, it is called again after all others in its lane had their turn.
    """

    def __init__(self, work: Callable[[Key], Awaitable[bool]], most: int, per_lane: int) -> None:
        self._work = work
        self._most = most
        self._per_lane = per_lane
        self._waiting: dict[str, dict[Key, None]] = {}
        self._lane_of: dict[Key, str] = {}
        self._running: dict[Key, asyncio.Task[bool]] = {}
        self._busy: Counter[str] = Counter()
        self._again: set[Key] = set()

    def __len__(self) -> int:
        return len(self._lane_of)

    def __contains__(self, key: Key) -> bool:
        return key in self._lane_of

    @property
    def running(self) -> int:
        return len(self._running)

    def put(self, lane: str, key: Key) -> None:
        if key in self._running:
            self._again.add(key)
        elif key not in self._lane_of:
            self._lane_of[key] = lane
            self._waiting.setdefault(lane, {})[key] = None
            self._pump()

    async def drop(self, key: Key) -> None:
        """Stop working on a key, and cancel the work in progress."""
        self._again.discard(key)
        lane = self._lane_of.get(key)
        if lane is not None and key not in self._running:
            self._take(lane, key)
            del self._lane_of[key]
        task = self._running.get(key)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def clear(self) -> None:
        for key in list(self._lane_of):
            if key not in self._running:
                await self.drop(key)
        await asyncio.gather(*(self.drop(key) for key in list(self._running)))

    def _pump(self) -> None:
        while len(self._running) < self._most:
            lane = next((lane for lane in self._waiting if self._busy[lane] < self._per_lane), None)
            if lane is None:
                return
            key = next(iter(self._waiting[lane]))
            self._take(lane, key)
            if lane in self._waiting:
                self._waiting[lane] = self._waiting.pop(lane)
            self._busy[lane] += 1
            task = self._running[key] = asyncio.ensure_future(self._work(key))
            task.add_done_callback(lambda done, lane=lane, key=key: self._finished(lane, key, done))

    def _take(self, lane: str, key: Key) -> None:
        del self._waiting[lane][key]
        if not self._waiting[lane]:
            del self._waiting[lane]

    def _finished(self, lane: str, key: Key, done: "asyncio.Future[bool]") -> None:
        del self._running[key], self._lane_of[key]
        self._busy[lane] -= 1
        if not self._busy[lane]:
            del self._busy[lane]
        more = not done.cancelled() and done.exception() is None and done.result()
        if key in self._again or more:
            self._again.discard(key)
            self.put(lane, key)
        self._pump()
