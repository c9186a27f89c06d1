"""The console, and what its pages ask."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.routing import Route

from parley.assembly.edge import Edge
from parley.console.desk import Desk
from parley.console.face import Console
from parley.engine.exchange import Exchange
from parley.security.credentials import Gate
from parley.security.secrets import Secrets
from parley.security.sessions import Sessions
from parley.settings import Settings


@asynccontextmanager
async def open_console(
    exchange: Exchange, settings: Settings, gate: Gate, secrets: Secrets, edge: Edge, base_url: str, version: str
) -> AsyncGenerator[list[Route], None]:
    sessions = Sessions(secrets, int(settings.console_session_hours * 3600))
    desk = Desk(
        exchange, gate, sessions, edge.runtimes, edge.elsewhere, base_url, settings.platform_name, version
    )  # fmt: skip
    yield Console(desk).routes()
