"""Assembles the registry of nodes: store, liveness, streams and routes."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from msgspec import Struct

from parley.clock import Clock, now_ms
from parley.drivers.remote.nodes import NodeAgents, NodeLimits
from parley.errors import ParleyError
from parley.execution.driver import Driver
from parley.execution.membership import TIDY_S, Loop
from parley.faces.a2a.card import Cards
from parley.faces.a2a.operations import Operations
from parley.faces.registry.face import Callers
from parley.faces.registry.proxy import ProxiedNodes, ProxyFace, proxy_rpc
from parley.faces.registry.registry import Directory, RegistrationFace
from parley.faces.registry.workspaces import DelegationFace, NodeStreams, Workspaces
from parley.http.table import Tabulated
from parley.nodes.capacity import NodeCapacity
from parley.nodes.delegations import Delegations
from parley.nodes.feed import NodeFeed
from parley.nodes.liveness import FLUSH_S, SWEEP_S, Changes, Liveness
from parley.nodes.proxy import Proxying
from parley.nodes.rules import Heartbeat, RegisteredNode, node_of, slug_of
from parley.nodes.service import Nodes
from parley.nodes.store import NodeStore, UrlCache
from parley.nodes.tokens import Pairs
from parley.push.service import Push
from parley.runs.rules.state import State
from parley.runs.service import Exchange
from parley.security.netguard import Guard, check_places
from parley.security.signing import SigningKeys
from parley.settings import Settings, postgres_url
from parley.stores.node_urls import MemoryUrls, RedisUrls
from parley.stores.nodes import MemoryNodes, PostgresNodes, SqliteNodes
from parley.stores.postgres import NODE_CONNECTIONS, open_pool
from parley.stores.sqlite import FILE
from parley.telemetry import tell

LOOK_S = 1.0
DELEGATIONS_S = 5.0
_DAY_MS = 24 * 3600 * 1000


async def open_node_store(settings: Settings) -> NodeStore:
    if settings.store == "postgres":
        return PostgresNodes(await open_pool(postgres_url(settings), most=NODE_CONNECTIONS))
    return MemoryNodes() if settings.store == "memory" else SqliteNodes(settings.data_dir / FILE)


def open_urls(settings: Settings) -> UrlCache:
    return MemoryUrls() if settings.redis_url is None else RedisUrls(settings.redis_url.get_secret_value())


@asynccontextmanager
async def serving_nodes(exchange: Exchange, settings: Settings) -> AsyncGenerator[Nodes, None]:
    """Open the registry of nodes, as the settings say."""
    keep_ms, ttl_s = int(settings.node_events_days * _DAY_MS), settings.node_ttl_s
    store = await open_node_store(settings)
    async with registering(
        exchange, store, open_urls(settings), ttl_s=ttl_s, keep_ms=keep_ms, ancestors=settings.node_ancestors
    ) as nodes:
        yield nodes


@asynccontextmanager
async def registering(
    exchange: Exchange,
    store: NodeStore,
    urls: UrlCache,
    *,
    ttl_s: float,
    keep_ms: int,
    ancestors: bool = False,
    clock: Clock = now_ms,
) -> AsyncGenerator[Nodes, None]:
    """Keep a registry of nodes on a store, which it closes. While it is open, heartbeats are stored, and the leader
    marks silent nodes."""
    members = exchange.membership
    feed = NodeFeed(store, exchange.offers, exchange.offer)
    changes = Changes(store, feed.grown)
    liveness = Liveness(store, changes, clock, ttl_s=ttl_s, leads=lambda: members.leads, alive=lambda: members.alive)
    nodes = Nodes(store, urls, feed, changes=changes, liveness=liveness, clock=clock, ancestors=ancestors)

    async def tidy() -> None:
        if members.leads:
            await store.forget(clock() - keep_ms)

    loops = [
        Loop("nodes.beats", FLUSH_S, liveness.flush),
        Loop("nodes.liveness", SWEEP_S, liveness.tick),
        Loop("nodes.tidy", TIDY_S, tidy),
    ]
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
    """The nodes and their faces."""

    nodes: Nodes
    faces: Sequence[Tabulated]


class Neighbours(Struct, frozen=True):
    """Parts of a server that nodes need."""

    signing: SigningKeys
    cards: Cards
    push: Push
    base_url: str
    guard: Guard


@asynccontextmanager
async def open_nodes(exchange: Exchange, settings: Settings, beside: Neighbours) -> AsyncGenerator[Serving, None]:
    """Open the routes for nodes and for their operators."""
    guard, signing = beside.guard, beside.signing
    pairs = Pairs(signing.beside or signing, beside.base_url, life_s=settings.node_pair_s)
    async with serving_nodes(exchange, settings) as nodes:
        callers, capacity = Callers(nodes, settings.auth), NodeCapacity(nodes, exchange.store)
        proxying = Proxying(exchange, nodes, capacity, partial(check_places, guard))
        limits = NodeLimits(settings.proxy_timeout_s, settings.proxy_max_response_bytes, settings.delegation_retry_s)
        proxied = ProxiedNodes(exchange, beside.push, proxying, settings.proxy_timeout_s)
        operations = Operations(
            exchange, beside.push, beside.cards, lambda: None, recipients=proxied, poll_s=settings.long_poll_s
        )
        most = settings.proxy_max_request_bytes
        delegations = Delegations(exchange, nodes, capacity, ceiling_s=settings.delegation_timeout_s)
        agents = NodeAgents(nodes, capacity, pairs, guard, limits)
        async with employing(exchange, nodes, agents), publishing(exchange, delegations):
            faces = [
                RegistrationFace(nodes, callers, pairs, guard),
                Directory(nodes, callers, pairs),
                NodeStreams(nodes, callers),
                Workspaces(nodes, callers, guard),
                ProxyFace(nodes, callers, proxying, proxy_rpc(operations, most), beside.cards, most),
                DelegationFace(delegations, callers),
            ]
            yield Serving(nodes, faces)


@asynccontextmanager
async def publishing(exchange: Exchange, delegations: Delegations) -> AsyncGenerator[None, None]:
    """Publish changes of delegations while open; the leader ends those that take too long."""

    async def tick() -> None:
        if exchange.membership.leads:
            await delegations.tick()

    ending = Loop("nodes.delegations", DELEGATIONS_S, tick)
    exchange.listeners.change.add(delegations.changed)
    ending.start()
    try:
        yield
    finally:
        await ending.stop()
        exchange.listeners.change.remove(delegations.changed)
        await delegations.close()


class Employed(Protocol):
    """Nodes as agents."""

    @property
    def capacity(self) -> NodeCapacity: ...

    def driver(self, slug: str) -> Driver | None: ...

    async def close(self) -> None: ...


@asynccontextmanager
async def employing(exchange: Exchange, nodes: Nodes, agents: Employed) -> AsyncGenerator[None, None]:
    """Let nodes be called through this server while open. Work that waits for a node begins when the node has capacity:
    at its next heartbeat, or shortly after another replica received that heartbeat or noticed the capacity."""

    async def look() -> None:
        runs = await exchange.store.runs_in(State.SUBMITTED)
        for slug in dict.fromkeys(run.agent for run in runs if node_of(run.agent) is not None):
            exchange.execution.dispatch(slug)

    def beaten(node: RegisteredNode, _: Heartbeat) -> None:
        if (slug := slug_of(node.id)) in agents.capacity.crowded:
            exchange.execution.dispatch(slug)

    exchange.serve_unlisted(agents.driver)
    nodes.beats.add(beaten)
    looking = Loop("nodes.waiting", LOOK_S, look)
    await look()
    looking.start()
    try:
        yield
    finally:
        await looking.stop()
        nodes.beats.remove(beaten)
        exchange.serve_unlisted(lambda _: None)
        await exchange.execution.abandon(lambda run: node_of(run.agent) is not None)
        await agents.close()
