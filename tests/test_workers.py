"""Several workers under one supervisor: one server to its clients, many replicas to the store."""

import asyncio
import os
import re
import signal
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.types import a2a_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from parley.app.workers import cores, count_of
from parley.client import Client, Json, message
from parley.errors import WorkersNeedPostgres
from parley.ids import RunId, new_id
from parley.runs.log import verify_run
from parley.settings import Settings, load
from parley.stores.postgres import PostgresStore, open_pool, replica_connections
from parley.stores.postgres_pool import connect
from parley.telemetry.metrics import merged
from parley.testing.processes import ServerProcess, replicas, until

AGENTS = Path(__file__).parent / "worker_agents.py"
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
DONE = "TASK_STATE_COMPLETED"
WAIT_S = 90
PAUSE_S = 0.05
"""Between two sends of a client: it is the workers that are to be busy, not the machine."""


def children(pid: int) -> set[int]:
    """The workers of a supervisor, those that are leaving too."""
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@asynccontextmanager
async def working(
    folder: Path, database: str, *given: str, workers: int = 2, **env: str
) -> AsyncGenerator[ServerProcess, None]:
    set_ = {
        "PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database, "PARLEY_LEASE_S": "1",
        "PARLEY_WORKERS": str(workers), "PARLEY_PORT": "0", "PARLEY_DATA_DIR": str(folder / "data"), **env,
    }  # fmt: skip
    server = await ServerProcess.launch(["parley", "serve", *(given or (str(AGENTS),))], env=set_, cwd=folder)
    try:
        yield server
    except BaseException:
        await server.stop()
        raise
    assert await server.stop() in (0, -signal.SIGKILL)


async def said(server: ServerProcess, words: str) -> None:
    await until(lambda: any(words in line for line in server.said_all), WAIT_S)


def http(server: ServerProcess, **limits: int) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=WAIT_S, limits=httpx2.Limits(**limits))


def client(server: ServerProcess, agent: str = "walker") -> Client:
    return Client(f"{server.url}/agents/{agent}", http=httpx2.AsyncClient(verify=NO_TLS, timeout=WAIT_S))


async def metrics(server: ServerProcess) -> str:
    async with http(server) as one:
        return (await one.get("/metrics")).text


def answering(text: str) -> set[str]:
    return set(re.findall(r'parley_leads\{worker="(\d+)"\}', text))


async def all_answer(server: ServerProcess, count: int) -> None:
    async def answer() -> bool:
        return len(answering(await metrics(server))) == count

    await until(answer, WAIT_S)


class Load:
    """Clients that send with keys and wait for the answer. A refusal is an error; a broken connection is only allowed
    where workers are killed."""

    def __init__(self, server: ServerProcess, *, breaks: bool) -> None:
        self._server = server
        self._breaks = breaks
        self._stop = asyncio.Event()
        self.tasks: dict[str, str] = {}
        self.broken = 0

    async def client(self) -> None:
        async with http(self._server) as one:
            while not self._stop.is_set():
                await self._send(one, new_id())
                await asyncio.sleep(PAUSE_S)

    async def _send(self, one: httpx2.AsyncClient, key: str) -> None:
        headers = {"A2A-Version": "1.0", "Idempotency-Key": key}
        wire = {"message": {**message("go"), "messageId": key}}
        while True:
            try:
                reply = await one.post("/agents/quick/message:send", json=wire, headers=headers)
            except httpx2.TransportError:
                if not self._breaks:
                    raise
                self.broken += 1
                continue
            assert reply.status_code == 200, (reply.status_code, reply.text)
            task = reply.json()["task"]
            assert task["status"]["state"] == DONE
            self.tasks[key] = task["id"]
            return

    async def reach(self, count: int) -> None:
        """Wait until so many more tasks are done."""
        goal = len(self.tasks) + count
        await until(lambda: len(self.tasks) >= goal, WAIT_S)

    @asynccontextmanager
    async def running(self, clients: int) -> AsyncGenerator["Load", None]:
        tasks = [asyncio.ensure_future(self.client()) for _ in range(clients)]
        try:
            yield self
        finally:
            self._stop.set()
            await asyncio.gather(*tasks)


