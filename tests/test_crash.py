"""Kill -9 at a random moment under 32 writers, again and again, on one data directory.

This tests the process, not the disk: what the operating system has taken over survives a killed process even if it
never reached the platter. `synchronous=FULL` is what covers a power failure, and no test here shows that.
"""

import asyncio
import random
import ssl
from contextlib import suppress
from pathlib import Path

import httpx2
import msgspec
import pytest

from parley.client import Client, Json, Unreachable, message
from parley.faces.a2a.dialect import encode
from parley.faces.a2a.messages import UpdateShown
from parley.faces.a2a.v1 import V1
from parley.ids import RunId
from parley.runs.log import all_runs, verify_run
from parley.runs.rules.commands import MAX_RESCUES
from parley.runs.rules.events import ENDINGS, Event
from parley.runs.streams import read_all
from parley.stores.sqlite import FILE, SqliteReader
from parley.testing.processes import ServerProcess

AGENTS = Path(__file__).parent / "crash_agents.py"
WRITERS = 32

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""One empty context for all: reading the certificates anew for each client would take longer than the test."""

Acknowledged = dict[RunId, dict[int, Json]]


def cycles(config: pytest.Config) -> int:
    return config.getoption("--soak") or 10


@pytest.mark.slow
async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    dice = random.Random()
    seen: Acknowledged = {}
    fresh: Acknowledged = {}
    rescued = interrupted = 0
    for _ in range(cycles(pytestconfig)):
        server = await ServerProcess.start([AGENTS], tmp_path)
        await all_ended(server.url, fresh)
        fresh = {}
        load = asyncio.gather(*(write(server.url, dice.choice(["steps", "fragile"]), fresh) for _ in range(WRITERS)))
        await asyncio.sleep(dice.uniform(0.1, 0.7))
        await server.kill()
        await load
        await check(tmp_path, fresh)
        seen |= fresh
    server = await ServerProcess.start([AGENTS], tmp_path)
    await all_ended(server.url, fresh)
    assert await server.stop() == 0
    logs = await check(tmp_path, seen)
    for events in logs:
        types = [event.type for event in events]
        assert sum(type_ in ENDINGS for type_ in types) == 1
        assert types[-1] in ENDINGS
        assert types.count("rescued") <= MAX_RESCUES
        rescued += "rescued" in types
        interrupted += types[-1] == "failed"
    print(f"{len(seen)} runs acknowledged, {rescued} rescued, {interrupted} failed with the reason")
    assert rescued
    assert interrupted


async def write(url: str, agent: str, seen: Acknowledged) -> None:
    """Start tasks one after another and note every frame that arrives, until the server is gone."""
    with suppress(httpx2.TransportError, Unreachable):
        async with Client(f"{url}/agents/{agent}", http=httpx2.AsyncClient(verify=NO_TLS)) as client:
            while True:
                task: RunId | None = None
                async for id_, reply in client.events("SendStreamingMessage", {"message": message("go")}):
                    result = reply["result"]
                    if task is None:
                        task = RunId(result["task"]["id"])
                    assert id_ is not None
                    seen.setdefault(task, {})[id_] = result


async def all_ended(url: str, seen: Acknowledged) -> None:
    """Every run that was acknowledged comes to its end after the restart."""
    limit = asyncio.Semaphore(WRITERS)

    async def ended(task: RunId) -> None:
        async with limit, Client(url + "/", http=httpx2.AsyncClient(verify=NO_TLS)) as client:
            if (await client.get(task))["status"]["state"] in ("TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"):
                async for _, _ in client.tail(task, 0):
                    pass

    async with asyncio.timeout(60):
        await asyncio.gather(*map(ended, seen))


async def check(directory: Path, seen: Acknowledged) -> list[list[Event]]:
    """Every acknowledged run is there, without a gap, and verifies; every frame is what the log says."""
    reader = SqliteReader(directory / FILE)
    try:
        assert set(seen) <= {run async for run in all_runs(reader)}
        for run in seen:
            await verify_run(reader, run)
        logs = {run: await read_all(reader, run) for run in seen}
        for run, frames in seen.items():
            head = await reader.head(run)
            assert head is not None
            by_seq = {event.seq: event for event in logs[run]}
            for seq, frame in frames.items():
                rendered = V1().frame(UpdateShown(head.run, by_seq[seq]), last=False)
                if rendered is not None:
                    assert msgspec.json.decode(encode(rendered)) == frame
        return list(logs.values())
    finally:
        await reader.close()
