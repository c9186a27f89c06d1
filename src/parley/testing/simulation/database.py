"""A simulated database that several replicas share: statements take time, fail, or succeed without an answer.

A statement travels to the database, is applied there at once and as a whole, and its answer travels back. A connection
that is lost in between leaves its caller in doubt, as a real one does.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Literal, TypeVar

from msgspec import Struct

from parley.budgets.rules import CounterPlace, Spent
from parley.errors import NotFound, ParleyError, StoreUnavailable
from parley.execution.cluster import Heard
from parley.execution.turn_order import AgentQueue
from parley.ids import RunId, new_id
from parley.records import Moment, Place, Record
from parley.runs.rules.events import Event
from parley.runs.rules.state import ELSEWHERE, Run, State
from parley.runs.store import Append, Done, Head, Listing, StoredKey, Trim
from parley.stores.documents import MemoryLibrary
from parley.stores.group_commit import Writer
from parley.stores.memory import MemoryStore
from parley.stores.records import MemoryRecords
from parley.testing.simulation.loop import SeededLoop, SimulatedProcess

T = TypeVar("T")

LATENCY_S = (0.0002, 0.003)
LATE_S = 1.5
"""Delay of an acknowledgement that comes late."""
LOOK_S = 1.0
APART_S = 0.001
"""Time between two statements that stay in order; longer than timers are late."""
_AWAY = "The database does not answer."


class Tables(MemoryStore):
    """The logs in the database. Runs that have not ended are kept apart, because they are looked for often."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[RunId, Run] = {}

    def write(self, append: Append) -> Head | None:
        """Apply an append. Return the head before it."""
        before = self._heads.get(append.run.id)
        self._append(append)
        if append.run.ended:
            self.live.pop(append.run.id, None)
        else:
            self.live[append.run.id] = append.run
        return before

    @property
    def heads(self) -> dict[RunId, Head]:
        return self._heads

    def events(self, run: RunId) -> list[Event]:
        return self._events.get(run, [])

    async def runs_in(
        self, state: State, *, agent: str | None = None, owner: str | None = None, limit: int = 1000
    ) -> list[Run]:
        if state in (State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED):
            return await super().runs_in(state, agent=agent, owner=owner, limit=limit)
        found = [run for run in self.live.values() if run.state is state and not run.due]
        return [run for run in found if agent in (None, run.agent) and owner in (None, run.owner)][:limit]

    async def sleepers(self, now: int, limit: int) -> list[Run]:
        found = [run for run in self.live.values() if 0 < run.due <= now]
        return sorted(found, key=lambda run: run.due)[:limit]

    async def unfinished(self, principal: str, most: int) -> int:
        return sum(run.principal == principal for run in self.live.values())


class ReplicaRow(Struct):
    alive_until: float
    buried: bool = False


Committed = Callable[[SimulatedProcess, Append, Head | None], None]
"""Called for each append at the moment of its commit, with the process that wrote it and the head before it."""


