"""Assembles the console and the services that its pages use."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx2
import msgspec

from parley import __version__
from parley.app.actions import ConversationServices
from parley.app.nodes import Serving
from parley.app.pairing import PairedServices
from parley.app.sign_in import ConsoleAccess
from parley.audit.service import AuditLog
from parley.budgets.service import LOOK_S as LIMITS_LOOK_S
from parley.budgets.service import LimitBook, StoredLimits, entries_of
from parley.client.cards import MAX_BYTES, TIMEOUT_S
from parley.clock import now_ms
from parley.console.face import Console
from parley.console.request import ApiDocument, Beside, ConsoleContext, Newcomers
from parley.definitions.added import LOOK_S, Added
from parley.definitions.watcher import Definitions
from parley.errors import ConfigurationError, Invalid
from parley.execution.admission import LOOK_S as STOPS_LOOK_S
from parley.execution.admission import KillSwitch, WorkControl
from parley.execution.membership import Loop
from parley.faces.actions.messages import PREFIX as ACTIONS
from parley.faces.control.document import API as CONTROL
from parley.faces.control.face import PREFIX as RUNTIME
from parley.faces.control.face import ControlFace
from parley.faces.pairing.document import DOCUMENT as PAIRED_DOCUMENT
from parley.faces.pairing.document import document as paired_document
from parley.push.service import Push
from parley.records import Records
from parley.runs.service import Exchange
from parley.runs.tracebacks import Tracebacks
from parley.runs.usage_reports import UsageReports
from parley.security.groups import Groups
from parley.security.netguard import Guard, GuardedTransport
from parley.security.outbound import LimitedTransport
from parley.security.secrets import Sessions
from parley.settings import Settings
from parley.telemetry.metrics import EVERY_S, Metrics, Samples

CLEAN_S = 600.0
"""Interval at which expired sessions are deleted."""


def beside(
    talks: ConversationServices,
    nodes: Serving,
    push: Push,
    settings: Settings,
    definitions: Definitions | None,
    actions: Callable[[], bytes],
    tracebacks: Tracebacks,
    audit: AuditLog,
    control: WorkControl,
) -> Beside:
    """`actions` makes the OpenAPI document of the actions."""
    address, api = talks.exports.address, api_documents(actions, __version__)
    return Beside(
        talks.documents,
        talks.conversations,
        address,
        nodes.nodes,
        push.hooks,
        settings,
        definitions,
        api,
        tracebacks,
        audit,
        control,
    )


def api_documents(actions: Callable[[], bytes], version: str) -> list[ApiDocument]:
    """Return the OpenAPI documents of the faces that have one, with the credentials that each face needs."""

    def runtime() -> bytes:
        return msgspec.json.encode(CONTROL.document(ControlFace.operations(), version))

    def paired() -> bytes:
        return msgspec.json.encode(paired_document(version))

    return [
        ApiDocument(
            "actions",
            "Plans, deliverables and conversations",
            "One endpoint for every action on plans, deliverables, tools, conversations and orchestrations.",
            f"{ACTIONS}/openapi.json",
            "Needs the credentials of a caller.",
            actions,
        ),
        ApiDocument(
            "runtime",
            "Runtime control plane",
            "Signed requests that start runs, feed them and follow them.",
            f"{RUNTIME}/openapi.json",
            "Calls need a signed request; this page needs the credentials of a caller.",
            runtime,
        ),
        ApiDocument(
            "runtimes",
            "Paired runtimes",
            "Calls of runtimes that pull tasks for agents behind NAT.",
            PAIRED_DOCUMENT,
            "Needs no credentials.",
            paired,
            public=True,
        ),
    ]


def newcomers(
    exchange: Exchange, settings: Settings, records: Records, edge: PairedServices, guard: Guard
) -> Newcomers:
    def open_client() -> httpx2.AsyncClient:
        transport = LimitedTransport(GuardedTransport(guard), MAX_BYTES)
        return httpx2.AsyncClient(transport=transport, timeout=TIMEOUT_S, follow_redirects=True)

    added = Added(exchange, records, guard=None if settings.auth == "local" else guard)
    return Newcomers(edge.pairing, added, open_client)


@asynccontextmanager
async def open_console(
    exchange: Exchange,
    access: ConsoleAccess,
    edge: PairedServices,
    metrics: Metrics,
    newcomers: Newcomers,
    base_url: str,
    beside: Beside,
) -> AsyncGenerator[Console, None]:
    """Open the console. While it is open, metrics of this process are sampled and kept for an hour, and agents that
    were added at any replica are served at this one; expired sessions are deleted."""
    settings, samples, usage = beside.settings, Samples(), UsageReports(exchange.store)
    sessions = Sessions(access.secrets, int(settings.console_session_hours * 3600))
    desk = ConsoleContext(
        exchange,
        access.gate,
        sessions,
        access.stored,
        access.sign_in,
        edge.runtimes,
        edge.claims,
        base_url,
        settings.platform_name,
        __version__,
        beside,
        samples,
        newcomers,
        usage,
    )

    async def look() -> None:
        samples.add(now_ms(), metrics.answer_times, metrics.turn_times)

    await look()
    await newcomers.added.tick()
    loops = [
        Loop("samples", EVERY_S, look),
        Loop("agents", LOOK_S, newcomers.added.tick),
        Loop("sessions", CLEAN_S, access.stored.clean),
    ]
    for loop in loops:
        loop.start()
    try:
        yield Console(desk)
    finally:
        for loop in loops:
            await loop.stop()
        await usage.close()
        await newcomers.added.close()


# Limits, and the kill switch.


def open_book(settings: Settings) -> LimitBook:
    """Return the limits of the settings."""
    given = {subject: one.model_dump(exclude_none=True) for subject, one in settings.limits.items()}
    try:
        return LimitBook(entries_of(given))
    except Invalid as error:
        raise ConfigurationError(f"The setting limits: {error.message}", field="limits") from None


def stored_limits(exchange: Exchange, records: Records) -> StoredLimits:
    return StoredLimits(exchange.limits, records, exchange.store)


@asynccontextmanager
async def controlling(exchange: Exchange, records: Records, groups: Groups) -> AsyncGenerator[WorkControl, None]:
    """Open the limits that administrators set, and the kill switch. While open, those that were set at any replica hold
    at this one."""

    async def members(group: str) -> list[str]:
        return [one.principal for one in (await groups.members(group)).members]

    limits = stored_limits(exchange, records)
    switch = KillSwitch(exchange.stops, records, exchange.store, exchange.stop, members)
    await limits.tick()
    await switch.tick()
    loops = [Loop("limits", LIMITS_LOOK_S, limits.tick), Loop("stops", STOPS_LOOK_S, switch.tick)]
    for loop in loops:
        loop.start()
    try:
        yield WorkControl(limits, switch)
    finally:
        for loop in loops:
            await loop.stop()
