"""Agents behind NAT: how soon a task is with its runtime, how soon a cancel is, and what idle runtimes cost."""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from dev.bench.data import scratch
from dev.bench.postgres import server_url
from dev.bench.rows import Case
from parley.client import Client
from parley.testing.databases import fresh_database
from parley.testing.processes import ServerProcess, replicas
from parley_edge.net.http import Http
from parley_edge.runtime.ledger import Ledger
from parley_edge.runtime.local import LocalAgent
from parley_edge.runtime.platform import Platform
from parley_edge.runtime.work import Pace, Who
from parley_edge.runtime.work import Runtime as Program

TASKS = 100
WARMUP = 10
RUNTIMES = 100
IDLE_S = 30.0
DEFINITION = "driver: edge\n"
NOW = {"configuration": {"returnImmediately": True}}

Place = tuple[str, str]
"""Addresses for clients and for the runtime."""


def cases() -> list[Case]:
    return [
        Case("edge.deliver", "ms", lambda: run(alone(), delivered), "allowed", lambda: 10.0, "max", 1.0, note=p50),
        Case("edge.cancel", "ms", lambda: run(alone(), canceled), "allowed", lambda: 100.0, "max", 1.0, note=p50),
        Case("edge.idle", "%", lambda: asyncio.run(idle()), "allowed", lambda: 2.0, "max", 1.0,
             note=lambda _: f"of a core, for {RUNTIMES} runtimes that wait for work"),
        Case("edge.pg.deliver", "ms", lambda: run(apart(), delivered), "allowed", lambda: 30.0, "max", 1.0, note=p50),
        Case("edge.pg.cancel", "ms", lambda: run(apart(), canceled), "allowed", lambda: 100.0, "max", 1.0, note=p50),
    ]  # fmt: skip


def p50(_: float) -> str:
    return "p50 of one after another"


def run(opened: "AsyncGenerator[Place, None]", measure: Callable[["Runtime", Client], Awaitable[float]]) -> float:
    async def measured() -> float:
        async with asynccontextmanager(lambda: opened)() as (asked, called), web() as http:
            runtime = await Runtime.paired(http, called, "far")
            async with Client(f"{asked}/agents/far") as client:
                times = [await measure(runtime, client) for _ in range(WARMUP + TASKS)]
        return statistics.median(times[WARMUP:]) * 1000

    return asyncio.run(measured())


async def alone() -> AsyncGenerator[Place, None]:
    with scratch() as directory:
        server = await ServerProcess.start([_defined(directory, ["far"])], directory / "data")
        yield server.url, server.url
        await server.stop()


async def apart() -> AsyncGenerator[Place, None]:
    """Clients and runtime at different replicas."""
    with scratch() as directory:
        url = await fresh_database(server_url())
        async with replicas(2, [_defined(directory, ["far"])], directory, url) as (one, other):
            yield one.url, other.url


async def delivered(runtime: "Runtime", client: Client) -> float:
    """From the send to the task in the hands of a runtime that was waiting for it."""
    waiting = asyncio.create_task(runtime.pull(20_000))
    await asyncio.sleep(0.02)
    begin = time.perf_counter()
    sending = asyncio.create_task(client.send("go", **NOW))
    (work,) = await waiting
    took = time.perf_counter() - begin
    await sending
    await runtime.call(f"/task-runs/{work['id']}/complete", lease_id=work["lease_id"], output={"text": "done"})
    return took


async def canceled(runtime: "Runtime", client: Client) -> float:
    """From the cancel to the runtime knowing of it."""
    task = (await client.send("go", **NOW))["task"]["id"]
    (work,) = await runtime.pull(20_000)
    asked = {"task_run_ids": [task], "wait_ms": 20_000}
    watching = asyncio.create_task(runtime.call("/agent-runtimes/runtime/control", **asked))
    await asyncio.sleep(0.02)
    begin = time.perf_counter()
    canceling = asyncio.create_task(client.cancel(task))
    await watching
    took = time.perf_counter() - begin
    await runtime.call(f"/task-runs/{task}/fail", lease_id=work["lease_id"], output={"error": "Stopped."})
    await canceling
    return took


async def idle() -> float:
    """Percent of a core that a server takes with so many runtimes; what they do is the program's own code."""
    slugs = [f"far-{number}" for number in range(RUNTIMES)]
    with scratch() as directory:
        agents = _defined(directory, slugs)
        server = await ServerProcess.start([agents], directory / "data", env={"PARLEY_RELOAD": "false"})
        async with web() as http:
            attached = [(await Runtime.paired(http, server.url, slug)).attached for slug in slugs]
            waiting = [asyncio.create_task(program(server.url, one, directory).run()) for one in attached]
            await asyncio.sleep(5)
            before = spent_s(server.pid)
            await asyncio.sleep(IDLE_S)
            took_s = spent_s(server.pid) - before
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        await server.stop()
    return took_s / IDLE_S * 100


class Runtime:
    def __init__(self, http: httpx2.AsyncClient, at: str, attached: dict[str, Any]) -> None:
        self._http = http
        self._at = at
        self.attached = attached
        self._agent = attached["agent_id"]
        self._headers = {"X-Runtime-Token": attached["runtime_token"]}

    @staticmethod
    async def paired(http: httpx2.AsyncClient, at: str, slug: str) -> "Runtime":
        code = (await http.post(f"{at}/admin/agents/{slug}/pairing")).json()["pairing_token"]
        reply = await http.post(f"{at}/agent-runtimes/runtime/attach-via-pairing", json={"pairing_token": code})
        return Runtime(http, at, reply.json())

    async def call(self, path: str, **body: Any) -> dict[str, Any]:
        reply = await self._http.post(self._at + path, json=body, headers=self._headers)
        reply.raise_for_status()
        return reply.json()

    async def pull(self, wait_ms: int) -> list[dict[str, Any]]:
        return (await self.call(f"/agent-accounts/{self._agent}/task-runs/pull", wait_ms=wait_ms))["task_runs"]


def program(at: str, attached: dict[str, Any], directory: Path) -> Program:
    """The runtime of `a2a-runtime start` inside this process: a hundred processes are too many for a machine."""
    id_, agent = attached["runtime_id"], attached["agent_id"]
    pace = Pace(heartbeat_s=attached["heartbeat_interval_seconds"], pull_s=attached["pull_interval_seconds"])
    ledger = Ledger(directory / "runs" / agent)
    ledger.open()
    who = Who(id_, f"bench-{agent}")
    platform = Platform(Http(), at, attached["runtime_token"], agent, who.instance)
    return Program(who, platform, LocalAgent(Http(), "http://127.0.0.1:1", 1.0), ledger, pace, lambda name, **_: None)


def web() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=2 * RUNTIMES + 10))


def _defined(directory: Path, slugs: list[str]) -> Path:
    agents = directory / "agents"
    agents.mkdir()
    for slug in slugs:
        (agents / f"{slug}.yaml").write_text(DEFINITION)
    return agents


def spent_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
