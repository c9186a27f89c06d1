"""Reference store in memory: the simplest correct behaviour, which the contract suite compares with."""

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from parley.budgets.rules import NOTHING, TREE, CounterPlace, Spend, Spent
from parley.errors import KeyTaken, ParleyError, StoreUnavailable, VersionConflict
from parley.execution.turn_order import AgentQueue, QueueHead, Served
from parley.ids import RunId
from parley.runs.rules.events import Event
from parley.runs.rules.state import Run, State, erased
from parley.runs.store import LASTING, READ_BYTES, Append, Done, Head, Listing, StoredKey, Trim
from parley.stores.documents import MemoryLibrary
from parley.stores.queries import forgotten_before
from parley.stores.search import query_words, row_words


class MemoryStore:
    def __init__(self) -> None:
        self._heads: dict[RunId, Head] = {}
        self._events: dict[RunId, list[Event]] = {}
        self._keys: dict[tuple[str, str], StoredKey] = {}
        self._nonces: dict[str, int] = {}
        self.library = MemoryLibrary()
        self.ledger = MemoryLedger()
        self._closed = False

    def append(self, append: Append, done: Done) -> None:
        error: ParleyError | None = None
        try:
            self._append(append)
        except ParleyError as refused:
            error = refused
        asyncio.get_running_loop().call_soon(done, error)

    def _append(self, append: Append) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        run, head = append.run, self._heads.get(append.run.id)
        if (head.run.version if head else 0) != append.expected:
            raise VersionConflict("The run has changed since it was read.")
        for key in append.keys:
            stored = self._keys.get((key.scope, key.name))
            if stored is not None and (key.lasting or stored.at >= append.keys_expired_before):
                raise KeyTaken("The idempotency key was used before.")
        for change in append.changes:
            self.library.check(change)
        for change in append.changes:
            self.library.apply(change)
        for key in append.keys:
            self._keys[key.scope, key.name] = StoredKey(run.id, run.version, key.digest, run.updated_at)
        self._heads[run.id] = replace(head, run=run, hash=append.hash) if head else Head(run, append.hash)
        self._events.setdefault(run.id, []).extend(append.events)
        self.ledger.apply(append.spends, append.served)

    async def head(self, run: RunId) -> Head | None:
        return self._heads.get(run)

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        return _page(islice(self._after(run, after), limit))

    async def read_types(self, run: RunId, types: Collection[str], after: int, limit: int) -> list[Event]:
        return _page(islice((event for event in self._after(run, after) if event.type in types), limit))

    async def read_last(self, run: RunId, types: Collection[str], limit: int) -> list[Event]:
        return [event for event in self._events.get(run, []) if event.type in types][-limit:]

    def _after(self, run: RunId, after: int) -> Iterator[Event]:
        events = self._events.get(run, [])
        return islice(events, bisect_right(events, after, key=lambda event: event.seq), None)

    async def find_key(self, scope: str, name: str) -> StoredKey | None:
        return self._keys.get((scope, name))

    async def runs_in(
        self, state: State, *, agent: str | None = None, owner: str | None = None, limit: int = 1000
    ) -> list[Run]:
        """Return runs in the order in which they arrived, which the dict keeps."""
        found = [head.run for head in self._heads.values() if head.run.state is state and not head.run.due]
        return [run for run in found if agent in (None, run.agent) and owner in (None, run.owner)][:limit]

    async def sleepers(self, now: int, limit: int) -> list[Run]:
        found = [head.run for head in self._heads.values() if 0 < head.run.due <= now]
        return sorted(found, key=lambda run: run.due)[:limit]

    async def unfinished(self, principal: str, most: int) -> int:
        return sum(head.run.principal == principal and not head.run.ended for head in self._heads.values())

    async def unfinished_of(self, agent: str, most: int) -> int:
        return sum(head.run.agent == agent and not head.run.ended for head in self._heads.values())

    async def waiting(self, agent: str, most: int) -> int:
        return len(await self.runs_in(State.SUBMITTED, agent=agent, limit=most))

    async def queue(self, agent: str, without: Collection[RunId]) -> AgentQueue:
        waiting = await self.runs_in(State.SUBMITTED, agent=agent, limit=len(self._heads))
        return self.ledger.queue(agent, (run for run in waiting if run.id not in without))

    async def spent(self, places: Collection[CounterPlace]) -> dict[CounterPlace, Spent]:
        return self.ledger.spent(places)

    async def forget_spent(self, now: int) -> int:
        return self.ledger.forget(now)

    async def ahead(self, run: RunId, agent: str, most: int) -> int | None:
        waiting = [one.id for one in await self.runs_in(State.SUBMITTED, agent=agent, limit=len(self._heads))]
        return min(most, waiting.index(run)) if run in waiting else None

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        found = [head.run for head in self._heads.values() if _matches(head.run, listing)]
        if listing.oldest:
            found.sort(key=lambda run: (run.created_at, run.id))
            page = [run for run in found if listing.after is None or (run.created_at, run.id) > listing.after]
        elif listing.newest:
            found.sort(key=lambda run: (run.created_at, run.id), reverse=True)
            page = [run for run in found if listing.after is None or (run.created_at, run.id) < listing.after]
        else:
            found.sort(key=lambda run: (run.status_at, run.id), reverse=True)
            page = [run for run in found if listing.after is None or (run.status_at, run.id) < listing.after]
        return page[: listing.limit], len(found) if listing.counted else 0

    async def search(self, listing: Listing) -> list[Run]:
        asked = set(query_words(listing))
        found = [head.run for head in self._heads.values() if head.run.principal]
        found = sorted((run for run in found if asked <= set(row_words(run))), key=_place, reverse=True)
        return [run for run in found if listing.after is None or _place(run) < listing.after][: listing.limit]

    async def run_ids(self, after: str, limit: int) -> list[RunId]:
        return sorted(run for run in self._heads if run > after)[:limit]

    async def size(self) -> int:
        return 0

    async def expired(self, before: int, limit: int) -> list[Run]:
        heads = [head for head in self._heads.values() if head.floor < head.run.version]
        return [head.run for head in heads if head.run.ended and head.run.updated_at < before][:limit]

    async def forget_keys(self, before: int) -> int:
        gone = [(scope, name) for (scope, name), stored in self._keys.items() if stored.at < before]
        return self._drop_keys([place for place in gone if not place[0].startswith(LASTING)])

    def _drop_keys(self, gone: list[tuple[str, str]]) -> int:
        for place in gone:
            del self._keys[place]
        return len(gone)

    async def claim(self, nonce: str, until: int) -> bool:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        if nonce in self._nonces:
            return False
        self._nonces[nonce] = until
        return True

    async def check_writing(self, patience_s: float) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed.")

    async def forget_nonces(self, before: int) -> int:
        gone = [nonce for nonce, until in self._nonces.items() if until < before]
        for nonce in gone:
            del self._nonces[nonce]
        return len(gone)

    async def trim(self, run: RunId, floor: int, snapshot: bytes | None = None) -> None:
        head, events = self._heads[run], self._events[run]
        gone = [event for event in events if event.seq <= floor]
        if gone:
            self._heads[run] = Head(head.run, head.hash, gone[-1].seq, gone[-1].hash, snapshot)
            self._events[run] = events[len(gone) :]
            keys = [(place, stored) for place, stored in self._keys.items() if place[0] == LASTING + run]
            self._drop_keys([place for place, stored in keys if stored.version <= floor])

    async def trim_all(self, trims: Sequence[Trim]) -> None:
        for one in trims:
            await self.trim(one.run, one.floor, one.snapshot)

    async def erase(self, run: RunId) -> None:
        head = self._heads[run]
        if head.run.ended:
            self._heads[run] = Head(erased(head.run), head.hash, head.run.version, head.hash)
            self._events[run] = []
            self._drop_keys([place for place in self._keys if place[0] == LASTING + run])

    async def close(self) -> None:
        self._closed = True


