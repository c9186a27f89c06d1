"""Silence makes a node offline, and only silence that somebody listened to."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from parley.errors import StoreUnavailable
from parley.nodes.feed import NodeFeed
from parley.nodes.liveness import GAP_MS, SLACK_MS, Changes, Liveness
from parley.nodes.rules import Heartbeat, NodeChange, NodeStatus, RegisteredNode
from parley.nodes.service import Nodes
from parley.nodes.store import EventQuery, NodeQuery
from parley.runs.wakeups import Wakeups
from parley.stores.node_urls import MemoryUrls
from parley.stores.nodes import MemoryNodes

TTL_MS = 60_000
BEAT_MS = 30_000
NODE = "00000000-0000-4000-8000-000000000000"
START = 1_700_000_000_000


class Shaky(MemoryNodes):
    """A store that is away at times."""

    away = False
    commits = 0

    async def beat(self, beats: Mapping[str, Heartbeat]) -> None:
        if self.away:
            raise StoreUnavailable("Away.")
        await super().beat(beats)

    async def apply(self, changes: Sequence[NodeChange]) -> list[bool]:
        self.commits += 1
        return await super().apply(changes)


class Replica:
    def __init__(self, store: MemoryNodes, world: "World", name: str) -> None:
        feed = NodeFeed(store, Wakeups(), lambda _: None)
        changes = Changes(store, feed.grown)
        self.name = name
        self.liveness = Liveness(
            store, changes, lambda: world.now, leads=lambda: world.alive[:1] == [name], alive=lambda: tuple(world.alive)
        )
        self.nodes = Nodes(
            store, MemoryUrls(), feed, changes=changes, liveness=self.liveness, clock=lambda: world.now
        )  # fmt: skip


class World:
    """A store, its replicas and a clock that moves when it is told to."""

    def __init__(self, *names: str) -> None:
        self.now = START
        self.store = Shaky()
        self.alive = list(names)
        self.replicas = {name: Replica(self.store, self, name) for name in names}

    def boot(self, name: str) -> Replica:
        self.alive.append(name)
        self.replicas[name] = Replica(self.store, self, name)
        return self.replicas[name]

    def crash(self, name: str) -> None:
        self.alive.remove(name)

    async def pass_(self, ms: int, step_ms: int = 1000) -> None:
        """Seconds go by: everybody alive does what is due."""
        for _ in range(ms // step_ms):
            self.now += step_ms
            for name in list(self.alive):
                await self.replicas[name].liveness.flush()
                await self.replicas[name].liveness.tick()

    async def born(self, at: int | None = None) -> RegisteredNode:
        beat = Heartbeat(self.now if at is None else at)
        node = RegisteredNode(NODE, "n", status=NodeStatus.ONLINE, url="http://x", version=1, beat=beat)
        await self.store.apply([NodeChange(node, 0)])
        return node

    async def beat(self, name: str, **said: object) -> None:
        await self.replicas[name].nodes.heartbeat(await self.node(), replace(Heartbeat(self.now), **said))

    async def node(self) -> RegisteredNode:
        return (await self.store.get([NODE]))[0]

    async def status(self) -> str:
        return (await self.node()).status.value


@pytest.fixture
def world() -> World:
    return World("a")


async def test_a_node_is_offline_after_its_time_and_back_with_its_next_heartbeat(world: World) -> None:
    await world.pass_(TTL_MS)
    await world.born()
    await world.pass_(TTL_MS)
    assert await world.status() == "online"
    await world.pass_(SLACK_MS + 2000)
    assert await world.status() == "offline"
    await world.beat("a")
    assert await world.status() == "online"
    names = [event.name for event in await world.store.events(EventQuery())]
    assert names == ["WORKSPACE_OFFLINE", "WORKSPACE_ONLINE"]


async def test_a_node_that_beats_stays_online_and_costs_one_write_a_flush(world: World) -> None:
    await world.born()
    for _ in range(10):
        await world.pass_(BEAT_MS)
        await world.beat("a")
    assert await world.status() == "online"
    assert await world.store.events(EventQuery()) == []
    assert (await world.node()).version == 1


async def test_after_a_start_every_node_has_its_whole_time(world: World) -> None:
    await world.born(START - 3_600_000)
    await world.pass_(TTL_MS)
    assert await world.status() == "online"
    await world.pass_(SLACK_MS + 2000)
    assert await world.status() == "offline"


async def test_a_heartbeat_that_died_with_its_replica_makes_nobody_offline() -> None:
    world = World("a", "b")
    await world.pass_(TTL_MS * 2)
    await world.born()
    await world.pass_(BEAT_MS)
    await world.beat("a")  # noted in memory, and lost with the replica
    await world.pass_(0)
    world.crash("a")
    await world.pass_(BEAT_MS)
    world.now += 2500
    await world.pass_(1000)
    assert await world.status() == "online"
    await world.pass_(4000)
    assert await world.status() == "online"
    await world.beat("b")
    await world.pass_(BEAT_MS)
    await world.beat("b")
    assert await world.status() == "online"
    await world.pass_(TTL_MS * 2 + SLACK_MS)
    assert await world.status() == "offline"


async def test_a_new_leader_begins_to_count_anew() -> None:
    world = World("a")
    await world.born()
    await world.pass_(TTL_MS - 5000)
    world.crash("a")
    world.boot("b")
    await world.pass_(TTL_MS)
    assert await world.status() == "online"


async def test_a_pause_of_the_whole_machine_is_nobodys_silence(world: World) -> None:
    await world.pass_(TTL_MS * 2)
    await world.born()
    world.now += TTL_MS * 10
    assert TTL_MS * 10 > GAP_MS
    await world.replicas["a"].liveness.tick()
    assert await world.status() == "online"
    await world.pass_(TTL_MS)
    assert await world.status() == "online"


async def test_heartbeats_wait_for_a_store_that_is_away(world: World) -> None:
    await world.pass_(TTL_MS * 2)
    await world.born()
    await world.pass_(BEAT_MS)
    await world.beat("a", active_tasks=4)
    world.store.away = True
    for _ in range(40):
        world.now += 1000
        with pytest.raises(StoreUnavailable):
            await world.replicas["a"].liveness.flush()
    world.store.away = False
    await world.pass_(1000)
    assert (await world.node()).beat.active_tasks == 4
    assert await world.status() == "online"


async def test_two_that_lead_for_a_moment_tell_it_once() -> None:
    world = World("a", "b")
    await world.pass_(TTL_MS * 2)
    await world.born()
    world.now += GAP_MS - 2000
    await world.pass_(TTL_MS)
    for name in ("a", "b"):
        world.alive = [name]
        await world.replicas[name].liveness.tick()
    names = [event.name for event in await world.store.events(EventQuery())]
    assert names.count("WORKSPACE_OFFLINE") <= 1


async def test_of_a_thousand_that_come_back_at_once_all_are_online_after_a_few_commits(world: World) -> None:
    nodes = [
        RegisteredNode(f"00000000-0000-4000-8000-{number:012}", "n", status=NodeStatus.OFFLINE, version=1)
        for number in range(1000)
    ]
    await world.store.apply([NodeChange(node, 0) for node in nodes])
    world.store.commits = 0
    await asyncio.gather(*(world.replicas["a"].nodes.heartbeat(node, Heartbeat(world.now)) for node in nodes))
    assert {node.status for node in await world.store.find(NodeQuery())} == {NodeStatus.ONLINE}
    assert world.store.commits <= 10


async def test_a_heartbeat_is_known_also_while_it_is_being_written_down() -> None:
    class Slow(MemoryNodes):
        going = asyncio.Event()

        async def beat(self, beats: Mapping[str, Heartbeat]) -> None:
            self.going.set()
            await asyncio.Event().wait()

    store = Slow()
    liveness = Liveness(store, Changes(store, lambda _: None), lambda: START)
    liveness.note(NODE, Heartbeat(START, active_tasks=3))
    writing = asyncio.ensure_future(liveness.flush())
    await store.going.wait()
    assert liveness.noted(RegisteredNode(NODE, "One", beat=Heartbeat(START))) == Heartbeat(START, active_tasks=3)
    writing.cancel()
