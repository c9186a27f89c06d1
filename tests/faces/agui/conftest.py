from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from parley.testing.servers import Server, serving
from tests.faces.agui.agents import AGENTS
from tests.faces.agui.wire import Front


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", AGENTS, max_body_bytes=200_000) as running:
        yield running


@pytest.fixture
async def front(server: Server) -> AsyncIterator[Front]:
    async with httpx2.AsyncClient(base_url=server.url, timeout=20) as http:
        yield Front(http)
