"""Orchestrations through real servers that are killed: what was done is not done again, and all comes to its end."""

import asyncio
import random
import ssl
from collections import Counter
from pathlib import Path

import httpx2
import pytest

from parley.client import Client, Json
from parley.ids import RunId
from parley.runs.log import verify_run
from parley.runs.rules.events import Event, Stepped
from parley.runs.store import Readable
from parley.runs.streams import read_all
from parley.stores.postgres import PostgresStore, open_pool
from parley.stores.sqlite import FILE, SqliteReader
from parley.testing.processes import ServerProcess, replicas

HERE = Path(__file__).parent
AGENTS = [HERE / "crash_agents.py", HERE / "crash_flows.yaml"]
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
STEPS = list("abcde")
MANY = 12

pytestmark = pytest.mark.slow


def client(server: ServerProcess, agent: str = "flow") -> Client:
    return Client(f"{server.url}/agents/{agent}", http=httpx2.AsyncClient(verify=NO_TLS, timeout=30))


async def begin(server: ServerProcess, count: int) -> list[str]:
    async with client(server) as one:
        sends = [one.send(f"o{number}", configuration={"returnImmediately": True}) for number in range(count)]
        return [sent["task"]["id"] for sent in await asyncio.gather(*sends)]


async def ended(server: ServerProcess, tasks: list[str]) -> list[Json]:
    async with client(server) as one:
        for task in tasks:
            async for _ in one.tail(task, 0):
                pass
        return [await one.get(task) for task in tasks]


def check(log: list[Event], marks: Counter[str], name: str, kills: int) -> None:
    """Each step succeeded once and never began again; its work was done again only where a kill broke it off."""
    stepped = [event.payload for event in log if isinstance(event.payload, Stepped)]
    done = [one.step for one in stepped if one.status == "completed"]
    assert sorted(done) == STEPS
    begun = Counter(one.step for one in stepped if one.status == "running")
    assert begun == Counter(STEPS), "a step that was begun is found again, not begun anew"
    for before, after in ("ab", "ac", "bd", "cd", "de"):
        assert done.index(before) < done.index(after)
    for step in STEPS:
        assert 1 <= marks[f"{name} {step}"] <= 1 + kills


async def logs(store: Readable, tasks: list[str]) -> list[list[Event]]:
    for task in tasks:
        await verify_run(store, RunId(task))
    return [await read_all(store, RunId(task)) for task in tasks]


def marks(folder: Path) -> Counter[str]:
    return Counter((folder / "done").read_text().split("\n"))


async def test_steps_that_succeeded_are_not_done_again_after_kill_9(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    dice, kills = random.Random(), pytestconfig.getoption("--soak") or 3
    env = {"PARLEY_TEST_MARKS": str(tmp_path)}
    server = await ServerProcess.start(AGENTS, tmp_path / "data", env=env)
    tasks = await begin(server, MANY)
    for _ in range(kills):
        await asyncio.sleep(dice.uniform(0.02, 0.15))
        await server.kill()
        server = await ServerProcess.start(AGENTS, tmp_path / "data", env=env)
    shown = await ended(server, tasks)
    assert await server.stop() == 0
    assert [one["status"]["state"] for one in shown] == ["TASK_STATE_COMPLETED"] * MANY
    assert [one["artifacts"][0]["parts"][0]["text"] for one in shown] == [f"[o{n} e]" for n in range(MANY)]
    reader = SqliteReader(tmp_path / "data" / FILE)
    for number, log in enumerate(await logs(reader, tasks)):
        check(log, marks(tmp_path), f"o{number}", kills)


async def test_a_replica_goes_on_where_another_died(tmp_path: Path, database: str) -> None:
    env = {"PARLEY_TEST_MARKS": str(tmp_path), "PARLEY_LEASE_S": "1"}
    async with replicas(2, AGENTS, tmp_path, database, **env) as (a, b):
        tasks = [*await begin(a, MANY // 2), *await begin(b, MANY // 2)]
        await asyncio.sleep(random.uniform(0.05, 0.2))
        await a.kill()
        shown = await ended(b, tasks)
    assert [one["status"]["state"] for one in shown] == ["TASK_STATE_COMPLETED"] * MANY
    store = PostgresStore(await open_pool(database, phases=()))
    try:
        names = [f"o{n}" for n in range(MANY // 2)] * 2
        for name, log in zip(names, await logs(store, tasks), strict=True):
            check(log, marks(tmp_path), name, 3)
    finally:
        await store.close()


async def test_a_message_streams_the_steps_and_a_cancel_elsewhere_reaches_them(tmp_path: Path, database: str) -> None:
    flow = tmp_path / "long.yaml"
    flow.write_text(
        "workflow:\n  steps:\n    - {id: a, agent: mark, input: x}\n    - {id: b, agent: stuck, depends_on: [a]}\n"
    )
    agents = [HERE / "crash_agents.py", flow]
    async with (
        replicas(2, agents, tmp_path, database, PARLEY_TEST_MARKS=str(tmp_path)) as (a, b),
        client(a, "long") as here,
        client(b, "long") as there,
        client(b, "stuck") as steps,
    ):
        said: list[str] = []
        task, child = "", ""
        async for result in here.stream("go"):
            task = task or result["task"]["id"]
            status = result.get("statusUpdate", {}).get("status", {})
            text = "".join(part.get("text", "") for part in status.get("message", {}).get("parts", []))
            said += [text] if text else []
            if text == "Step 2/2 b: running":
                child = status["message"]["metadata"]["task"]
                canceling = asyncio.get_running_loop().create_task(there.cancel(task))
        await canceling
        assert said == [
            "Planned 2 steps: a, b.", "Step 1/2 a: running", "Step 1/2 a: completed", "Step 2/2 b: running",
        ]  # fmt: skip
        assert (await here.get(task))["status"]["state"] == "TASK_STATE_CANCELED"
        async for _ in steps.tail(child, 0):
            pass
        assert (await steps.get(child))["status"]["state"] == "TASK_STATE_CANCELED"
