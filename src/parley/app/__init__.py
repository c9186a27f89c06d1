"""Assembles a server from its settings: an exchange and its ASGI application. Only this package knows every adapter."""

import gc
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from urllib.parse import urlsplit

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from parley import __version__
from parley.app.actions import open_actions, open_conversations
from parley.app.console import beside, controlling, newcomers, open_book, open_console, stored_limits
from parley.app.nodes import Neighbours, open_nodes
from parley.app.pairing import open_edge
from parley.app.sign_in import connected, console_access
from parley.app.tools import extended, extensions_of, open_host, open_tools, serving_tools
from parley.app.workers import Worker
from parley.audit.service import DAY_MS, AuditLog, AuditStore, address_of, enter
from parley.console.address_pages import AddressPages
from parley.definitions.watcher import Definitions
from parley.drivers.org import following_organisations
from parley.drivers.remote import following_cards
from parley.drivers.remote.nodes import absent_node
from parley.errors import ConfigurationError
from parley.execution.admission import Allowance
from parley.execution.cluster import Cluster, Signals
from parley.execution.driver import Driver
from parley.execution.membership import Loop
from parley.faces.a2a.card import CardAccess, Cards
from parley.faces.a2a.jsonrpc import JsonRpc
from parley.faces.a2a.operations import Operations, RequestLog
from parley.faces.a2a.rest import Rest
from parley.faces.a2a.routing import OPERATIONS, Addresses, Discovery, LandingPages, below_agents
from parley.faces.a2a.webhooks import Webhooks
from parley.faces.admin import Admin, MetricsFace, Probes, PublicKeys
from parley.faces.agui.face import AguiFace
from parley.faces.control.face import ControlFace
from parley.faces.mcp.mount import MCP_HEADERS, McpMount
from parley.http.identity import Entrance, Identified
from parley.http.requests import answer
from parley.http.table import OperationTable, SegmentRouter, Tabulated
from parley.http.tracing import OTHER, REFUSAL, Answered, Refused, Traced
from parley.push.hooks import Hooks
from parley.push.service import Push
from parley.records import Records
from parley.runs.frames import Frames, MailDeliveries
from parley.runs.listeners import RunListeners, tell_usage
from parley.runs.rules.access import ROLES, Principal, Role
from parley.runs.rules.usage import Price
from parley.runs.service import Exchange
from parley.runs.store import LogStore
from parley.runs.tracebacks import Tracebacks
from parley.security.credentials import Credentials, Gate
from parley.security.groups import GroupMembers, GroupRules, Groups
from parley.security.keys import ApiKeys
from parley.security.netguard import LOOPBACK, Guard, GuardedTransport, Outbound
from parley.security.secrets import FILE as SECRETS_FILE
from parley.security.secrets import Secrets
from parley.security.signatures import DEVELOPMENT_KEYS, Signatures
from parley.security.signing import SigningKeys
from parley.security.tokens import Tokens
from parley.settings import Settings, blobs_location, postgres_url
from parley.stores.audit import MemoryAudit, PostgresAudit, SqliteAudit
from parley.stores.blobs import open_blobs
from parley.stores.cluster import NoSignals, PostgresCluster, PostgresSignals, Solo
from parley.stores.memory import MemoryStore
from parley.stores.postgres import AUDIT_CONNECTIONS, RECORD_CONNECTIONS, PostgresStore, log_connections, open_pool
from parley.stores.postgres_pool import Pool
from parley.stores.records import MemoryRecords, PostgresRecords, SqliteRecords
from parley.stores.signals import NatsSignals
from parley.stores.sqlite import FILE, SqliteStore
from parley.telemetry import attach, tell
from parley.telemetry.metrics import Metrics

AUDIT_TRIM_S = 600.0
"""Interval at which old entries of the audit log are deleted."""
TRACE_HEADERS = ["X-Request-ID", "traceparent", "tracestate"]
CORS_HEADERS = [
    "A2A-Version", "A2A-Extensions", "Authorization", "X-API-Key", "Content-Type", "Idempotency-Key", "Last-Event-ID",
    "Prefer", "X-Workspace-ID", *MCP_HEADERS, *TRACE_HEADERS,
]  # fmt: skip
GRPC_STOP_S = 2.0
SWITCH_INTERVAL_S = 0.0005
"""The writer thread needs the interpreter back quickly between two statements; the default of five milliseconds
would stall a commit."""


