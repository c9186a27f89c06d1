"""A server that is told to stop loses nothing and breaks nothing for good."""

import asyncio
import json
import ssl
from pathlib import Path

import httpx2
import pytest

from parley.client import Client, Json, message
from parley.ids import new_id
from parley.testing.balancers import balancing
from parley.testing.processes import ServerProcess, replicas, until

AGENTS = [Path(__file__).parent / "replica_agents.py"]
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
DONE = "TASK_STATE_COMPLETED"

pytestmark = pytest.mark.slow


def client(url: str, agent: str = "walker") -> Client:
    # A new connection each time: who is kept waiting on an old one learns nothing of the balancer.
    http = httpx2.AsyncClient(verify=NO_TLS, timeout=30, limits=httpx2.Limits(max_keepalive_connections=0))
    return Client(f"{url}/agents/{agent}", http=http)


async def accepted(http: httpx2.AsyncClient, key: str) -> str:
    """Send as a good client does: with a key, again after a refusal or a broken connection."""
    wire = {"message": {**message("go"), "messageId": key}, "configuration": {"returnImmediately": True}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": wire}
    while True:
        try:
            reply = await http.post(
                "/agents/walker", json=asked, headers={"A2A-Version": "1.0", "Idempotency-Key": key}
            )
        except httpx2.TransportError:
            await asyncio.sleep(0.05)
            continue
        if reply.status_code == 503:
            assert int(reply.headers["Retry-After"]) >= 1
            await asyncio.sleep(0.1)
            continue
        return reply.json()["result"]["task"]["id"]


async def followed(url: str, task: str) -> list[tuple[int, Json]]:
    async with client(url) as one:
        return [step async for step in one.tail(task, 0)]


async def test_a_rolling_restart_loses_no_acknowledged_request_and_breaks_no_stream(
    tmp_path: Path, database: str
) -> None:
    drain = {"PARLEY_DRAIN_S": "0.3"}
    async with (
        replicas(3, AGENTS, tmp_path, database, **drain) as servers,
        balancing(*(server.url for server in servers)) as balancer,
    ):
        tasks: dict[str, str] = {}
        streams: list[asyncio.Task[list[tuple[int, Json]]]] = []
        stop = asyncio.Event()

        async def load() -> None:
            limits = httpx2.Limits(max_keepalive_connections=0)
            async with httpx2.AsyncClient(base_url=balancer.url, verify=NO_TLS, timeout=30, limits=limits) as http:
                while not stop.is_set():
                    key = new_id()
                    tasks[key] = await accepted(http, key)
                    if len(tasks) % 4 == 0:
                        streams.append(asyncio.ensure_future(followed(balancer.url, tasks[key])))
                    await asyncio.sleep(0.1)

        loading = [asyncio.ensure_future(load()) for _ in range(3)]
        for number, server in enumerate(servers):
            before = len(tasks)
            await until(lambda before=before: len(tasks) >= before + 5, 30)
            assert await server.stop() == 0
            env = {
                "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database,
                "PARLEY_BLOBS": str(tmp_path / "blobs"), **drain,
            }  # fmt: skip
            servers[number] = await ServerProcess.start(AGENTS, tmp_path / f"replica-{number}", env=env)
            balancer.servers[number] = servers[number].url
        stop.set()
        await asyncio.gather(*loading)
        seen = await asyncio.wait_for(asyncio.gather(*streams), 60)
        async with client(balancer.url) as one:
            for task in tasks.values():
                assert (await _ended(one, task))["status"]["state"] == DONE
        async with httpx2.AsyncClient(base_url=balancer.url, verify=NO_TLS, timeout=30) as http:
            again = {key: await accepted(http, key) for key in list(tasks)[:3]}
        assert again.items() <= tasks.items()
    assert len(set(tasks.values())) == len(tasks) >= 15
    assert len(seen) >= 3
    for steps in seen:
        seqs = [seq for seq, _ in steps]
        assert seqs == sorted(set(seqs))
        assert steps[-1][1]["statusUpdate"]["status"]["state"] == DONE


async def _ended(one: Client, task: str) -> Json:
    async def ended() -> bool:
        return (await one.get(task))["status"]["state"] == DONE

    await until(ended, 30)
    return await one.get(task)


async def test_what_a_client_sees_of_a_stop(tmp_path: Path) -> None:
    server = await ServerProcess.start(AGENTS, tmp_path, env={"PARLEY_DRAIN_S": "1"})
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        task = await accepted(http, "first")
        ask = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}}
        waiting = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("go")}}
        headers = {"A2A-Version": "1.0"}
        async with http.stream("POST", "/agents/walker", json=ask, headers=headers) as stream:
            sleeper = asyncio.ensure_future(http.post("/agents/sleeper", json=waiting, headers=headers))
            await asyncio.sleep(0.1)
            stopping = asyncio.ensure_future(server.stop())
            await server.said("server.stopping")
            ready = await http.get("/readyz")
            refused = await http.post("/agents/walker", json=waiting, headers=headers)
            known = await accepted(http, "first")
            read = await http.get("/healthz")
            lines = [line async for line in stream.aiter_lines()]
        assert (ready.status_code, ready.json()["status"], ready.headers["Retry-After"]) == (503, "stopping", "1")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert refused.json()["error"]["data"][0]["reason"] == "STOPPING"
        assert (known, read.status_code) == (task, 200)
        assert await stopping == 0
        waited = (await sleeper).json()["error"]["data"][0]
        assert waited["reason"] == "STOPPING"
        assert waited["metadata"]["task"]
        told = [line for line in lines if line]
        assert told[-2:] == [": stopping", "retry: 500"] or DONE in told[-1]


FLOOD = """
import asyncio
from parley import Text, agent

@agent("flood")
async def flood(turn):
    for _ in range(100):
        yield Text("x" * 100_000)
    await asyncio.Event().wait()
"""


async def opened(url: str, head: str, body: bytes, length: int) -> asyncio.StreamWriter:
    """Send a request and read nothing of its answer."""
    port = int(url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(
        f"{head} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Length: {length}\r\n\r\n".encode() + body
    )
    await writer.drain()
    return writer


async def test_clients_that_do_not_read_or_write_leave_no_traceback_when_the_server_stops(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(FLOOD)
    server = await ServerProcess.start([tmp_path / "agents.py"], tmp_path / "data")
    asked = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message("go")}}
    body = json.dumps(asked).encode()
    writers = [await opened(server.url, "POST /agents/flood", body, len(body)) for _ in range(3)]
    writers.append(await opened(server.url, "POST /agents/flood", body[:10], len(body)))
    async with client(server.url, "flood") as one:

        async def written() -> bool:
            tasks = (await one.list())["tasks"]
            return len(tasks) == 3 and all(task["status"]["state"] == "TASK_STATE_WORKING" for task in tasks)

        await until(written)
    assert await server.stop() == 0
    said = "".join(server.said_all)
    assert "Traceback" not in said
    assert "ASGI" not in said
    for writer in writers:
        writer.close()
