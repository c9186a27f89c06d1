"""Two replicas on PostgreSQL behind a real nginx, with the very configuration in deploy/."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, NamedTuple

import grpc.aio
import httpx2
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc

from parley.client import Client
from parley.testing.processes import ServerProcess, until
from tests.deploy.gated_agents import STEPS
from tests.deploy.nginx import Fronted, free_ports, fronting

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx")]
AGENTS = [Path(__file__).parent / "gated_agents.py"]
WAIT_S = 60.0


class Site(NamedTuple):
    front: Fronted
    replicas: list[ServerProcess]
    gates: Path

    def client(self) -> Client:
        return Client(f"{self.front.url}/agents/gated", http=httpx2.AsyncClient(timeout=WAIT_S))

    def open(self, name: str, *numbers: int) -> None:
        for number in numbers:
            (self.gates / f"{name}-{number}").touch()


@pytest.fixture
async def site(tmp_path: Path, database: str) -> AsyncIterator[Site]:
    (tmp_path / "gates").mkdir()
    env = {
        "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database, "PARLEY_BLOBS": str(tmp_path / "blobs"),
        "PARLEY_SECRET_KEY_FILE": str(tmp_path / "secret.key"), "PARLEY_LEASE_S": "2", "PARLEY_AUTH": "none",
        "PARLEY_TEST_GATES": str(tmp_path / "gates"),
    }  # fmt: skip
    ports, grpc_ports = free_ports(2), free_ports(2)
    async with AsyncExitStack() as stack:
        front = await stack.enter_async_context(fronting(tmp_path, ports, grpc_ports))
        replicas: list[ServerProcess] = []
        for number, (port, grpc_port) in enumerate(zip(ports, grpc_ports, strict=True)):
            more = {**env, "PARLEY_PUBLIC_URL": front.url, "PARLEY_GRPC_PORT": str(grpc_port)}
            replicas.append(await ServerProcess.start(AGENTS, tmp_path / str(number), port=port, env=more))
            stack.push_async_callback(replicas[-1].stop)
        yield Site(front, replicas, tmp_path / "gates")


def test_nginx_takes_the_configuration_as_it_is(tmp_path: Path) -> None:
    """With names that lead somewhere; nginx looks for them when it starts."""
    from tests.deploy.nginx import CONF, KINDS, MAIN

    text = CONF.read_text().replace("parley-1:", "127.0.0.1:").replace("parley-2:", "127.0.0.2:")
    (tmp_path / "parley.conf").write_text(text)
    paths = "\n".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in KINDS)
    (tmp_path / "nginx.conf").write_text(MAIN.format(folder=tmp_path, paths=paths))
    command = ["nginx", "-t", "-p", tmp_path, "-c", tmp_path / "nginx.conf"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[warn]" not in done.stderr


async def test_a_stream_passes_as_it_comes(site: Site) -> None:
    """The agent waits at its first gate until its first step was seen: a balancer that gathers would wait for ever."""
    async with site.client() as client, asyncio.timeout(WAIT_S), aclosing(client.stream("calm")) as stream:
        steps: list[str] = []
        async for event in stream:
            message = event.get("statusUpdate", {}).get("status", {}).get("message", {})
            if said := message.get("parts"):
                steps.append(said[0]["text"])
                site.open("calm", len(steps) - 1)
    assert steps == [f"step {number}" for number in range(STEPS)]


async def test_streams_go_on_when_a_replica_is_killed(site: Site) -> None:
    """Half of them end with it; each goes on at the other replica after the last event it saw."""
    names = [f"s{number}" for number in range(6)]
    async with asyncio.timeout(WAIT_S), site.client() as client:
        now = {"returnImmediately": True}
        tasks = [(await client.send(name, configuration=now))["task"]["id"] for name in names]
        seen: dict[str, list[int]] = {task: [] for task in tasks}
        ended: dict[str, str] = {}
        following = [asyncio.create_task(_follow(site, task, seen[task], ended)) for task in tasks]
        await until(lambda: all(seen.values()))
        await site.replicas[0].kill()
        for name in names:
            site.open(name, *range(STEPS))
        await asyncio.gather(*following)
        assert set(ended.values()) == {"TASK_STATE_COMPLETED"}
        for task in tasks:
            assert seen[task] == sorted(set(seen[task])), "nothing twice, and in order"
            whole = [seq async for seq, _ in client.tail(task, 0)]
            assert seen[task] == whole, "and no gap"


async def _follow(site: Site, task: str, seen: list[int], ended: dict[str, str]) -> None:
    async with site.client() as client:
        async for seq, event in client.tail(task, 0):
            seen.append(seq)
            ended[task] = event.get("statusUpdate", {}).get("status", {}).get("state", ended.get(task, ""))


async def test_a_replica_that_stops_is_passed_over(site: Site) -> None:
    async with httpx2.AsyncClient(timeout=WAIT_S) as http:
        assert await site.replicas[1].stop() == 0
        answers = [(await http.get(f"{site.front.url}/agents/gated/.well-known/agent-card.json")) for _ in range(10)]
    assert {answer.status_code for answer in answers} == {200}
    card = answers[0].json()
    assert all(one["url"].startswith(site.front.url) for one in card["supportedInterfaces"] if "GRPC" not in str(one))


async def test_grpc_passes_too(site: Site) -> None:
    site.open("far", *range(STEPS))
    message = pb.Message(message_id="1", role=pb.ROLE_USER, parts=[pb.Part(text="far")])
    request = pb.SendMessageRequest(tenant="gated", message=message)
    async with grpc.aio.insecure_channel(site.front.grpc) as channel, asyncio.timeout(WAIT_S):
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        frames = [frame async for frame in stub.SendStreamingMessage(request, metadata=(("a2a-version", "1.0"),))]
    assert frames[-1].status_update.status.state == pb.TASK_STATE_COMPLETED