# Why: docs/decisions/operations.md#run-the-garbage-collector-less-often-in-the-server
def tune_interpreter() -> None:
    """Tune the interpreter for a process that only serves."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Loaded modules stay loaded; and most garbage of a server is acyclic, so look for cycles less often.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@asynccontextmanager
async def open_exchange(settings: Settings, drivers: Sequence[Driver]) -> AsyncGenerator[Exchange, None]:
    """Open an exchange. It resumes unfinished work when it starts, and hands over unfinished work when it closes."""
    store, cluster, signals = await _open_store(settings)
    guard, keep_ms = Guard(allowed(settings)), _keep_ms(settings)
    host = open_host(settings, guard)
    async with open_records(settings) as records:
        exchange = Exchange(
            store,
            open_blobs(blobs_location(settings)),
            cluster,
            signals,
            max_payload=settings.max_payload_bytes,
            grace_s=settings.cancel_grace_s,
            lease_s=settings.lease_s,
            keep_ms=keep_ms,
            shared=settings.store == "postgres",
            allowance=Allowance(settings.max_sends_per_second, settings.max_sends_burst, settings.max_unfinished),
            listeners=RunListeners(),
            unlisted=absent_node,
            extend=partial(extended, records, host, guard, keep_ms),
            prices=prices(settings),
            limits=open_book(settings),
        )
        for driver in drivers:
            exchange.add(driver)
        served, toolcalls = exchange.execution.drivers, extensions_of(exchange).calls
        async with (
            following_cards(served, open_guarded=lambda: GuardedTransport(guard)),
            following_organisations(served),
            serving_tools(exchange, settings, host, toolcalls),
        ):
            await exchange.start()
            try:
                yield exchange
            finally:
                await exchange.execution.close()
                await toolcalls.close()
                await exchange.close()


def prices(settings: Settings) -> dict[str, Price]:
    return {model: Price(one.input, one.output, one.cached) for model, one in settings.prices.items()}


def _keep_ms(settings: Settings) -> int | None:
    return int(settings.keep_days * DAY_MS) if settings.keep_days else None


async def _open_store(settings: Settings) -> tuple[LogStore, Cluster, Signals]:
    if settings.store == "postgres":
        url = postgres_url(settings)
        pool = await open_pool(url, most=log_connections(settings.postgres_writers))
        store = PostgresStore(pool, settings.postgres_writers, settings.postgres_batch)
        return store, PostgresCluster(pool, settings.lease_s), _open_signals(settings, url, pool)
    store = MemoryStore() if settings.store == "memory" else SqliteStore(settings.data_dir)
    return store, Solo(store), NoSignals()


def _open_signals(settings: Settings, url: str, pool: Pool) -> Signals:
    if settings.nats_url is None:
        return PostgresSignals(url, pool)
    return NatsSignals(settings.nats_url.get_secret_value(), pool.fetch)


@asynccontextmanager
async def open_records(settings: Settings) -> AsyncGenerator[Records, None]:
    """Open the store of keys and configurations, next to the log. It has its own connections, so that its callers do
    not wait behind the writer."""
    if settings.store == "postgres":
        pool = await open_pool(postgres_url(settings), most=RECORD_CONNECTIONS)
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
    """Return the signing keys for cards and webhooks; `beside` holds those for pair tokens."""
    secrets, rotate, keep = open_secrets(settings), settings.signing_rotate_days or None, settings.signing_keep_days
    pairs = SigningKeys(records, secrets, algorithm="EdDSA", rotate_days=rotate, keep_days=keep)
    jku = base_url and f"{base_url}/.well-known/jwks.json"
    return SigningKeys(records, secrets, beside=pairs, jku=jku, rotate_days=rotate, keep_days=keep)


def gate(settings: Settings, records: Records) -> Gate:
    """Build the gate that authenticates callers on every transport."""
    tokens: Tokens | None = None
    if settings.oidc_issuer is not None:
        audience = settings.oidc_audience or settings.oidc_client_id
        if audience is None:
            raise ConfigurationError(
                "The setting oidc_issuer needs oidc_audience or oidc_client_id.", field="oidc_audience"
            )
        tokens = Tokens(
            settings.oidc_issuer,
            audience,
            settings.oidc_jwks_url,
            # The token that `parley login` has is issued to its own client.
            also=[settings.oidc_cli_client_id] if settings.oidc_cli_client_id else (),
            allow=allowed(settings),
            groups=group_rules(settings),
            members=GroupMembers(records),
        )
    if settings.auth == "none":
        tell("auth.none", warning="Every client that can reach this server may use it.")
    configured = settings.api_key.get_secret_value() if settings.api_key else None
    return Gate(settings.auth, Credentials(ApiKeys(records), tokens, configured))


def group_rules(settings: Settings) -> GroupRules:
    named: dict[str, Role] = {group: role for role in list(ROLES)[::-1] for group in settings.role_groups.get(role, ())}
    default = None if settings.oidc_default_role == "none" else settings.oidc_default_role
    return GroupRules(settings.oidc_groups_claim, named, default)


def signatures(settings: Settings, store: LogStore) -> Signatures:
    """Build the checker of signed requests. Only a server that other machines cannot reach accepts the public
    development secret."""
    keys = {id_: secret.get_secret_value() for id_, secret in settings.runtime_keys.items()}
    if not keys and settings.auth == "local":
        keys = DEVELOPMENT_KEYS
    elif settings.auth != "local" and set(keys.values()) & set(DEVELOPMENT_KEYS.values()):
        tell("signatures.development", warning="One of the runtime_keys is the public development secret: replace it.")
    return Signatures(keys, store, max_ttl_s=settings.runtime_max_ttl_s)


def allowed(settings: Settings) -> list[str]:
    """Return the private addresses that may be called. With `auth = "local"` every caller is on this machine, so its
    addresses are included."""
    return [*settings.allow_hosts, *(LOOPBACK if settings.auth == "local" else ())]


def _identified(
    app: ASGIApp, table: OperationTable, settings: Settings, gate: Gate, signed: Signatures, audit: AuditLog
) -> ASGIApp:
    """Wrap an application so that every request is authenticated, and pages of the allowed origins may call it."""
    origins = frozenset(settings.cors_origins)
    if settings.auth == "local" and "*" in origins:
        raise ConfigurationError(
            "cors_origins must not be * with auth = local: name each origin.", field="cors_origins"
        )
    app = Identified(app, table, gate, origins, signed, settings.max_body_bytes, gate.owner, audit)
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=sorted(origins),
        allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
        allow_headers=CORS_HEADERS,
        expose_headers=[
            "A2A-Version",
            "A2A-Extensions",
            "ETag",
            "Location",
            "Mcp-Session-Id",
            "Retry-After",
            "WWW-Authenticate",
            *TRACE_HEADERS,
        ],
    )


@asynccontextmanager
async def open_faces(
    exchange: Exchange,
    settings: Settings,
    base_url: str,
    grpc_port: int | None = None,
    definitions: Definitions | None = None,
    worker: Worker | None = None,
) -> AsyncGenerator[ASGIApp, None]:
    """Open every face on its path, and the services that faces need in addition to the exchange; gRPC on its own port,
    if one is given. `definitions` are shown in the console. `worker` is this process if it is one."""
    extensions, secrets = extensions_of(exchange), open_secrets(settings)
    async with open_records(settings) as records, auditing(exchange, settings) as audit:
        entrance = gate(settings, records)
        signing, keys = signing_keys(settings, records, base_url), entrance.credentials.keys
        cards = Cards(base_url, _access(settings), signing.sign_card, partial(_default_agent, exchange, settings))
        async with open_push(exchange, settings, records, signing, base_url) as push:
            pages = AddressPages(base_url, settings.platform_name, authenticated=settings.auth == "required")
            a2a = _A2A(exchange, settings, cards, push, pages)
            groups = Groups(keys, records, group_rules(settings))
            access = console_access(settings, entrance, records, secrets, base_url)
            deliveries, signed = MailDeliveries(records), signatures(settings, exchange.store)
            async with (
                open_tools(exchange, settings, records, extensions.guard, _keep_ms(settings)) as tools,
                open_edge(exchange, settings, records, base_url, __version__) as edge,
                open_conversations(exchange, extensions.documents, settings, secrets, base_url) as conversations,
                open_actions(exchange, settings, conversations, __version__) as actions,
                open_nodes(exchange, settings, Neighbours(signing, cards, push, base_url, extensions.guard)) as nodes,
                open_tracebacks(exchange, records) as tracebacks,
                open_metrics(exchange, worker, records) as measured,
                controlling(exchange, records, groups) as working,
                connected(entrance.credentials.tokens),
                _grpc(settings, grpc_port, base_url, a2a.operations, entrance, cards, audit, worker),
            ):
                admin = Admin(exchange, keys, groups, access.stored, signing, push.hooks, deliveries, audit, working)
                most = settings.max_body_bytes
                control = ControlFace(
                    signed, exchange, Frames(exchange, records), a2a.default, deliveries, tools, __version__, most
                )
                faces = [
                    *nodes.faces,  # the most often called first
                    actions,
                    conversations.exports,
                    control,
                    Probes(exchange),
                    measured,
                    admin,
                    PublicKeys(signing),
                    *access.faces,
                    McpMount(exchange, __version__, most),
                    AguiFace(exchange, most),
                    *edge.faces,
                ]
                services = beside(
                    conversations, nodes, push, settings, definitions, actions.document, tracebacks, audit, working
                )
                added = newcomers(exchange, settings, records, edge, extensions.guard)
                async with open_console(exchange, access, edge, measured.metrics, added, base_url, services) as console:
                    table, app = OperationTable([*faces, console], OPERATIONS), a2a.addresses([*faces, console])
                    app = _identified(app, table, settings, entrance, signed, audit)
                    yield Traced(app, measured.metrics.answered, refusals(audit, table))


class _A2A:
    """The part that serves A2A over HTTP, independent of the other faces."""

    def __init__(
        self, exchange: Exchange, settings: Settings, cards: Cards, push: Push, pages: LandingPages | None = None
    ) -> None:
        self._exchange = exchange
        self._settings = settings
        self.operations = Operations(
            exchange, push, cards, self.default, _witness(exchange, settings), poll_s=settings.long_poll_s
        )
        modern = settings.cards == "1.0"
        self.discovery = Discovery(exchange, cards, cards.base_url, self.default, modern=modern, pages=pages)

    def default(self) -> str | None:
        return _default_agent(self._exchange, self._settings)

    def addresses(self, faces: Sequence[Tabulated]) -> Addresses:
        """Build the routes of agents, together with the paths of the other faces."""
        most = self._settings.max_body_bytes
        routes = [*self.discovery.routes(), *(route for face in faces for route in face.routes())]
        return Addresses(
            self._exchange,
            JsonRpc(self.operations, most),
            Rest(self.operations, most),
            self.discovery,
            SegmentRouter(routes, _not_found),
            below_agents(row for face in faces for row in face.operations()),
        )


def _default_agent(exchange: Exchange, settings: Settings) -> str | None:
    """Return the slug of the agent that is at `/` now."""
    return settings.default_agent or next(iter(exchange.agents), None)


@asynccontextmanager
async def open_a2a(
    exchange: Exchange, settings: Settings, records: Records, base_url: str, entrance: Entrance, answered: Answered
) -> AsyncGenerator[tuple[ASGIApp, Cards], None]:
    """Open A2A without other faces, for the callers that `entrance` admits, as a node serves it. Yield the application
    and the cards of its agents."""
    signing = signing_keys(settings, records, base_url)
    cards = Cards(base_url, CardAccess(required=entrance.auth == "required"), signing.sign_card)
    async with open_push(exchange, settings, records, signing, base_url) as push:
        a2a = _A2A(exchange, settings, cards, push)
        probes = Probes(exchange)
        table = OperationTable([probes], OPERATIONS)
        app = Identified(a2a.addresses([probes]), table, entrance, max_body=settings.max_body_bytes)
        yield Traced(app, answered), cards


def _witness(exchange: Exchange, settings: Settings) -> RequestLog | None:
    if not settings.log_requests:
        return None
    witness = RequestLog()
    exchange.listeners.change.add(witness.changed)
    return witness


@asynccontextmanager
async def open_tracebacks(exchange: Exchange, records: Records) -> AsyncGenerator[Tracebacks, None]:
    """While open, the tracebacks of agents' exceptions are stored."""
    tracebacks, listeners = Tracebacks(records), exchange.listeners
    with listeners.raised.listening(tracebacks.raised), listeners.forget.listening(tracebacks.forget):
        yield tracebacks


