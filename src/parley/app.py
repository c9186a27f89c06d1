"""The only place that knows every adapter: settings in, a running exchange and its ASGI application out."""

import gc
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from parley import __version__
from parley.assembly.console import beside, newcomers, open_console
from parley.assembly.conversations import open_conversations
from parley.assembly.edge import open_edge
from parley.assembly.modes import open_modes
from parley.assembly.nodes import Neighbours, open_nodes
from parley.assembly.packs import open_tools
from parley.assembly.tools import open_toolcalls
from parley.console.addresses import AddressPages
from parley.definitions.watching import Problem
from parley.drivers.org import following_organisations
from parley.drivers.remote import OUTSIDE, tending
from parley.drivers.remote.nodes import absent_node
from parley.engine.admission import STOPPING_WAIT_S, Allowance
from parley.engine.conducting import Conductor
from parley.engine.deliveries import Deliveries
from parley.engine.exchange import Exchange
from parley.engine.frames import Frames
from parley.engine.hooks import Hooks
from parley.engine.ports import Cluster, Driver, LogStore, Records, Signals
from parley.engine.push import Push
from parley.engine.readiness import Readiness
from parley.errors import ConfigurationError, Stopping
from parley.faces.a2a.address import Addresses
from parley.faces.a2a.card import Access, Cards
from parley.faces.a2a.discovery import Discovery, Pages
from parley.faces.a2a.jsonrpc import JsonRpc
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.rest import Rest
from parley.faces.a2a.webhooks import Webhooks
from parley.faces.a2a.witness import Witness
from parley.faces.admin import Admin
from parley.faces.http import Endpoint, answer
from parley.faces.identity import Entrance, Identified
from parley.faces.mcp.assembly import MCP_HEADERS, mcp_routes
from parley.faces.metrics import MetricsFace
from parley.faces.modes.face import refuse as refuse_task
from parley.faces.modes.words import PREFIX as MODES
from parley.faces.runtime.deliveries import Deliveries as DeliveriesFace
from parley.faces.runtime.face import Runtime
from parley.faces.runtime.operations import routes as runtime_routes
from parley.faces.runtime.routes import PREFIX as RUNTIME
from parley.faces.runtime.runs import Runs
from parley.faces.runtime.stream import Tail
from parley.faces.runtime.tools import Tooling
from parley.faces.tracing import Answered, Traced
from parley.security.credentials import Credentials, Gate
from parley.security.keys import ApiKeys
from parley.security.netguard import LOOPBACK, Guard, GuardedTransport, Outbound
from parley.security.secrets import FILE as SECRETS_FILE
from parley.security.secrets import Secrets
from parley.security.signatures import DEVELOPMENT_KEYS, Signatures
from parley.security.signing import SigningKeys
from parley.security.tokens import Tokens
from parley.settings import Settings, blobs_location, postgres_url
from parley.stores.blobs import open_blobs
from parley.stores.cluster import PostgresCluster
from parley.stores.memory import MemoryStore
from parley.stores.pool import MAX_CONNECTIONS
from parley.stores.postgres import SPARE_CONNECTIONS, PostgresStore, open_pool
from parley.stores.records import MemoryRecords, PostgresRecords, SqliteRecords
from parley.stores.signals import NoSignals, PostgresSignals
from parley.stores.solo import Solo
from parley.stores.sqlite import FILE, SqliteStore
from parley.telemetry import attach, tell
from parley.telemetry.metrics import Metrics

_DAY_MS = 24 * 3600 * 1000
TRACE_HEADERS = ["X-Request-ID", "traceparent", "tracestate"]
CORS_HEADERS = [
    "A2A-Version", "A2A-Extensions", "Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "Last-Event-ID",
    "Prefer", "X-Workspace-ID", *MCP_HEADERS, *TRACE_HEADERS,
]  # fmt: skip
GRPC_STOP_S = 2.0
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
        open_blobs(blobs_location(settings)),
        cluster,
        signals,
        max_payload=settings.max_payload_bytes,
        grace_s=settings.cancel_grace_s,
        lease_s=settings.lease_s,
        keep_ms=_keep_ms(settings),
        shared=settings.store == "postgres",
        allowance=Allowance(settings.max_sends_per_second, settings.max_sends_burst, settings.max_unfinished),
    )
    exchange.execution.conduct = Conductor(exchange).conducted
    exchange.serve_unlisted(absent_node)
    for driver in drivers:
        exchange.add(driver)
    OUTSIDE.open_guarded = lambda: GuardedTransport(Guard(allowed(settings)))
    served, guard = exchange.execution.drivers, Guard(allowed(settings))
    async with (
        tending(served), following_organisations(served), open_records(settings) as records,
        open_toolcalls(exchange, settings, records, guard, _keep_ms(settings)) as toolcalls,
    ):  # fmt: skip
        await exchange.start()
        try:
            yield exchange
        finally:
            await exchange.execution.close()
            await toolcalls.close()
            await exchange.close()


