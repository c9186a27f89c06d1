"""A log that cannot be written costs log lines, never work."""

import asyncio
import os
import resource
import socket
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.testing.processes import until

AGENTS = Path(__file__).parent / "failing_agents.py"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
UNLIMITED = resource.RLIM_INFINITY


class Served:
    """A server whose log goes where a test says."""

    def __init__(self, process: asyncio.subprocess.Process, http: httpx2.AsyncClient) -> None:
        self.process = process
        self._http = http

    async def send(self, agent: str) -> dict[str, Any]:
        message = {"messageId": os.urandom(8).hex(), "role": "ROLE_USER", "parts": [{"text": "hello"}]}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        async with asyncio.timeout(20):
            reply = await self._http.post(f"/agents/{agent}", json=asked, headers={"A2A-Version": "1.0"})
        return reply.json()

    async def state(self, agent: str) -> str:
        return (await self.send(agent))["result"]["task"]["status"]["state"]

    async def ready(self) -> int:
        return (await self._http.get("/readyz")).status_code

    async def warnings(self, name: str) -> float:
        text = (await self._http.get("/metrics")).text
        lines = [line for line in text.splitlines() if line.startswith(f'parley_warnings_total{{name="{name}"}}')]
        return float(lines[0].split()[-1])

    def limit_files(self, size: int) -> None:
        """Let no file of the server grow beyond this size, as a full disk would."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, UNLIMITED))


@asynccontextmanager
async def served(data: Path, stderr: int) -> AsyncGenerator[Served, None]:
    """A server that is up, and that ends in order when it is told to."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = [str(AGENTS), "--data-dir", str(data), "--port", str(port), "--grpc-port", "-1"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "parley", "serve", *arguments, stderr=stderr)
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=NO_TLS, timeout=20) as http:
            await until(lambda: _up(http, process), 20)
            yield Served(process, http)
    finally:
        if process.returncode is None:
            process.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 20)
        if process.returncode is None:
            process.kill()
    assert await process.wait() == 0


async def _up(http: httpx2.AsyncClient, process: asyncio.subprocess.Process) -> bool:
    assert process.returncode is None, "The server ended."
    try:
        return (await http.get("/healthz")).status_code == 200
    except httpx2.TransportError:
        return False


async def test_a_server_whose_log_nobody_reads_any_more_goes_on(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    async with served(tmp_path, writing) as server:
        os.close(writing)
        os.close(reading)
        assert await server.state("raiser") == "TASK_STATE_FAILED"
        assert await server.state("echo") == "TASK_STATE_COMPLETED"
        assert await server.warnings("telemetry.failed") >= 1
        server.limit_files(0)
        assert "error" in await server.send("echo")
        server.limit_files(UNLIMITED)
        assert await server.state("echo") == "TASK_STATE_COMPLETED"


async def test_a_server_whose_disk_and_log_are_full_works_again_when_there_is_room(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as writing:
        async with served(tmp_path / "data", writing.fileno()) as server:
            assert await server.state("echo") == "TASK_STATE_COMPLETED"
            assert await server.ready() == 200
            server.limit_files(0)
            for agent in ("echo", "raiser"):
                assert (await server.send(agent))["error"]["data"][0]["reason"] == "STORE_UNAVAILABLE"
            await until(lambda: _is(server, 503))
            server.limit_files(UNLIMITED)
            await until(lambda: _is(server, 200))
            assert await server.state("raiser") == "TASK_STATE_FAILED"
            assert await server.state("echo") == "TASK_STATE_COMPLETED"
    assert "agent.raised" in log.read_text()


async def _is(server: Served, status: int) -> bool:
    return await server.ready() == status


@pytest.mark.parametrize("read", [0, 1])
async def test_a_server_starts_when_nobody_reads_where_it_listens(tmp_path: Path, read: int) -> None:
    """As in `parley serve 2>&1 | head -1`."""
    reading, writing = os.pipe()
    if not read:
        os.close(reading)
    else:
        asyncio.get_running_loop().run_in_executor(None, _read_a_little, reading)
    async with served(tmp_path, writing) as server:
        os.close(writing)
        assert await server.state("echo") == "TASK_STATE_COMPLETED"


def _read_a_little(pipe: int) -> None:
    os.read(pipe, 1)
    os.close(pipe)
