from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from parley.testing.processes import ServerProcess
from tests.joint.chain import LocalAgent, local_agent

SLUGS = ("far", "away", "short", "alone", "other")


def defined(folder: Path, *slugs: str) -> Path:
    folder.mkdir()
    for slug in slugs:
        (folder / f"{slug}.yaml").write_text(f"driver: edge\nname: {slug.capitalize()}\n")
    return folder


class Place:
    """Where servers are started, and stopped at the end; at the same port and data as before, if asked for."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self.folder = folder
        self.agents = defined(folder / "agents", *SLUGS)

    async def serve(self, name: str = "data", port: int = 0, **env: str) -> ServerProcess:
        server = await ServerProcess.start([self.agents], self.folder / name, port=port, env=env)
        self._stack.push_async_callback(server.stop)
        return server

    async def local_agent(self, name: str = "local") -> LocalAgent:
        return await self._stack.enter_async_context(local_agent(self.folder / f"{name}.jsonl"))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncGenerator[Place, None]:
    async with AsyncExitStack() as stack:
        yield Place(stack, tmp_path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Place, None]:
    """For tests that do each other no harm."""
    async with AsyncExitStack() as stack:
        yield Place(stack, tmp_path_factory.mktemp("site"))
