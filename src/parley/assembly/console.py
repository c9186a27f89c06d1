"""The console, and what its pages ask."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
from starlette.routing import Route

from parley.assembly.edge import Edge
from parley.cards import TIMEOUT_S
from parley.console.desk import Desk
from parley.console.face import Console
from parley.definitions.added import LOOK_S, Added
from parley.engine.exchange import Exchange
from parley.engine.membership import Loop
from parley.engine.ports import Records
from parley.security.credentials import Gate
from parley.security.netguard import Guard, GuardedTransport
from parley.security.secrets import Secrets
from parley.security.sessions import Sessions
from parley.settings import Settings


@asynccontextmanager
async def open_console(
    exchange: Exchange, settings: Settings, records: Records, gate: Gate, secrets: Secrets, edge: Edge, guard: Guard,
    base_url: str, version: str,
) -> AsyncGenerator[list[Route], None]:  # fmt: skip
    """While it is open, agents that are added at any replica are served at this one."""
    added = Added(exchange, records, here=settings.auth == "local")
    await added.tick()
    looking = Loop("agents", LOOK_S, added.tick)

    def open_client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=GuardedTransport(guard), timeout=TIMEOUT_S, follow_redirects=True)

    sessions = Sessions(secrets, int(settings.console_session_hours * 3600))
    desk = Desk(
        exchange, gate, sessions, edge.pairing, edge.runtimes, added, open_client, base_url, settings.platform_name,
        version,
    )  # fmt: skip
    looking.start()
    try:
        yield Console(desk).routes()
    finally:
        await looking.stop()
