"""A replica of the engine in a simulated process, and the calls that reach it from other processes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from random import Random
from typing import Any, TypeVar

from parley.app.application import drain
from parley.budgets.rules import LimitEntry
from parley.budgets.service import LimitBook
from parley.errors import ParleyError, StoreUnavailable
from parley.execution.admission import LOOK_S, KillSwitch
from parley.execution.driver import Driver
from parley.execution.membership import Loop
from parley.orchestrations.conductor import Conductor
from parley.paired.claims import PairedClaims
from parley.paired.runtimes import Runtimes
from parley.paired.service import RuntimeService
from parley.push.delivery import Deliver
from parley.push.hooks import Hooks
from parley.push.service import Push
from parley.runs.requests import Extensions
from parley.runs.service import Exchange
from parley.testing.simulation.database import (
    Link,
    SimulatedBlobs,
    SimulatedCluster,
    SimulatedDatabase,
    SimulatedRecords,
    SimulatedSignals,
    SimulatedStore,
)
from parley.testing.simulation.loop import SeededLoop, SimulatedProcess
from parley.testing.simulation.nodes import NodeTables, NodeWork, ReplicaNodes

T = TypeVar("T")

LEASE_S = 2.0
GRACE_S = 0.5
EDGE_LEASE_S = 3.0
DRAIN_S = 0.2
CLOSING_S = 0.1
BACKOFF_S = (0.5, 1.0, 2.0)
NETWORK_S = (0.0003, 0.004)
APART_S = 0.001
"""Time between two messages of one connection. It is longer than timers are late, so that they arrive in order."""


class CallBroken(Exception):
    """Raised at a client whose connection broke: it does not know what became of its request."""


class _Open:
    """Seals nothing: a simulation has no secrets."""

    def encrypt(self, secret: bytes) -> bytes:
        return secret

    def decrypt(self, kept: bytes) -> bytes:
        return kept


async def _no_members(group: str) -> list[str]:
    """Return the members of a group: a simulation has no groups."""
    return []


class SimulatedReplica:
    """The real engine on the simulated database: exchange, membership, push, claims of paired runtimes, orchestrations.
    Each start is a process of its own."""

    def __init__(
        self,
        database: SimulatedDatabase,
        name: str,
        drivers: Sequence[Driver],
        deliver: Deliver,
        seed: object,
        died: Callable[[], None],
        version: int = 1,
        nodes: tuple[NodeTables, NodeWork] | None = None,
        limits: Sequence[LimitEntry] = (),
    ) -> None:
        self._limits = limits
        self.name = name
        self.version = version
        self.loop: SeededLoop = database.loop
        self.process: SimulatedProcess = self.loop.process(name, self._died)
        self.link = Link(database, self.process)
        self.random = Random(f"{seed}/{name}/{version}")
        self.ready = False
        self.stopping = False
        self.connections: dict[SimulatedConnection, None] = {}
        self._told = died
        self._drivers = drivers
        self._deliver = deliver
        self._nodes = nodes
        self._engine: SimulatedEngine | None = None
        self.loop.create_task(self._live(), context=self.process.context)

    @property
    def engine(self) -> "SimulatedEngine":
        if self._engine is None:
            raise CallBroken(f"{self.name} has not started yet.")
        return self._engine

    async def _live(self) -> None:
        self._engine = engine = SimulatedEngine(
            self.link, self._drivers, self._deliver, self.random, self._nodes, self._limits
        )
        try:
            await engine.exchange.start()
            if engine.registry is not None:
                await engine.registry.start()
        except ParleyError:
            # A server that cannot reach its database exits, and is started again.
            self.loop.kill(self.process)
            return
        engine.push.start()
        engine.claims.start()
        engine.stops.start()
        self.ready = True

    async def stop(self) -> None:
        """Stop in an orderly way, as on SIGTERM, and end the process."""
        self.stopping = True
        if self._engine is not None and self.ready:
            try:
                await drain(self._engine.exchange, DRAIN_S)
                await self._end_connections()
                if self._engine.registry is not None:
                    await self._engine.registry.stop()
                await self._engine.stops.stop()
                await self._engine.push.close()
                await self._engine.claims.close()
                await self._engine.exchange.close()
            except StoreUnavailable:
                pass
        self.loop.kill(self.process)

    async def _end_connections(self) -> None:
        """Accept no more calls, and break those that take long: a server closes its parts when nobody uses them."""
        self.ready = False
        await asyncio.sleep(CLOSING_S)
        self.cut_connections(1.0)

    def _died(self) -> None:
        self.link.database.links.remove(self.link)
        for connection in list(self.connections):
            connection.lose()
        self._told()

    def cut_connections(self, share: float) -> None:
        """Break some of the connections of clients. The calls under way continue in the replica."""
        for connection in list(self.connections):
            if self.random.random() < share:
                connection.lose()


class SimulatedEngine:
    """The engine of one replica, built as the server builds it."""

    def __init__(
        self,
        link: Link,
        drivers: Sequence[Driver],
        deliver: Deliver,
        random: Random,
        nodes: tuple[NodeTables, NodeWork] | None = None,
        limits: Sequence[LimitEntry] = (),
    ) -> None:
        loop, process = link.database.loop, link.process

        def clock() -> int:
            return loop.wall_ms(process)

        def extend(exchange: Exchange) -> Extensions:
            return Extensions(conduct=Conductor(exchange, clock=clock).conducted)

        self.records = SimulatedRecords(link)
        self.cluster = SimulatedCluster(link, LEASE_S)
        self.exchange = Exchange(
            SimulatedStore(link),
            SimulatedBlobs(link),
            self.cluster,
            SimulatedSignals(link),
            clock=clock,
            monotonic=loop.time,
            grace_s=GRACE_S,
            lease_s=LEASE_S,
            shared=True,
            extend=extend,
            limits=LimitBook(limits),
        )
        exchange = self.exchange
        self.switch = KillSwitch(exchange.stops, self.records, exchange.store, exchange.stop, _no_members, clock)
        self.stops = Loop("stops", LOOK_S, self.switch.tick)
        self.push = Push(
            Hooks(self.records, _Open(), clock),
            self.exchange.store,
            deliver,
            lambda: self.exchange.membership.leads,
            lambda url: None,
            backoff_s=BACKOFF_S,
            clock=clock,
            monotonic=loop.time,
            variation=random.uniform,
        )
        self.exchange.listeners.growth.add(self.push.grown)
        self.claims = PairedClaims(
            self.exchange, self.records, lease_s=EDGE_LEASE_S, grace_s=GRACE_S, clock=clock, steady=loop.time
        )
        self.runtimes = Runtimes(self.records, EDGE_LEASE_S, clock, loop.time)
        self.service = RuntimeService(self.exchange, self.claims, self.runtimes)
        self.registry = ReplicaNodes(self.exchange, link, *nodes, clock) if nodes is not None else None
        for driver in drivers:
            self.exchange.add(driver)


Work = Callable[[SimulatedEngine, "asyncio.Future[None]"], Awaitable[T]]
"""Handles one call in a replica; the future fails when the caller disconnects."""


class SimulatedConnection:
    """One call of a client to a replica. Messages arrive in order, each after a moment."""

    def __init__(self, replica: SimulatedReplica, client: SimulatedProcess) -> None:
        self.replica = replica
        self.client = client
        self.lost = False
        self._inbox: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue()
        self._last = 0.0
        self._task: asyncio.Task[None] | None = None
        self._gone: asyncio.Future[None] = replica.loop.create_future()
        replica.connections[self] = None

    def call(self, work: "Work[T]") -> None:
        """Send the request: the replica begins to handle it when it arrives."""
        if not self.replica.process.alive or not self.replica.ready:
            return self.lose()
        return self._send(self.replica.process, self._handle, work)

    async def receive(self) -> Any:
        """Return the next message of the replica. Raise its error, or CallBroken."""
        message, error = await self._inbox.get()
        if error is not None:
            raise error
        return message

    def say(self, message: object) -> None:
        """Send a message to the client. Called in the replica."""
        self._reply(message, None)

    def lose(self) -> None:
        """Break the connection, seen from both ends."""
        if not self.lost:
            self.lost = True
            self.replica.connections.pop(self, None)
            self._send(self.client, self._inbox.put_nowait, (None, CallBroken("The connection broke.")))
            if self.replica.process.alive:
                self._send(self.replica.process, self._hang_up)

    def close(self) -> None:
        """End the call, seen from the client."""
        if not self.lost:
            self.lost = True
            self.replica.connections.pop(self, None)
            if self._task is None or not self._task.done():
                self._send(self.replica.process, self._hang_up)

    def _handle(self, work: "Work[T]") -> None:
        if not self.lost:
            self._task = self.replica.loop.create_task(self._answer(work))

    async def _answer(self, work: "Work[T]") -> None:
        try:
            self._reply(await work(self.replica.engine, self._gone), None)
        except ParleyError as error:
            self._reply(None, error)
        except CallBroken:
            return

    def _reply(self, message: object, error: BaseException | None) -> None:
        if not self.lost:
            self._send(self.client, self._inbox.put_nowait, (message, error))

    def _hang_up(self) -> None:
        if not self._gone.done():
            self._gone.set_exception(CallBroken("The client is gone."))
            self._gone.exception()

    def _send(self, to: SimulatedProcess, callback: Callable[..., object], *args: object) -> None:
        loop = self.replica.loop
        least, most = NETWORK_S
        self._last = max(self._last + APART_S, loop.time() + least + loop.random.random() * (most - least))
        loop.call_at(self._last, callback, *args, context=to.context)


async def call(replica: SimulatedReplica, client: SimulatedProcess, work: "Work[T]") -> T:
    """Call a replica and wait for its answer. Raise its error, or CallBroken."""
    connection = SimulatedConnection(replica, client)
    connection.call(work)
    try:
        return await connection.receive()
    finally:
        connection.close()


Streamed = Callable[[SimulatedEngine, "asyncio.Future[None]", SimulatedConnection], Awaitable[None]]


async def stream(replica: SimulatedReplica, client: SimulatedProcess, work: Streamed) -> AsyncGenerator[Any, None]:
    """Call a replica and yield its messages until its answer, which is None."""
    connection = SimulatedConnection(replica, client)
    connection.call(lambda engine, gone: work(engine, gone, connection))
    try:
        while (message := await connection.receive()) is not None:
            yield message
    finally:
        connection.close()
