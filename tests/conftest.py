import gc
import os
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import httpcore2
import pytest
from hypothesis import HealthCheck, settings

from parley.runs.store import LogStore
from parley.stores.memory import MemoryStore
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.sqlite import SqliteStore
from parley.testing.databases import fresh_database, give_back, postgres_server

# Programs are started while gRPC is loaded; its fork handlers would only complain.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# How quickly examples are made and run says how busy the machine is, and nothing about what is tested.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

# Reading the world's certificates takes longer than most tests, and a client reads them also when it speaks plain HTTP.
httpcore2.default_ssl_context = cache(httpcore2.default_ssl_context)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", type=int, default=0, help="How often the crash tests kill a server.")


def pytest_collection_finish() -> None:
    """Look for cycles less often, as a server does. All modules and tests stay, and looking through them again and
    again took a fifth of the tests' processor time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that run on PostgreSQL, so that a quick run can leave them out."""
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {}).values()
        if {"postgres", "database"}.intersection(getattr(item, "fixturenames", ())) or "postgres" in map(str, given):
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """A PostgreSQL server for the whole session. Root's is run by another user, so its folder is not below pytest's:
    that one is closed to others again whenever somebody else's tests begin."""
    with (
        TemporaryDirectory(prefix="parley-postgres-", ignore_cleanup_errors=True) as directory,
        postgres_server(Path(directory)) as url,
    ):
        yield url


@pytest.fixture
async def database(postgres: str) -> AsyncIterator[str]:
    """An empty database."""
    url = await fresh_database(postgres)
    yield url
    await give_back(postgres, url)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LogStore]:
    """Whatever touches a store is tested on every store."""
    made: LogStore
    server = url = ""
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "data")
    else:
        server = request.getfixturevalue("postgres")
        url = await fresh_database(server)
        made = PostgresStore(await open_pool(url))
    yield made
    await made.close()
    if server:
        await give_back(server, url)
