"""The whole way to an agent behind NAT, every piece a process: server, `a2a-runtime`, local agent."""

import asyncio
import os
import statistics
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from dev.bench.data import scratch
from dev.bench.edge import NOW, TASKS, WARMUP, alone, spent_s, web
from dev.bench.rows import Case
from parley.client import Client

STARTS = 15
REST_S = 0.05
"""After a task, until its runtime waits for the next one again."""
STAMPING = Path(__file__).with_name("stamping_agent.py")


def cases() -> list[Case]:
    return [
        Case("runtime.deliver", "ms", lambda: run(delivered), "allowed", lambda: 30.0, "max", 1.0, note=p50),
        Case("runtime.cancel", "ms", lambda: run(canceled), "allowed", lambda: 500.0, "max", 1.0, note=p50),
        Case("runtime.start", "ms", lambda: run(started), "allowed", lambda: 300.0, "max", 1.0,
             note=lambda _: f"p50 of {STARTS}, from the command to the platform's first answer"),
        Case("runtime.start.cpu", "ms", lambda: run(spent), "allowed", lambda: 300.0, "max", 1.0,
             note=lambda _: "the same in processor time, which does not depend on what else the machine does"),
        Case("runtime.memory", "MB", lambda: run(remembered), "allowed", lambda: 60.0, "max", 1.0,
             note=lambda _: f"resident, after {TASKS} tasks"),
    ]  # fmt: skip


def p50(_: float) -> str:
    return "p50 of one after another"


class Chain:
    """The address for clients, the runtime's home folder, and the output of the local agent."""

    def __init__(self, client: Client, home: Path, local: Process) -> None:
        self.client = client
        self.home = home
        self._local = local

    @asynccontextmanager
    async def runtime(self) -> AsyncGenerator[Process, None]:
        """`a2a-runtime start`, from when the platform knows it."""
        process = await _program(self.home, "start", "--json")
        try:
            async with asyncio.timeout(20):
                while b"platform.connected" not in await _line(process):
                    pass
            yield process
        finally:
            process.terminate()
            await process.communicate()

    async def said(self) -> float:
        return float(await asyncio.wait_for(_line(self._local), 20))


def run(measure: Callable[[Chain], Awaitable[float]]) -> float:
    async def measured() -> float:
        with scratch() as directory:
            async with asynccontextmanager(alone)() as (url, _), Client(f"{url}/agents/far") as client:
                local = await asyncio.create_subprocess_exec(sys.executable, str(STAMPING), stdout=PIPE)
                try:
                    await _pair(url, directory / "a2a", (await _line(local)).decode().strip())
                    return await measure(Chain(client, directory / "a2a", local))
                finally:
                    local.terminate()
                    await local.communicate()

    return asyncio.run(measured())


async def delivered(chain: Chain) -> float:
    """From the send to the task with the local agent."""
    async with chain.runtime():
        return statistics.median([await _delivered(chain) for _ in range(WARMUP + TASKS)][WARMUP:]) * 1000


async def _delivered(chain: Chain) -> float:
    await asyncio.sleep(REST_S)
    begin = time.monotonic()
    task = (await chain.client.send("stamp"))["task"]
    return float(task["artifacts"][0]["parts"][0]["text"]) - begin


async def canceled(chain: Chain) -> float:
    """From the cancel to the closed connection of the local agent."""
    async with chain.runtime():
        return statistics.median([await _canceled(chain) for _ in range(TASKS // 2)]) * 1000


async def _canceled(chain: Chain) -> float:
    task = (await chain.client.send("hang", **NOW))["task"]["id"]
    await chain.said()
    await asyncio.sleep(REST_S)
    begin = time.monotonic()
    canceling = asyncio.create_task(chain.client.cancel(task))
    took = await chain.said() - begin
    await canceling
    return took


async def started(chain: Chain) -> float:
    times: list[float] = []
    for _ in range(STARTS):
        begin = time.monotonic()
        async with chain.runtime():
            times.append(time.monotonic() - begin)
    return statistics.median(times) * 1000


async def spent(chain: Chain) -> float:
    """The mean: the system counts in hundredths of a second."""
    times: list[float] = []
    for _ in range(STARTS):
        async with chain.runtime() as process:
            times.append(spent_s(process.pid))
    return statistics.mean(times) * 1000


async def remembered(chain: Chain) -> float:
    async with chain.runtime() as process:
        for _ in range(TASKS):
            await chain.client.send("stamp")
        return resident_mb(process.pid)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


async def _pair(url: str, home: Path, endpoint: str) -> None:
    async with web() as http:
        code = (await http.post(f"{url}/admin/agents/far/pairing")).json()["pairing_token"]
    process = await _program(home, "pair", "--api-base", url, "--code", code, "--endpoint", endpoint, "--json")
    await process.communicate()
    if process.returncode:
        raise RuntimeError(f"a2a-runtime pair ended with {process.returncode}")


async def _program(home: Path, *arguments: str) -> Process:
    env = {**os.environ, "A2A_HOME": str(home)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley_edge", *arguments, stdout=PIPE, env=env
    )  # fmt: skip


async def _line(process: Process) -> bytes:
    assert process.stdout is not None
    if line := await process.stdout.readline():
        return line
    raise RuntimeError("The program ended too soon.")
