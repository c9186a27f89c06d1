"""The SDK against a real server: every method, typed errors, lost answers, streams over cuts and a kill -9."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio

from parley.testing.databases import fresh_database, give_back
from parley.testing.processes import ServerProcess
from parley.testing.servers import serving
from sdk.node import Node
from sdk.package import HOME, compiled
from tests.sdk.running import TESTS, run_tests

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

AGENTS = [
    Path(__file__).with_name(name)
    for name in ("agents.py", "chat.yaml", "flow.yaml", "sleepy-flow.yaml", "broken-flow.yaml")
]
KEY = "a-key-for-the-tests-of-the-sdk"


class Mortal:
    """A server that can be killed, and comes back where it was."""

    def __init__(self, directory: Path, **env: str) -> None:
        self._directory = directory
        self._env = {"PARLEY_AUTH": "required", "PARLEY_API_KEY": KEY, **env}
        self._server: ServerProcess | None = None
        self.url = ""

    async def start(self) -> None:
        port = urlsplit(self.url).port or 0
        self._server = await ServerProcess.start(AGENTS, self._directory, port=port, env=self._env)
        self.url = self._server.url

    async def restart(self, *, killed: bool) -> None:
        assert self._server is not None
        await (self._server.kill() if killed else self._server.stop())
        await self.start()

    async def stop(self) -> None:
        if self._server is not None:
            assert await self._server.stop() == 0


@asynccontextmanager
async def lever(server: Mortal) -> AsyncGenerator[str, None]:
    """An address that restarts the server when it is asked: `/kill` as after a crash, `/stop` as an operator would."""

    async def pulled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        await server.restart(killed=asked.startswith(b"POST /kill"))
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(pulled, "127.0.0.1", 0)
    async with listener:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Mortal, None]:
    started = Mortal(tmp_path_factory.mktemp("data"))
    await started.start()
    yield started
    await started.stop()


@pytest.mark.parametrize(
    "name", ["documents", "conversations", "tools", "orchestrations", "errors", "streams", "restarts"]
)
async def test_it_works_against_a_real_server(node: Node, server: Mortal, name: str) -> None:
    async with lever(server) as restart:
        told = {"PARLEY_URL": server.url, "PARLEY_KEY": KEY, "PARLEY_RESTART": restart}
        await run_tests(node, TESTS / "server" / f"{name}.test.js", **told)


@pytest.mark.parametrize("name", ["documents", "conversations"])
async def test_it_works_with_postgres_too(
    node: Node, postgres: str, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    url = await fresh_database(postgres)
    server = Mortal(tmp_path_factory.mktemp("data"), PARLEY_STORE="postgres", PARLEY_POSTGRES_URL=url)
    await server.start()
    await run_tests(node, TESTS / "server" / f"{name}.test.js", PARLEY_URL=server.url, PARLEY_KEY=KEY)
    await server.stop()
    await give_back(postgres, url)


async def test_the_example_in_its_page_works(server: Mortal) -> None:
    program = "\n".join(re.findall(r"```ts\n(.*?)```", (HOME / "README.md").read_text(), re.DOTALL))
    program = program.replace("http://127.0.0.1:8200", server.url).replace("…", KEY)
    said = await asyncio.to_thread(run_program, program)
    assert "Three days in Lisbon." in said
    assert "Four days in Lisbon." in said
    assert "VERSION_NOT_FOUND" in said


def run_program(program: str) -> str:
    """Output of a program that imports the package by name, without a browser."""
    place = HOME / "build" / "example"
    place.mkdir(parents=True, exist_ok=True)
    (place / "example.ts").write_text(program)
    settings = {
        "extends": "../../tsconfig.test.json",
        "compilerOptions": {"rootDir": "../..", "outDir": "out", "lib": ["ES2022"]},
        "include": ["example.ts"],
    }
    (place / "tsconfig.json").write_text(json.dumps(settings))
    compiled()
    node = compiled(str(place / "tsconfig.json"))
    return node.run(node.program, place / "out" / "build" / "example" / "example.js", cwd=HOME)


async def test_a_page_on_another_origin_may_send_what_the_sdk_sends(tmp_path: Path) -> None:
    page, asks = "https://app.example", "authorization,content-type,idempotency-key,last-event-id,prefer"
    async with serving(tmp_path, (), store="memory", cors_origins=[page]) as server, httpx2.AsyncClient() as http:
        headers = {"Origin": page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": asks}
        reply = await http.options(f"{server.url}/api/agent2agent/conversations", headers=headers)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, page)
        read = await http.get(f"{server.url}/api/agent2agent/tasks/none", headers={"Origin": page})
        assert "Retry-After" in read.headers["access-control-expose-headers"]
