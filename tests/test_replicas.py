"""Several processes on one database: they see each other's work, and take it over."""

import asyncio
import random
import ssl
from pathlib import Path

import httpx2
import pytest

from parley.client import Client, Json, message
from parley.errors import VersionConflict
from parley.ids import RunId
from parley.runs.log import verify_run
from parley.runs.rules.content import text_part
from parley.runs.rules.events import Event, Progress
from parley.runs.streams import read_all
from parley.stores.postgres import PostgresStore, open_pool
from parley.telemetry import attach
from parley.testing.logs import LogWriter, put
from parley.testing.processes import ServerProcess, replicas

AGENTS = [Path(__file__).parent / "replica_agents.py"]
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
LEASE = {"PARLEY_LEASE_S": "1"}
ENDINGS = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED")

pytestmark = pytest.mark.slow


def client(server: ServerProcess, agent: str | None = None) -> Client:
    address = f"{server.url}/agents/{agent}" if agent else server.url + "/"
    return Client(address, http=httpx2.AsyncClient(verify=NO_TLS, timeout=30))


async def log_of(database: str, task: str) -> list[Event]:
    store = PostgresStore(await open_pool(database, phases=()))
    try:
        await verify_run(store, RunId(task))
        return await read_all(store, RunId(task))
    finally:
        await store.close()


async def begin(one: Client, text: str = "go") -> str:
    return (await one.send(text, configuration={"returnImmediately": True}))["task"]["id"]


def state(result: Json) -> str:
    return result.get("statusUpdate", {}).get("status", {}).get("state", "")