def _keep_ms(settings: Settings) -> int | None:
    return int(settings.keep_days * _DAY_MS) if settings.keep_days else None


async def _open_store(settings: Settings) -> tuple[LogStore, Cluster, Signals]:
    if settings.store == "postgres":
        url = postgres_url(settings)
        pool = await open_pool(url, most=max(MAX_CONNECTIONS, settings.postgres_writers + SPARE_CONNECTIONS))
        store = PostgresStore(pool, settings.postgres_writers, settings.postgres_batch)
        return store, PostgresCluster(pool, settings.lease_s), PostgresSignals(url, pool)
    store = MemoryStore() if settings.store == "memory" else SqliteStore(settings.data_dir)
    return store, Solo(store), NoSignals()


@asynccontextmanager
async def open_records(settings: Settings) -> AsyncGenerator[Records, None]:
    """Keys and configurations, where the log is; connections of their own, so that nobody waits behind the writer."""
    if settings.store == "postgres":
        pool = await open_pool(postgres_url(settings), most=2)
        try:
            yield PostgresRecords(pool)
        finally:
            await pool.close()
        return
    records = MemoryRecords() if settings.store == "memory" else SqliteRecords(settings.data_dir / FILE)
    try:
        yield records
    finally:
        await records.close()


def open_secrets(settings: Settings) -> Secrets:
    return Secrets(settings.secret_key_file or settings.data_dir / SECRETS_FILE)


def signing_keys(settings: Settings, records: Records, base_url: str | None = None) -> SigningKeys:
    """Those for cards and webhooks, and beside them those for pair tokens."""
    secrets, rotate, keep = open_secrets(settings), settings.signing_rotate_days or None, settings.signing_keep_days
    pairs = SigningKeys(records, secrets, algorithm="EdDSA", rotate_days=rotate, keep_days=keep)
    jku = base_url and f"{base_url}/.well-known/jwks.json"
    return SigningKeys(records, secrets, beside=pairs, jku=jku, rotate_days=rotate, keep_days=keep)


def gate(settings: Settings, records: Records) -> Gate:
    """Who may pass, on every transport."""
    tokens: Tokens | None = None
    if settings.oidc_issuer is not None:
        if settings.oidc_audience is None:
            raise ConfigurationError("The setting oidc_issuer needs oidc_audience.", field="oidc_audience")
        tokens = Tokens(
            settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks_url, allow=allowed(settings)
        )  # fmt: skip
    if settings.auth == "none":
        tell("auth.none", warning="Everybody who can reach this server may use it.")
    configured = settings.api_key.get_secret_value() if settings.api_key else None
    return Gate(settings.auth, Credentials(ApiKeys(records), tokens, configured))


def signatures(settings: Settings, store: LogStore) -> Signatures:
    """Checks signed requests. Only a server that nobody else can reach knows the secret that everybody knows."""
    keys = {id_: secret.get_secret_value() for id_, secret in settings.runtime_keys.items()}
    if not keys and settings.auth == "local":
        keys = DEVELOPMENT_KEYS
    elif settings.auth != "local" and set(keys.values()) & set(DEVELOPMENT_KEYS.values()):
        tell("signatures.development", warning="Everybody knows one of the runtime_keys: it is the development secret.")
    return Signatures(keys, store, max_ttl_s=settings.runtime_max_ttl_s)


def allowed(settings: Settings) -> list[str]:
    """With `auth = "local"` everything here is this machine's own, so its addresses are no secret from anybody."""
    return [*settings.allow_hosts, *(LOOPBACK if settings.auth == "local" else ())]