class SimulatedDatabase:
    """All data, and the state of the database server. Only `Link` reaches it from a process."""

    def __init__(self, loop: SeededLoop, seed: object = 0) -> None:
        self.loop = loop
        self.process = loop.process("database")
        self.random = Random(f"{seed}/database")
        self.tables = Tables()
        self.records = MemoryRecords()
        self.blobs: dict[str, bytes] = {}
        self.replicas: dict[str, ReplicaRow] = {}
        self.slots: dict[str, dict[int, str | None]] = {}
        self.up = True
        self.slowness = 1.0
        self.lost = 0.0
        """Share of signals that are lost; `doubled` are sent twice, and `delayed` come late and out of order."""
        self.doubled = 0.0
        self.delayed = 0.0
        self.links: list[Link] = []
        self.committed: list[Committed] = []
        self.owners: dict[str, SimulatedProcess] = {}
        """The process behind each replica id."""

    def latency(self) -> float:
        least, most = LATENCY_S
        return (least + self.random.random() ** 2 * (most - least)) * self.slowness

    def write(self, process: SimulatedProcess, appends: Sequence[Append]) -> dict[RunId, ParleyError]:
        """Commit a batch. Return the errors of the runs that could not be written."""
        failed: dict[RunId, ParleyError] = {}
        for append in appends:
            try:
                before = self.tables.write(append)
            except ParleyError as error:
                failed[append.run.id] = error
                continue
            self.loop.trace.extend(append.hash)
            for committed in self.committed:
                committed(process, append, before)
        return failed

    def records_of(self, kind: str) -> list[Record]:
        return at_once(self.records.list(kind, limit=100_000))

    def restart(self) -> None:
        """Break all connections: every statement under way fails, whether or not it was applied."""
        self.up = False
        for link in self.links:
            link.reset()

    def start(self) -> None:
        self.up = True

    def notify(self, sender: "Link", runs: list[tuple[RunId, int]], agents: list[str]) -> None:
        """Pass signals on to all other replicas."""
        for link in self.links:
            if link is sender or link.heard is None or not link.process.alive:
                continue
            for _ in range(2 if self.random.random() < self.doubled else 1):
                if self.random.random() < self.lost or link.how or not self.up:
                    continue
                late = self.random.random() * LATE_S if self.random.random() < self.delayed else 0.0
                at = self.loop.time() + self.latency() + late
                self.loop.call_at(at, link.heard, list(runs), list(agents), context=link.process.context)


How = Literal["", "refused", "silent"]


class _Statement(Struct, eq=False):
    work: Callable[[], Any]
    future: "asyncio.Future[Any]"
    sent: bool = False
    """True once the database has applied it."""


class Link:
    """The connection of one process to the database. `refused`: statements fail at once. `silent`: nothing is answered
    until the connection is back; then statements that were sent meanwhile are applied, or fail."""

    def __init__(self, database: SimulatedDatabase, process: SimulatedProcess) -> None:
        self.database = database
        self.process = process
        self.how: How = ""
        self.unanswered = 0.0
        """Share of statements whose answer is lost; `late` of them are answered late."""
        self.late = 0.0
        self.heard: Heard | None = None
        self._last = 0.0
        self._under_way: dict[_Statement, None] = {}
        self._held: list[_Statement] = []
        database.links.append(self)

    def call(self, work: Callable[[], T], *, in_order: bool = False) -> "asyncio.Future[T]":
        """Send a statement. The future gets its result, or StoreUnavailable. Statements that are sent `in_order` arrive
        in that order."""
        loop = self.database.loop
        future: asyncio.Future[T] = loop.create_future()
        statement = _Statement(work, future)
        self._under_way[statement] = None
        at = loop.time() + self.database.latency()
        if in_order:
            self._last = at = max(at, self._last + APART_S)
        loop.call_at(at, self._arrive, statement, context=self.database.process.context)
        return future

    def listen(self, heard: Heard | None) -> None:
        """Call this function for signals of other replicas from now on."""
        self.heard = heard

    def reset(self) -> None:
        """Break the connection: statements under way fail; those on their way may still arrive."""
        for statement in list(self._under_way):
            if self.database.random.random() < 0.5:
                self._under_way.pop(statement, None)
            self._answer(statement, None, StoreUnavailable(_AWAY))
        self._held.clear()

    def cut(self, how: How) -> None:
        self.how = how
        if how == "refused":
            self.reset()

    def heal(self) -> None:
        self.how = ""
        held, self._held = self._held, []
        for statement in held:
            self._arrive(statement)

    def _arrive(self, statement: _Statement) -> None:
        if statement not in self._under_way:
            return None
        if self.how == "silent":
            self._held.append(statement)
            return None
        if self.how == "refused" or not self.database.up:
            return self._answer(statement, None, StoreUnavailable(_AWAY))
        del self._under_way[statement]
        result, error = None, None
        try:
            result = statement.work()
        except ParleyError as refused:
            error = refused
        statement.sent = True
        dice = self.database.random.random
        if self.unanswered and dice() < self.unanswered:
            error = StoreUnavailable(_AWAY)
        late = dice() * LATE_S if self.late and dice() < self.late else 0.0
        self._under_way[statement] = None
        return self._answer(statement, result, error, late)

    def _answer(self, statement: _Statement, result: Any, error: ParleyError | None, late: float = 0.0) -> None:
        loop, context = self.database.loop, self.process.context
        at = loop.time() + self.database.latency() + late
        loop.call_at(at, self._settle, statement, result, error, context=context)

    def _settle(self, statement: _Statement, result: Any, error: ParleyError | None) -> None:
        if statement.sent or error is not None:
            self._under_way.pop(statement, None)
        if statement.future.done():
            return
        if error is None:
            statement.future.set_result(result)
        else:
            statement.future.set_exception(error)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as stopped:
        return stopped.value
    raise RuntimeError("The reference store must not wait.")


