"""The reference: what every store must do, in the plainest way. Also the oracle of the contract suite."""

import asyncio
from bisect import bisect_right

from parley.core.events import GENESIS, Event
from parley.core.runs import Run
from parley.engine.ports import Append, Head, StoredKey
from parley.errors import KeyTaken, ParleyError, StoreUnavailable, VersionConflict
from parley.ids import RunId


class MemoryStore:
    def __init__(self) -> None:
        self._heads: dict[RunId, Head] = {}
        self._events: dict[RunId, list[Event]] = {}
        self._keys: dict[tuple[str, str], StoredKey] = {}
        self._closed = False

    def append(self, append: Append) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._append(append)
        except ParleyError as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def _append(self, append: Append) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        run, head = append.run, self._heads.get(append.run.id)
        if (head.run.version if head else 0) != append.expected:
            raise VersionConflict("The run has changed since it was read.")
        for key in append.keys:
            stored = self._keys.get((key.scope, key.name))
            if stored is not None and stored.at >= append.keys_expired_before:
                raise KeyTaken("The idempotency key was used before.")
        for key in append.keys:
            self._keys[key.scope, key.name] = StoredKey(run.id, run.version, key.digest, run.updated_at)
        floor, floor_hash = (head.floor, head.floor_hash) if head else (0, GENESIS)
        self._heads[run.id] = Head(run, append.hash, floor, floor_hash)
        self._events.setdefault(run.id, []).extend(append.events)

    async def head(self, run: RunId) -> Head | None:
        return self._heads.get(run)

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        events = self._events.get(run, [])
        start = bisect_right(events, after, key=lambda event: event.seq)
        return events[start : start + limit]

    async def find_key(self, scope: str, name: str) -> StoredKey | None:
        return self._keys.get((scope, name))

    async def unfinished(self) -> list[Run]:
        live = [head.run for head in self._heads.values() if not head.run.ended]
        return sorted(live, key=lambda run: (run.created_at, run.id))

    async def run_ids(self, after: str, limit: int) -> list[RunId]:
        return sorted(run for run in self._heads if run > after)[:limit]

    async def trim(self, run: RunId, floor: int) -> None:
        head, events = self._heads[run], self._events[run]
        gone = [event for event in events if event.seq <= floor]
        if gone:
            self._heads[run] = Head(head.run, head.hash, gone[-1].seq, gone[-1].hash)
            self._events[run] = events[len(gone) :]

    async def close(self) -> None:
        self._closed = True
