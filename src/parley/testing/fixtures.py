"""Fixtures for pytest. A `conftest.py` turns them on:

pytest_plugins = ["parley.testing.fixtures"]
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from parley.app.application import read_agents
from parley.execution.driver import Driver
from parley.testing.servers import ServerThread

__all__ = ["StartServer", "parley_server"]


class StartServer(Protocol):
    """Starts a server with some agents: `@agent` functions, other drivers, or paths of definitions."""

    def __call__(self, *agents: Driver | str | Path, **settings: object) -> ServerThread: ...


@pytest.fixture
def parley_server(tmp_path: Path) -> Iterator[StartServer]:
    """Start real servers on free ports: `server = parley_server(echo)`. They stop when the test ends.

    Servers keep their work in memory. With `store="sqlite"` the servers of one test share a data directory, so a test
    can stop one and start the next on its data.
    """
    with ExitStack() as stack:

        def start(*agents: Driver | str | Path, **settings: object) -> ServerThread:
            server = ServerThread(tmp_path / "parley", read_agents(agents).drivers, **{"store": "memory", **settings})
            stack.callback(server.stop)
            return server

        yield start