@asynccontextmanager
async def counting(exchange: Exchange) -> AsyncGenerator[Metrics, None]:
    """Count the metrics of one server. Includes the events of all other servers in this process."""
    metrics = Metrics(exchange.agents)
    detach = attach(metrics.heard)
    try:
        with exchange.listeners.change.listening(tell_usage):
            yield metrics
    finally:
        detach()


@asynccontextmanager
async def open_metrics(
    exchange: Exchange, worker: Worker | None, records: Records
) -> AsyncGenerator[MetricsFace, None]:
    """Open the metrics of a server; those of a worker can be read by the others, and include theirs."""
    async with counting(exchange) as metrics:
        face = MetricsFace(metrics, exchange, stored_limits(exchange, records), worker)
        async with worker.sharing(face.text) if worker else nullcontext():
            yield face


@asynccontextmanager
async def open_push(
    exchange: Exchange, settings: Settings, records: Records, signing: SigningKeys, base_url: str
) -> AsyncGenerator[Push, None]:
    """Open push notifications. While open, and while this replica leads, updates are posted to receivers."""
    outbound = Outbound(extensions_of(exchange).guard)
    push = Push(
        Hooks(records, open_secrets(settings)),
        exchange.store,
        Webhooks(exchange, outbound, signing.sign, base_url),
        lambda: exchange.membership.leads,
        outbound.guard.check_url,
    )
    listeners = exchange.listeners
    try:
        with listeners.watchers.listening(push), listeners.forget.listening(push.forget):
            push.start()
            yield push
    finally:
        await push.close()
        await outbound.close()


