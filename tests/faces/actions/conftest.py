from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from parley.testing.databases import fresh_database
from parley.testing.servers import Server, serving
from tests.faces.actions.agents import AGENTS
from tests.faces.actions.desk import Desk, Headers


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One for all tests of a module: each works in conversations of its own."""
    settings: dict[str, object] = {"store": request.param}
    if request.param == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    async with serving(tmp_path_factory.mktemp("modes"), AGENTS, **settings) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(server: Server) -> AsyncIterator[Desk]:
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=server.url, timeout=20, limits=limits) as http:
        yield await Desk.open(http)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keys(desk: Desk) -> dict[str, Headers]:
    """Credentials of three others; one of them may only read."""

    async def key(name: str, **options: object) -> Headers:
        made = await desk.http.post("/admin/keys", json={"name": name, **options})
        return {"Authorization": f"Bearer {made.json()['token']}"}

    return {"ann": await key("ann"), "bob": await key("bob"), "reader": await key("reader", scopes=["read"])}