class SimulatedStore:
    """Logs in the simulated database, seen from one process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._tables = link.database.tables
        self._closed = False
        self._writer = Writer(self._commit, monotonic=link.database.loop.time)

    @property
    def library(self) -> MemoryLibrary:
        """Documents. They have no faults of their own."""
        return self._tables.library

    def append(self, append: Append, done: Done) -> None:
        if self._closed:
            asyncio.get_running_loop().call_soon(done, StoreUnavailable("The store is closed."))
        else:
            self._writer.take(append, done)

    async def _commit(self, appends: list[Append]) -> dict[RunId, ParleyError]:
        database, process = self._link.database, self._link.process
        return await self._link.call(lambda: database.write(process, appends))

    def _read(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        return self._link.call(lambda: at_once(work()))

    async def head(self, run: RunId) -> Head | None:
        return await self._read(lambda: self._tables.head(run))

    async def read(self, run: RunId, after: int, limit: int) -> list[Event]:
        return await self._read(lambda: self._tables.read(run, after, limit))

    async def read_types(self, run: RunId, types: Collection[str], after: int, limit: int) -> list[Event]:
        return await self._read(lambda: self._tables.read_types(run, types, after, limit))

    async def read_last(self, run: RunId, types: Collection[str], limit: int) -> list[Event]:
        return await self._read(lambda: self._tables.read_last(run, types, limit))

    async def run_ids(self, after: str, limit: int) -> list[RunId]:
        return await self._read(lambda: self._tables.run_ids(after, limit))

    async def find_key(self, scope: str, name: str) -> StoredKey | None:
        return await self._read(lambda: self._tables.find_key(scope, name))

    async def runs_in(
        self, state: State, *, agent: str | None = None, owner: str | None = None, limit: int = 1000
    ) -> list[Run]:
        return await self._read(lambda: self._tables.runs_in(state, agent=agent, owner=owner, limit=limit))

    async def sleepers(self, now: int, limit: int) -> list[Run]:
        return await self._read(lambda: self._tables.sleepers(now, limit))

    async def waiting(self, agent: str, most: int) -> int:
        return await self._read(lambda: self._tables.waiting(agent, most))

    async def queue(self, agent: str, without: Collection[RunId]) -> AgentQueue:
        return await self._read(lambda: self._tables.queue(agent, without))

    async def spent(self, places: Collection[CounterPlace]) -> dict[CounterPlace, Spent]:
        return await self._read(lambda: self._tables.spent(places))

    async def forget_spent(self, now: int) -> int:
        return await self._read(lambda: self._tables.forget_spent(now))

    async def ahead(self, run: RunId, agent: str, most: int) -> int | None:
        return await self._read(lambda: self._tables.ahead(run, agent, most))

    async def list_runs(self, listing: Listing) -> tuple[list[Run], int]:
        return await self._read(lambda: self._tables.list_runs(listing))

    async def search(self, listing: Listing) -> list[Run]:
        return await self._read(lambda: self._tables.search(listing))

    async def unfinished(self, principal: str, most: int) -> int:
        return await self._read(lambda: self._tables.unfinished(principal, most))

    async def unfinished_of(self, agent: str, most: int) -> int:
        return await self._read(lambda: self._tables.unfinished_of(agent, most))

    async def size(self) -> int:
        return await self._read(self._tables.size)

    async def expired(self, before: int, limit: int) -> list[Run]:
        return await self._read(lambda: self._tables.expired(before, limit))

    async def trim(self, run: RunId, floor: int, snapshot: bytes | None = None) -> None:
        await self._read(lambda: self._tables.trim(run, floor, snapshot))

    async def trim_all(self, trims: Sequence[Trim]) -> None:
        for one in trims:
            await self.trim(one.run, one.floor, one.snapshot)

    async def erase(self, run: RunId) -> None:
        await self._read(lambda: self._tables.erase(run))

    async def forget_keys(self, before: int) -> int:
        return await self._read(lambda: self._tables.forget_keys(before))

    async def claim(self, nonce: str, until: int) -> bool:
        if self._closed:
            raise StoreUnavailable("The store is closed.")
        return await self._link.call(lambda: at_once(self._tables.claim(nonce, until)), in_order=True)

    async def forget_nonces(self, before: int) -> int:
        return await self._read(lambda: self._tables.forget_nonces(before))

    async def check_writing(self, patience_s: float) -> None:
        if self._closed or self._writer.stuck(patience_s):
            raise StoreUnavailable("The store cannot write at the moment.")
        await self._read(lambda: self._tables.check_writing(patience_s))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._writer.close()


class SimulatedRecords:
    """Records in the simulated database, seen from one process."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._records = link.database.records

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Awaitable[T]:
        return self._link.call(lambda: at_once(work()))

    async def put(self, record: Record) -> None:
        await self._call(lambda: self._records.put(record))

    async def add(self, record: Record) -> bool:
        return await self._call(lambda: self._records.add(record))

    async def swap(self, old: Record, new: Record) -> bool:
        return await self._call(lambda: self._records.swap(old, new))

    async def get(self, kind: str, scope: str, id_: str) -> Record | None:
        return await self._call(lambda: self._records.get(kind, scope, id_))

    async def list(
        self, kind: str, scope: str | None = None, after: Place = ("", ""), limit: int = 100
    ) -> "list[Record]":
        return await self._call(lambda: self._records.list(kind, scope, after, limit))

    async def delete(self, kind: str, scope: str, id_: str) -> bool:
        return await self._call(lambda: self._records.delete(kind, scope, id_))

    async def delete_all(self, kind: str, places: "Sequence[Place]") -> None:
        await self._call(lambda: self._records.delete_all(kind, places))

    async def due(self, kind: str, now: int, limit: int = 100, after: Moment = (-1, "", "")) -> "list[Record]":
        return await self._call(lambda: self._records.due(kind, now, limit, after))

    async def close(self) -> None:
        return


