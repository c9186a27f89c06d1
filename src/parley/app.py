"""The only place that knows every adapter: settings in, a running exchange and its ASGI application out."""

import gc
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from parley.engine.exchange import Exchange
from parley.engine.ports import Cluster, Driver, LogStore, Records, Signals
from parley.engine.push import Push
from parley.errors import ParleyError
from parley.faces.a2a.address import Addresses
from parley.faces.a2a.card import Access, Cards
from parley.faces.a2a.discovery import Discovery
from parley.faces.a2a.jsonrpc import JsonRpc
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.rest import Rest
from parley.faces.a2a.webhooks import Webhooks
from parley.faces.http import Endpoint, Shielded, answer
from parley.faces.local import LocalOnly
from parley.security.secrets import FILE as SECRET_FILE
from parley.security.secrets import Secrets
from parley.security.signing import SigningKeys
from parley.settings import Settings, postgres_url
from parley.stores.blobs import open_blobs
from parley.stores.cluster import PostgresCluster
from parley.stores.memory import MemoryStore
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.records import MemoryRecords, PostgresRecords, SqliteRecords
from parley.stores.signals import NoSignals, PostgresSignals
from parley.stores.solo import Solo
from parley.stores.sqlite import FILE, SqliteStore

_DAY_MS = 24 * 3600 * 1000
SWITCH_INTERVAL_S = 0.0005
"""The writer thread needs the interpreter back quickly between two statements; five milliseconds stall a commit."""


def tune_interpreter() -> None:
    """For a process that does nothing but serve."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # What is loaded stays loaded; and a server's garbage is mostly acyclic, so look for cycles less often.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@asynccontextmanager
async def open_exchange(settings: Settings, drivers: Sequence[Driver]) -> AsyncGenerator[Exchange, None]:
    """An exchange that has taken up what was left, and hands over what is unfinished when it closes."""
    store, cluster, signals = await _open_store(settings)
    exchange = Exchange(
        store,
        open_blobs(settings.blobs or ("memory:" if settings.store == "memory" else str(settings.data_dir / "blobs"))),
        cluster,
        signals,
        max_payload=settings.max_payload_bytes,
        grace_s=settings.cancel_grace_s,
        lease_s=settings.lease_s,
        keep_ms=int(settings.keep_days * _DAY_MS) if settings.keep_days else None,
        shared=settings.store == "postgres",
    )
    for driver in drivers:
        exchange.add(driver)
    await exchange.start()
    try:
        yield exchange
    finally:
        await exchange.close()


async def _open_store(settings: Settings) -> tuple[LogStore, Cluster, Signals]:
    if settings.store == "postgres":
        url = postgres_url(settings)
        pool = await open_pool(url)
        return PostgresStore(pool), PostgresCluster(pool, settings.lease_s), PostgresSignals(url, pool)
    store = MemoryStore() if settings.store == "memory" else SqliteStore(settings.data_dir)
    return store, Solo(store), NoSignals()


@asynccontextmanager
async def open_faces(exchange: Exchange, settings: Settings, base_url: str) -> AsyncGenerator[ASGIApp, None]:
    """Every face on its path, and what they need beside the exchange."""
    records = await open_records(settings)
    secrets = Secrets(settings.secret_key_file or settings.data_dir / SECRET_FILE)
    signing = SigningKeys(records, secrets, jku=f"{base_url}/.well-known/jwks.json")
    webhooks = Webhooks(exchange)
    push = Push(
        records, secrets, exchange.follow, exchange.commands.state, webhooks, lambda: exchange.membership.leads
    )  # fmt: skip
    push.start()
    try:
        yield _asgi(exchange, settings, base_url, signing, push)
    finally:
        await push.close()
        await webhooks.close()
        await records.close()


def _asgi(exchange: Exchange, settings: Settings, base_url: str, signing: SigningKeys, push: Push) -> ASGIApp:

    def default() -> str | None:
        return settings.default_agent or next(iter(exchange.agents), None)

    cards = Cards(base_url, Access(), signing.sign_card)
    operations = Operations(exchange, push, cards, default)
    discovery = Discovery(exchange, cards, base_url, default, modern=settings.cards == "1.0")
    router = Router(
        [
            Route("/.well-known/ai-catalog.json", Endpoint(discovery.catalog), methods=["GET"]),
            Route("/", Endpoint(discovery.index), methods=["GET"]),
            Route("/healthz", Endpoint(_health), methods=["GET"]),
            Route("/readyz", Endpoint(_Ready(exchange)), methods=["GET"]),
        ],
        redirect_slashes=False,
        default=_not_found,
    )
    rpc = JsonRpc(operations, settings.max_body_bytes)
    rest = Rest(operations, settings.max_body_bytes)
    return Shielded(LocalOnly(Addresses(exchange, rpc, rest, discovery, router)))


async def open_records(settings: Settings) -> Records:
    if settings.store == "postgres":
        return PostgresRecords(await open_pool(postgres_url(settings)))
    return MemoryRecords() if settings.store == "memory" else SqliteRecords(settings.data_dir / FILE)


async def _health(scope: Scope, receive: Receive, send: Send) -> None:
    """The process answers."""
    await answer(send, 200, {"status": "ok"})


class _Ready:
    """The store answers, so work can be accepted."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._exchange.store.run_ids("", 1)
        except ParleyError as error:
            return await answer(send, 503, {"status": "unavailable", "code": error.code})
        return await answer(send, 200, {"status": "ok"})


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 404, {"error": {"code": "not_found", "message": f"There is nothing at {scope['path']}."}})