def _page(events: Iterable[Event]) -> list[Event]:
    page: list[Event] = []
    size = 0
    for event in events:
        page.append(event)
        size += len(event.body or b"")
        if size >= READ_BYTES:
            break
    return page


def _matches(run: Run, listing: Listing) -> bool:
    return (
        (listing.principal == run.principal if listing.principal is not None else run.principal != "")
        and listing.agent in (None, run.agent)
        and listing.conversation in (None, run.conversation)
        and listing.state in (None, run.state)
        and (listing.since is None or run.status_at >= listing.since)
        and (listing.created_from is None or run.created_at >= listing.created_from)
        and (listing.created_before is None or run.created_at < listing.created_before)
        and run.id.startswith(listing.prefix)
    )


def _place(run: Run) -> tuple[int, str]:
    return run.created_at, run.id


class MemoryLedger:
    """The counters and the turns of the store in memory."""

    def __init__(self) -> None:
        self._spent: dict[CounterPlace, tuple[Spent, int]] = {}
        self._served: dict[tuple[str, str], int] = {}

    def apply(self, spends: Sequence[Spend], served: Served | None) -> None:
        for one in spends:
            before, at = self._spent.get((one.subject, one.period), (NOTHING, 0))
            now = Spent(before.tokens + one.tokens, before.cost + one.cost, before.runs + one.runs)
            self._spent[one.subject, one.period] = now, max(at, one.at)
        if served is not None:
            place = served.agent, served.principal
            self._served[place] = max(served.number, self._served.get(place, 0))

    def spent(self, places: Collection[CounterPlace]) -> dict[CounterPlace, Spent]:
        return {place: self._spent[place][0] for place in places if place in self._spent}

    def forget(self, now: int) -> int:
        trees, periods = forgotten_before(now)
        gone = [place for place, (_, at) in self._spent.items() if at < (trees if place[1] == TREE else periods)]
        for place in gone:
            del self._spent[place]
        return len(gone)

    def queue(self, agent: str, waiting: Iterable[Run]) -> AgentQueue:
        """Return the queue of an agent whose waiting runs are given in the order of their arrival."""
        heads: dict[str, QueueHead] = {}
        for arrival, run in enumerate(waiting):
            if run.principal not in heads:
                served = self._served.get((agent, run.principal), 0)
                heads[run.principal] = QueueHead(run.principal, run.id, arrival, served)
        last = max((number for (of, _), number in self._served.items() if of == agent), default=0)
        return AgentQueue(tuple(heads.values()), last)