@asynccontextmanager
async def _grpc(
    settings: Settings,
    port: int | None,
    base_url: str,
    operations: Operations,
    entrance: Gate,
    cards: Cards,
    audit: AuditLog,
    worker: Worker | None,
) -> AsyncGenerator[None, None]:
    if port is None:
        yield
        return
    from parley.faces.a2a.grpc import Grpc

    async def principal(authorization: str | None, api_key: str | None) -> Principal | None:
        found = await entrance.principal(authorization, api_key)
        enter(audit, principal=found)
        return found

    owner = entrance.owner if entrance.auth == "none" else None
    server = Grpc(operations, principal, settings.max_body_bytes, owner, shared=worker is not None)
    await server.start(settings.host, port)
    if _lists_grpc(settings):
        cards.show_grpc(settings.public_grpc or f"{urlsplit(base_url).hostname}:{server.port}")
    try:
        async with worker.before_leaving(server.stop) if worker else nullcontext():
            yield
    finally:
        await server.stop(GRPC_STOP_S)


def _lists_grpc(settings: Settings) -> bool:
    """Return whether cards list gRPC. Off by default: the specification requires an address without a scheme for gRPC,
    and some clients (google-adk) then refuse the whole card."""
    if settings.card_grpc is not None:
        return settings.card_grpc
    return settings.grpc_port is not None or settings.public_grpc is not None


