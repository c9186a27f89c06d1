"""Assembles paired runtimes: their services, and the routes that runtimes and operators call."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from msgspec import Struct

from parley.execution.membership import TIDY_S, Loop
from parley.faces.pairing import packages as wheel
from parley.faces.pairing.codes import PairingCalls
from parley.faces.pairing.document import RuntimeDocument
from parley.faces.pairing.face import RuntimeFace, TaskRunFace
from parley.faces.pairing.messages import Platform
from parley.faces.pairing.packages import Packages
from parley.http.table import Tabulated
from parley.paired.claims import PairedClaims
from parley.paired.runtimes import Runtimes
from parley.paired.service import RuntimeService
from parley.records import Records
from parley.runs.service import Exchange
from parley.settings import Settings


class PairedServices(Struct, frozen=True):
    runtimes: Runtimes
    claims: PairedClaims
    pairing: PairingCalls
    faces: Sequence[Tabulated]


@asynccontextmanager
async def open_edge(
    exchange: Exchange, settings: Settings, records: Records, base_url: str, version: str
) -> AsyncGenerator[PairedServices, None]:
    """Open the routes for runtimes and for the operators who pair them. While open, the leader ends expired leases."""
    lease_s = settings.edge_lease_s
    claims = PairedClaims(exchange, records, lease_s=lease_s, grace_s=settings.cancel_grace_s)
    runtimes = Runtimes(records, lease_s)
    platform = Platform(settings.platform_name, settings.platform_origin or urlsplit(base_url).hostname or "")
    packages = Packages(await asyncio.to_thread(wheel.built), base_url)
    service = RuntimeService(exchange, claims, runtimes)
    pairing = PairingCalls(service, platform, base_url, packages)
    tidying = Loop("runtimes", TIDY_S, runtimes.tick)
    claims.start()
    tidying.start()
    try:
        yield PairedServices(
            runtimes,
            claims,
            pairing,
            [
                pairing,
                RuntimeFace(service, platform, lease_s),
                TaskRunFace(service, base_url, settings.max_body_bytes),
                RuntimeDocument(version),
                packages,
            ],
        )
    finally:
        await tidying.stop()
        await claims.close()
