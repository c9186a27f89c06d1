"""A remote by gRPC that is killed in the middle."""

import asyncio
import socket
from pathlib import Path

import pytest

from parley.client import Client
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import serving
from tests.drivers.conftest import remote, send, state, texts

from .chain_agents import STEPS

AGENTS = Path(__file__).parent / "chain_agents.py"


@pytest.mark.slow
async def test_a_remote_by_grpc_may_be_killed(tmp_path: Path) -> None:
    ports: list[int] = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(free.getsockname()[1])
    env = {"PARLEY_GRPC_PORT": str(ports[1])}
    back = await ServerProcess.start([AGENTS], tmp_path / "back", port=ports[0], env=env)
    driver = remote("ticker", f"{back.url}/agents/ticker", bindings=("GRPC",))
    async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("ticker")) as client:
        asking = asyncio.get_running_loop().create_task(send(client, "go"))
        async with Client(front.url + "/") as anybody:
            await until(lambda: _has_begun(anybody))
        await back.kill()
        back = await ServerProcess.start([AGENTS], tmp_path / "back", port=ports[0], env=env)
        task = await asyncio.wait_for(asking, 60)
    assert await back.stop() == 0
    assert state(task) == "completed"
    assert texts(task) == {"ticks": "".join(f"{number} " for number in range(STEPS))}


async def _has_begun(client: Client) -> bool:
    tasks = (await client.call("ListTasks", {"includeArtifacts": True}))["tasks"]
    return any(task.get("artifacts") for task in tasks)