async def stored(database: str, tasks: dict[str, str]) -> None:
    """Every acknowledged task is in the store, ended once, and its log verifies."""
    assert len(set(tasks.values())) == len(tasks)
    store = PostgresStore(await open_pool(database, phases=()))
    try:
        for task in tasks.values():
            await verify_run(store, RunId(task))
            types = [event.type for event in await store.read(RunId(task), 0, 100)]
            assert types.count("completed") == 1, types
    finally:
        await store.close()


pytestmark = pytest.mark.slow


async def test_kills_rolls_and_a_stop_under_load_lose_nothing(tmp_path: Path, database: str) -> None:
    async with working(tmp_path, database, PARLEY_LEASE_S="3") as server:
        async with Load(server, breaks=True).running(3) as killed:
            await killed.reach(10)
            victim = min(children(server.pid))
            os.kill(victim, signal.SIGKILL)
            await said(server, "worker.died")
            await killed.reach(10)
            await all_answer(server, 2)
        before = children(server.pid)
        assert victim not in before
        async with Load(server, breaks=False).running(3) as rolled, client(server) as one, client(server) as two:
            await rolled.reach(10)
            tasks = {"followed": await begun(one)}
            following = asyncio.ensure_future(_all(one, tasks["followed"]))
            waiting = asyncio.ensure_future(two.send("go"))
            os.kill(server.pid, signal.SIGHUP)
            await said(server, "workers.rolled")
            await all_answer(server, 2)
            await rolled.reach(10)
            steps = await asyncio.wait_for(following, WAIT_S)
            assert (await waiting)["task"]["status"]["state"] == DONE
            tasks |= {str(number): await begun(one) for number in range(6)}
        seqs = [seq for seq, _ in steps]
        assert seqs == sorted(set(seqs))
        assert steps[-1][1]["statusUpdate"]["status"]["state"] == DONE
        workers = children(server.pid)
        assert not workers & before
        assert await sessions(database) <= len(workers) * replica_connections(writers=1)
        assert await server.stop() == 0  # with six turns under way
        assert not any(map(alive, workers))
    # Another one, without workers, goes on at once with what they handed over.
    async with replicas(1, [AGENTS], tmp_path, database) as (single,), client(single) as one:
        for task in tasks.values():
            await asyncio.wait_for(_all(one, task), WAIT_S)
    await stored(database, killed.tasks | rolled.tasks | tasks)


async def sessions(database: str) -> int:
    """Connections to this database, without our own."""
    connection = await connect(database)
    try:
        return await connection.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    finally:
        await connection.close()


async def begun(one: Client) -> str:
    return (await one.send("go", configuration={"returnImmediately": True}))["task"]["id"]


async def _all(one: Client, task: str) -> list[tuple[int, Json]]:
    return [step async for step in one.tail(task, 0)]


async def test_workers_are_one_server_to_monitoring_and_to_whoever_edits_definitions(
    tmp_path: Path, database: str
) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "echo.yaml").write_text("command: cat\ndescription: before\n")
    given = ("agents", str(AGENTS))
    async with (
        working(tmp_path, database, *given, PARLEY_GRPC_PORT="0") as server,
        http(server, max_keepalive_connections=0) as one,
    ):
        workers = children(server.pid)
        for _ in range(20):
            reply = await one.get("/agents/echo/.well-known/agent-card.json")
            assert reply.json()["description"] == "before"
        assert await answered_cards(server) == {"1", "2"}
        (folder / "echo.yaml").write_text("command: cat\ndescription: after\n")
        reloaded = r'parley_events_total\{worker="(\d)",[^}]*name="agents.reloaded"'

        async def everywhere() -> bool:
            return set(re.findall(reloaded, await metrics(server))) == {"1", "2"}

        await until(everywhere, WAIT_S)
        cards = [await one.get("/agents/echo/.well-known/agent-card.json") for _ in range(10)]
        assert {card.json()["description"] for card in cards} == {"after"}
        await grpc_reaches(workers, cards[0].json())
        # A roll that cannot start a worker leaves those that serve.
        (tmp_path / "parley.toml").write_text("nonsense = 1\n")
        os.kill(server.pid, signal.SIGHUP)
        await said(server, "worker.not_replaced")
        assert children(server.pid) >= workers
        assert (await one.get("/readyz")).status_code == 200
        # Nothing is left of a supervisor that was killed.
        await server.kill()
        await until(lambda: not any(map(alive, workers)), WAIT_S)