def _access(settings: Settings) -> CardAccess:
    issuer = settings.oidc_issuer
    discovery = issuer and f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    return CardAccess(settings.auth == "required", discovery)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, 404, {"error": {"code": "not_found", "message": f"There is nothing at {scope['path']}."}})


# The audit log, and what it records beside the acts of services.


@asynccontextmanager
async def open_audit(settings: Settings) -> AsyncGenerator[AuditLog, None]:
    """Open the audit log on connections of its own, so that it does not wait behind the log of runs."""
    keep_ms = None if settings.audit_keep_days is None else int(settings.audit_keep_days * DAY_MS)
    if settings.store == "postgres":
        pool = await open_pool(postgres_url(settings), most=AUDIT_CONNECTIONS)
        try:
            async with _closing(AuditLog(PostgresAudit(pool), keep_ms=keep_ms)) as log:
                yield log
        finally:
            await pool.close()
        return
    store: AuditStore = MemoryAudit() if settings.store == "memory" else SqliteAudit(settings.data_dir / FILE)
    async with _closing(AuditLog(store, keep_ms=keep_ms)) as log:
        yield log


@asynccontextmanager
async def _closing(log: AuditLog) -> AsyncGenerator[AuditLog, None]:
    try:
        yield log
    finally:
        await log.close()


@asynccontextmanager
async def auditing(exchange: Exchange, settings: Settings) -> AsyncGenerator[AuditLog, None]:
    """Open the audit log of a server. While it is open, reloads of definitions are recorded, and while this replica
    leads, old entries are deleted."""
    async with open_audit(settings) as log:

        def reloaded(slugs: Sequence[str]) -> None:
            log.note(log.act("agents.reloaded", kind="agents", target=" ".join(sorted(slugs))))

        async def trim() -> None:
            if exchange.membership.leads:
                await log.trim()

        loop = Loop("audit", AUDIT_TRIM_S, trim)
        loop.start()
        try:
            with exchange.listeners.reloaded.listening(reloaded):
                yield log
        finally:
            await loop.stop()


def refusals(log: AuditLog, table: OperationTable) -> Refused:
    """Return a function that notes refused requests, by their path templates: paths may hold anything."""

    def refused(scope: Scope, route: str, status: int) -> None:
        if route == OTHER:
            route = table.template(scope["method"], scope["path"]) or OTHER
        principal: Principal | None = scope.get("principal")
        code = scope.get(REFUSAL) or ("unauthenticated" if status == 401 else "permission_denied")
        act = log.act(
            "request.refused",
            "" if principal is None else str(principal),
            address=address_of(scope.get("client")),
            result="refused",
            code=code,
            kind="path",
            target=f"{scope['method']} {route}",
        )
        log.refused(act)

    return refused
