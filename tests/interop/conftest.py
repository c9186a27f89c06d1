from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.testing.servers import Server, serving

from .agents import AGENTS


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with serving(tmp_path / "data", AGENTS, grpc_port=0) as running:
        yield running