async def answered_cards(server: ServerProcess) -> set[str]:
    """The workers that show metrics, of all of which each answers: 20 cards were answered by all together."""
    text = await metrics(server)
    counted = [
        sample.value
        for family in text_string_to_metric_families(text)
        if family.name == "parley_http_answer_seconds"
        for sample in family.samples
        if sample.name.endswith("_count") and "card" in sample.labels["route"]
    ]
    assert sum(counted) == 20
    assert 'parley_replicas{worker="1"} 2.0' in text
    assert {"parley_workers 2.0", "parley_workers_up 2.0", "parley_store_up 1.0"} <= set(text.splitlines())
    return answering(text)


async def grpc_reaches(workers: set[int], card: Json) -> None:
    """Every worker is reached at the one port that the card shows."""
    address = next(each["url"] for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC")
    found: set[int] = set()

    async def both() -> bool:
        found.add(int(await _asked_by_grpc(address)))
        return found == workers

    await until(both, WAIT_S)


async def _asked_by_grpc(address: str) -> str:
    message = pb.Message(message_id=new_id(), role=pb.ROLE_USER, parts=[pb.Part(text="who")])
    request = pb.SendMessageRequest(tenant="quick", message=message)
    async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        reply = await stub.SendMessage(request, metadata=(("a2a-version", "1.0"),))
    return reply.task.artifacts[0].parts[0].text


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_worker_that_cannot_start_ends_the_server_with_its_error(tmp_path: Path, database: str) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('nothing here')\n")
    with pytest.raises(RuntimeError, match="did not start") as told:
        async with working(tmp_path, database, "broken.py"):
            pass
    assert str(told.value).count("nothing here") == 1


@pytest.mark.parametrize("store", ["sqlite", "memory"])
def test_other_stores_refuse_with_the_way_out(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkersNeedPostgres, match="Set store to postgres, or workers to 1") as told:
        count_of(load(store=store, workers="auto"))
    assert told.value.code == "workers_need_postgres"


def test_auto_is_a_worker_for_each_core_that_the_container_may_use(tmp_path: Path) -> None:
    limit = tmp_path / "cpu.max"
    found = cores(limit)
    assert found == len(os.sched_getaffinity(0))
    limit.write_text("max 100000\n")
    assert cores(limit) == found
    limit.write_text("50000 100000\n")
    assert cores(limit) == 1
    assert count_of(Settings(store="postgres", workers="auto")) == cores()


def test_samples_get_the_worker_as_a_label_and_families_stay_together() -> None:
    text = b'# HELP a Some.\n# TYPE a counter\na{x="1 } {"} 2.0\n# HELP b Other.\n# TYPE b gauge\nb 1.0\n'
    assert merged({"1": text, "2": text}).decode().splitlines() == [
        "# HELP a Some.", "# TYPE a counter", 'a{worker="1",x="1 } {"} 2.0', 'a{worker="2",x="1 } {"} 2.0',
        "# HELP b Other.", "# TYPE b gauge", 'b{worker="1"} 1.0', 'b{worker="2"} 1.0',
    ]  # fmt: skip
