from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parley.engine.ports import Store
from parley.stores.memory import MemoryStore
from parley.stores.sqlite import SqliteStore


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", type=int, default=0, help="How often the crash test kills the server.")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Whatever touches a store is tested on every store."""
    made: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "data")
    yield made
    await made.close()
