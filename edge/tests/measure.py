"""Figures of the runtime on this machine: `python -m edge.tests.measure`, from the repository's root."""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edge.tests import platform as platforms
from edge.tests.conftest import write_profile
from edge.tests.platform import Platform
from edge.tests.programs import environment, local_agent, runtime, until
from edge.tests.test_standalone import resident_kb
from edge.tests.wire import Asked, Drop, Said

TIMES = 15


def row(name: str, values: list[float], unit: str = "ms") -> None:
    middle, worst = statistics.median(values), max(values)
    print(f"{name:<52}{middle:9.1f} {unit}   worst {worst:9.1f} {unit}")


async def measure(folder: Path) -> None:
    for name, arguments in (
        ("a2a-runtime --version", ["--version"]),
        ("a2a-runtime profiles list", ["profiles", "list"]),
    ):
        row(name, [command(folder / "empty", arguments) for _ in range(TIMES)])
    async with platforms.platform() as platform:
        await starts(platform, folder / "a")
    async with platforms.platform() as platform:
        await hops(platform, folder / "b")
    async with platforms.platform() as platform:
        await cancels(platform, folder / "c")


def command(home: Path, arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "parley_edge", *arguments], capture_output=True, env=environment(home), check=True
    )
    return (time.perf_counter() - began) * 1000


async def starts(platform: Platform, home: Path) -> None:
    write_profile(home, platform, "http://127.0.0.1:1/run-task")
    taken: list[float] = []
    memory: list[float] = []
    processor: list[float] = []
    for _ in range(TIMES):
        before = len(platform.called("/pull"))
        began = time.monotonic()
        async with runtime(home) as program:
            await platform.until(lambda before=before: len(platform.called("/pull")) > before)
            taken.append((platform.called("/pull")[-1].at - began) * 1000)
            memory.append(resident_kb(program.pid) / 1000)
            processor.append(processor_ms(program.pid))
    row("start: process to first pull at the platform", taken)
    row("  processor time until then", processor)
    row("memory of an idle runtime, resident", memory, "MB")


def processor_ms(pid: int) -> float:
    """What does not depend on how busy the machine is; the system counts in hundredths of a second."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * 1000 / os.sysconf("SC_CLK_TCK")


async def hops(platform: Platform, home: Path) -> None:
    """One task after another: what the runtime adds between the platform and the local agent, and back."""
    arrived: dict[str, float] = {}
    answered: dict[str, float] = {}

    async def answer(asked: Asked) -> Said:
        run = json.loads(asked.body)["task_run_id"]
        arrived[run] = time.monotonic()
        answered[run] = time.monotonic()
        return Said(body=b'{"text": "ok"}')

    claimed: dict[str, float] = {}
    claim = platform._claim

    def timed(run: platforms.Run) -> platforms.Json:
        claimed[run.id] = time.monotonic()
        return claim(run)

    platform._claim = timed  # type: ignore[method-assign]
    async with (
        local_agent(answering=answer) as agent,
        runtime(write_profile(home, platform, agent.endpoint)) as program,
    ):
        for number in range(200):
            await platform.ended(platform.ask(f"task {number}"))
        there = [(arrived[run] - claimed[run]) * 1000 for run in claimed]
        back = [(call.at - answered[call.path.split("/")[2]]) * 1000 for call in platform.called("/complete")]
        row("answer to a pull until the request at the local agent", there)
        row("the local agent's answer until the platform has it", back)
        row("memory after 200 tasks, resident", [resident_kb(program.pid) / 1000], "MB")


async def cancels(platform: Platform, home: Path) -> None:
    async def hang(asked: Asked) -> Said:
        await asked.hung_up.wait()
        raise Drop

    taken: list[float] = []
    async with local_agent(answering=hang) as agent, runtime(write_profile(home, platform, agent.endpoint)):
        for number in range(TIMES):
            run = platform.ask(f"task {number}")
            await until(lambda number=number: len(agent.asked) > number)
            await platform.until(
                lambda run=run: any(run.id in call.body["task_run_ids"] for call in platform.called("/control"))
            )
            began = time.monotonic()
            platform.cancel(run)
            await agent.asked[number].hung_up.wait()
            taken.append((time.monotonic() - began) * 1000)
            await platform.ended(run)
    row("cancel at the platform until the local call is closed", taken)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(measure(Path(scratch)))
