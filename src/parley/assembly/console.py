"""The console, and what its pages ask."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx2
from starlette.routing import Route

from parley.assembly.conversations import Talks
from parley.assembly.edge import Edge
from parley.assembly.nodes import Serving
from parley.cards import MAX_BYTES, TIMEOUT_S
from parley.clock import now_ms
from parley.console.desk import Beside, Desk, Newcomers
from parley.console.face import Console
from parley.definitions.added import LOOK_S, Added
from parley.definitions.watching import Problem
from parley.engine.exchange import Exchange
from parley.engine.membership import Loop
from parley.engine.ports import Records
from parley.engine.push import Push
from parley.security.credentials import Gate
from parley.security.netguard import Guard, GuardedTransport
from parley.security.replies import LimitedTransport
from parley.security.secrets import Secrets
from parley.security.sessions import Sessions
from parley.settings import Settings
from parley.telemetry.metrics import Metrics
from parley.telemetry.samples import EVERY_S, Samples


def beside(
    talks: Talks, nodes: Serving, push: Push, settings: Settings, problems: Callable[[], list[Problem]]
) -> Beside:
    return Beside(
        talks.documents, talks.conversations, talks.exports.address, nodes.nodes, push.hooks, settings, problems
    )  # fmt: skip


def newcomers(exchange: Exchange, settings: Settings, records: Records, edge: Edge, guard: Guard) -> Newcomers:
    def open_client() -> httpx2.AsyncClient:
        transport = LimitedTransport(GuardedTransport(guard), MAX_BYTES)
        return httpx2.AsyncClient(transport=transport, timeout=TIMEOUT_S, follow_redirects=True)

    added = Added(exchange, records, guard=None if settings.auth == "local" else guard)
    return Newcomers(edge.pairing, added, open_client)


@asynccontextmanager
async def open_console(
    exchange: Exchange, gate: Gate, secrets: Secrets, edge: Edge, metrics: Metrics, newcomers: Newcomers,
    base_url: str, version: str, beside: Beside,
) -> AsyncGenerator[list[Route], None]:  # fmt: skip
    """While it is open, the figures of this process are written down from time to time, for an hour; and agents that
    are added at any replica are served at this one."""
    settings, samples = beside.settings, Samples()
    sessions = Sessions(secrets, int(settings.console_session_hours * 3600))
    desk = Desk(
        exchange, gate, sessions, edge.runtimes, edge.elsewhere, base_url, settings.platform_name, version, beside,
        samples, newcomers,
    )  # fmt: skip

    async def look() -> None:
        samples.add(now_ms(), metrics.answer_times, metrics.turn_times)

    await look()
    await newcomers.added.tick()
    loops = [Loop("samples", EVERY_S, look), Loop("agents", LOOK_S, newcomers.added.tick)]
    for loop in loops:
        loop.start()
    try:
        yield Console(desk).routes()
    finally:
        for loop in loops:
            await loop.stop()
        await newcomers.added.close()
