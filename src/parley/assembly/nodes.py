"""Nodes that find each other: their store, their clock, their streams and their routes."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.routing import Route

from parley.clock import now_ms
from parley.engine.changes import Changes
from parley.engine.exchange import Exchange
from parley.engine.liveness import FLUSH_S, SWEEP_S, Liveness
from parley.engine.membership import TIDY_S, Loop
from parley.engine.nodefeed import NodeFeed
from parley.engine.nodes import Nodes
from parley.engine.ports.nodes import NodeStore, UrlCache
from parley.errors import ParleyError
from parley.faces.registry.callers import Callers
from parley.faces.registry.calls import RegistryCalls
from parley.faces.registry.streams import StreamCalls
from parley.faces.registry.workspaces import WorkspaceCalls
from parley.security.netguard import Guard
from parley.security.pairs import Pairs
from parley.security.signing import SigningKeys
from parley.settings import Settings, postgres_url
from parley.stores.nodes import MemoryNodes, PostgresNodes, SqliteNodes
from parley.stores.postgres import open_pool
from parley.stores.sqlite import FILE
from parley.stores.urls import MemoryUrls, RedisUrls
from parley.telemetry import tell

CONNECTIONS = 4
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


@asynccontextmanager
async def open_nodes(
    exchange: Exchange, settings: Settings, signing: SigningKeys, base_url: str, guard: Guard
) -> AsyncGenerator[list[Route], None]:
    """The routes of nodes and of those who look after them."""
    async with serving_nodes(exchange, settings) as nodes:
        callers = Callers(nodes, settings.auth)
        pairs = Pairs(signing.beside or signing, base_url, life_s=settings.node_pair_s)
        yield [
            *RegistryCalls(nodes, callers, pairs, guard).routes(),
            *StreamCalls(nodes, callers).routes(),
            *WorkspaceCalls(nodes, callers, guard).routes(),
        ]
