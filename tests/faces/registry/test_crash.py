"""A server that is killed: what it acknowledged is there, and nobody is offline because of it."""

from pathlib import Path

import httpx2
import pytest

from parley.clock import now_ms
from parley.testing.processes import ServerProcess, until
from tests.faces.registry.fleet import Fleet


@pytest.mark.slow
async def test_a_killed_server_knows_its_nodes_and_gives_them_their_time(
    tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    env = {"PARLEY_NODE_TTL_S": "1"}
    server = await ServerProcess.start(["parley.demo"], tmp_path / "data", env=env)
    fleet = Fleet(http, server.url)
    parent = await fleet.online("Parent")
    child = await fleet.online("Child", parent)
    await server.kill()
    gone = now_ms()
    server = await ServerProcess.start(["parley.demo"], tmp_path / "data", env=env)
    try:
        await until(lambda: now_ms() > gone + 1000)
        for node in (parent, child):
            node.at = server.url
        fleet.at = server.url
        assert (await fleet.show(child))["status"] == "online"
        assert (await child.discover(parent)).json()["url"] == "http://127.0.0.1:9001"
        assert (await child.beat()).status_code == 200

        async def offline() -> bool:
            return (await fleet.show(parent))["status"] == "offline"

        await until(offline, 15)
        assert (await parent.beat()).status_code == 200
        assert (await fleet.show(parent))["status"] == "online"
    finally:
        await server.stop()