class SimulatedBlobs:
    """Blobs that all replicas share."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._blobs = link.database.blobs

    async def put(self, content: bytes) -> str:
        digest = sha256(content).hexdigest()
        await self._link.call(lambda: self._blobs.setdefault(digest, content))
        return digest

    async def put_file(self, path: Path) -> str:
        return await self.put(await asyncio.to_thread(path.read_bytes))

    async def get(self, sha256: str) -> bytes:
        content = await self._link.call(lambda: self._blobs.get(sha256))
        if content is None:
            raise NotFound(f"There is no blob {sha256}.")
        return content

    async def stream(self, sha256: str) -> AsyncGenerator[bytes, None]:
        yield await self.get(sha256)


class SimulatedCluster:
    """Membership of a replica: the same statements as on PostgreSQL, one after another."""

    def __init__(self, link: Link, lease_s: float) -> None:
        self._link = link
        self._database = link.database
        self._lease_s = lease_s
        self._replica = new_id()

    @property
    def replica(self) -> str:
        return self._replica

    def _now(self) -> float:
        return self._database.loop.time()

    async def join(self) -> None:
        self._replica = replica = new_id()
        self._database.owners[replica] = self._link.process
        rows = self._database.replicas
        await self._link.call(lambda: rows.setdefault(replica, ReplicaRow(self._now() + self._lease_s)))

    async def renew(self) -> list[str] | None:
        if not await self._link.call(lambda: self._renewed(self._replica)):
            return None
        return await self._link.call(self._alive)

    def _renewed(self, replica: str) -> bool:
        row = self._database.replicas.get(replica)
        if row is None or row.buried:
            return False
        row.alive_until = self._now() + self._lease_s
        return True

    def _alive(self) -> list[str]:
        rows = self._database.replicas.items()
        return sorted(id_ for id_, row in rows if not row.buried and row.alive_until >= self._now())

    async def expire_replicas(self) -> list[str]:
        await self._link.call(self._bury)
        return await self._link.call(self._dead)

    def _bury(self) -> None:
        for row in self._database.replicas.values():
            row.buried = row.buried or row.alive_until < self._now()

    def _dead(self) -> list[str]:
        known = self._database.replicas
        live = self._database.tables.live.values()
        owners = {run.owner for run in live if run.state is State.WORKING and not run.owner.startswith(ELSEWHERE)}
        holders = {one for held in self._database.slots.values() for one in held.values() if one is not None}
        return sorted(
            {id_ for id_, row in known.items() if row.buried} | {one for one in owners | holders if one not in known}
        )

    async def forget(self, replica: str) -> None:
        await self._link.call(lambda: self._free(replica))
        await self._link.call(lambda: self._database.replicas.pop(replica, None))

    def _free(self, replica: str) -> None:
        for held in self._database.slots.values():
            for number, holder in held.items():
                if holder == replica:
                    held[number] = None

    async def take_slot(self, agent: str, replica: str, limit: int) -> bool:
        return await self._link.call(lambda: self._taken(agent, limit, replica))

    def _taken(self, agent: str, limit: int, replica: str) -> bool:
        held = self._database.slots.setdefault(agent, {})
        for number in range(1, limit + 1):
            held.setdefault(number, None)
        row = self._database.replicas.get(replica)
        free = [number for number in sorted(held) if number <= limit and held[number] is None]
        beyond = sum(number > limit and holder is not None for number, holder in held.items())
        if row is None or row.buried or len(free) <= beyond:
            return False
        held[free[beyond]] = replica
        return True

    async def keep_slots(self, agent: str, replica: str, count: int) -> None:
        await self._link.call(lambda: self._kept(agent, replica, count))

    def _kept(self, agent: str, replica: str, count: int) -> None:
        held = self._database.slots.get(agent, {})
        for number in [number for number in sorted(held) if held[number] == replica][count:]:
            held[number] = None

    async def leave(self) -> None:
        await self.forget(self._replica)


class SimulatedSignals:
    """Signals between replicas. Several are sent together; some are lost, late or doubled, as the database is told."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._runs: dict[RunId, int] = {}
        self._agents: dict[str, None] = {}
        self._pending = False
        self._looking: asyncio.Task[None] | None = None

    def tell(self, run: RunId, version: int) -> None:
        self._runs[run] = version
        self._schedule()

    def wake(self, agent: str) -> None:
        self._agents[agent] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_later(self._link.database.latency(), self._flush)

    def _flush(self) -> None:
        self._pending = False
        runs, agents = list(self._runs.items()), list(self._agents)
        self._runs, self._agents = {}, {}
        if not self._link.how and self._link.database.up and (runs or agents):
            self._link.database.notify(self._link, runs, agents)

    async def listen(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        self._link.listen(heard)
        self._looking = asyncio.get_running_loop().create_task(self._look(heard, of_interest))

    async def _look(self, heard: Heard, of_interest: Callable[[], list[RunId]]) -> None:
        heads = self._link.database.tables.heads
        while True:
            await asyncio.sleep(LOOK_S)
            if runs := list(dict.fromkeys(of_interest())):
                try:
                    found = await self._link.call(
                        lambda: [(run, heads[run].run.version) for run in runs if run in heads]
                    )
                except ParleyError:
                    continue
                heard(found, [])

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        self._flush()
        self._link.listen(None)
