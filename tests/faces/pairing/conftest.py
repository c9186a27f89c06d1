from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.execution.driver import Driver
from parley.paired.driver import EdgeDriver
from parley.runs.rules.agents import Agent, Limits
from parley.testing.databases import fresh_database
from parley.testing.servers import Server, serving
from tests.faces.pairing.runtime import web


def edge(slug: str = "far", **fields: Any) -> EdgeDriver:
    limits = {name: fields.pop(name) for name in Limits.__struct_fields__ if name in fields}
    return EdgeDriver(Agent(slug, slug.capitalize(), f"The agent {slug}.", limits=Limits(**limits), **fields))


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with web() as client:
        yield client


class Site:
    """Where servers are opened: all of one site share its store, and all are closed at the end."""

    def __init__(self, stack: AsyncExitStack, directory: Path, settings: dict[str, object]) -> None:
        self._stack = stack
        self._directory = directory
        self._settings = settings
        self._opened = 0

    @property
    def shared(self) -> bool:
        """True if several servers may be open at the same time."""
        return bool(self._settings)

    async def open(self, *drivers: Driver, **settings: object) -> Server:
        self._opened += 1
        directory = self._directory / (f"data-{self._opened}" if self._settings else "data")
        shared = {"blobs": str(self._directory / "blobs"), **self._settings, **settings}
        return await self._stack.enter_async_context(serving(directory, drivers or [edge()], **shared))


@pytest.fixture(params=["sqlite", "postgres"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    settings: dict[str, object] = {}
    if request.param == "postgres":
        settings = {
            "store": "postgres",
            "postgres_url": await fresh_database(request.getfixturevalue("postgres")),
        }
    async with AsyncExitStack() as stack:
        yield Site(stack, tmp_path, settings)


@pytest.fixture
async def pair_of_replicas(database: str, tmp_path: Path) -> AsyncIterator[tuple[Server, Server]]:
    """Two servers on one database."""
    async with AsyncExitStack() as stack:
        site = Site(stack, tmp_path, {"store": "postgres", "postgres_url": database})
        yield await site.open(), await site.open()