async def test_what_happens_on_one_replica_is_followed_on_the_other(tmp_path: Path, database: str) -> None:
    async with replicas(2, AGENTS, tmp_path, database) as (a, b), client(a, "walker") as here, client(b) as there:
        task = await begin(here)
        seen = [(seq, result) async for seq, result in there.tail(task, 0)]
        again = [(seq, result) async for seq, result in here.tail(task, 0)]
        assert seen == again
        assert state(seen[-1][1]) == "TASK_STATE_COMPLETED"
        assert (await there.get(task))["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_cancel_reaches_the_replica_that_works(tmp_path: Path, database: str) -> None:
    async with replicas(2, AGENTS, tmp_path, database) as (a, b), client(a, "sleeper") as here, client(b) as there:
        task = await begin(here)
        canceled = await there.cancel(task)
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        assert (await here.get(task))["status"]["state"] == "TASK_STATE_CANCELED"


async def test_the_same_key_on_two_replicas_leads_to_one_task(tmp_path: Path, database: str) -> None:
    async with (
        replicas(2, AGENTS, tmp_path, database) as (a, b),
        client(a, "walker") as one,
        client(b, "walker") as two,
    ):
        wire = {"message": message("go"), "configuration": {"returnImmediately": True}}
        sends = [side.call("SendMessage", wire, {"Idempotency-Key": "k"}) for side in (one, two) for _ in range(5)]
        assert len({result["task"]["id"] for result in await asyncio.gather(*sends)}) == 1


async def test_a_stream_survives_kill_9_of_the_replica_that_works(
    tmp_path: Path, database: str, pytestconfig: pytest.Config
) -> None:
    """The client streams from the other one: it sees the rescue and the end, nothing twice and nothing left out."""
    dice = random.Random()
    for round_ in range(pytestconfig.getoption("--soak") or 5):
        directory = tmp_path / str(round_)
        async with replicas(2, AGENTS, directory, database, **LEASE) as (a, b), client(a, "walker") as here:
            task = await begin(here)
            async with client(b) as there:
                following = asyncio.ensure_future(_all(there, task))
                await asyncio.sleep(dice.uniform(0.0, 0.5))
                await a.kill()
                seen = await asyncio.wait_for(following, 20)
        seqs = [seq for seq, _ in seen]
        assert seqs == sorted(set(seqs))
        events = await log_of(database, task)
        types = [event.type for event in events]
        assert types.count("completed") == 1
        assert types.count("rescued") == 1
        assert seqs == [event.seq for event in events if event.type not in ("submitted", "input")]
        assert [result["statusUpdate"]["metadata"]["rescued"] for _, result in seen if "metadata" in str(result)] == [
            "restart"
        ]


async def _all(one: Client, task: str) -> list[tuple[int, Json]]:
    return [step async for step in one.tail(task, 0)]


async def test_an_executor_that_lost_its_lease_cannot_append(tmp_path: Path, database: str) -> None:
    async with replicas(2, AGENTS, tmp_path, database, **LEASE) as (a, b), client(a, "walker") as here:
        task = await begin(here)
        await asyncio.sleep(0.1)
        a.pause()
        async with client(b) as there:
            seen = await asyncio.wait_for(_all(there, task), 20)
            assert state(seen[-1][1]) == "TASK_STATE_COMPLETED"
            a.resume()
            # It finds out that it was given up, joins anew, and works again.
            again = await asyncio.wait_for(here.send("go"), 20)
            assert again["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert await _all(there, task) == seen
    events = await log_of(database, task)
    rescue = next(event.seq for event in events if event.type == "rescued")
    owners = {event.payload.replica for event in events if event.type == "started"}  # type: ignore[union-attr]
    assert len(owners) == 2
    assert [event.type for event in events[rescue:]].count("started") == 1
    assert sum(event.type in ("completed", "failed", "canceled") for event in events) == 1


async def test_a_stop_hands_work_over_without_waiting_for_the_lease(tmp_path: Path, database: str) -> None:
    patient = {"PARLEY_LEASE_S": "600"}
    async with replicas(2, AGENTS, tmp_path, database, **patient) as (a, b), client(a, "walker") as here:
        task = await begin(here)
        await asyncio.sleep(0.1)
        assert await a.stop() == 0
        async with client(b) as there:
            seen = await asyncio.wait_for(_all(there, task), 15)
    assert state(seen[-1][1]) == "TASK_STATE_COMPLETED"
    events = await log_of(database, task)
    assert [event.payload.attempt for event in events if event.type == "rescued"] == [0]  # type: ignore[union-attr]


async def test_one_at_a_time_across_three_replicas_in_order_of_arrival(tmp_path: Path, database: str) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    env = {"PARLEY_TEST_MARKS": str(marks)}
    async with replicas(3, AGENTS, tmp_path, database, **env) as servers:
        clients = [client(server, "alone") for server in servers]
        tasks = [await begin(clients[number % 3], str(number)) for number in range(100)]
        async with asyncio.timeout(60):
            for task, one in zip(tasks, clients * 34, strict=False):
                steps = await _all(one, task)
                assert state(steps[-1][1]) == "TASK_STATE_COMPLETED", steps[-1]
        for one in clients:
            await one.__aexit__()
    assert (marks / "order").read_text().split() == [str(number) for number in range(100)]


async def test_two_replicas_with_batches_over_the_same_runs_never_deadlock(database: str) -> None:
    told: list[str] = []
    detach = attach(lambda name, _: told.append(name))
    stores = [PostgresStore(await open_pool(database)) for _ in range(2)]
    logs = [LogWriter() for _ in range(16)]
    await asyncio.gather(*(put(stores[0], log.start()) for log in logs))
    try:
        written = await asyncio.gather(*(_batches(store, logs, 5_000, seed) for seed, store in enumerate(stores)))
    finally:
        detach()
    assert "append.deadlock" not in told
    assert min(written) > 1_000
    for log in logs:
        await verify_run(stores[0], log.run_id)
    for store in stores:
        await store.close()


async def _batches(store: PostgresStore, logs: list[LogWriter], count: int, seed: int) -> int:
    """Commit batches over random runs in random order; a rival may be first, which is a conflict and nothing else."""
    from parley.stores import postgres

    dice, done = random.Random(seed), 0
    async with store._pool.acquire() as connection:
        for _ in range(count):
            appends = []
            for log in dice.sample(logs, 6):
                ours = LogWriter(log.run_id)
                ours.run, ours.events = log.run, list(log.events)
                appends.append((log, ours, ours.append(Progress((text_part("x"),)))))
            failed = await postgres._write_all(connection, [append for _, _, append in appends])
            for log, ours, append in appends:
                if append.run.id not in failed:
                    log.run, log.events, done = ours.run, ours.events, done + 1
                else:
                    assert isinstance(failed[append.run.id], VersionConflict)
    return done
