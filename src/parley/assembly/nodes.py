"""Nodes that find each other: their store, their clock, their streams and their routes."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from msgspec import Struct
from starlette.routing import Route

from parley.clock import now_ms
from parley.core.events import Event
from parley.core.nodes import Beat, Node, node_of, slug_of
from parley.core.runs import Run, State
from parley.drivers.remote.nodes import NodeAgents, NodeLimits
from parley.engine.changes import Changes
from parley.engine.delegations import Delegations
from parley.engine.exchange import Exchange
from parley.engine.liveness import FLUSH_S, SWEEP_S, Liveness
from parley.engine.membership import TIDY_S, Loop
from parley.engine.nodefeed import NodeFeed
from parley.engine.nodes import Nodes
from parley.engine.ports.nodes import NodeStore, UrlCache
from parley.engine.proxying import Proxying
from parley.engine.push import Push
from parley.engine.rooms import Rooms
from parley.errors import ParleyError
from parley.faces.a2a.card import Cards
from parley.faces.proxy.delegations import DelegationCalls
from parley.faces.proxy.face import Proxy, ProxyRpc
from parley.faces.proxy.operations import ProxyOperations
from parley.faces.registry.callers import Callers
from parley.faces.registry.calls import RegistryCalls
from parley.faces.registry.streams import StreamCalls
from parley.faces.registry.workspaces import WorkspaceCalls
from parley.security.netguard import Guard, check_places
from parley.security.pairs import Pairs
from parley.security.signing import SigningKeys
from parley.settings import Settings, postgres_url
from parley.stores.nodes import MemoryNodes, PostgresNodes, SqliteNodes
from parley.stores.postgres import open_pool
from parley.stores.sqlite import FILE
from parley.stores.urls import MemoryUrls, RedisUrls
from parley.telemetry import tell

CONNECTIONS = 4
LOOK_S = 1.0
DELEGATIONS_S = 5.0
_DAY_MS = 24 * 3600 * 1000


async def open_node_store(settings: Settings) -> NodeStore:
    if settings.store == "postgres":
        return PostgresNodes(await open_pool(postgres_url(settings), most=CONNECTIONS))
    return MemoryNodes() if settings.store == "memory" else SqliteNodes(settings.data_dir / FILE)


def open_urls(settings: Settings) -> UrlCache:
    return MemoryUrls() if settings.redis_url is None else RedisUrls(settings.redis_url.get_secret_value())


@asynccontextmanager
async def serving_nodes(exchange: Exchange, settings: Settings) -> AsyncGenerator[Nodes, None]:
    """While it is open, heartbeats are written down, and silent nodes found when this replica leads."""
    store, urls, members = await open_node_store(settings), open_urls(settings), exchange.membership
    feed = NodeFeed(store, exchange.offers, exchange.offer)
    changes = Changes(store, feed.grown)
    liveness = Liveness(
        store, changes, now_ms, ttl_s=settings.node_ttl_s, leads=lambda: members.leads, alive=lambda: members.alive
    )
    nodes = Nodes(store, urls, feed, changes=changes, liveness=liveness, ancestors=settings.node_ancestors)

    async def tidy() -> None:
        if members.leads:
            await store.forget(now_ms() - int(settings.node_events_days * _DAY_MS))

    loops = [
        Loop("nodes.beats", FLUSH_S, liveness.flush), Loop("nodes.liveness", SWEEP_S, liveness.tick),
        Loop("nodes.tidy", TIDY_S, tidy),
    ]  # fmt: skip
    for loop in loops:
        loop.start()
    try:
        yield nodes
    finally:
        for loop in loops:
            await loop.stop()
        await feed.close()
        await changes.close()
        await _last_flush(liveness)
        await urls.close()
        await store.close()


async def _last_flush(liveness: Liveness) -> None:
    try:
        await liveness.flush()
    except ParleyError as error:
        tell("nodes.not_kept", error=error)


class Serving(Struct, frozen=True):
    """The nodes, and the routes to them."""

    nodes: Nodes
    routes: list[Route]


class Neighbours(Struct, frozen=True):
    """What nodes need of the rest of a server."""

    signing: SigningKeys
    cards: Cards
    push: Push
    base_url: str
    guard: Guard


@asynccontextmanager
async def open_nodes(
    exchange: Exchange, settings: Settings, beside: Neighbours
) -> AsyncGenerator[Serving, None]:  # fmt: skip
    """The routes of nodes and of those who look after them."""
    guard, signing = beside.guard, beside.signing
    pairs = Pairs(signing.beside or signing, beside.base_url, life_s=settings.node_pair_s)
    async with serving_nodes(exchange, settings) as nodes:
        callers, rooms = Callers(nodes, settings.auth), Rooms(nodes, exchange.store)
        proxying = Proxying(exchange, nodes, rooms, partial(check_places, guard))
        limits = NodeLimits(
            settings.proxy_timeout_s, settings.proxy_max_response_bytes, settings.delegation_retry_s
        )  # fmt: skip
        operations = ProxyOperations(
            exchange, beside.push, beside.cards, nodes, proxying, settings.proxy_timeout_s
        )  # fmt: skip
        most = settings.proxy_max_request_bytes
        delegations = Delegations(exchange, nodes, rooms, ceiling_s=settings.delegation_timeout_s)
        agents = NodeAgents(nodes, rooms, pairs, guard, limits)
        async with employing(exchange, nodes, agents), telling(exchange, delegations):
            routes = [
                *RegistryCalls(nodes, callers, pairs, guard).routes(),
                *StreamCalls(nodes, callers).routes(),
                *WorkspaceCalls(nodes, callers, guard).routes(),
                *Proxy(nodes, callers, proxying, ProxyRpc(operations, most * 2), beside.cards, most).routes(),
                *DelegationCalls(delegations, callers).routes(),
            ]
            yield Serving(nodes, routes)


@asynccontextmanager
async def telling(exchange: Exchange, delegations: Delegations) -> AsyncGenerator[None, None]:
    """While it is open, what becomes of delegations is told, and the leader ends those that take too long."""
    before = exchange.on_change

    def changed(run: Run, events: Sequence[Event]) -> None:
        delegations.changed(run, events)
        if before is not None:
            before(run, events)

    async def tick() -> None:
        if exchange.membership.leads:
            await delegations.tick()

    exchange.on_change = changed
    ending = Loop("nodes.delegations", DELEGATIONS_S, tick)
    ending.start()
    try:
        yield
    finally:
        await ending.stop()
        exchange.on_change = before
        await delegations.close()


@asynccontextmanager
async def employing(exchange: Exchange, nodes: Nodes, agents: NodeAgents) -> AsyncGenerator[None, None]:
    """While it is open, nodes can be asked through us, and what waits for one begins when it has room: at its next
    heartbeat, or within moments where that, or the room, was seen by another replica."""

    async def look() -> None:
        runs = await exchange.store.runs_in(State.SUBMITTED)
        for slug in {run.agent for run in runs if node_of(run.agent) is not None}:
            exchange.execution.dispatch(slug)

    def beaten(node: Node, _: Beat) -> None:
        if (slug := slug_of(node.id)) in agents.rooms.crowded:
            exchange.execution.dispatch(slug)

    exchange.serve_unlisted(agents.driver)
    nodes.on_beat = beaten
    looking = Loop("nodes.waiting", LOOK_S, look)
    await look()
    looking.start()
    try:
        yield
    finally:
        await looking.stop()
        nodes.on_beat = None
        exchange.serve_unlisted(lambda _: None)
        await exchange.execution.abandon(lambda run: node_of(run.agent) is not None)
        await agents.close()