def _identified(app: ASGIApp, settings: Settings, gate: Gate, signed: Signatures) -> ASGIApp:
    """Nobody reaches a face unidentified; a page of an allowed origin may ask."""
    origins = frozenset(settings.cors_origins)
    if settings.auth == "local" and "*" in origins:
        raise ConfigurationError("With auth = local any page could ask: name the cors_origins.", field="cors_origins")
    app = Identified(app, gate, origins, signed, settings.max_body_bytes, {MODES: refuse_task}, gate.owner)
    if not origins:
        return app
    return CORSMiddleware(
        app, allow_origins=sorted(origins), allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=CORS_HEADERS, expose_headers=[
            "A2A-Version", "A2A-Extensions", "ETag", "Location", "Mcp-Session-Id", "Retry-After", "WWW-Authenticate",
            *TRACE_HEADERS,
        ],
    )  # fmt: skip


@asynccontextmanager
async def open_faces(
    exchange: Exchange, settings: Settings, base_url: str, grpc_port: int | None = None,
    problems: Callable[[], list[Problem]] = list,
) -> AsyncGenerator[ASGIApp, None]:  # fmt: skip
    """Every face on its path, and what they need beside the exchange; gRPC on a port of its own, if there is one.
    `problems` are the definitions that cannot be used, for the console."""
    async with open_records(settings) as records:
        signing = signing_keys(settings, records, base_url)
        entrance = gate(settings, records)
        default = partial(_default_agent, exchange, settings)
        cards = Cards(base_url, _access(settings), signing.sign_card, default)
        async with open_push(exchange, settings, records, signing, base_url) as push:
            pages = AddressPages(base_url, settings.platform_name, authenticated=settings.auth == "required")
            a2a = _A2A(exchange, settings, cards, push, pages)
            deliveries = Deliveries(records)
            admin = Admin(exchange, entrance.credentials.keys, signing, push.hooks, deliveries)
            signed = signatures(settings, exchange.store)
            neighbours = Neighbours(signing, cards, push, base_url, Guard(allowed(settings)))
            async with (
                open_tools(exchange, settings, records, Guard(allowed(settings)), _keep_ms(settings)) as tools,
                open_edge(exchange, settings, records, base_url, __version__) as edge,
                open_conversations(exchange, settings, open_secrets(settings), base_url) as talks,
                open_modes(exchange, settings, talks, __version__) as modes,
                open_nodes(exchange, settings, neighbours) as nodes,
                counting(exchange) as metrics,
                open_console(
                    exchange, entrance, open_secrets(settings), edge, metrics,
                    newcomers(exchange, settings, records, edge, Guard(allowed(settings))), base_url, __version__,
                    beside(talks, nodes, push, settings, problems),
                ) as console,
                _grpc(settings, grpc_port, base_url, a2a.operations, entrance, cards),
            ):  # fmt: skip
                runs = Runs(exchange, Frames(exchange, records), a2a.default)
                table = runtime_routes(runs, Tail(exchange), DeliveriesFace(deliveries), Tooling(tools), __version__)
                routes = [
                    *nodes.routes,  # the most often asked first
                    *modes,
                    Mount(RUNTIME, Runtime(signed, table, settings.max_body_bytes)),
                    *_plain_routes(exchange, a2a.discovery),
                    *MetricsFace(metrics, exchange).routes(),
                    *admin.routes(),
                    *mcp_routes(exchange, __version__, settings.max_body_bytes),
                    *edge.routes,
                    *console,
                ]
                faces = a2a.addresses(routes)
                yield Traced(_identified(faces, settings, entrance, signed), metrics.answered)


class _A2A:
    """What serves A2A over HTTP, whatever is served beside it."""

    def __init__(
        self, exchange: Exchange, settings: Settings, cards: Cards, push: Push, pages: Pages | None = None
    ) -> None:
        self._exchange = exchange
        self._settings = settings
        self.operations = Operations(exchange, push, cards, self.default, _witness(exchange, settings))
        modern = settings.cards == "1.0"
        self.discovery = Discovery(exchange, cards, cards.base_url, self.default, modern=modern, pages=pages)

    def default(self) -> str | None:
        return _default_agent(self._exchange, self._settings)

    def addresses(self, routes: Sequence[BaseRoute]) -> Addresses:
        most = self._settings.max_body_bytes
        return Addresses(
            self._exchange, JsonRpc(self.operations, most), Rest(self.operations, most), self.discovery,
            Router(routes, redirect_slashes=False, default=_not_found),
        )  # fmt: skip


def _default_agent(exchange: Exchange, settings: Settings) -> str | None:
    """The slug of the agent behind `/`, as of now."""
    return settings.default_agent or next(iter(exchange.agents), None)


