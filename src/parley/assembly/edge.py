"""Agents behind runtimes elsewhere: what keeps track of them, and the routes of those who call."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.routing import Route

from parley.engine.elsewhere import Elsewhere
from parley.engine.exchange import Exchange
from parley.engine.membership import TIDY_S, Loop
from parley.engine.ports import Records
from parley.faces.edge import wheel
from parley.faces.edge.claims import Platform
from parley.faces.edge.openapi import document_route
from parley.faces.edge.packages import Packages
from parley.faces.edge.pairing import PairingCalls
from parley.faces.edge.runtimes import RuntimeCalls
from parley.faces.edge.taskruns import TaskRunCalls
from parley.security.runtimes import Runtimes
from parley.settings import Settings


class Edge(Struct, frozen=True):
    runtimes: Runtimes
    elsewhere: Elsewhere
    pairing: PairingCalls
    routes: list[Route]


@asynccontextmanager
async def open_edge(
    exchange: Exchange, settings: Settings, records: Records, base_url: str, version: str
) -> AsyncGenerator[Edge, None]:
    """The routes of runtimes and of those who pair them; while it is open, leases run out when this replica leads."""
    lease_s = settings.edge_lease_s
    elsewhere = Elsewhere(exchange, records, lease_s=lease_s, grace_s=settings.cancel_grace_s)
    runtimes = Runtimes(records, lease_s)
    platform = Platform(settings.platform_name, settings.platform_origin or urlsplit(base_url).hostname or "")
    packages = Packages(await asyncio.to_thread(wheel.built), base_url)
    pairing = PairingCalls(exchange, elsewhere, runtimes, platform, base_url, packages)
    tidying = Loop("runtimes", TIDY_S, runtimes.tick)
    elsewhere.start()
    tidying.start()
    try:
        yield Edge(runtimes, elsewhere, pairing, [
            *pairing.routes(),
            *RuntimeCalls(exchange, elsewhere, runtimes, platform, lease_s).routes(),
            *TaskRunCalls(exchange, elsewhere, runtimes, platform, base_url, settings.max_body_bytes).routes(),
            document_route(version),
            *packages.routes(),
        ])  # fmt: skip
    finally:
        await tidying.stop()
        await elsewhere.close()
