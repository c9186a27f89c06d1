"""Nodes of the standard scenario: processes that register, beat and die, an operator who moves them, readers of their
events, and callers who delegate work to them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from random import Random
from typing import Any
from uuid import UUID

from parley import Failed, Note, Status, Text, Turn
from parley.errors import AccessDenied, Conflict, Invalid, NodeNotFound, ParleyError
from parley.nodes.delegations import Delegated, delegation_of
from parley.nodes.rules import Heartbeat, NodePatch, RegisteredNode
from parley.testing.simulation.clients import ClientCommand
from parley.testing.simulation.invariants import MARK, Violation
from parley.testing.simulation.loop import PROCESS, SimulatedProcess
from parley.testing.simulation.nodes import FollowedNodes, ReplicaNodes
from parley.testing.simulation.replica import CallBroken, SimulatedConnection, SimulatedEngine, stream
from parley.testing.simulation.world import World

NODES = 3
READERS = 2
BEAT_S = 1.0
DEAD_FOR_GOOD_S = 3.5
WORK_S = (0.05, 0.5)
SILENCE_S = 3.0
ENDED = ("completed", "failed")

Gone = asyncio.Future[None]


class NodeFleet:
    """The processes of all nodes, and everything that has to do with them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = Random(f"{world.seed}/nodes")
        self.ids = [str(UUID(int=self._dice.getrandbits(128), version=4)) for _ in range(NODES)]
        self._processes: dict[str, SimulatedProcess] = {}
        self._delegated: dict[str, str] = {}
        """The acknowledged run of each delegated task."""
        world.checks.append(self._delegated_once)

    def start(self) -> None:
        for id_ in self.ids:
            self._start(id_)
        for number in range(READERS):
            reader = FollowedNodes(f"reader {number} of nodes")
            self._world.nodes.readers.append(reader)
            self._world.background(reader.name, self._follow(reader))

    def break_one(self, amount: float, seconds: float) -> None:
        """Kill or pause one of the nodes: for some time, or for ever."""
        loop = self._world.loop
        id_ = self.ids[int(amount * 1000) % NODES]
        process = self._processes[id_]
        if amount < 0.6:
            loop.kill(process)
            self._world.nodes.alive[id_] = False
            if seconds < DEAD_FOR_GOOD_S:
                loop.call_later(seconds, self._start, id_, context=loop.world.context)
        else:
            loop.pause(process)
            loop.call_later(seconds, loop.resume, process, context=loop.world.context)

    def _start(self, id_: str) -> None:
        if not self._world.nodes.alive.get(id_, False):
            self._world.nodes.alive[id_] = True
            self._processes[id_] = self._world.background(f"node {self.ids.index(id_)}", self._live(id_))

    async def _live(self, id_: str) -> None:
        """Register, and then send heartbeats."""
        name = f"node-{self.ids.index(id_)}"

        async def register(nodes: ReplicaNodes) -> RegisteredNode:
            return (await nodes.nodes.register(id_, f"http://{name}/", b"{}", name=name))[0]

        async def beat(nodes: ReplicaNodes) -> None:
            node = await nodes.nodes.get(id_)
            await nodes.nodes.heartbeat(node, Heartbeat(self._world.loop.wall_ms(), error_rate=errors))

        await self._told("register", register)
        while True:
            await asyncio.sleep(BEAT_S)
            errors = self._dice.choice((0.0, 0.0, 0.0, 1.0))
            try:
                await self._call("beat", beat)
            except Conflict:
                continue

    async def operate(self) -> None:
        """Move and rename nodes, as operators do."""
        for number in range(4):
            await asyncio.sleep(self._dice.uniform(0.5, 4.0))
            one, other = self._dice.sample(self.ids, 2)
            parent = self._dice.choice((other, other, None))
            patch = NodePatch(parent_id=parent) if number % 2 else NodePatch(name=f"name-{number}")
            try:
                await self._told("patch", lambda nodes, one=one, patch=patch: nodes.nodes.patch(one, patch))
            except (NodeNotFound, Conflict, Invalid):
                continue

    async def _told(self, what: str, work: Callable[[ReplicaNodes], Any]) -> None:
        node = await self._call(what, work)
        self._fail(self._world.nodes.acknowledged(node))

    def _fail(self, violations: Iterable[Violation]) -> None:
        for one in violations:
            self._world.watch.fail(one.rule, one.where, one.what)

    async def _call(self, what: str, work: Callable[[ReplicaNodes], Any]) -> Any:
        async def handled(engine: SimulatedEngine, gone: Gone) -> Any:
            assert engine.registry is not None
            return await work(engine.registry)

        return await self._world.ask(handled, what, self._dice)

    # Readers of the events of all nodes.

    async def _follow(self, reader: FollowedNodes) -> None:
        """Follow for ever, over as many connections as that takes."""
        while True:
            try:
                await self._read(reader)
            except (CallBroken, ParleyError):
                await asyncio.sleep(0.05 + self._dice.random() * 0.3)

    async def _read(self, reader: FollowedNodes) -> None:
        async def work(engine: SimulatedEngine, gone: Gone, connection: SimulatedConnection) -> None:
            assert engine.registry is not None
            feed = await engine.registry.nodes.follow(None, None, reader.cursor, SILENCE_S)
            async with aclosing(feed):
                async for events in feed:
                    if gone.done():
                        return
                    connection.say(events)

        process = PROCESS.get() or self._world.loop.world
        async for events in stream(self._dice.choice(self._world.replicas), process, work):
            for event in events:
                self._fail(self._world.nodes.seen(reader, event))

    # Delegations.

    async def delegate(self, command: ClientCommand) -> None:
        """Delegate a task from one node to another with a key, and see it through to its end."""
        await asyncio.sleep(max(0.0, command.at - self._world.loop.time()))
        dice = Random(f"{self._world.seed}/{command.text}")
        source, target = dice.sample(self.ids, 2)
        given: Delegated | None = None
        while given is None:
            try:
                given = await self._asked("delegate", self._delegating(source, target, command.text))
            except AccessDenied:
                return
            except NodeNotFound:
                await asyncio.sleep(0.5)
        self._world.watch.acknowledged(given.run, f"client {command.client}")
        self._delegated[command.text] = given.run.id
        if command.cancel_after is not None:
            await asyncio.sleep(command.cancel_after)
            given = await self._asked("cancel", lambda nodes, id_=given.id: nodes.delegations.cancel(source, id_))
        while given.status not in ENDED:
            await asyncio.sleep(dice.uniform(0.3, 1.0))
            given = await self._asked("get", lambda nodes, id_=given.id: nodes.delegations.get(source, id_))

    async def _asked(self, what: str, work: Callable[[ReplicaNodes], Any]) -> Delegated:
        found: Delegated = await self._call(what, work)
        return found

    @staticmethod
    def _delegating(source: str, target: str, task: str) -> Callable[[ReplicaNodes], Any]:
        async def delegate(nodes: ReplicaNodes) -> Delegated:
            return (await nodes.delegations.delegate(source, target, task, task))[0]

        return delegate

    def _delegated_once(self) -> Iterable[Violation]:
        found: dict[str, list[str]] = {}
        for id_, head in self._world.database.tables.heads.items():
            if (delegation := delegation_of(head.run)) is not None:
                found.setdefault(delegation.task, []).append(id_)
        for task, runs in found.items():
            if len(runs) > 1:
                yield Violation("one run per key", task, f"it was delegated {len(runs)} times: {runs}")
        for task, run in self._delegated.items():
            if run not in found.get(task, []):
                yield Violation("durable", run, f"the delegation of {task} was acknowledged, and is not there")

    async def work(self, id_: str, turn: Turn) -> AsyncGenerator[Any, None]:
        """Do the work of a node, as seen from a replica that calls it."""
        process = self._processes[id_]
        dice = Random(f"{self._world.seed}/{turn.text}/work")
        yield Note({"task": turn.run_id})
        for number in range(dice.randrange(1, 4)):
            await asyncio.sleep(dice.uniform(*WORK_S))
            if not process.alive:
                yield Failed("remote_unreachable", "The node is away.")
                return
            yield Status(str(number), mark=f"{MARK}{turn.epoch}")
        yield Text("from the node")