@asynccontextmanager
async def open_a2a(
    exchange: Exchange, settings: Settings, records: Records, base_url: str, entrance: Entrance, answered: Answered
) -> AsyncGenerator[tuple[ASGIApp, Cards], None]:
    """A2A and nothing else, for whoever `entrance` lets in: what a node serves. With it the cards of its agents."""
    signing = signing_keys(settings, records, base_url)
    cards = Cards(base_url, Access(required=entrance.auth == "required"), signing.sign_card)
    async with open_push(exchange, settings, records, signing, base_url) as push:
        a2a = _A2A(exchange, settings, cards, push)
        faces = a2a.addresses(_plain_routes(exchange, a2a.discovery))
        yield Traced(Identified(faces, entrance, max_body=settings.max_body_bytes), answered), cards


def _witness(exchange: Exchange, settings: Settings) -> Witness | None:
    if not settings.log_requests:
        return None
    witness = Witness()
    exchange.on_change = witness.changed
    return witness


@asynccontextmanager
async def counting(exchange: Exchange) -> AsyncGenerator[Metrics, None]:
    """The figures of one server. Whatever is told in this process is counted, also of others in it."""
    metrics = Metrics(exchange.agents)
    detach = attach(metrics.heard)
    try:
        yield metrics
    finally:
        detach()


@asynccontextmanager
async def open_push(
    exchange: Exchange, settings: Settings, records: Records, signing: SigningKeys, base_url: str
) -> AsyncGenerator[Push, None]:
    """Tells receivers of updates while it is open, when this replica leads."""
    outbound = Outbound(Guard(allowed(settings)))
    push = Push(
        Hooks(records, open_secrets(settings)), exchange.store, Webhooks(exchange, outbound, signing.sign, base_url),
        lambda: exchange.membership.leads, outbound.guard.check_url,
    )  # fmt: skip
    exchange.on_growth = push.grown
    exchange.retention.forget_too = push.forget
    push.start()
    try:
        yield push
    finally:
        exchange.on_growth = exchange.retention.forget_too = None
        await push.close()
        await outbound.close()


@asynccontextmanager
async def _grpc(
    settings: Settings, port: int | None, base_url: str, operations: Operations, entrance: Gate, cards: Cards
) -> AsyncGenerator[None, None]:
    if port is None:
        yield
        return
    from parley.faces.a2a.grpc import Grpc

    owner = entrance.owner if entrance.auth == "none" else None
    server = Grpc(operations, entrance.principal, settings.max_body_bytes, owner)
    await server.start(settings.host, port)
    if _lists_grpc(settings):
        cards.show_grpc(settings.public_grpc or f"{urlsplit(base_url).hostname}:{server.port}")
    try:
        yield
    finally:
        await server.stop(GRPC_STOP_S)


def _lists_grpc(settings: Settings) -> bool:
    """Not unless asked for: an address without a scheme, as the specification wants it for gRPC, makes some clients
    refuse the whole card (google-adk)."""
    if settings.card_grpc is not None:
        return settings.card_grpc
    return settings.grpc_port is not None or settings.public_grpc is not None


def _plain_routes(exchange: Exchange, discovery: Discovery) -> list[Route]:
    return [
        Route("/.well-known/ai-catalog.json", Endpoint(discovery.catalog), methods=["GET"]),
        Route("/", Endpoint(discovery.index), methods=["GET"]),
        Route("/healthz", Endpoint(_health), methods=["GET"]),
        Route("/readyz", Endpoint(_Ready(exchange)), methods=["GET"]),
    ]


def _access(settings: Settings) -> Access:
    issuer = settings.oidc_issuer
    discovery = issuer and f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    return Access(settings.auth == "required", discovery)


async def _health(scope: Scope, receive: Receive, send: Send) -> None:
    """The process answers."""
    await answer(send, 200, {"status": "ok"})


class _Ready:
    """The store reads and writes, so work can be accepted."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._readiness = Readiness(exchange.store)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._exchange.admission.stopping:
            wait = [(b"retry-after", b"%d" % STOPPING_WAIT_S)]
            return await answer(send, 503, {"status": "stopping", "code": Stopping.code}, wait)
        if (error := await self._readiness.error()) is not None:
            return await answer(send, 503, {"status": "unavailable", "code": error.code})
        return await answer(send, 200, {"status": "ok"})


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 404, {"error": {"code": "not_found", "message": f"There is nothing at {scope['path']}."}})
