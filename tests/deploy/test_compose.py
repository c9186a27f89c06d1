"""The services of the compose file as processes: the commands and the environment of the image and of the file, with
other addresses and folders. No container is started; `make image-check` starts the image."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from parley.client import Client
from parley.testing.processes import ServerProcess
from tests.deploy.nginx import free_ports, fronting
from tests.deploy.test_files import IMAGE, ROOT, compose

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
]
REPLICAS = ("parley-1", "parley-2")
GIVEN = {"POSTGRES_PASSWORD": "secret"}
NOT_OURS = {"PATH"}


class Composed(NamedTuple):
    url: str
    replicas: list[ServerProcess]
    token: str


def filled(value: str) -> str:
    """A value of the compose file with what stands in .env, or else the default that it names."""

    def one(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        assert name in GIVEN or kind == "-", rest
        return GIVEN.get(name, rest)

    return re.sub(r"\$\{(\w+):([-?])([^}]*)\}", one, value)


def environment(service: dict[str, Any], folder: Path, database: str) -> dict[str, str]:
    """Environment of the process: the image's environment, then the file's, with our folders for the volumes."""
    values = {name: filled(value) for name, value in service["environment"].items()}
    assert values["PARLEY_POSTGRES_URL"] == "postgresql://parley:secret@postgres/parley"
    whole = {name: value for name, value in (IMAGE.environment | values).items() if name not in NOT_OURS}
    shared = str(folder / "shared")
    return {
        name: re.sub(r"^/shared(?=/)", shared, value) for name, value in whole.items()
    } | {"PARLEY_POSTGRES_URL": database}  # fmt: skip


@pytest.fixture
async def composed(tmp_path: Path, database: str) -> AsyncIterator[Composed]:
    services = compose()["services"]
    (tmp_path / "shared").mkdir(mode=0o700)
    (tmp_path / "agents").mkdir()
    shutil.copy(ROOT / "deploy" / "kubernetes" / "agents" / "echo.yaml", tmp_path / "agents")
    ports, rpc = free_ports(2), free_ports(2)
    async with AsyncExitStack() as stack:
        replicas: list[ServerProcess] = []
        for name, port, port_grpc in zip(REPLICAS, ports, rpc, strict=True):
            service = services[name]
            assert "command" not in service
            assert "entrypoint" not in service
            own = {
                "PARLEY_DATA_DIR": str(tmp_path / name),
                "PARLEY_PORT": str(port),
                "PARLEY_GRPC_PORT": str(port_grpc),
            }
            env = environment(service, tmp_path, database) | own
            command = words(IMAGE.of("ENTRYPOINT")[-1]) + words(IMAGE.of("CMD")[-1])
            replicas.append(await ServerProcess.launch(command, env=env, cwd=tmp_path))
            stack.push_async_callback(replicas[-1].stop)
        front = await stack.enter_async_context(fronting(tmp_path, ports, rpc))
        yield Composed(front.url, replicas, await key(env, tmp_path))


def words(value: str) -> list[str]:
    return re.findall(r'"([^"]*)"', value)


async def key(env: dict[str, str], folder: Path) -> str:
    """As the file's head says: docker compose exec parley-1 parley keys create me."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley", "keys", "create", "me", cwd=folder, env={**os.environ, **env},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    return re.findall(r"\S{30,}", said.decode())[-1]


async def test_its_services_work_together_and_one_replica_may_stop(composed: Composed) -> None:
    async with httpx2.AsyncClient() as http:
        assert (await http.get(f"{composed.url}/readyz")).status_code == 200
        assert (await http.post(f"{composed.url}/agents/echo/message:send", json={})).status_code == 401
    async with Client(f"{composed.url}/agents/echo", token=composed.token) as client:
        for _ in range(4):
            assert (await client.send("hello")).text == "hello"
        assert await composed.replicas[0].stop() == 0
        for _ in range(4):
            assert (await client.send("again")).text == "again"
        card = await client.card()
    # What the file's defaults say that clients use.
    assert {one["url"] for one in card["supportedInterfaces"] if one["protocolBinding"] == "GRPC"} == {"localhost:8201"}
