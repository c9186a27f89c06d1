"""The console, and what its pages ask."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.routing import Route

from parley.assembly.conversations import Talks
from parley.assembly.edge import Edge
from parley.assembly.nodes import Serving
from parley.clock import now_ms
from parley.console.desk import Beside, Desk
from parley.console.face import Console
from parley.engine.exchange import Exchange
from parley.engine.membership import Loop
from parley.engine.push import Push
from parley.security.credentials import Gate
from parley.security.secrets import Secrets
from parley.security.sessions import Sessions
from parley.settings import Settings
from parley.telemetry.metrics import Metrics
from parley.telemetry.samples import EVERY_S, Samples


def beside(talks: Talks, nodes: Serving, push: Push, settings: Settings) -> Beside:
    return Beside(
        talks.documents, talks.conversations, talks.exports.address, nodes.nodes, push.hooks, settings
    )  # fmt: skip


@asynccontextmanager
async def open_console(
    exchange: Exchange, gate: Gate, secrets: Secrets, edge: Edge, metrics: Metrics, base_url: str, version: str,
    beside: Beside,
) -> AsyncGenerator[list[Route], None]:  # fmt: skip
    """While it is open, the figures of this process are written down from time to time, for an hour."""
    settings, samples = beside.settings, Samples()
    sessions = Sessions(secrets, int(settings.console_session_hours * 3600))
    desk = Desk(
        exchange, gate, sessions, edge.runtimes, edge.elsewhere, base_url, settings.platform_name, version, beside,
        samples,
    )  # fmt: skip

    async def look() -> None:
        samples.add(now_ms(), metrics.answer_times, metrics.turn_times)

    await look()
    looking = Loop("samples", EVERY_S, look)
    looking.start()
    try:
        yield Console(desk).routes()
    finally:
        await looking.stop()
